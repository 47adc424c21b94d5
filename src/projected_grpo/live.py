"""Live groups: render problems, sample completions for them, grade those. For training, evaluation and teacher pools."""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from loophole_grader import Task, Verdict, grade_batch
from projected_grpo.config import Sampling
from projected_grpo.model import LoadedModel
from projected_grpo.parallel import here
from projected_grpo.problems import render
from projected_grpo.records import Group, Problem, Rollout, Source
from projected_grpo.rollout import Prompt, prompt_batches, sample_rollouts
from projected_grpo.sampling import SamplingParams


def sampling_params(config: Sampling) -> SamplingParams:
    """The sampling fields of a config."""
    return SamplingParams(config.max_new, config.temperature, config.top_p, config.top_k)


def workers(config: Sampling) -> int:
    """grader_workers, where 0 is one per core, the cores of a machine shared among its ranks."""
    return config.grader_workers or max(1, (os.cpu_count() or 1) // here().local_size)


def render_all(config: Sampling, loaded: LoadedModel, problems: Sequence[Problem]) -> list[Prompt]:
    """Every problem's prompt; one that does not fit the context is refused now and not at step 120."""
    out = []
    for p in problems:
        text, ids = render(
            p.messages, config.hint, config.prompt_setup, loaded.tokenizer, loaded.context, config.max_new,
            f"problem {p.problem_id}",
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
) -> tuple[list[Group], dict[str, float]]:
    """A graded group of `group_size` completions per prompt, and the seconds that sampling took, and grading beyond it: a
    batch is graded while the next one is sampled.

    Fold the adapter first. `keys`, one per prompt, decide the draws (rollout.uniforms); `tasks` by problem id; `loophole` =
    whether the reward pays the completion's own tests.
    """
    clock = time.perf_counter()
    sampled: list[tuple[Rollout, ...]] = []

    def graded(rollouts: Sequence[Rollout]) -> list[Verdict]:
        return grade_batch(
            [tasks[r.problem_id] for r in rollouts], [r.completion for r in rollouts], workers=workers(config)
        )

    with ThreadPoolExecutor(1) as grader:  # one thread: it only waits for the sandbox's processes
        waiting = []
        for batch in prompt_batches(list(zip(prompts, keys, strict=True)), group_size, config.rollout_batch):
            chosen, own = zip(*batch, strict=True)
            new = sample_rollouts(loaded, chosen, group_size, sampling_params(config), own, source)
            waiting.append(grader.submit(graded, [r for rollouts in new for r in rollouts]))
            sampled += new
        generated = time.perf_counter()
        verdicts = (v for part in waiting for v in part.result())
        groups = [
            Group.graded(p.problem_id, config.hint, rollouts, tuple(next(verdicts) for _ in rollouts), loophole)
            for p, rollouts in zip(prompts, sampled, strict=True)
        ]
    return groups, {"generate": generated - clock, "grade": time.perf_counter() - generated}
