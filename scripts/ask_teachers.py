"""Ask N frozen teachers, behind OpenAI-compatible endpoints, what they would do at each state of a trace file.

Exit code: 0 when every state has every teacher's answer; 1 when it stopped before (budget, an endpoint that stays
down): the same command with --resume goes on and asks nothing twice."""

import os

from projected_grpo.run import cli
from projected_grpo.traces.settings import AskConfig


def main() -> None:
    config = cli.parse_plain(AskConfig, __doc__)
    config.validate()
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import Unfinished
    from projected_grpo.traces.asking import ask_all
    from projected_grpo.traces.record import open_traces, states_of
    from projected_grpo.traces.teachers import cost_table, read_answers, read_teachers

    states, teachers = states_of(open_traces(config.traces)[1]), read_teachers(config.teachers)
    try:
        found = ask_all(states, teachers, config, os.environ)
    except Unfinished:
        bottom_line(config.out, "🟡", "stopped before the end", cost_table(read_answers(config.out)))
        raise
    verdict = found.finding()
    bottom_line(config.out, verdict.status, f"{verdict.status}: {verdict.why}", cost_table(found))


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
