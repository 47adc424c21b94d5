"""Live groups: render problems, sample completions for them, grade those. For training, evaluation and teacher
pools."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import torch

from loophole_grader import RowError, Task, Verdict, grade_batch, verdicts_of
from projected_grpo.config import Sampling
from projected_grpo.ledger.console import progress
from projected_grpo.model.load import LoadedModel
from projected_grpo.parallel import here
from projected_grpo.prompts import render
from projected_grpo.records import Group, Problem, Rollout, Source
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt, prompt_batches, sample_rollouts


def sampling_params(config: Sampling) -> SamplingParams:
    return SamplingParams(config.max_new, config.temperature, config.top_p, config.top_k)


def workers(config: Sampling) -> int:
    """grader_workers, where 0 is one per core, the cores of a machine shared among its ranks."""
    return config.grader_workers or max(1, (os.cpu_count() or 1) // here().local_size)


def cores_are_free(loaded: LoadedModel) -> bool:
    """Whether sampling leaves cores to grade on meanwhile: where it does not, both together take longer than one by
    one."""
    return loaded.model.device.type != "cpu" or torch.get_num_threads() < (os.cpu_count() or 1)


def render_all(config: Sampling, loaded: LoadedModel, problems: Sequence[Problem]) -> list[Prompt]:
    """Every problem's prompt; one that does not fit the context, or the hint, is refused now and not at step 120."""
    out = []
    for p in problems:
        text, ids = render(
            p.messages, config.hint, config.prompt_setup, loaded.tokenizer, loaded.context, config.max_new,
            f"problem {p.problem_id}", p.task.evaluator_name,
        )  # fmt: skip
        out.append(Prompt(p.problem_id, text, ids))
    return out


def live_groups(
    config: Sampling,
    loaded: LoadedModel,
    prompts: Sequence[Prompt],
    tasks: Mapping[str, Task],
    group_size: int,
    keys: Sequence[str],
    source: Source,
    *,
    loophole: bool,
    each: Callable[[Sequence[int]], AbstractContextManager[None]] | None = None,
    bar: str = "",
) -> tuple[list[Group], list[tuple[Verdict, ...]], dict[str, float]]:
    """Returns a graded group of `group_size` completions per prompt, their verdicts, and the seconds that sampling
    took, and grading beyond it: completions that have ended are graded while others are sampled, where there are
    cores for it.

    Merge the adapter first. `keys`, one per prompt, decide the draws (rollout.uniforms); `tasks` by problem id;
    `loophole`: whether the reward pays the completion's evaluation function; `each`: prompts are sampled one by one,
    inside what it puts around their token ids, and that merges; `bar`: the name of a progress bar, in completions
    that have ended. Raises GraderError if any completion has no verdict, once all are known, naming each by problem
    and sample: a reward is never made up."""
    clock = time.perf_counter()
    verdicts: dict[tuple[str, str], Verdict | RowError] = {}  # by problem and text: the same one is judged once

    def grade(rollouts: Sequence[Rollout]) -> None:
        new = [key for key in dict.fromkeys((r.problem_id, r.graded_text) for r in rollouts) if key not in verdicts]
        found = grade_batch([tasks[problem] for problem, _ in new], [text for _, text in new], workers=workers(config))
        verdicts.update(zip(new, found, strict=True))

    sampled: list[tuple[Rollout, ...]] = []
    waiting: list[Future[None]] = []
    shown = progress(None, bar, total=len(prompts) * group_size) if bar else nullcontext()
    with ThreadPoolExecutor(1) as grader, shown as counted:  # one thread: it only waits for the sandbox's processes

        def meanwhile(ended: Sequence[Rollout]) -> None:
            if counted is not None:
                counted.update(len(ended))
            if cores_are_free(loaded):
                waiting.append(grader.submit(grade, ended))

        most, params = group_size if each else config.rollout_batch, sampling_params(config)
        for batch in prompt_batches(list(zip(prompts, keys, strict=True)), group_size, most):
            chosen, keys_of = zip(*batch, strict=True)
            with each(chosen[0].ids) if each else nullcontext():
                sampled += sample_rollouts(loaded, chosen, group_size, params, keys_of, source, meanwhile)
        generated = time.perf_counter()
    for part in waiting:
        part.result()
    flat = [r for rollouts in sampled for r in rollouts]
    grade(flat)  # those that are left
    names = [f"problem {r.problem_id}, sample {r.sample_id}" for r in flat]
    judged = iter(verdicts_of([verdicts[r.problem_id, r.graded_text] for r in flat], names))
    timing = {"generate": generated - clock, "grade": time.perf_counter() - generated}
    of_groups = [tuple(next(judged) for _ in rollouts) for rollouts in sampled]
    groups = [
        Group.graded(prompt.problem_id, rollouts, own, loophole)
        for prompt, rollouts, own in zip(prompts, sampled, of_groups, strict=True)
    ]
    return groups, of_groups, timing
