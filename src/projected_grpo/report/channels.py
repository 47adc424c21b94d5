"""The A/B of channels as people read it: a table of verdicts, and one of each channel's gradient against V."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from projected_grpo.arms import ARMS
from projected_grpo.ledger.rates import known_mean
from projected_grpo.report.tables import Table, between, bullets, number, plus_minus
from projected_grpo.verdicts.channels import AB, Measured, channels_of, judged, measured, rates_at
from projected_grpo.verdicts.finished_runs import Run

HEADER = ("arm", "channel", "n", "pass@1 gain pp", "without the loophole pp", "pure hacks pp", "with %", "without %",
          "verdict")  # fmt: skip
NOTES = (
    "held-out problems, the policy as deployed, after the last step; with the channel minus without it, mean [95 % interval "
    "over units]",
    "VALIDATED: a gain of 2 pp and an interval above 0; PARTIAL: one of the two; INVALIDATED: neither (docs/spec.md)",
)
OF_V = ("arm", "with", "gradient of", "n", "cos", "by chance", "cos signed", "energy along V %", "removed %",
        "share of the sum %")  # fmt: skip


def _hack(runs: Sequence[Run]) -> str:
    return number(known_mean(rates_at(run, run.steps).get("hack") for run in runs), 100.0)


def _cells(ab: AB) -> list[str]:
    pp: Sequence[Mapping[int, float]] = (ab.gain, ab.plain, ab.hack)
    return [ab.arm, " + ".join(ab.channels), str(len(ab.gain)), *(between(v.values()) if v else "-" for v in pp),
            _hack(ab.runs), _hack(ab.without), ab.status]  # fmt: skip


def _of_v(of: Measured) -> list[str]:
    scale = {"cos": 1.0, "cos_null": 0.5**0.5, "cos_signed": 1.0, "energy": 100.0, "removed": 100.0, "share": 100.0}
    cells = []
    for name, by in scale.items():
        cells.append(plus_minus(*of.numbers[name], by, 1 if by == 100 else 3))
    return [of.arm, " + ".join(of.on), of.channel, str(len(of.runs)), *cells]


def against_v(runs: Sequence[Run]) -> list[Table]:
    """Each channel's own gradient against V, one table; none where no run has a channel beside the policy."""
    against = measured(runs)
    notes = (
        "mean over the steps of a run, then mean ± SEM over runs; removed: of that gradient alone, by the arm's gate",
        "cos: of the hack-ward part; by chance: of a random direction, sqrt(k / 2r). Of a random direction's energy k/r is "
        "along V, twice the square of that",
    )
    of_channels = [run for run in runs if channels_of(run)]
    used = [run for run in of_channels if any(run in m.runs for m in against)]
    left = [f"left out: {run.path.name}: a second run of unit {run.seed} with these settings"
            for run in of_channels if run not in used]  # fmt: skip
    return (
        [Table("Each channel's own gradient against V", OF_V, [_of_v(m) for m in against], used, (*notes, *left))]
        if against
        else []
    )


UNITS = ("arm", "with", "unit", "steps", "onset", "pass@1", "no loophole", "pure hacks", "all hacks", "both", "well-formed",
         "signed to onset")  # fmt: skip
OF_UNITS = (
    "no loophole: pass@1 without its hint; both: hacked and right; onset: of the run's own pure hacks",
    "signed to onset: signed cosine with V of the channel's own gradient, mean over the steps before the onset, or over all",
)


def _place(arm: str) -> tuple[int, str]:
    """The registry's order; an arm that somebody else added, and that is not here, comes last."""
    return (list(ARMS).index(arm) if arm in ARMS else len(ARMS)), arm


def by_unit(found: Sequence[AB]) -> Table:
    """Every run of the A/B by itself: what its means are made of."""
    runs = list({run.path: run for ab in found for run in (*ab.without, *ab.runs)}.values())
    runs.sort(key=lambda run: (_place(run.arm), channels_of(run), run.seed))
    return Table(
        "Unit by unit: held-out rates in %, after the last step", UNITS, [_unit(run) for run in runs], runs, OF_UNITS
    )


def _unit(run: Run) -> list[str]:
    end, on = rates_at(run, run.steps), channels_of(run)
    plain = rates_at(run, run.steps, "eval_plain").get("gt")
    rates = (end.get("gt"), plain, *(end.get(name) for name in ("hack", "hacked", "hack_and_correct", "form")))
    signed = [number(known_mean(run.series.get(f"{name}.cos_signed", ())[: run.onset]), 1.0, 3, "+") for name in on]
    return [run.arm, " + ".join(on) or "-", str(run.seed), str(run.steps), str(run.onset or "-"),
            *(number(rate, 100.0) for rate in rates), ", ".join(signed) or "-"]  # fmt: skip


def tables_of(runs: Sequence[Run]) -> tuple[list[AB], list[Table]]:
    """The verdicts, and both tables."""
    found = sorted(judged(runs), key=lambda ab: (_place(ab.arm), ab.channels))
    used = list(dict.fromkeys(run.path for ab in found for run in (*ab.runs, *ab.without)))
    of = {run.path: run for run in runs}
    return found, [
        Table("Channels: with and without", HEADER, [_cells(ab) for ab in found], [of[path] for path in used], NOTES),
        *([by_unit(found)] if found else []),
        *against_v(runs),
    ]


def document(found: Sequence[AB], tables: Sequence[Table], root: Path, remarks: Sequence[str]) -> str:
    """channels.md."""
    lines = ["# Channels", "", "Written by `just channels-table`; do not edit by hand.", "", *bullets(remarks)]
    lines += [f"- {ab.arm}, {' + '.join(ab.channels)}: {ab.status}: {ab.why}" for ab in found]
    return "\n".join([*lines, "", *(table.markdown(root) for table in tables)]).rstrip() + "\n"
