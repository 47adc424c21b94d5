"""Preference pairs from the disagreement of frozen teachers: what `train --trace-weight` learns from."""

from dataclasses import dataclass
from pathlib import Path

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli


@dataclass(frozen=True)
class TracePairsConfig:
    """Whose rollouts are replayed, and who votes."""

    student: Path
    """Folder of the student's rollouts: a pool of `just probe-teacher-pool` (`--teacher ''`: of the model as it is), or a
    run of `just train`."""
    teachers: tuple[Path, ...]
    """Folders of the same problems' rollouts, one a teacher, three or more of an odd number: the majority decides."""
    out: Path
    """File to write: .jsonl, or .jsonl.gz. Must not exist yet, or hold the very same pairs."""

    def validate(self) -> None:
        """BadInput on what can have no majority, or would overwrite."""
        if len(self.teachers) < 3:
            raise BadInput(f"--teachers: {len(self.teachers)} of them; a majority needs three or more")
        if not self.out.name.endswith((".jsonl", ".jsonl.gz")):
            raise BadInput(f"--out {self.out}: the name must end with .jsonl or .jsonl.gz")


def main() -> int:
    config = cli.parse_plain(TracePairsConfig, __doc__)
    config.validate()
    from projected_grpo.groups.preferences import MAJORITY, write_preferences
    from projected_grpo.run.trace_pairs import replayed

    found = replayed(config.student, config.teachers)
    if not found.pairs:
        raise BadInput(f"{config.student}: no pair from {found.traces} traces: no majority, or all agree with the student; "
                       "sample the teachers at a lower --temperature")  # fmt: skip
    digest = write_preferences(
        config.out, found.pairs, traces=found.traces, steps=found.traces, tokenizer_hash=found.tokenizer_hash,
        made_from={"student": str(config.student), "teachers": [str(t) for t in config.teachers]},
    )  # fmt: skip
    over = sum(p.reason == MAJORITY for p in found.pairs)
    bottom_line(
        config.out,
        "🟢",
        f"{len(found.pairs)} pairs of {found.traces} traces; left out {found.cut} traces that were cut and {found.without} "
        f"that a teacher was not asked; sha256 {digest[:16]}",
        [
            ["teachers", "traces", "pairs", "a trace", "majority over student", "student over minority"],
            [len(config.teachers), found.traces, len(found.pairs), len(found.pairs) / found.traces, over,
             len(found.pairs) - over],
        ],
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    cli.run(main)
