"""Ask N frozen teachers, behind OpenAI-compatible endpoints, what they would do at each state of a file.

Exit code: 0 when every state has every teacher's answer; 1 when it stopped before (budget, an endpoint that stays down):
the same command with --resume goes on and asks nothing twice.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.run import cli


@dataclass(frozen=True)
class AskConfig:
    """Whom to ask what, and for how much."""

    states: Path
    """JSON lines (.gz too) of {state_id, trace_id, messages}: the replayed steps."""
    teachers: Path
    """TOML file of [[teacher]] tables: endpoint, model, prices, the variable that holds the key (docs/integrations.md)."""
    budget: float
    """Most dollars that all sessions of this folder together may spend; it stops before they are passed."""
    out: Path
    """Folder to write; must not exist yet, but for --resume."""
    concurrency: int = 8
    """Calls under way at once, all teachers together."""
    timeout: float = 60.0
    """Seconds that an attempt may be silent."""
    attempts: int = 6
    """Attempts at one call before it is set aside; three such calls in a row, and the endpoint is down."""
    resume: bool = False
    """Go on in --out: ask what has no answer yet."""


def main() -> int:
    config = cli.parse_plain(AskConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import Unfinished
    from projected_grpo.traces.answers import cost_table, read_answers
    from projected_grpo.traces.asking import Patience, ask_all
    from projected_grpo.traces.price_table import read_teachers
    from projected_grpo.traces.states import read_states
    from projected_grpo.verdicts.registry import CLAIMS

    states, teachers = read_states(config.states), read_teachers(config.teachers)
    patience = Patience(config.concurrency, config.timeout, config.attempts)
    try:
        found = ask_all(states, teachers, config.out, config.budget, patience, os.environ, config, resume=config.resume)
    except Unfinished:
        print(cost_table(read_answers(config.out)))
        raise
    print(cost_table(found))
    verdict = CLAIMS["teachers"].judged(found.asked())
    bottom_line(config.out, verdict.status, f"{verdict.status}: {verdict.why}")
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
