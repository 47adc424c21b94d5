"""A UAT as text: a summary of one screen (`summary`), and all of its numbers (`printout`, at most 120 columns)."""

import textwrap
from collections.abc import Callable, Mapping, Sequence

from tabulate import tabulate

from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays, UatConfig
from projected_grpo.report.uat.numbers import Side, Told, Uat
from projected_grpo.report.verdict_text import line_text
from projected_grpo.verdicts.effects import RESAMPLES, SEED, Effect, Mean
from projected_grpo.verdicts.probe import ALPHA, T1_HACKED, T2_FINITE, T3_STEPS, T4_EFFECT
from projected_grpo.verdicts.registry import CLAIMS, Finding

WIDTH = 120
BRIEF_WIDTH = 100
NO_RANDOM = (
    "No random V stands beside V, and what a random V shows too is no evidence. Get one: `just probe-v-replay random N "
    "PRESET` (as many problems and the preset of the vanilla replay), then this again. Outside out/probe_distill: `just "
    "extract-vhack PRESET --control random --out DIR`, a replay with --arm vanilla --vhack DIR/vhack.safetensors, and that "
    "one as --random."
)
NO_GRPO = (
    "T7 is not judged: no replay against a V from the training loss. Get one: `just probe-v-replay grpo N PRESET` (as many "
    "problems and the preset of the vanilla replay), then this again. Outside out/probe_distill: `just extract-vhack PRESET "
    "--loss grpo --out DIR`, a replay with --arm vanilla --vhack DIR/vhack.safetensors, and that one as --grpo."
)
T6 = (
    "T6 (a LoRA against the singular basis) is judged from training runs of both: `just toy chain=adapters`, then "
    "`just results` on its folder, or `just compare` on both."
)
BUCKET_NOTES = """\
n: rollouts. tokens: mean length. cos: a rollout's own gradient against V, -1 to 1; positive: descending it makes
hacks likelier. SEM: over rollouts, s/sqrt(n), too small where rollouts of one problem are alike; clustered: by problem."""
MEASURE_NOTES = """\
n: rollouts for T1 and T2, steps (one problem each) for T3. SEM: clustered by problem. Taken alone: a second
backward pass of that rollout by itself. Hack-ward part: mean over modules of ||relu(V g)|| / ||g||; 0 is an
identity of the gate: T3 says that projection works, not that V is right."""
TOLD_NOTES = f"""\
g: Hedges' g*, difference of means / root of the mean of both variances, small-sample corrected (Delacre et al. 2021).
[ ]: 95 % percentile bootstrap, whole problems drawn with replacement, {RESAMPLES} resamples, seed {SEED}; both V on the
same draws. resamples without g: left out of it. At equal length: least squares within problems on the kind and a
spline of the length, SE clustered by problem (CR2), df: Satterthwaite's, and the rank of t among permutations within
problems; most length detectors show no difference there. Its g: over the same SD. Welch takes rollouts of one problem
for independent and is the original's; the one at equal length protects. SEM: over rollouts. One
random V is one draw from many."""


Numbers = Mapping[str, float | int | None]
BRIEF: Mapping[str, Callable[[Numbers], str]] = {
    "T1": lambda n: f"hacked {_share(n['hacked'])} (>= {T1_HACKED:.0%})",
    "T2": lambda n: f"finite {_share(n['finite'])} (>= {T2_FINITE:.0%}), masks off {n['mask_faults']}",
    "T3": lambda n: f"on {_share(n['bites'])} of steps (>= {T3_STEPS:.0%})",
    **dict.fromkeys(("T4", "T4+"), lambda n: f"g {_t(n['g'])} (>= {T4_EFFECT}), p {_p(n['p'], 1)} (< {ALPHA})"),
    "T7": lambda n: f"g - g(nll) {_t(n['gain'])}, lower {_t(n['low'])}",
}
"""The number and the threshold of a verdict, in a few words."""


def summary(found: Uat, remarks: Sequence[str], replays: Replays, config: UatConfig) -> str:
    """Returns what fits one screen: one line per verdict, then the remarks."""
    replayed = _count([r for rows in replays.vanilla for r in rows])
    read = f"pool: {_count(replays.pool)}; replays: {replayed}; V removed by {replays.recipe.description}"
    lines = [textwrap.fill(read, BRIEF_WIDTH), ""]
    for v in found.verdicts:
        lines.append(f"{CUES[v.status]} {v.name:3} {v.status:13} {CLAIMS[v.name].says:44} {_brief(v)}".rstrip())
    lines += ["", *(textwrap.fill(f"- {line}", BRIEF_WIDTH, subsequent_indent="  ") for line in remarks)]
    return "\n".join([*lines, textwrap.fill(config.expect, BRIEF_WIDTH)]).strip()


def _brief(v: Finding) -> str:
    """The verdict's number and threshold; where they are not known, the start of its reason."""
    try:
        return BRIEF[v.name](v.numbers)
    except KeyError:
        return textwrap.shorten(v.why, 34, placeholder=" ...")


def _share(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def printout(found: Uat, remarks: Sequence[str], replays: Replays, config: UatConfig) -> str:
    """The whole printout but for the bottom line."""
    parts = [
        read_text(replays, config), buckets_text(found), measures_text(found),
        *(told_text(one) for one in found.told), TOLD_NOTES, losses_text(found),
        "\n".join(line_text(found.trajectory)) if found.trajectory else "", verdicts_text(found), remarks_text(remarks),
    ]  # fmt: skip
    if replays.random is None:
        parts.append(textwrap.fill(NO_RANDOM, WIDTH, break_on_hyphens=False))
    parts += [
        textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in (NO_GRPO if replays.grpo is None else "", T6)
    ]
    if config.expect:
        parts.append(config.expect)
    return "\n\n".join(part for part in parts if part)


def _count(rows: Sequence[Row]) -> str:
    return f"{len(rows)} rollouts of {len({r['problem_id'] for r in rows})} problems"


def read_text(replays: Replays, config: UatConfig) -> str:
    """Which files the numbers are from."""
    replayed = _count([r for rows in replays.vanilla for r in rows])
    lines = [
        ["pool", config.pool, f"{_count(replays.pool)}, sampled from the teacher"],
        ["vanilla", config.vanilla, f"{replayed} replayed; V only measured"],
        ["projected", config.projected, f"the same, V taken out: {replays.recipe.description}"],
    ]
    if replays.random_path is not None:
        lines.append(["random V", replays.random_path, "the same as vanilla, a random V of the same rank measured"])
    if replays.grpo_path is not None:
        lines.append(["V by grpo", replays.grpo_path, "the same as vanilla, a V of --loss grpo measured"])
    return tabulate([[a, str(b), c] for a, b, c in lines], ["run", "directory", "what it holds"], disable_numparse=True)


def buckets_text(found: Uat) -> str:
    """Sizes, lengths and mean cosines of every kind."""
    beside = any(b.random is not None for b in found.buckets)
    header = ["vanilla replay", "n", "problems", "tokens", "cos, V", "SEM", "clustered"]
    header += ["cos, random V", "SEM", "clustered"] if beside else []
    body = []
    for b in found.buckets:
        tokens = "-" if b.tokens is None else f"{b.tokens:.1f}"
        cells = [b.kind, str(b.rollouts), str(b.problems), tokens, *_mean_cells(b.cos)]
        body.append(cells + (_mean_cells(b.random) if b.random is not None else []))
    return "\n".join([_table(header, body), BUCKET_NOTES])


def _mean_cells(found: Mean) -> list[str]:
    return [_signed(found.mean), _plain(found.sem), _plain(found.sem_problem)]


def measures_text(found: Uat) -> str:
    """Returns the numbers behind T1 to T3."""
    body = [
        [m.verdict, m.what, f"{m.mean.n} ({m.mean.problems})", _plain(m.mean.mean), _plain(m.mean.sem_problem or None),
         "-" if m.bound is None else f"{m.bound:.2f}"]
        for m in found.measures
    ]  # fmt: skip
    lines = [_table(["", "quantity", "n (problems)", "mean", "SEM", "needs"], body, left=2), MEASURE_NOTES]
    if found.null is not None:
        lines.append(f"A random direction of V's rank is expected to show cos_in {found.null:.4f}.")
    return "\n".join(lines)


RANDOM = ("V", "random V")
LOSSES = ("V, grpo", "V, nll")


def told_text(told: Told, names: tuple[str, str] = RANDOM) -> str:
    """One contrast: quantity by V, the V beside it, and their difference where it means something."""
    name, high, low = told.contrast.name, told.contrast.high, told.contrast.low
    sides = [told.v] if told.beside is None else [told.v, told.beside]
    gain = [f"{names[0].removeprefix('V, ')} - {names[1].removeprefix('V, ')}"] if told.gain is not None else []
    header = [f"{name}: {high} above {low}?", *names[: len(sides)], *gain]

    def line(what: str, cells: list[str], last: str = "") -> list[str]:
        return [what, *cells, *([last] if gain else [])]

    n = [s.verdict.numbers for s in sides]
    body = [
        line(f"cos of {high} ± SEM (n)", [_mean_n(s.high) for s in sides]),
        line(f"cos of {low} ± SEM (n)", [_mean_n(s.low) for s in sides]),
        line("difference of means", [_signed(_difference(s)) for s in sides]),
        line("Welch t over rollouts", [_t(x.get("t")) for x in n]),
        line("one-sided p", [_p(x.get("p")) for x in n]),
        line("effect size g [95 %]", [_effect(s.effect) for s in sides], "" if told.gain is None else _effect(told.gain)),
        line("resamples without g", [_undefined(s.effect) for s in sides],
             "" if told.gain is None else _undefined(told.gain)),
        line("difference at equal length ± SE", [_pair(x.get("gap_matched"), x.get("sem_matched")) for x in n]),
        line("t of it (df; problems with both kinds)", [_matched_t(x) for x in n]),
        line("one-sided p", [_p(x.get("p_matched")) for x in n]),
        line("effect size g of it", [_t(x.get("g_matched")) for x in n]),
        line(f"verdict (both p < {ALPHA}, both g >= {T4_EFFECT})", [s.verdict.status for s in sides]),
    ]  # fmt: skip
    return "\n".join([_table(header, body), *_unavailable(told, names)])


def losses_text(found: Uat) -> str:
    """V of --loss grpo beside V of --loss nll, on the same rollouts; an empty string without the second replay."""
    if not found.losses:
        return ""
    lead = "V from the training loss (--loss grpo) beside V from the mean NLL, on the same rollouts:"
    return "\n\n".join([lead, *(told_text(one, LOSSES) for one in found.losses)])


def _matched_t(numbers: Mapping[str, float | int | None]) -> str:
    t, df = numbers.get("t_matched"), numbers.get("df_matched")
    return f"{_t(t)} ({'-' if df is None else f'{df:.1f}'}; {numbers.get('problems', 0)})"


def _unavailable(told: Told, names: tuple[str, str]) -> list[str]:
    """Why an interval is not given, once per reason."""
    beside = told.beside.effect if told.beside else None
    effects = {names[0]: told.v.effect, names[1]: beside, "their difference": told.gain}
    whys: dict[str, list[str]] = {}
    for name, effect in effects.items():
        if effect is not None and effect.interval.why:
            whys.setdefault(effect.interval.why, []).append(name)
    return [f"no interval for {', '.join(names)}: {why}" for why, names in whys.items()]


def verdicts_text(found: Uat) -> str:
    """Verdicts with their claims and reasons."""
    body = [[CUES[v.status], v.name, v.status, CLAIMS[v.name].says, v.why] for v in found.verdicts]
    widths = [None, None, None, 24, 68]
    return tabulate(body, ["", "", "verdict", "claim", "numbers"], disable_numparse=True, maxcolwidths=widths)


def remarks_text(remarks: Sequence[str]) -> str:
    """What the verdicts do not show."""
    lines = [textwrap.fill(line, WIDTH, initial_indent="- ", subsequent_indent="  ") for line in remarks]
    return "\n".join(["Remarks (they change no verdict):", *lines]) if lines else ""


def _table(header: Sequence[str], body: Sequence[Sequence[str]], left: int = 1) -> str:
    align = ["left" if i < left else "right" for i in range(len(header))]
    return tabulate(body, header, disable_numparse=True, colalign=align)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"


def _t(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _p(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _pair(value: float | None, sem: float | None) -> str:
    return "-" if value is None or sem is None else f"{value:+.4f} ± {sem:.4f}"


def _mean_n(found: Mean) -> str:
    shown = _signed(found.mean) if found.sem is None else _pair(found.mean, found.sem)
    return f"{shown} ({found.n})"


def _difference(side: Side) -> float | None:
    return None if side.high.mean is None or side.low.mean is None else side.high.mean - side.low.mean


def _effect(effect: Effect) -> str:
    low, high = effect.interval.low, effect.interval.high
    limits = "[-]" if low is None or high is None else f"[{low:+.2f}, {high:+.2f}]"
    return "-" if effect.g is None else f"{effect.g:+.2f} {limits}"


def _undefined(effect: Effect) -> str:
    return "-" if effect.g is None else str(effect.interval.undefined)
