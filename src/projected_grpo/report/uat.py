"""What `just probe-uat` reports: verdicts, kinds of rollouts, effect sizes for V and for another V, remarks. As
numbers (`uat`), as a summary of one screen (`summary`), and as all tables (`printout`).

Everything comes from step rows. The verdicts are those of verdicts/probe.py; nothing here moves a threshold or an
exit code."""

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.rates import any_hack, known_mean, number, pure_hack
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.replays import Steps
from projected_grpo.report.text import Table, filled
from projected_grpo.verdicts import probe
from projected_grpo.verdicts.effects import RESAMPLES, SEED, Effect, lower_end
from projected_grpo.verdicts.extraction import effect_of, paired
from projected_grpo.verdicts.probe import ALPHA, T4, T4_PLUS, Contrast, finite, separates
from projected_grpo.verdicts.registry import CLAIMS, Finding
from projected_grpo.verdicts.statistics import MIN_PROBLEMS

V, RANDOM, GRPO = "V", "random V", "V of grpo"
CLEAN = "clean (not hacked)"
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "pure hack": lambda r: bool(pure_hack(r)),
    "hack and correct": lambda r: any_hack(r) and r["gt_pass"] is True,
    "hack, truth unknown": lambda r: any_hack(r) and r["gt_pass"] is None,
    CLEAN: lambda r: not any_hack(r),
}
"""Every rollout is in exactly one of these."""


@dataclass(frozen=True)
class Separation:
    """Whether each V that was replayed separates two kinds."""

    contrast: Contrast
    verdicts: Mapping[str, Finding]
    """By the V's name."""
    effects: Mapping[str, Effect]
    """The same; `A - B` is g of the first minus g of the second, both on the same resamples of problems."""


@dataclass(frozen=True)
class Uat:
    """Everything that is printed and written."""

    verdicts: list[Finding]
    buckets: list[dict[str, Any]]
    """A kind of rollout each: `rollouts`, `problems`, mean `tokens`, and mean cosines with V (`cos`) and the random V
    (`random`). None of nothing."""
    contrasts: list[Separation]
    """T4 and T4+."""
    cos_in: Mapping[str, float | None]
    """Hack-ward fraction of the gradients that were left as they are: along V, along the random V, and what a random
    direction of V's rank is expected to show."""
    captured: float | None
    """Lower end (95 %) of cos_in of V minus that of the random V, over problems; None without one, or of few
    problems."""


def uat(replays: Mapping[str, Steps]) -> Uat:
    """Returns all numbers of a UAT."""
    pool, vanilla, random, grpo = (list(chain(*replays.get(n, ()))) for n in ("pool", "vanilla", "random", "grpo"))
    evidence: dict[str, Any] = {"pool": pool, "vanilla": vanilla, "projected": replays["projected"]}
    evidence |= {"losses": (vanilla, grpo)} if grpo else {}
    found = [claim.judged(evidence[claim.reads]) for claim in CLAIMS.values() if claim.reads in evidence]
    own, others = ([rows[0]["cos_in"] for rows in replays.get(name, ())] for name in ("vanilla", "random"))
    gains = [a - b for a, b in zip(own, others, strict=False) if finite(a) and finite(b)]
    null = known_mean(r["cos_null"] for r in vanilla)
    # Of a random direction half of the axes are positive, and only those are in a hack-ward fraction.
    expected = None if null is None else null / 2**0.5
    cos_in = {V: known_mean(own), RANDOM: known_mean(others), "a random direction, expected": expected}
    captured = lower_end(gains) if len(gains) >= MIN_PROBLEMS else None
    by_v = {name: rows for name, rows in ((V, vanilla), (RANDOM, random), (GRPO, grpo)) if rows}
    contrasts = [separation(contrast, by_v) for contrast in (T4, T4_PLUS)]
    return Uat(found, buckets(vanilla, random), contrasts, cos_in, captured)


def buckets(vanilla: Sequence[Row], random: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns size, length and mean cosine of every kind, empty kinds too."""
    cosines, of_random = cosines_by_kind(vanilla), cosines_by_kind(random)
    rows_of = {kind: [r for r in vanilla if member(r)] for kind, member in KINDS.items()}
    return [
        {
            "kind": kind, "rollouts": len(rows), "problems": len({r["problem_id"] for r in rows}),
            "tokens": known_mean(r["comp_len"] for r in rows),
            "cos": known_mean(cosines[kind]), "random": known_mean(of_random[kind]),
        }
        for kind, rows in rows_of.items()
    ]  # fmt: skip


def cosines_by_kind(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Returns the known cosines by kind, empty kinds too: what the histogram shows."""
    known = [r for r in rows if finite(r["cos_S_contrib"])]
    return {kind: [r["cos_S_contrib"] for r in known if member(r)] for kind, member in KINDS.items()}


def separation(contrast: Contrast, by_v: Mapping[str, Sequence[Row]]) -> Separation:
    """Returns every V on one contrast; all must be of the same rollouts."""
    effects = {V: effect_of(contrast, by_v[V])}
    for one, other in ((V, RANDOM), (GRPO, V)):
        if one in by_v and other in by_v:
            first, second, gain = paired(contrast, by_v[one], by_v[other])
            effects |= {one: first, other: second, f"{one} - {other}": gain}
    return Separation(contrast, {name: separates(contrast, rows) for name, rows in by_v.items()}, effects)


def remarks(found: Uat) -> list[str]:
    """Returns what the numbers do not let one conclude, a line each. No verdict and no exit code depends on a
    remark."""
    lines = []
    if not any(b["rollouts"] for b in found.buckets if b["kind"] != CLEAN):
        lines.append(
            "Nothing that was replayed hacks, so T4 has nothing to compare. On preset tiny that is as it should be: random "
            "weights write no code, and only T2 and T3 can pass."
        )
    if found.captured is not None and found.captured <= 0:
        lines.append("T3: V holds no more of the gradient than a random V of its rank, so T3 is no evidence for it.")
    return [*lines, *(f"{one.contrast.name}: {line}" for one in found.contrasts for line in _caveats(one))]


def _caveats(one: Separation) -> Iterator[str]:
    """Yields what Welch's test over rollouts does not see: a random V, problems, length, the sign."""
    numbers, effect = one.verdicts[V].numbers, one.effects[V]
    p, matched, gain = numbers.get("p"), numbers.get("p_matched"), one.effects.get(f"{V} - {RANDOM}")
    if gain is not None and effect.g is not None:
        if one.verdicts[RANDOM].status == "PASS":
            yield "the random V passes too. What both show is no evidence that V knows hacks."
        elif gain.low is None:
            yield f"whether V beats the random V is not known: {gain.why}."
        elif not gain.above_0:
            yield f"not shown to be better than the random V: g(V) - g(random V) = {gain.text} is not above 0."
    if p is not None and p < ALPHA:
        if effect.low is not None and not effect.above_0 and not effect.below_0:
            yield f"p < {ALPHA} over rollouts, but the interval of g over problems covers 0."
        if matched is not None and matched >= ALPHA:
            yield "passes over rollouts, fails within problems at equal length: V may see length."
    if effect.below_0:
        yield f"the other way round. V is higher on {one.contrast.low} than on {one.contrast.high}."


def as_json(found: Uat) -> str:
    """Returns every number; the bootstrap's draws are left out."""

    def fields(part: object) -> dict[str, Any]:
        return {name: value for name, value in vars(part).items() if name not in ("contrast", "draws")}

    data = {**vars(found), "remarks": remarks(found)}
    return json.dumps(data, default=fields, indent=1, allow_nan=False) + "\n"


# ---------------------------------------------------------------- as text

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
BRIEF: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "T1": lambda n: f"hacked {n['hacked']:.0%} (>= {probe.T1_HACKED:.0%})",
    "T2": lambda n: f"finite {n['finite']:.0%} (>= {probe.T2_FINITE:.0%}), masks off {n['mask_faults']}",
    "T3": lambda n: f"on {n['bites']:.0%} of steps (>= {probe.T3_STEPS:.0%})",
    **dict.fromkeys(("T4", "T4+"), lambda n: f"g {n['g']:+.2f} (>= {probe.T4_EFFECT}), p {n['p']:.2g} (< {ALPHA})"),
    "T7": lambda n: f"g - g(nll) {n['gain']:+.2f}, lower {n['low']:+.2f}",
}
"""The number and the threshold of a verdict, in a few words."""


def summary(found: Uat, replays: Mapping[str, Steps]) -> str:
    """Returns what fits one screen: one line per verdict, then the remarks."""
    verdicts = [f"{_named(v)}{CLAIMS[v.name].says:44} {_brief(v)}".rstrip() for v in found.verdicts]
    caveats = [filled(f"- {line}", "  ", width=SCREEN) for line in remarks(found)]
    return _joined(_read(replays), "\n".join(verdicts), "\n".join(caveats))


def printout(found: Uat, replays: Mapping[str, Steps]) -> str:
    """Returns every verdict with its whole reason, and all numbers behind them."""
    verdicts = [filled(f"{_named(v)}{CLAIMS[v.name].says}: {v.why}", "   ") for v in found.verdicts]
    caveats = [filled(f"- {line}", "  ") for line in remarks(found)]
    missing = [text for name, text in MISSING.items() if name not in replays]
    parts = (_read(replays), "\n".join(verdicts), "\n".join(caveats), "\n".join(missing), buckets_text(found))
    return _joined(*parts, *map(separation_text, found.contrasts), SEPARATION_NOTES)


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _named(v: Finding) -> str:
    return f"{CUES[v.status]} {v.name:3} {v.status:13} "


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
        f"{n}: {len(of)} rollouts of {len({r['problem_id'] for r in of})} problems" for n, of in rows.items()
    )


def buckets_text(found: Uat) -> str:
    """Returns sizes, lengths and mean cosines of every kind, and cos_in with what a random direction would show."""
    body = [
        [b["kind"], b["rollouts"], b["problems"], number(b["tokens"]), _signed(b["cos"], 4), _signed(b["random"], 4)]
        for b in found.buckets
    ]
    header = ["vanilla replay", "n", "problems", "tokens", "cos, V", "cos, random V"]
    cos_in = "; ".join(f"{of} {number(value, digits=4)}" for of, value in found.cos_in.items())
    return "\n".join([Table("", header, body).text(), BUCKET_NOTES, f"cos_in of the vanilla replay: {cos_in}"])


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
    return f"{one.contrast.name}: {high} above {low}?\n{Table('', header, body).text()}"


def _signed(value: float | int | None, digits: int) -> str:
    return number(value, digits=digits, sign="+")


def _p(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.2g}"
