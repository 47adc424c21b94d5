"""A UAT as text: a summary of one screen (`summary`), and all of its numbers (`printout`)."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from tabulate import tabulate

from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.rates import number
from projected_grpo.report.text import filled
from projected_grpo.report.uat.inputs import Steps
from projected_grpo.report.uat.numbers import Separation, Uat, remarks
from projected_grpo.verdicts.effects import RESAMPLES, SEED
from projected_grpo.verdicts.probe import ALPHA, T1_HACKED, T2_FINITE, T3_STEPS, T4_EFFECT
from projected_grpo.verdicts.registry import CLAIMS, Finding

SCREEN = 100
"""Columns of the summary."""
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
Numbers = Mapping[str, float | int | None]
BRIEF: Mapping[str, Callable[[Numbers], str]] = {
    "T1": lambda n: f"hacked {n['hacked']:.0%} (>= {T1_HACKED:.0%})",
    "T2": lambda n: f"finite {n['finite']:.0%} (>= {T2_FINITE:.0%}), masks off {n['mask_faults']}",
    "T3": lambda n: f"on {n['bites']:.0%} of steps (>= {T3_STEPS:.0%})",
    **dict.fromkeys(("T4", "T4+"), lambda n: f"g {n['g']:+.2f} (>= {T4_EFFECT}), p {n['p']:.2g} (< {ALPHA})"),
    "T7": lambda n: f"g - g(nll) {n['gain']:+.2f}, lower {n['low']:+.2f}",
}
"""The number and the threshold of a verdict, in a few words."""


def summary(found: Uat, replays: Mapping[str, Steps]) -> str:
    """Returns what fits one screen: one line per verdict, then the remarks."""
    verdicts = (
        f"{CUES[v.status]} {v.name:3} {v.status:13} {CLAIMS[v.name].says:44} {_brief(v)}".rstrip()
        for v in found.verdicts
    )
    return "\n\n".join([_read(replays), "\n".join(verdicts), *_remarks(found)])


def _brief(v: Finding) -> str:
    """Returns the verdict's number and threshold; where they are not known, the start of its reason."""
    try:
        return BRIEF[v.name](v.numbers)
    except (KeyError, TypeError):
        return textwrap.shorten(v.why, 34, placeholder=" ...")


def _read(replays: Mapping[str, Steps]) -> str:
    """Returns how much was read."""
    rows = {name: list(chain(*replays[name])) for name in ("pool", "vanilla")}
    return "\n".join(
        f"{name}: {len(of)} rollouts of {len({r['problem_id'] for r in of})} problems" for name, of in rows.items()
    )


def _remarks(found: Uat) -> list[str]:
    text = "\n".join(filled(f"- {line}", "  ", width=SCREEN) for line in remarks(found))
    return [text] if text else []


def printout(found: Uat, replays: Mapping[str, Steps]) -> str:
    """Returns every verdict with its whole reason, and all numbers behind them."""
    verdicts = (f"{CUES[v.status]} {v.name:3} {v.status:13} {CLAIMS[v.name].says}: {v.why}" for v in found.verdicts)
    parts = [
        _read(replays),
        "\n".join(filled(verdict, "   ") for verdict in verdicts),
        *_remarks(found),
        "\n".join(text for name, text in MISSING.items() if name not in replays),
        buckets_text(found),
        *map(separation_text, found.contrasts),
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
