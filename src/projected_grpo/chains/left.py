"""How long a chain still takes: what each link costs, at the pace of those that have run, side by side as they will run.

minutes = minutes_left(links, done, failed, {"train": 0.4}, taken, threads) * pace
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from projected_grpo.chains.links import Link, by_name

ALMOST = 0.95
"""The most that is believed of a link whose progress cannot be seen."""


def startable(waiting: Sequence[Link], done: Collection[str], taken: Callable[[Link], int], free: int) -> list[Link]:
    """Of the links that wait, in their order, those whose needs are done and that `free` threads have room for."""
    out = []
    for link in waiting:
        if set(link.needs) <= set(done) and taken(link) <= free:
            out.append(link)
            free -= taken(link)
    return out


def minutes_left(
    links: Sequence[Link], done: Collection[str], failed: Collection[str], running: Mapping[str, float],
    taken: Callable[[Link], int], threads: int,
) -> float:  # fmt: skip
    """Minutes until nothing can run any more, each link at its cost. `running`: the share of each that is done; `taken`: how
    many of `threads` a link takes. What waits for a failed link is not counted."""
    chain = by_name(links)
    left = {name: chain[name].cost * (1 - share) for name, share in running.items()}
    ended, minutes = set(done), 0.0
    waiting = [t for t in links if t.name not in {*done, *failed, *running}]
    while True:
        for link in startable(waiting, ended, taken, threads - sum(taken(chain[name]) for name in left)):
            left[link.name] = link.cost
            waiting.remove(link)
        if not left:
            return minutes
        step = min(left.values())
        minutes += step
        for name in [name for name, of in left.items() if of <= step]:
            ended.add(name)
            del left[name]
        left = {name: of - step for name, of in left.items()}


def told(minutes: float) -> str:
    """In whole minutes, or in hours where there are several."""
    return f"about {minutes:.0f} min left" if minutes < 120 else f"about {minutes / 60:.1f} h left"
