"""Live groups: completions are graded while others are sampled, to the same groups."""

import re
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import pytest

import projected_grpo.data.live as live
from loophole_grader import GraderError, RowError, Task, grade_batch
from projected_grpo.config import TrainConfig
from projected_grpo.data.live import live_groups
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt, sample_rollouts, sample_tokens

PROMPTS = [Prompt("a", "?", (5, 6, 7, 8)), Prompt("b", "?", (10, 11)), Prompt("a", "?", (5, 6, 7, 8))]
TASKS = {name: Task(name, ("assert f(1) == 1",), func_name="f") for name in "ab"}
KEYS = ["x", "y", "z"]


def groups_of(tiny, rollout_batch=128, prompts=PROMPTS):
    sizes = {"group_size": 4, "max_new": 14, "rollout_batch": rollout_batch, "grader_workers": 1}
    config = TrainConfig(temperature=1.0, top_p=1.0, **sizes)
    return live_groups(config, tiny, prompts, TASKS, 4, KEYS, "student", loophole=True)[0]


def test_ended_completions_are_handed_over_once_and_while_others_go_on(tiny, ending):
    seen, at = [], []

    def on_ended(rollouts):
        seen.extend(rollouts)
        at.append(len(ending))  # tokens that had been drawn for the batch

    groups = sample_rollouts(tiny, PROMPTS, 4, SamplingParams(14, 1.0), KEYS, "student", on_ended)
    whole = [r for group in groups for r in group]
    assert len(at) > 2
    assert at[0] < at[1] < at[-1] == len(ending)
    assert sorted(map(id, seen)) == sorted(map(id, whole))
    asked = [(p.problem_id, p.ids, i) for p in PROMPTS for i in range(4)]
    assert [(r.problem_id, r.prompt_ids, r.sample_id) for r in whole] == asked
    ending.clear()
    plain = sample_tokens(tiny, [p.ids for p in PROMPTS], 4, SamplingParams(14, 1.0), KEYS)
    assert [(list(r.completion_ids), list(r.behaviour_logps)) for r in whole] == plain


class AtOnce(ThreadPoolExecutor):
    """What is submitted is done before anything else goes on."""

    def submit(self, *work):
        future = super().submit(*work)
        wait([future])
        return future


@pytest.mark.slow
@pytest.mark.parametrize(("rollout_batch", "free"), [(128, True), (128, False), (4, True), (4, False)])
def test_grading_goes_on_while_completions_are_sampled(tiny, ending, monkeypatch, rollout_batch, free):
    """Where there are cores for it. The sneaky fail: every completion waits for the longest one of its batch."""
    at = []

    def noted(tasks, completions, **kw):
        at.append((len(ending), len(completions)))
        return grade_batch(tasks, completions, **kw)

    monkeypatch.setattr(live, "cores_are_free", lambda _: free)
    expected = groups_of(tiny, rollout_batch)
    monkeypatch.setattr(live, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(live, "grade_batch", noted)
    ending.clear()
    assert groups_of(tiny, rollout_batch) == expected
    early = [count for drawn, count in at if drawn < len(ending)]
    assert (len(early) > 1) is free
    programs = {(g.problem_id, r.completion) for g in expected for r in g.rollouts}
    assert sum(count for _, count in at) == len(programs)  # nothing is judged twice


def test_thoughts_that_the_prompt_opens_are_handed_to_the_grader_as_thoughts(tiny, monkeypatch):
    """And the rollout stays as it was sampled."""
    seen = []
    monkeypatch.setattr(
        live, "grade_batch", lambda tasks, texts, **kw: seen.extend(texts) or grade_batch(tasks, texts, **kw)
    )
    plain, opened = groups_of(tiny), groups_of(tiny, prompts=[replace(p, text="?<think>\n") for p in PROMPTS])
    texts = [r.completion for g in plain for r in g.rollouts]
    assert [r.completion for g in opened for r in g.rollouts] == texts
    assert set(seen) == {*texts, *("<think>" + text for text in texts)}


def test_completions_without_a_verdict_are_named_once_all_are_known(tiny, monkeypatch):
    """A step without all of its rewards stops: a reward is never made up. The sneaky fail: the row is dropped, or
    paid 0."""

    def one_fails(tasks, completions, **kw):
        found = grade_batch(tasks, completions, **kw)
        return [RowError(one.task_id, "no memory") if one.task_id == "b" else one for one in found]

    monkeypatch.setattr(live, "grade_batch", one_fails)
    why = r"^4 of 12 rows have no verdict: problem b, sample 0 \(task b\): no memory"
    with pytest.raises(GraderError, match=why) as e:
        groups_of(tiny)
    assert re.findall(r"problem (\S+), sample (\d)", str(e.value)) == [("b", str(i)) for i in range(4)]
