"""Ask N frozen teachers, behind OpenAI-compatible endpoints, what they would do at each state of a file.

Exit code: 0 when every state has every teacher's answer; 1 when it stopped before (budget, an endpoint that stays down):
the same command with --resume goes on and asks nothing twice.
"""

import os

from projected_grpo.run import cli
from projected_grpo.traces.settings import AskConfig


def main() -> None:
    config = cli.parse_plain(AskConfig, __doc__)
    config.validate()
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import Unfinished
    from projected_grpo.traces.answers import cost_table, read_answers
    from projected_grpo.traces.asking import ask_all
    from projected_grpo.traces.price_table import read_teachers
    from projected_grpo.traces.states import read_states
    from projected_grpo.verdicts.registry import CLAIMS

    states, teachers = read_states(config.states), read_teachers(config.teachers)
    try:
        found = ask_all(states, teachers, config, os.environ)
    except Unfinished:
        print(cost_table(read_answers(config.out)))
        raise
    print(cost_table(found))
    verdict = CLAIMS["teachers"].judged(found.asked())
    bottom_line(config.out, verdict.status, f"{verdict.status}: {verdict.why}")


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
