"""What the numbers of a UAT do not let one conclude, a line each. No verdict and no exit code depends on a remark."""

from projected_grpo.report.uat.numbers import CLEAN, Told, Uat
from projected_grpo.verdicts.probe import ALPHA


def remarks(found: Uat) -> list[str]:
    """Returns one line each, in the order of the verdicts."""
    lines = [_nothing_hacks(found), _missing(found), _captures_nothing(found)]
    lines += [of(one) for one in found.told for of in (_beside_random, _clustered, _length, _small, _turned)]
    return [line for line in lines if line]


def _beside_random(told: Told) -> str:
    """A separation that a random V shares is no evidence for V."""
    name, random, gain = told.contrast.name, told.beside, told.gain
    if random is None or gain is None or told.v.effect.g is None:
        return ""
    if random.verdict.status == "PASS":
        return f"{name}: the random V passes too. What both show is no evidence that V knows hacks."
    if gain.g is None or gain.interval.low is None:
        return f"{name}: whether V beats the random V cannot be told: {gain.interval.why}."
    if gain.interval.above_0:
        return ""
    lead = f"{name} PASS is no evidence yet" if told.v.verdict.status == "PASS" else name
    found = f"{gain.g:+.2f} [{gain.interval.low:+.2f}, {gain.interval.high:+.2f}]"
    return f"{lead}: not shown to be better than the random V: g(V) - g(random V) = {found} is not above 0."


def _clustered(told: Told) -> str:
    """Rollouts of one problem are no independent draws: what Welch calls significant may be a few problems."""
    p, interval = told.v.verdict.numbers.get("p"), told.v.effect.interval
    covers = interval.low is not None and not interval.above_0 and not interval.below_0
    if p is None or p >= ALPHA or not covers:
        return ""
    return f"{told.contrast.name}: p < {ALPHA} over rollouts, but the interval of g over problems covers 0."


def _length(told: Told) -> str:
    """Welch passes, equal length does not."""
    numbers = told.v.verdict.numbers
    p, t, matched = numbers.get("p"), numbers.get("t"), numbers.get("p_matched")
    if p is None or t is None or p >= ALPHA:
        return ""
    if matched is None:
        return f"{told.contrast.name}: passes over rollouts; at equal length it cannot be told, so nothing is claimed."
    if matched < ALPHA:
        return ""
    return f"{told.contrast.name}: passes over rollouts, fails within problems at equal length: V may see length."


def _small(told: Told) -> str:
    """Both tests pass, an effect is too small."""
    numbers = told.v.verdict.numbers
    p, matched, g, g_matched = (numbers.get(name) for name in ("p", "p_matched", "g", "g_matched"))
    if p is None or matched is None or g is None or g_matched is None or max(p, matched) >= ALPHA:
        return ""
    if told.v.verdict.status == "PASS":
        return ""
    return f"{told.contrast.name}: significant both ways, and small: g = {g:+.2f}, at equal length {g_matched:+.2f}."


def _turned(told: Told) -> str:
    """The difference is real and of the other sign."""
    if not told.v.effect.interval.below_0:
        return ""
    return (
        f"{told.contrast.name}: the other way round. V is higher on {told.contrast.low} than on {told.contrast.high}."
    )


def _nothing_hacks(found: Uat) -> str:
    """A new user on preset tiny meets this first."""
    if any(b.rollouts for b in found.buckets if b.kind != CLEAN):
        return ""
    return (
        "Nothing that was replayed hacks, so T4 has nothing to compare. On preset tiny that is as it should be: random "
        "weights write no code, and only T2 and T3 can pass."
    )


def _missing(found: Uat) -> str:
    """Rollouts that no mean counts."""
    rollouts = sum(b.rollouts for b in found.buckets)
    lost = rollouts - sum(b.cos.n for b in found.buckets)
    return f"{lost} of {rollouts} rollouts have no cosine (no gradient) and are in no mean of cosines." if lost else ""


def _captures_nothing(found: Uat) -> str:
    """V holds no more of the gradient than a random V of its rank."""
    if found.captured is None or found.captured > 0:
        return ""
    return "T3: V holds no more of the gradient than a random V of its rank, so T3 is no evidence for it."
