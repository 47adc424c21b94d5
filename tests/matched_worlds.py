"""Worlds without any difference between the kinds, and with one of known size, in which T4's two tests are tried.

A world draws who is of which kind, how long each rollout is and what its value is. Values have a level per problem
and a length effect. Seeded: the same numbers each time."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from projected_grpo.verdicts.probe import ALPHA, T4_EFFECT
from projected_grpo.verdicts.statistics import matched_design

SEED = 41


@dataclass(frozen=True)
class World:
    """One design."""

    problems: int = 40
    rollouts: int = 8
    share: float = 0.5  # of the high kind, within a mixed problem
    mixed: tuple[int, int] | None = None  # how many problems hold both kinds, at least and at most; None: as drawn
    length_gap: float = 0.0  # how much longer the high kind is, in standard deviations of the length
    noise: float = 0.0  # log-normal spread of the noise between problems
    noisier: float = 1.0  # noise of the high kind over that of the low one
    slopes: float = 0.0  # standard deviation over problems of the kind's own effect and of the length's
    level: float = 1.0  # standard deviation of the problems' levels
    unequal: bool = False  # problems have 2 to 2 * rollouts - 2 rollouts
    skewed: Literal["", "lognormal", "exponential"] = ""  # the noise's shape, its long tail to the left; empty: normal


WORLDS = {
    "many problems mixed": World(),
    "5 to 8 mixed of 40": World(mixed=(5, 8)),
    "5 to 8 mixed of 40, levels and slopes": World(mixed=(5, 8), slopes=0.7, level=3.0),
    "few of one kind (1 in 8)": World(rollouts=12, problems=24, share=0.125),
    "longer where high": World(length_gap=1.5),
    "noise differs between problems": World(noise=0.6),
    "noise differs between kinds": World(noisier=2.5, share=0.25),
    "all of it": World(
        problems=30, mixed=(8, 12), share=0.35, length_gap=1.0, noise=0.4, noisier=1.5, slopes=0.5, unequal=True
    ),
}
SKEWED = {  # where Student's t is not to be trusted
    "lognormal, 8 % of one kind": World(rollouts=12, share=0.08, skewed="lognormal"),
    "exponential, 1 in 8": World(rollouts=12, problems=24, share=0.125, skewed="exponential"),
}
LENGTHS = {  # detectors of length alone, which no parabola follows
    "1 / sqrt(length)": lambda n: 30 / np.sqrt(n),
    "1 / length": lambda n: 300 / n,
    "a smooth step": lambda n: np.tanh((n - 230) / 8),
}
POWER = {
    "12 problems of 8": World(problems=12, level=0.5),
    "40 problems of 8": World(level=0.5),
    "116 problems of 8": World(problems=116, level=0.5),
    "40 problems of 8, 6 mixed": World(mixed=(6, 6), level=0.5),
    "116 problems of 8, 6 mixed": World(problems=116, mixed=(6, 6), level=0.5),
}


def drawn(world, rng):
    """(kind, length, problem) of every rollout, problems one after the other."""
    n_mixed = world.problems if world.mixed is None else int(rng.integers(world.mixed[0], world.mixed[1] + 1))
    sizes = (
        rng.integers(2, 2 * world.rollouts - 1, world.problems) if world.unequal else [world.rollouts] * world.problems
    )
    high = []
    for p, size in enumerate(sizes):
        kinds = rng.random(size) < (world.share if p < n_mixed else 0.5)
        if p >= n_mixed:
            kinds[:] = p % 2 == 0
        elif world.mixed is not None:
            kinds[:2] = (True, False)
        high += kinds.tolist()
    high = np.array(high)
    lengths = np.clip(200 + 40 * (rng.standard_normal(len(high)) + world.length_gap * high), 5, None).astype(int)
    return high, lengths, np.repeat(np.arange(world.problems), sizes)


def values_of(world, high, lengths, problem, draws, rng):
    """[rollouts, draws]."""
    shape, z = (len(high), draws), (lengths - 200) / 40
    sd = np.exp(world.noise * rng.standard_normal((world.problems, draws)))[problem]
    sd = sd * np.where(high, world.noisier, 1.0)[:, None]
    kind, length = world.slopes * rng.standard_normal((2, world.problems, draws))
    out = world.level * rng.standard_normal((world.problems, draws))[problem]
    noise = rng.exponential(size=shape) if world.skewed == "exponential" else rng.standard_normal(shape)
    mean_0 = {"lognormal": lambda x: np.exp(0.5) - np.exp(x), "exponential": lambda x: 1 - x, "": lambda x: x}
    out += sd * mean_0[world.skewed](noise)
    out += high[:, None] * kind[problem] + z[:, None] * (0.5 + length[problem]) + 0.2 * z[:, None] ** 2
    return out


def designs_of(world, draws, rng):
    """Ten designs of a world: (kind [rollouts], what a fit needs, values [rollouts, draws])."""
    for _ in range(10):
        high, lengths, problem = drawn(world, rng)
        _, design = matched_design(high.tolist(), lengths.tolist(), problem.astype(str).tolist())
        yield high, design, values_of(world, high, lengths, problem, draws, rng)


def rejection(world, *, draws=200, g=0.0):
    """How often each test says that the high kind is higher, where it is higher by g standard deviations (the root of
    the mean of both kinds' variances, mean over draws). `passes`: all that T4 asks."""
    found = {test: [] for test in ("matched", "passes")}
    for high, design, values in designs_of(world, draws, np.random.default_rng(SEED)):
        sd = np.sqrt((values[high].var(0, ddof=1) + values[~high].var(0, ddof=1)) / 2)  # g's denominator
        values += high[:, None] * g * sd.mean()
        estimate, sem = design.fit(values)
        matched = stats.t.sf(estimate / sem, design.df)
        welch = stats.ttest_ind(values[high], values[~high], equal_var=False, alternative="greater").pvalue
        hedges = (values[high].mean(0) - values[~high].mean(0)) / sd
        found["matched"].append(matched < ALPHA)
        large = np.minimum(hedges, estimate / sd) >= T4_EFFECT
        found["passes"].append((welch < ALPHA) & (matched < ALPHA) & large)
    return {test: float(np.mean(hits)) for test, hits in found.items()}


def permuted_rejection(world):
    """How often true nulls are rejected: by the rank of t among 199 permutations, by Student's t and that at once."""
    rng, found = np.random.default_rng(SEED), {test: [] for test in ("permuted", "both")}
    for _, design, values in designs_of(world, 60, rng):
        estimate, sem = design.fit(values)
        t = estimate / sem
        others = np.array([design.permuted_t(one, 199, rng) for one in values.T])
        permuted = (1 + np.count_nonzero(others >= t[:, None], axis=1)) / 200 <= ALPHA
        found["permuted"].append(permuted)
        found["both"].append(permuted & (stats.t.sf(t, design.df) < ALPHA))
    return {test: float(np.mean(hits)) for test, hits in found.items()}


def length_rejection(name):
    """How often a detector of length alone, noise and levels of problems beside it, is taken for one of the kind, by
    Student's t, in 5 designs of 30 draws each. The high kind is longer for a step and shorter for the others."""
    rng, found, problems, draws = np.random.default_rng(SEED), [], 116, 30
    for _ in range(5):
        problem = np.repeat(np.arange(problems), 8)
        high = rng.random(len(problem)) < 0.5
        z = rng.standard_normal(len(problem))
        step = name == "a smooth step"
        lengths = np.clip(200 + 40 * (z + 1.5 * high), 5, None) if step else np.exp(5 + 0.6 * z - 0.8 * high) + 5
        _, design = matched_design(high.tolist(), lengths.astype(int).tolist(), problem.astype(str).tolist())
        values = LENGTHS[name](lengths.astype(int))[:, None] + 0.1 * rng.standard_normal((len(problem), draws))
        estimate, sem = design.fit(values + 0.3 * rng.standard_normal((problems, draws))[problem])
        found.append(stats.t.sf(estimate / sem, design.df) < ALPHA)
    return float(np.mean(found))
