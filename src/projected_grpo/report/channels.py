"""The A/B of channels as people read it: a table of verdicts, and one of each channel's gradient against V."""

from collections.abc import Sequence

from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_NOT_EVALUABLE, EXIT_OK
from projected_grpo.ledger.rates import known_mean, number
from projected_grpo.ledger.step_file import CHANNELS
from projected_grpo.report.plots import Output
from projected_grpo.report.text import Table, between, bullets, spread
from projected_grpo.verdicts.channels import channels_of, judged, with_channels
from projected_grpo.verdicts.finished_runs import Found, Run
from projected_grpo.verdicts.matching import order_of

HEADER = ("arm", "channel", "n", "pass@1 gain pp", "without the loophole pp", "pure hacks pp", "with %", "without %",
          "verdict")  # fmt: skip
NOTES = (
    "held-out problems, the policy as deployed, after the last step; with the channel minus without it, mean [95 % interval "
    "over replicates]",
    "VALIDATED: a gain of 2 pp and an interval above 0; PARTIAL: one of the two; INVALIDATED: neither (docs/spec.md)",
)
OF_V = ("arm", "with", "gradient of", "n", "cos", "by chance", "cos signed", "energy along V %", "removed %",
        "share of the sum %")  # fmt: skip
OF_V_NOTES = (
    "mean over the steps of a run, then mean ± SEM over runs; removed: of that gradient alone, by the arm's gate",
    "cos: of the hack-ward part; by chance: of a random direction, sqrt(k / 2r). Of a random direction's energy k/r is "
    "along V, twice the square of that",
)
SCALE = {"cos": 1.0, "cos_null": 0.5**0.5, "cos_signed": 1.0, "energy": 100.0, "removed": 100.0, "share": 100.0}


def against_v(runs: Sequence[Run]) -> list[Table]:
    """Each channel's own gradient against V, one table; none where no run has a channel beside the policy."""
    body, used = [], {}
    for group in with_channels(runs):
        on = channels_of(group[0])
        for channel in (name for name in CHANNELS if name in ("policy", *on)):
            cells = []
            for name, by in SCALE.items():
                series = name if name == "cos_null" else f"{channel}.{name}"
                means = (known_mean(run.series.get(series, ())) for run in group)
                cells.append(spread(means, by, 1 if by == 100 else 3))
            body.append([group[0].arm, " + ".join(on), channel, str(len(group)), *cells])
        used |= {run.path: run for run in group}
    return [Table("Each channel's own gradient against V", OF_V, body, list(used.values()), OF_V_NOTES)] if body else []


def output(loaded: Found) -> Output:
    """Returns what is written and printed of the A/B. Exit code: 0 where every channel is VALIDATED, 1 where one is
    not, 3 where none can be judged."""
    found = sorted(judged(loaded.runs), key=lambda ab: (order_of(ab.arm), ab.channels))
    body, verdicts = [], []
    for ab in found:
        gains = [between(pp.values()) for pp in (ab.gain, ab.plain, ab.hack)]
        hacks = [number(known_mean(run.held_out("hack") for run in runs), 100.0) for runs in (ab.runs, ab.without)]
        body.append([ab.arm, " + ".join(ab.channels), str(len(ab.gain)), *gains, *hacks, ab.status])
        verdicts.append(f"{ab.arm}, {' + '.join(ab.channels)}: {ab.status}: {ab.why}")
    used = list({run.path: run for ab in found for run in (*ab.runs, *ab.without)}.values())
    tables = [Table("Channels: with and without", HEADER, body, used, NOTES), *against_v(loaded.runs)]
    document = [
        "# Channels", "", "Written by `just results --only channels`; do not edit by hand.", "",
        *bullets([f"left out: {path}: {why}" for path, why in loaded.left_out]),
        *bullets(verdicts), *(table.markdown() for table in tables),
    ]  # fmt: skip
    text = "\n\n".join([*(f"{table.title}\n\n{table.text()}" for table in tables), "\n".join(verdicts)])
    good = sum(ab.status == "VALIDATED" for ab in found)
    bottom = f"{good} of {len(found)} VALIDATED; no pass rate is read without the hack rate beside it"
    code = EXIT_OK if good == len(found) else EXIT_FAILED
    if all(ab.status == "NOT_EVALUABLE" for ab in found):
        bottom, code = "NOT_EVALUABLE: no run with a channel that can be judged", EXIT_NOT_EVALUABLE
    return Output(text, bottom, code, {"channels.md": "\n".join(document)})
