"""Finished runs in memory, each with the manifest that a real one has: every arm of three independent replicates."""

from pathlib import Path

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.folder import plain
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.h1 import judge
from projected_grpo.verdicts.matching import group_runs

ENDS = {"vanilla": 0.85, "projected": 0.02, "no_loophole": 0.0, **dict.fromkeys(arms_of("control"), 0.6)}
ONSETS = {41: 60, 42: 70, 43: 80}
DEFAULTS = plain(TrainConfig())
TESTED = frozenset((f"p{i}", j) for i in range(25) for j in range(4))


def facts(arm, seed, steps, **changed):
    """As a manifest of `just train` has them, flat. `changed`: fields of its config, or whole facts (`vhack.k`)."""
    kind, vanilla = ARMS[arm].measured, arm == "vanilla"
    of_config = DEFAULTS | {
        "arm": arm, "seed": seed, "base_seed": seed % 3, "steps": 900 if vanilla else steps,
        "until_onsets": 3.0 if vanilla else 0.0, "horizon_of": "." if vanilla else f"out/vanilla_{seed}",
    }  # fmt: skip
    v = {"control": kind, "k": "48", "pairs_draw": str(seed), "v_sha256": f"{kind} {seed}",
         "pairs_hash": "words" if kind == "words" else "p"}  # fmt: skip
    return {
        **{f"config.{name}": value for name, value in of_config.items()},
        **{f"vhack.{name}": value for name, value in v.items()},
        "model_hash": f"base {seed % 3}", "problems_hash": "toy", "processes": 1, "steps done": steps,
        **{f"config.{name}" if name in DEFAULTS else name: value for name, value in changed.items()},
    }  # fmt: skip


def run(
    arm, seed, *, hack=None, held_out=(0.2, 0.3), tested=(TESTED, TESTED), rows=(), length=None, place="", **changed
):
    """A finished run of three of its replicate's onsets; vanilla hacks from its onset on. `hack`: from the first step
    on; `rows`: of its series; `held_out`: gt_pass before and after; the rest: of its manifest."""
    onset, end = ONSETS[seed], ENDS[arm] if hack is None else hack
    steps = length or 3 * onset
    # The mean of steps t-9 to t is first above one half at t = onset: six of the ten are at .85.
    rises = arm == "vanilla" and hack is None
    hacks = [0.85 if t > onset - 6 else 0.0 for t in range(steps)] if rises else [end] * steps
    columns = {
        "gt": 0.3, "form": 0.97, "seconds": 1.0, "known": 10.0, "own": 10.0, "update_removed": 0.6, "update_norm": 0.2,
        "removed_share": 1.0 if ARMS[arm].projects else None, **dict(rows),
    }  # fmt: skip
    series = {"hack": hacks, "hacked": hacks, **{name: [value] * steps for name, value in columns.items()}}
    return Run(
        Path(f"{arm}_{seed}{place}"), arm, seed, facts(arm, seed, steps, **changed), 10 * steps, series,
        {0: {"gt": held_out[0]}, steps: {"gt": held_out[1]}}, None, tested={0: tested[0], steps: tested[1]},
    )  # fmt: skip


def of_arm(arm, hacks=(None,) * 3, gts=(None,) * 3, rows=(), **changed):
    """The runs of an arm, with a hack rate and a gt_pass a seed."""
    each = zip(ONSETS, hacks, [{} if gt is None else {"gt": gt} for gt in gts], strict=True)
    return [run(arm, seed, hack=hack, rows={**dict(rows), **solved}, **changed) for seed, hack, solved in each]


def judged(*others, without=()):
    """H1's three lines of every arm of three replicates; `others` take the place of the run of their arm and seed."""
    given = {(r.arm, r.seed): r for r in others}
    runs = [given.get((arm, seed)) or run(arm, seed) for arm in ENDS for seed in ONSETS
            if arm not in without and (arm, seed) not in without]  # fmt: skip
    return judge(group_runs(runs), runs)


def states(line):
    """Clause -> status."""
    return {c.name: c.status for c in line.clauses}
