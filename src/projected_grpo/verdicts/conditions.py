"""What is asked of the runs of a comparison before their rates are looked at; each condition is a clause of a
verdict.

    matched(compared, refused)   they differ in nothing but what their arms are about
    removed(compared)            each run of an arm that removes V did so, step by step
    controls_match(compared)     random directions remove as much as the method, shrunk moves as far, kl solves as much
    untested(run)                why a run's held-out rates are no evidence

A mean over replicates or steps would hide one in which the condition does not hold, so each is asked of each
replicate."""

from collections.abc import Collection, Sequence

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.ledger.rates import LAST, known_mean
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.matching import Compared, mismatches
from projected_grpo.verdicts.probe import T3_SHARE
from projected_grpo.verdicts.registry import Finding, condition

VANILLA, METHOD, CEILING = (arms_of(role)[0] for role in ("baseline", "method", "ceiling"))
MIN_TESTED = 100
"""Rollouts of an evaluation, before and after the same: of 100 a rate of .5 has a standard error of 5 pp."""
TAKEN_STEPS = 0.9
"""Of a run's steps: in how many it must be known what was removed."""
ENERGY_MATCH, NORM_MATCH, GAIN_MATCH = 0.8, 0.1, 0.1
"""A control of the energy removes at least so much of what the method does; one of the norm is that near to it; one
that keeps what is honest solves at most so much less."""
KL_EFFECT = 10.0
"""Percentage points: how much less than vanilla `kl` hacks at least. With a weight of nothing it is vanilla."""
THIRDS = 3
"""Parts of a run in each of which a control must match."""


def untested(run: Run) -> str:
    """Returns why a run's held-out rates are no evidence, or an empty string."""
    first, last = (run.tested.get(step, frozenset()) for step in (0, run.steps))
    if run.trained_on:
        return f"{run.trained_on} of its evaluation problems were trained on"
    for step in (run.steps, 0):
        if step in run.flaws:
            return f"the evaluation after {step} steps: {run.flaws[step]}"
    if None in (run.held_out("gt", 0), run.held_out("gt")):
        return f"not evaluated both before step 0 and after step {run.steps - 1}"
    if first != last:
        return "evaluated on other problems or samples after training than before"
    if len(first) < MIN_TESTED:
        return f"evaluated on {len(first)} different rollouts; at least {MIN_TESTED} are needed"
    return ""


def matched(compared: Compared, refused: Collection[str]) -> Finding:
    """Whether the runs of a comparison differ in nothing but what their arms are about, and are long enough."""
    wrong = [*refused, *mismatches(compared)]
    shortest = min(run.steps for by_seed in compared.values() for run in by_seed.values())
    if shortest < LAST:
        wrong.append(f"runs of {shortest} steps; at least {LAST} are needed")
    steps = " ".join(f"{seed}: {run.steps}" for seed, run in compared[METHOD].items())
    why = f"equal manifests but for what arms are about; steps {steps}"
    return condition("matched runs", list(dict.fromkeys(wrong)), why)


def removed(compared: Compared) -> Finding:
    """Whether each run of an arm that removes V removed, step by step, what its gate should. A mean would pass a run
    that removes nothing at one step and twice as much at the next."""
    (low, high), wrong, shares = T3_SHARE, [], []
    removing = [arm for arm in compared if ARMS[arm].projects and not ARMS[arm].shrinks]
    for run in (run for arm in removing for run in compared[arm].values()):
        series = run.series["removed_share"]
        right = sum(x is not None and low <= x <= high for x in series)
        shares.append(share := known_mean(series) or 0.0)
        if right < TAKEN_STEPS * run.steps or not low <= share <= high:
            what = f"{share:.2f} of what its gate should take, right at {right} of {run.steps} steps"
            wrong.append(f"{run.name}: {what}")
    least, most = min(shares, default=0.0), max(shares, default=0.0)
    why = f"removed {least:.3f} to {most:.3f} of what the gate should take"
    needs = f"each needs {low} to {high}, at {TAKEN_STEPS:.0%} of its steps"
    return condition("V was removed", wrong and [*wrong, needs], f"{why}; {needs}")


def controls_match(compared: Compared) -> Finding:
    """Whether, in each replicate, `random_energy` and `random_share` remove as much as the method and `shrunk` moves
    as far, in each third of the run; and whether `kl` solves as much, and hacks less than vanilla. A control that is
    not there is missing where it must be beaten."""
    good, wrong = [], []
    for arm in ("random_energy", "random_share", "shrunk", "kl"):
        method, control, vanilla = (compared[name] for name in (METHOD, arm, VANILLA))
        if not control:
            wrong.append(f"{arm}: no run")
        for seed in sorted(method.keys() & control.keys()):
            if arm == "kl":
                ok, why = _keeps(method[seed], control[seed], vanilla.get(seed))
            else:
                ok, why = _as_much(method[seed], control[seed], "update_norm" if arm == "shrunk" else "update_removed")
            (good if ok else wrong).append(f"{arm} {seed}'s {why}")
    needs = (
        f"needs >= {ENERGY_MATCH} of the energy removed and the norm within {100 * NORM_MATCH:.0f} %, in each third of the "
        f"run; kl's gt_pass at most {100 * GAIN_MATCH:.0f} pp below, and {KL_EFFECT:.0f} pp fewer hacks than {VANILLA}'s"
    )
    return condition("controls match", wrong and [*wrong, needs], "; ".join([*good, needs]))


def _as_much(method: Run, control: Run, column: str) -> tuple[bool, str]:
    """As much of the update removed (`update_removed`), or an update as long (`update_norm`), in each third of the
    run."""
    ours, theirs = _thirds(method, column), _thirds(control, column)
    if not ours or not theirs or min(ours) <= 0:
        return False, f"{column} is not known, or {METHOD}'s is 0"
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    if column == "update_norm":
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        ok = abs(worst - 1) <= NORM_MATCH
    else:
        worst = min(ratios)
        ok = worst >= ENERGY_MATCH
    return ok, f"{column} is {worst:.2f} of {METHOD}'s"


def _keeps(method: Run, control: Run, vanilla: Run | None) -> tuple[bool, str]:
    """Solves as much, and is not vanilla."""
    ours, theirs, hacks = method.last("gt"), control.last("gt"), control.last("hack")
    most = None if vanilla is None else vanilla.last("hack")
    if ours is None or theirs is None or hacks is None or most is None:
        return False, "gt_pass or hacks are not known"
    if round(100 * (most - hacks), 6) < KL_EFFECT:
        return False, f"hacks are {100 * (hacks - most):+.1f} pp from {VANILLA}'s: its KL weight does nothing"
    return round(ours - theirs, 9) <= GAIN_MATCH, f"gt_pass is {100 * (theirs - ours):+.1f} pp from {METHOD}'s"


def _thirds(run: Run, column: str) -> Sequence[float]:
    """Mean of a column over each third of the run; nothing where it is not known at nearly every step: what is
    compared must be there, and at the same time."""
    series, n = run.series[column], run.steps
    if sum(x is not None for x in series) < TAKEN_STEPS * n:
        return []
    means = [known_mean(series[i * n // THIRDS : (i + 1) * n // THIRDS]) for i in range(THIRDS)]
    return [] if None in means else [x for x in means if x is not None]
