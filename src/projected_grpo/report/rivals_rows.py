"""Rows of the rivals' table, one an arm (rivals.py): which runs may be in it, and what their replicates say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from projected_grpo.arms import ARMS
from projected_grpo.ledger.rates import known_mean
from projected_grpo.report.table import between, spread
from projected_grpo.verdicts.conditions import removed, untested
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.matching import RunGroup, differences, group_runs, independence, informed, reference


@dataclass(frozen=True)
class Row:
    """One line of the table, one point of the plot: what its replicates say."""

    name: str
    runs: Sequence[Run]
    hack: Sequence[float | None]
    """Per replicate, as the others: shares of rollouts."""
    hacked: Sequence[float | None]
    gt: Sequence[float | None]
    form: Sequence[float | None]
    gain: Sequence[float | None]
    plain: Sequence[float | None]
    trained: Sequence[float | None]
    """Hack rate of the last 10 training steps."""
    supervision: str
    oracle: bool = False
    rival: bool = False
    deployed: bool = True
    """Whether it is of the policy as deployed."""

    def cells(self, ours: "Row | None") -> list[str]:
        """As the table shows it, compared with projected's row."""
        over = self.over(ours) if ours else []
        values = (self.hack, self.hacked, self.gt, self.gain, self.form, self.plain, over, self.trained)
        cells = [between(percent(v), sign="+" if v is self.gain or v is over else "") for v in values]
        seconds = spread((run.seconds for run in self.runs), digits=0) if known_mean(self.trained) is not None else "-"
        return [self.name, str(len(self.runs)), *cells, seconds, self.supervision]

    @property
    def scores(self) -> dict[int, float]:
        """Pass without the loophole minus hack of each replicate of which both are known."""
        each = zip(self.runs, self.plain, self.hack, strict=True)
        return {run.seed: p - h for run, p, h in each if p is not None and h is not None}

    @property
    def score(self) -> float | None:
        """Its mean in percentage points: what arms are ordered by."""
        return 100 * sum(self.scores.values()) / len(self.scores) if self.scores else None

    def over(self, ours: "Row") -> list[float]:
        """Returns each replicate's score minus the same replicate's of another row; empty for that row itself."""
        theirs = ours.scores if ours is not self else {}
        return [score - theirs[seed] for seed, score in self.scores.items() if seed in theirs]

    @property
    def whole(self) -> bool:
        """Whether every replicate has both."""
        return None not in (*self.plain, *self.hack)


def percent(values: Sequence[float | None]) -> list[float | None]:
    """Returns shares in percent."""
    return [None if v is None else 100 * v for v in values]


OTHER_POLICIES = {"eval_trained": "as trained", "eval_part": "its part alone"}


def row_of(name: str, runs: Sequence[Run], folder: str = "eval", *, first: bool = False) -> Row:
    """Returns a group's row: of its deployed policy, or of what `folder` holds; after the last step, or before the
    `first`."""
    arm, deployed = ARMS.get(runs[0].arm), folder == "eval"
    done = 0 if first else None
    hack, hacked, gt, form = (
        [run.held_out(rate, done, folder) for run in runs] for rate in ("hack", "hacked", "gt", "form")
    )
    untrained = [run.held_out("gt", 0) if deployed else None for run in runs]
    gain = [None if a is None or b is None else a - b for a, b in zip(gt, untrained, strict=True)]
    which = "" if deployed else f", {OTHER_POLICIES[folder]}" + (", at the start" if first else "")
    return Row(
        name + which, runs, hack, hacked, gt, form, gain,
        [run.held_out("gt", done, "eval_plain") if deployed else None for run in runs],
        [run.last("hack") for run in runs], arm.supervision if arm else "not known", bool(arm and arm.labels),
        bool(arm and arm.role == "rival"), deployed,
    )  # fmt: skip


def untrained(runs: Sequence[Run]) -> Row:
    """Returns the untrained model's row, from the evaluations before the first step of each replicate's vanilla."""
    unknown: list[float | None] = [None] * len(runs)
    return replace(row_of("untrained", runs, first=True), gain=unknown, trained=unknown, supervision="nothing")


def comparable_runs(runs: Sequence[Run]) -> tuple[list[Run], list[tuple[str, str]]]:
    """Returns the runs that may be in one table, and the names of the others with why: an evaluation that is no evidence, a
    V that was not removed or is from informed pairs, no vanilla of its replicate or one that differs in more than the arm is
    about, the V of another replicate of its arm."""
    whys = {run.path: why for run in runs if (why := untested(run) or _not_its_arm(run))}
    good = [run for run in runs if run.path not in whys]
    for run in good:
        found = reference("vanilla", RunGroup(run.arm, (run,)), good)
        if run.arm != "vanilla" and run.seed not in found.runs:
            whys[run.path] = found.refused.get(run.seed) or f"no vanilla of seed {run.seed} with these settings"
    for group in group_runs([run for run in good if run.path not in whys]):
        first, replicates = group.runs[0], {group.runs[0].seed: group.runs[0]}
        for run in group.runs[1:]:
            shared = independence({run.arm: {**replicates, run.seed: run}})
            if differing := differences(run, first):
                whys[run.path] = f"differs from {first.path.name} in {'; '.join(differing)}"
            elif shared.status != "PASS":
                whys[run.path] = shared.why
            else:
                replicates[run.seed] = run
    return [run for run in runs if run.path not in whys], [(path.name, why) for path, why in whys.items()]


def _not_its_arm(run: Run) -> str:
    """Why a run that should remove V did something else. One that is only made as short removes nothing."""
    if informed(run):
        return f"its V is from {run.facts['vhack.pairs']}, written when the hack had been seen"
    found = removed({run.arm: {run.seed: run}}) if run.projects and not ARMS[run.arm].shrinks else None
    return found.why if found and found.status != "PASS" else ""
