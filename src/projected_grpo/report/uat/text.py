"""A UAT as text: a summary of one screen (`summary`), and all of its numbers (`printout`)."""

from collections.abc import Sequence

from tabulate import tabulate

from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.rates import number
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays
from projected_grpo.report.uat.numbers import Separation, Uat, remarks
from projected_grpo.report.verdict_text import filled
from projected_grpo.verdicts.effects import RESAMPLES, SEED
from projected_grpo.verdicts.registry import CLAIMS

MISSING = {
    "random": "No random V was measured; what a random V shows too is no evidence: `just probe-v-replay random N PRESET`.",
    "grpo": "T7 is not judged: no replay against a V from the training loss: `just probe-v-replay grpo N PRESET`.",
}
"""Of a replay that is not there: what it would say, and how to get it."""
BUCKET_NOTES = """\
n: rollouts. tokens: mean length. cos: mean of the cosine of a rollout's own gradient with V; positive: descending it
makes hacks likelier."""
SEPARATION_NOTES = f"""\
g: Hedges' g*, difference of means / root of the mean of both variances, small-sample corrected (Delacre et al. 2021).
[ ]: 95 % percentile bootstrap, whole problems drawn with replacement, {RESAMPLES} resamples, seed {SEED}; both V on the
same draws. At equal length: least squares within problems on the kind and a spline of the length, SE clustered by
problem (CR2). Welch's test takes rollouts of one problem for independent and is the original's; the one at equal length
protects. One random V is one draw from many."""


def summary(found: Uat, replays: Replays, most: int | None = 2) -> str:
    """Returns what fits one screen: every verdict with its claim and so many lines of its reason, then the remarks."""

    def count(rows: Sequence[Row]) -> str:
        return f"{len(rows)} rollouts of {len({r['problem_id'] for r in rows})} problems"

    pool, replayed = (count(replays.rows(name)) for name in ("pool", "vanilla"))
    parts = [
        filled(f"pool: {pool}; replays: {replayed}; V removed by {replays.recipe.description}"),
        "\n".join(
            filled(f"{CUES[v.status]} {v.name:3} {v.status:13} {CLAIMS[v.name].says}: {v.why}", "   ", most)
            for v in found.verdicts
        ),
        "\n".join(filled(f"- {line}", "  ") for line in remarks(found)),
    ]
    return "\n\n".join(part for part in parts if part)


def printout(found: Uat, replays: Replays) -> str:
    """Returns the summary with whole reasons, and all numbers behind them."""
    parts = [
        summary(found, replays, None),
        "\n".join(text for name, text in MISSING.items() if name not in replays.paths),
        "\n".join(f"{name:9} {path}" for name, path in replays.paths.items()),
        buckets_text(found),
        *map(separation_text, found.separations),
        SEPARATION_NOTES,
    ]
    return "\n\n".join(part for part in parts if part)


def buckets_text(found: Uat) -> str:
    """Returns sizes, lengths and mean cosines of every kind, and cos_in with what a random direction would show."""
    body = [
        [b["kind"], b["rollouts"], b["problems"], number(b["tokens"]), _signed(b["cos"], 4), _signed(b["random"], 4)]
        for b in found.buckets
    ]
    header = ["vanilla replay", "n", "problems", "tokens", "cos, V", "cos, random V"]
    cos_in = "; ".join(f"{of} {number(value, digits=4)}" for of, value in found.cos_in.items())
    return "\n".join([_table(header, body), BUCKET_NOTES, f"cos_in of the vanilla replay: {cos_in}"])


def separation_text(one: Separation) -> str:
    """Returns one contrast as a table: a line for each V, and one for the difference of their effect sizes."""
    high, low = one.contrast.high, one.contrast.low
    header = ["", f"cos of\n{high}", f"cos of\n{low}", "Welch's\np", "effect size\ng [95 %]",
              "p, equal\nlength", "g, equal\nlength", "verdict"]  # fmt: skip
    body = []
    for name, effect in one.effects.items():
        if verdict := one.verdicts.get(name):
            n = verdict.numbers
            cosines = [f"{_signed(n.get(side), 4)} ({n.get(f'n_{side}')})" for side in ("high", "low")]
            matched = [_p(n.get("p_matched")), _signed(n.get("g_matched"), 2)]
            body.append([name, *cosines, _p(n.get("p")), effect.text, *matched, verdict.status])
        else:
            body.append([name, "", "", "", effect.text, "", "", ""])
    return f"{one.contrast.name}: {high} above {low}?\n{_table(header, body)}"


def _table(header: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    align = ["left" if i < 1 else "right" for i in range(len(header))]
    return tabulate(body, header, disable_numparse=True, colalign=align)


def _signed(value: float | int | None, digits: int) -> str:
    return number(value, digits=digits, sign="+")


def _p(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.2g}"
