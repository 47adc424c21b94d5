"""GRPO on problems with a loophole; --arm says what is done to the gradient, and with which V."""

from importlib import import_module

from projected_grpo.config import TrainConfig, due
from projected_grpo.parallel import World, joined
from projected_grpo.presets import presets
from projected_grpo.run import cli
from projected_grpo.run.horizon import hack_rate, reached, with_horizon
from projected_grpo.run.inputs import check_inputs


def main() -> int:
    with joined() as world:
        return train(world.from_first(parsed), world)  # other machines may not see the run's folder


def parsed() -> TrainConfig:
    """Returns what this command line asks for. BadInput where a run could not do it, before torch is loaded."""
    config = with_horizon(cli.parse(presets(TrainConfig), __doc__ or ""))
    check_inputs(config)
    return config


def train(config: TrainConfig, world: World) -> int:
    """The whole run, as one of the processes that do it: prepare; groups, step, keep and evaluate for every step; finish."""
    from loguru import logger

    from projected_grpo.ledger.console import bottom_line, progress
    from projected_grpo.ledger.rates import JUDGED, rates_text
    from projected_grpo.ledger.step_file import read_step, step_path
    from projected_grpo.replicas.rounds import check_replica, rounds_of
    from projected_grpo.run.auxiliary_losses import auxiliary_losses, never_on
    from projected_grpo.run.evaluation import Evaluator
    from projected_grpo.run.preflight import preflight
    from projected_grpo.run.prepare import prepare
    from projected_grpo.run.refresh import Refresher
    from projected_grpo.run.sources import GroupSource
    from projected_grpo.run.tracking import tracked
    from projected_grpo.run.trained import kept_path

    with world.together():
        tracker = import_module(config.track) if config.track != "none" and world.rank == 0 else None
        session = prepare(config, world)
        check_replica(config, session)
        source = GroupSource(config, session)
        evaluator, refresher = Evaluator(config, session), Refresher(config, session)
        session.auxiliary = auxiliary_losses(
            config, session.loaded, source.prompt_setup, world, source.problems, evaluator.problems
        )
        trained_on = {p.problem_id for p in source.problems}
        if both := sum(p.problem_id in trained_on for p in evaluator.problems):
            logger.warning(f"--eval-problems {config.eval_problems}: {both} are trained on too, so not held out")
        preflight(session, config, source.prompts)
    session.start(problems_hash=source.problems_hash, pool_hash=source.pool_hash, eval_hash=evaluator.problems_hash)
    done = session.next_step
    if session.finished:
        bottom_line(session.run, "⚪", f"{config.arm}: finished, {done} steps done; nothing is changed")
        return 0
    before = range(done if config.until_onsets else 0)
    hack = world.from_first(lambda: [hack_rate(read_step(step_path(session.run, step))) for step in before])
    rows = []
    with tracked(tracker, session.run) as log:
        with rounds_of(config, session) as rounds:
            for step in progress(range(done, config.steps), "train"):
                if reached(config.until_onsets, hack) or (rounds and rounds.over):
                    break
                evaluator.evaluate_due(step)
                with world.together():
                    groups, timing = source.groups(step)
                refresher.refresh_due(step)
                taken = session.take(step, groups, timing, per_sample=due(step, config.per_sample_every))
                rows += [{name: row[name] for name in (*JUDGED, "source", "channels")} for row in taken]
                hack.append(hack_rate(taken))
                done = step + 1
                if rounds:
                    rounds.after(step)
                if due(done, config.keep_adapter_every):
                    session.save_adapter(kept_path(session.run, done))
                log(step, taken)
        evaluator.evaluate_due(done, last=True)
        session.finish(done)
        log(done, [])
    for name in never_on(rows):
        why = "no group's rewards differed" if name == "policy" else "nothing to learn from (of a peer: none was paid)"
        logger.warning(f"{name}: no gradient at any of these steps: {why}")
    own = [row for row in rows if row["source"] == "student"]
    said = f"{config.arm}: {done} steps, {len(own)} rollouts of its own in this call. {rates_text(own)}"
    bottom_line(session.run, "🟢" if rows else "⚪", said)
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
