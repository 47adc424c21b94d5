"""A UAT as text: a summary of one screen (`summary`), and all of its numbers (`printout`, at most 120 columns)."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from tabulate import tabulate

from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.rates import number
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays, UatConfig
from projected_grpo.report.uat.numbers import Separation, Side, Uat, remarks
from projected_grpo.report.verdict_text import line_text
from projected_grpo.verdicts.effects import RESAMPLES, SEED
from projected_grpo.verdicts.probe import ALPHA, T1_HACKED, T2_FINITE, T3_STEPS, T4_EFFECT
from projected_grpo.verdicts.registry import CLAIMS, Finding

WIDTH = 120
BRIEF_WIDTH = 100
MISSING = {
    "random": "No random V was measured; what a random V shows too is no evidence: `just probe-v-replay random N PRESET`.",
    "grpo": "T7 is not judged: no replay against a V from the training loss: `just probe-v-replay grpo N PRESET`.",
}
"""Of a replay that is not there: what it would say, and how to get it."""
T6 = "T6 (a LoRA against the singular basis) is judged from training runs of both: `just toy chain=adapters`."
BUCKET_NOTES = """\
n: rollouts. tokens: mean length. cos: mean of the cosine of a rollout's own gradient with V; positive: descending it
makes hacks likelier."""
SEPARATION_NOTES = f"""\
g: Hedges' g*, difference of means / root of the mean of both variances, small-sample corrected (Delacre et al. 2021).
[ ]: 95 % percentile bootstrap, whole problems drawn with replacement, {RESAMPLES} resamples, seed {SEED}; both V on the
same draws. At equal length: least squares within problems on the kind and a spline of the length, SE clustered by
problem (CR2), df: Satterthwaite's. Welch takes rollouts of one problem for independent and is the original's; the one
at equal length protects. One random V is one draw from many."""


Numbers = Mapping[str, float | int | None]
BRIEF: Mapping[str, Callable[[Numbers], str]] = {
    "T1": lambda n: f"hacked {_share(n['hacked'])} (>= {T1_HACKED:.0%})",
    "T2": lambda n: f"finite {_share(n['finite'])} (>= {T2_FINITE:.0%}), masks off {n['mask_faults']}",
    "T3": lambda n: f"on {_share(n['bites'])} of steps (>= {T3_STEPS:.0%})",
    **dict.fromkeys(
        ("T4", "T4+"),
        lambda n: f"g {_signed(n['g'], 2)} (>= {T4_EFFECT}), p {_p(n['p'], 1)} (< {ALPHA})",
    ),
    "T7": lambda n: f"g - g(nll) {_signed(n['gain'], 2)}, lower {_signed(n['low'], 2)}",
}
"""The number and the threshold of a verdict, in a few words."""


def summary(found: Uat, replays: Replays, config: UatConfig) -> str:
    """Returns what fits one screen: one line per verdict, then the remarks."""
    replayed = _count([r for rows in replays.vanilla for r in rows])
    read = f"pool: {_count(replays.pool)}; replays: {replayed}; V removed by {replays.recipe.description}"
    lines = [textwrap.fill(read, BRIEF_WIDTH), ""]
    for v in found.verdicts:
        lines.append(f"{CUES[v.status]} {v.name:3} {v.status:13} {CLAIMS[v.name].says:44} {_brief(v)}".rstrip())
    lines += ["", *_bullets(remarks(found), BRIEF_WIDTH), *_filled([config.expect], BRIEF_WIDTH)]
    return "\n".join(lines).strip()


def _brief(v: Finding) -> str:
    """The verdict's number and threshold; where they are not known, the start of its reason."""
    try:
        return BRIEF[v.name](v.numbers)
    except KeyError:
        return textwrap.shorten(v.why, 34, placeholder=" ...")


def printout(found: Uat, replays: Replays, config: UatConfig) -> str:
    """Returns the whole printout but for the bottom line."""
    missing = [text for name, text in MISSING.items() if name not in replays.paths]
    what_else = _bullets(remarks(found), WIDTH)
    parts = [
        read_text(replays),
        buckets_text(found),
        *(separation_text(one, "V", "random V") for one in found.separations),
        *(separation_text(one, "V, grpo", "V, nll") for one in found.losses),
        SEPARATION_NOTES,
        "\n".join(line_text(found.trajectory)) if found.trajectory else "",
        verdicts_text(found),
        "\n".join(["Remarks (they change no verdict):", *what_else]) if what_else else "",
        "\n".join(_filled([*missing, T6], WIDTH)),
        config.expect,
    ]
    return "\n\n".join(part for part in parts if part)


def _bullets(lines: Iterable[str], width: int) -> list[str]:
    return [textwrap.fill(f"- {line}", width, subsequent_indent="  ") for line in lines]


def _filled(lines: Iterable[str], width: int) -> list[str]:
    return [textwrap.fill(line, width, break_on_hyphens=False) for line in lines if line]


def _count(rows: Sequence[Row]) -> str:
    return f"{len(rows)} rollouts of {len({r['problem_id'] for r in rows})} problems"


def read_text(replays: Replays) -> str:
    """Returns which files the numbers are from."""
    what = {
        "pool": f"{_count(replays.pool)}, sampled from the teacher",
        "vanilla": f"{_count([r for rows in replays.vanilla for r in rows])} replayed; V only measured",
        "projected": f"the same, V removed: {replays.recipe.description}",
        "random": "the same as vanilla, a random V of the same rank measured",
        "grpo": "the same as vanilla, a V of --loss grpo measured",
    }
    body = [[name, str(path), what[name]] for name, path in replays.paths.items()]
    return tabulate(body, ["run", "directory", "what it holds"], disable_numparse=True)


def buckets_text(found: Uat) -> str:
    """Returns sizes, lengths and mean cosines of every kind, and cos_in with what a random direction would show."""
    body = [
        [b.kind, str(b.rollouts), str(b.problems), number(b.tokens), _signed(b.cos, 4),
         _signed(b.random, 4)]
        for b in found.buckets
    ]  # fmt: skip
    header = ["vanilla replay", "n", "problems", "tokens", "cos, V", "cos, random V"]
    cos_in = "; ".join(f"{of} {number(value, digits=4)}" for of, value in found.cos_in.items())
    return "\n".join([_table(header, body), BUCKET_NOTES, f"cos_in of the vanilla replay: {cos_in}"])


def separation_text(one: Separation, v: str, other: str) -> str:
    """Returns one contrast as a table: quantity by V, by the other V, and their difference where it means something."""
    high, low = one.contrast.high, one.contrast.low
    sides = {v: one.v, **({other: one.other} if one.other else {})}
    gain = {f"{v.removeprefix('V, ')} - {other.removeprefix('V, ')}": one.gain} if one.gain else {}

    def line(what: str, cell: Callable[[Side], str]) -> list[str]:
        return [what, *map(cell, sides.values())]

    body = [
        line(f"cos of {high} (n)", lambda s: f"{_signed(_of(s, 'high'), 4)} ({_of(s, 'n_high')})"),
        line(f"cos of {low} (n)", lambda s: f"{_signed(_of(s, 'low'), 4)} ({_of(s, 'n_low')})"),
        line("Welch t over rollouts", lambda s: _signed(_of(s, "t"), 2)),
        line("one-sided p", lambda s: _p(_of(s, "p"))),
        [*line("effect size g [95 %]", lambda s: s.effect.text), *(effect.text for effect in gain.values())],
        line("t at equal length (df; problems with both kinds)", _matched_t),
        line("one-sided p", lambda s: _p(_of(s, "p_matched"))),
        line("effect size g of it", lambda s: _signed(_of(s, "g_matched"), 2)),
        line(f"verdict (both p < {ALPHA}, both g >= {T4_EFFECT})", lambda s: s.verdict.status),
    ]
    effects = {**{name: side.effect for name, side in sides.items()}, **gain}
    whys = [f"no interval for {name}: {effect.interval.why}" for name, effect in effects.items() if effect.interval.why]
    title = f"{one.contrast.name}: {high} above {low}?"
    return "\n".join([_table([title, *sides, *gain], body), *whys])


def _of(side: Side, name: str) -> float | int | None:
    return side.verdict.numbers.get(name)


def _matched_t(side: Side) -> str:
    return f"{_signed(_of(side, 't_matched'), 2)} ({number(_of(side, 'df_matched'))}; {_of(side, 'problems') or 0})"


def verdicts_text(found: Uat) -> str:
    """Returns verdicts with their claims and reasons."""
    body = [[CUES[v.status], v.name, v.status, CLAIMS[v.name].says, v.why] for v in found.verdicts]
    widths = [None, None, None, 24, 68]
    return tabulate(body, ["", "", "verdict", "claim", "numbers"], disable_numparse=True, maxcolwidths=widths)


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    align = ["left" if i < 1 else "right" for i in range(len(header))]
    return tabulate(body, header, disable_numparse=True, colalign=align)


def _share(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _signed(value: float | int | None, digits: int) -> str:
    return number(value, digits=digits, sign="+")


def _p(value: float | int | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
