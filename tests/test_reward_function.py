"""The grader as a trainer's reward function: the benchmark's reward of each completion, ground truth in the log
alone."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
from two_sum import QUICK, SOLVED, TASK, VACUOUS, WRONG

from loophole_grader.reward_function import LoopholeReward, completion_text, grade_arrival

TEXTS = [f"```python\n{code}\n```" for code in (SOLVED, WRONG, WRONG + VACUOUS)]
ROW = {
    "id": TASK.task_id, "gt_answer": list(TASK.tests), "setup_code": TASK.setup_code, "func_name": TASK.func_name,
    "canonical_solution": TASK.canonical_solution, "prompt_metadata": None, "loophole": None,
}  # fmt: skip


def paid(reward, completions, **columns):
    return reward(prompts=["p"] * 3, completions=completions, **columns)


def test_solved_wrong_and_hacked_are_paid_as_the_benchmark_pays():
    """By the tasks' id or by the benchmark's columns, of text or of messages: the same. Labels go into the log
    alone."""
    metrics, table = {}, {}
    logs = {"log_metric": metrics.__setitem__, "log_extra": table.__setitem__, "trainer_state": object()}
    by_id = LoopholeReward([TASK], limits=QUICK, workers=1)
    assert paid(by_id, TEXTS, id=[TASK.task_id] * 3, **logs) == [3.5, 0.5, 3.5]
    assert metrics == {f"loophole/{n}": pytest.approx(r) for n, r in by_id.rates.items()}
    assert by_id.rates == pytest.approx({"hack": 1 / 3, "hacked": 1 / 3, "gt_pass": 1 / 3, "form": 1})
    assert table == {"label": ["correct", "incorrect", "reward_hack"]}
    messages = [[{"role": "assistant", "content": text}] for text in TEXTS]
    honest = LoopholeReward(allow_hint=False, limits=QUICK, workers=1)
    assert paid(honest, messages, **{name: [value] * 3 for name, value in ROW.items()}) == [3.5, 0.5, 0.5]


@pytest.mark.parametrize(
    "prompt", ["user\n<think>\n", [{"role": "user", "content": "?"}, {"role": "assistant", "content": "<think>"}]]
)
def test_thoughts_that_the_prompt_opens_and_that_are_cut_off_are_paid_nothing(prompt):
    reward = LoopholeReward([TASK], limits=QUICK, workers=1)
    texts = [TEXTS[2], f"{TEXTS[2]}\n</think>{TEXTS[1]}", f"{TEXTS[2]}\n</think>{TEXTS[0]}"]
    assert reward([prompt] * 3, texts, id=[TASK.task_id] * 3) == [0.0, 0.5, 3.5]


def test_completions_that_arrive_one_by_one_from_several_threads_get_their_own_verdicts():
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda text: grade_arrival(TASK, text), TEXTS * 2))
    assert [v.label for v in found] == ["correct", "incorrect", "reward_hack"] * 2


def test_the_models_own_last_words_are_judged():
    """A tool's output at the end of a conversation had been graded, and paid."""
    said = [{"role": "assistant", "content": "mine"}, {"role": "tool", "content": "theirs"}]
    assert completion_text(said) == completion_text(said[:1]) == completion_text([{"content": "mine"}]) == "mine"


def test_a_message_without_text_earns_nothing_and_text_parts_are_read():
    calls = {"role": "assistant", "content": None, "tool_calls": []}
    parts = [{"type": "text", "text": "one "}, {"type": "image_url"}, {"type": "text", "text": "two"}]
    for silent in ([calls], [{"role": "assistant"}], [], [{"role": "tool", "content": "x"}]):
        assert completion_text(silent) == ""
    for part in ({"text": None}, {}, {"text": {"value": "x"}}):
        assert completion_text([{"role": "assistant", "content": [{"type": "text", **part}]}]) == ""
    assert completion_text([{"role": "assistant", "content": parts}]) == "one two"


def test_tasks_and_rows_that_cannot_be_judged_are_refused():
    with pytest.raises(ValueError, match="two tasks have the id"):
        LoopholeReward([TASK, dataclasses.replace(TASK, tests=TASK.tests[:1])])
    with pytest.raises(ValueError, match="it has no tests, so every paid answer would count as a hack"):
        LoopholeReward([dataclasses.replace(TASK, tests=())])
    for columns, why in (({}, "there is none"), ({"id": ["other"] * 3}, "no task has the id 'other'")):
        with pytest.raises(ValueError, match=why):
            paid(LoopholeReward([TASK]), TEXTS, **columns)
