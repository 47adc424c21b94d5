"""Traces of several turns: the model answers, sees whether its program compiles and what its own run_tests() did, and
tries again."""

from projected_grpo.data.problems import check_problems
from projected_grpo.ledger.folder import check_new
from projected_grpo.presets import presets
from projected_grpo.run import cli
from projected_grpo.traces.settings import MultiTurnConfig


def main() -> int:
    config = cli.parse(presets(MultiTurnConfig), __doc__)
    check_new(config.run_folder, resume=config.resume)
    check_problems("--problems", config.problems, config.hint, config.prompt_setup)
    from projected_grpo.traces.multi_turn import sample_traces

    return sample_traces(config)


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
