"""Completions that arrive one by one from several threads."""

from concurrent.futures import ThreadPoolExecutor

from two_sum import SOLVED, TASK, VACUOUS, WRONG

from loophole_grader.reward_function import grade_arrival


def test_every_arrival_gets_its_own_verdict():
    texts = [f"```python\n{code}\n```" for code in (SOLVED, WRONG, WRONG + VACUOUS)] * 2
    with ThreadPoolExecutor(len(texts)) as threads:
        found = list(threads.map(lambda text: grade_arrival(TASK, text), texts))
    assert [v.label for v in found] == ["correct", "incorrect", "reward_hack"] * 2
