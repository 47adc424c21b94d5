"""Preference pairs at the replayed steps of a trace, from the disagreement of N frozen teachers.

At a state the student did one thing and each teacher proposes one. Where more than half of the teachers propose the same,
that is the majority's action, and

    majority > student     where the student did something else
    student > minority     for each other action that a teacher proposed and that is not the student's

Without a majority there is no pair. No reward and no ground truth takes part.

Do the pairs say more than chance? Each has a number (the student's log-probability of the chosen action minus that of the
rejected one), and so have pairs drawn at random from the same states' actions. KL(pairs || random) between the two
histograms is above 0 for any two finite samples, so it is read with its null: the same KL after the labels "pair" and
"random" are dealt out again, many times, of whole blocks of pairs.
"""

import bisect
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True)
class Proposals:
    """One replayed step."""

    state: Any
    """What the actions are conditioned on, as the caller keeps it: a prompt's token ids, an id."""
    student: Any
    """The action that was taken."""
    teachers: Sequence[Any]
    """One proposal each, in whatever order."""


@dataclass(frozen=True)
class PreferencePair:
    """`chosen` is preferred to `rejected`."""

    chosen: Any
    rejected: Any
    reason: Literal["majority over student", "student over minority"]
    votes: int
    """Teachers that proposed the chosen action (majority over student) or the rejected one (student over minority)."""


def pairs_of(step: Proposals, key: Callable[[Any], Hashable]) -> list[PreferencePair]:
    """Returns the pairs of one step, the majority's first, minorities by falling votes, then as they were first proposed.

    key: what two actions share that count as the same one. The first that was proposed represents all.
    """
    first = {key(action): action for action in reversed(step.teachers)}
    (top, most), *others = Counter(key(action) for action in step.teachers).most_common()
    student = key(step.student)
    if 2 * most <= len(step.teachers):
        return []
    pairs = [] if top == student else [PreferencePair(first[top], step.student, "majority over student", most)]
    return pairs + [
        PreferencePair(step.student, first[action], "student over minority", votes)
        for action, votes in others
        if action != student
    ]


def random_pairs(
    steps: Sequence[Proposals], n: int, seed: int | str, key: Callable[[Any], Hashable]
) -> list[tuple[Any, Any, Any]]:
    """Returns n pairs (state, one action, another): a step by chance, then two different actions of it, each as likely as
    any other; of equal ones the student's, or the first, represents all."""
    actions = [list({key(a): a for a in reversed((s.student, *s.teachers))}.values()) for s in steps]
    able = [i for i, found in enumerate(actions) if len(found) > 1]
    draw = random.Random(seed)
    return [(steps[i].state, *draw.sample(actions[i], 2)) for i in (draw.choice(able) for _ in range(n))]


class FromRandom(NamedTuple):
    """How far the pairs' numbers are from those of random pairs."""

    kl: float
    """KL(pairs || random) of the histograms, in nats."""
    null: float
    """Its mean where the two samples are dealt out at random."""
    p: float
    """Fraction of deals, the real one among them, with at least this KL."""


def kl_from_random(
    pairs: Sequence[float],
    random_ones: Sequence[float],
    blocks: Sequence[Hashable],
    *,
    bins: int = 10,
    deals: int = 999,
    seed: int = 0,
) -> FromRandom | None:
    """Returns the KL of the pairs' numbers from the random pairs', with its null; None with fewer than 2 pairs per bin.

    blocks: of each pair and of the random one at the same place; a deal changes the sides of whole blocks, since numbers of
    one block are not independent. bins: of equal counts over both samples together; equal numbers share a bin. Each bin of
    each histogram has half a count more, so that none is empty.
    """
    if len(pairs) < 2 * bins:
        return None
    pooled = [*pairs, *random_ones]
    ranked = sorted(pooled)
    edges = [ranked[len(ranked) * i // bins] for i in range(1, bins)]
    places = [bisect.bisect_right(edges, x) for x in pooled]
    n, deal = len(pairs), random.Random(seed)
    kl = _kl(places[:n], places[n:], bins)
    dealt = []
    for _ in range(deals):
        swap = {block: deal.random() < 0.5 for block in dict.fromkeys(blocks)}
        both = zip(places[:n], places[n:], blocks, strict=True)
        ours, theirs = zip(*((b, a) if swap[block] else (a, b) for a, b, block in both), strict=True)
        dealt.append(_kl(ours, theirs, bins))
    return FromRandom(kl, sum(dealt) / deals, (1 + sum(d >= kl for d in dealt)) / (1 + deals))


def _kl(p: Sequence[int], q: Sequence[int], bins: int) -> float:
    """Of two histograms with half a count more in each bin."""
    counts = [(Counter(side), len(side) + bins / 2) for side in (p, q)]
    shares = [[(found[i] + 0.5) / total for i in range(bins)] for found, total in counts]
    return sum(a * math.log(a / b) for a, b in zip(*shares, strict=True))
