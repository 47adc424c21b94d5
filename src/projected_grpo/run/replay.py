"""Sample a hacky teacher's pool once, replay it through the student: the two halves of probe_distill."""

import time

from loguru import logger

from projected_grpo.config import ProbeConfig
from projected_grpo.data.live import live_groups, render_all
from projected_grpo.data.pool import pool_hash, pool_of
from projected_grpo.data.problems import load_problems, problems_hash
from projected_grpo.ledger.console import bottom_line, progress
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.ledger.rates import any_hack, known_mean, number
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import iter_run, step_path, write_step
from projected_grpo.rollout.sample import prompt_batches
from projected_grpo.run.prepare import dump_first_batch, load, log_isolation, prepare
from projected_grpo.run.run_folder import RunFolder
from projected_grpo.step import run_step
from projected_grpo.verdicts.probe import t1


def sample_pool(config: ProbeConfig) -> int:
    """Samples n_problems groups from the merged teacher, grades them and writes one step file each. Resumed, only
    those batches whose files are not all there are sampled: a problem's draws depend on its own key alone."""
    run = config.run_folder
    log_isolation()
    problems = load_problems(config.problems)[: config.n_problems or None]
    loaded = load(config, config.teacher or None)
    prompts = render_all(config, loaded, problems)
    open_run(
        run, "teacher_pool", config, model_hash=loaded.weights_hash, tokenizer_hash=loaded.tokenizer_hash,
        problems_hash=problems_hash(problems), resume=config.resume,
    )  # fmt: skip
    tasks = {p.problem_id: p.task for p in problems}
    keyed = [(step, prompt, f"pool {config.seed} {step}") for step, prompt in enumerate(prompts)]
    batches = prompt_batches(keyed, config.group_size, config.rollout_batch)
    left = [batch for batch in batches if not all(step_path(run, step).exists() for step, *_ in batch)]
    for batch in progress(left, "teacher pool"):
        steps, chosen, keys = zip(*batch, strict=True)
        groups, _, timing = live_groups(
            config, loaded, chosen, tasks, config.group_size, keys, "teacher", loophole=config.loophole
        )
        timing = {part: seconds / len(batch) for part, seconds in timing.items()}
        timing["total"] = sum(timing.values())
        if steps[0] == 0:
            dump_first_batch(groups)
        for step, group in zip(steps, groups, strict=True):
            rows = rows_of([group], [], {"timing": timing}, step=step, keep_token_logps=True)
            write_step(run, step, rows)
            logger.info(f"{step:4d}  problem {group.problem_id}: {sum(map(any_hack, rows))} of {len(rows)} hacked")
    update_manifest(run, finished=True, steps_done=len(prompts))
    verdict = t1([row for rows in iter_run(run) for row in rows])
    bottom_line(run, verdict.status, f"T1 {verdict.status}: {verdict.why}")
    return 0


def replay(config: ProbeConfig) -> int:
    """Replays a pool, one group a step."""
    policy = prepare(config)
    pool = pool_of(config.pool, config, policy.loaded)[: config.n_problems or None]
    dump_first_batch(pool)
    # The two arms are only comparable on the same tokens in the same order: probe_uat compares this hash.
    run = RunFolder.open(config, policy, pool_hash=pool_hash(pool))
    rows = []
    for step in progress(range(run.next_step, len(pool)), f"replay {config.arm}"):
        began = time.perf_counter()
        policy.set_learning_rate(step)
        result = run_step(policy.learner, [pool[step].samples()], policy.objective, policy.projection, step=step)
        rows += run.write(step, [pool[step]], result, {}, began)
        run.checkpoint(step, policy)
    if not run.finished:
        run.finish(len(pool), policy)
    random = policy.v is not None and policy.v.meta["control"] == "random"
    should = "near 0: V is random" if random else "above 0 for a pool that hacks, ELSE V does not see its hacks"
    cos = number(known_mean(r["cos_S_contrib"] for r in rows), digits=4, sign="+")
    said = f"{config.arm} replay: {len(pool)} groups, {len(rows)} rows; mean cos_S {cos} (SHOULD be {should})"
    bottom_line(run.path, "🟢" if rows else "⚪", said)
    return 0
