"""Where hacking begins and where it goes: a run's rates by kind of problem, over every so many steps.

Kinds are what the problems' `difficulty` names: medium and hard of the benchmark; in the small world what makes a task hard,
and, in a table of its own, the kind of its worked example.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli


@dataclass(frozen=True)
class ByDifficultyConfig:
    """Which run, and which rate."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a training run."""
    rate: Literal["hack", "hacked", "gt", "form"] = "hack"
    """hack: pure hacks; hacked: right answers too whose own tests test nothing; gt: right; form: well-formed."""
    every: int = 10
    """Steps that one number is of."""
    problems: str = ""
    """Where the run's problems are now, if they have moved. Empty: where its manifest says."""

    def validate(self) -> None:
        """BadInput on a window of no steps."""
        if self.every < 1:
            raise BadInput(f"--every {self.every}: must be 1 or more")


def main() -> int:
    config = cli.parse_plain(ByDifficultyConfig, __doc__)
    config.validate()
    from tabulate import tabulate

    from projected_grpo.data.problems import check_source, load_problems, problems_hash
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import not_whole, read_manifest
    from projected_grpo.ledger.step_file import steps_in
    from projected_grpo.report.by_difficulty import by_difficulty

    manifest = read_manifest(config.run)
    asked, kind = manifest.get("config") or {}, manifest.get("kind")
    if kind != "train":
        a_v = kind == "extract_vhack_grad"
        held = f"a V, made of the pairs {asked.get('pairs')}" if a_v else f"what {kind} writes"
        raise BadInput(f"{config.run}: holds {held}, and no training run, whose steps have rates by kind of problem")
    if lacking := [name for name in ("problems", "arm", "seed") if name not in asked]:
        raise BadInput(f"{config.run / 'manifest.json'}: its config lacks {lacking[0]!r}; not written by `just train`")
    steps_in(config.run)
    if manifest.get("finished") and (why := not_whole(config.run, manifest)):
        raise BadInput(f"{config.run}: {why}")
    source = config.problems or asked["problems"]
    check_source("--problems", source)
    problems = load_problems(source)
    if (now := problems_hash(problems)) != manifest.get("problems_hash"):
        raise BadInput(
            f"{config.run}: ran on problems {manifest.get('problems_hash')}, those of {source} are {now}: others, or "
            "of another version; name its own with --problems"
        )
    difficulty_of = {p.problem_id: p.difficulty for p in problems}
    for header, *lines in by_difficulty(config.run, difficulty_of, config.every, config.rate):
        print(tabulate(lines, header, disable_numparse=True) + "\n")
    bottom_line(
        config.run,
        "PASS",
        f"{config.rate} in percent, by kind of problem and step; arm {asked['arm']}, seed {asked['seed']}",
    )
    return 0


if __name__ == "__main__":
    cli.run(main)
