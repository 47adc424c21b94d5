"""GRPO on problems with a loophole; --arm says what is done to the gradient, and with which V."""

import time
from importlib import import_module

from projected_grpo.config import TrainConfig, due
from projected_grpo.parallel import Ranks, joined
from projected_grpo.presets import presets
from projected_grpo.run import cli
from projected_grpo.run.horizon import with_horizon
from projected_grpo.run.inputs import check_inputs


def main() -> int:
    with joined() as ranks:
        return train(ranks.on_rank0(parsed), ranks)  # other machines may not see the run's folder


def parsed() -> TrainConfig:
    """Returns what this command line asks for. BadInput where a run could not do it, before torch is loaded."""
    config = with_horizon(cli.parse(presets(TrainConfig), __doc__ or ""))
    check_inputs(config)
    return config


def train(config: TrainConfig, ranks: Ranks) -> int:
    """Trains, as one of the processes that train together. Returns the exit code."""
    from projected_grpo.ledger.console import bottom_line, progress
    from projected_grpo.ledger.step_log import Summary
    from projected_grpo.replicas.rounds import check_replica, rounds_of
    from projected_grpo.run.evaluation import Evaluator
    from projected_grpo.run.intervening import context_of
    from projected_grpo.run.preflight import preflight
    from projected_grpo.run.prepare import prepare
    from projected_grpo.run.refresh import Refresher
    from projected_grpo.run.run_folder import RunFolder
    from projected_grpo.run.sources import GroupSource
    from projected_grpo.run.stopping import StoppingRule
    from projected_grpo.run.tracking import tracked
    from projected_grpo.run.trained import kept_path
    from projected_grpo.step import run_step

    with ranks.raise_together():
        tracker = import_module(config.track) if config.track != "none" and ranks.rank == 0 else None
        policy = prepare(config, ranks)  # model, adapter, optimizer, V, the arm's intervention, auxiliary losses
        check_replica(config, policy)
        source = GroupSource(config, policy)
        evaluator = Evaluator(config, policy, source.problems)
        refresher = Refresher(config, policy)
        preflight(policy, config, source.prompts)
    hashes = {
        "problems_hash": source.problems_hash,
        "pool_hash": source.pool_hash,
        "eval_hash": evaluator.problems_hash,
    }
    run = RunFolder.open(config, policy, **hashes)
    if run.finished:
        bottom_line(run.path, "⚪", f"{config.arm}: finished, {run.next_step} steps done; nothing is changed")
        return 0
    rule, summary, done = StoppingRule(config, run), Summary(config.arm), run.next_step
    checkpoint_every = 0 if config.meet else config.checkpoint_every  # every round of replicas is a checkpoint

    with tracked(tracker, run.path) as log:
        with rounds_of(config, policy, run) as rounds:
            for step in progress(range(run.next_step, config.steps), "train"):
                if rule.reached or rounds.over:
                    break
                evaluator.evaluate_if_due(step)
                refresher.refresh_if_due(step)  # V again, at the policy as it is

                began = time.perf_counter()
                groups, seconds = source.groups(step)  # completions of the step's prompts, sampled and graded
                policy.set_learning_rate(step)
                context = context_of(config, policy, groups)
                with policy.intervention.training():
                    result = run_step(
                        policy.learner,
                        [group.samples() for group in groups],
                        policy.objective,
                        policy.projection,
                        step=step,
                        per_sample=due(step, config.per_sample_every),
                        auxiliary=policy.auxiliary.at(step, groups),
                        intervention=policy.intervention,
                        context=context,
                    )
                policy.auxiliary.after(step, result.step["channels"])

                rows = run.write(step, groups, result, seconds, began)
                done = step + 1
                if due(done, checkpoint_every):
                    run.checkpoint(step, policy)
                rounds.after(step)
                if due(done, config.keep_adapter_every):
                    policy.save(kept_path(run.path, done))
                log(step, rows)
                rule.add(rows)
                summary.add(rows)
        evaluator.evaluate_if_due(done, last=True)
        run.finish(done, policy)
        log(done, [])
    bottom_line(run.path, *summary.last_line(done))
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
