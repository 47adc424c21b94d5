"""Verdicts T1 to T4, and T7, of an experiment: which pool, vanilla replays and projected replay belong together, and what
they say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.report.page.experiment import Experiment, Member
from projected_grpo.report.second_v import grpo_beside
from projected_grpo.verdicts.registry import Evidence, Finding, of_probe


@dataclass(frozen=True)
class Probe:
    """T1 to T4 and T4's companion on one pool and its replays."""

    title: str
    found: Sequence[Finding]


@dataclass(frozen=True)
class _Part:
    """A finished pool or replay; one that is missing has no steps."""

    name: str = "(none)"
    steps: Sequence[Sequence[Row]] = ()
    grpo: Sequence[Row] | None = None
    """Of a vanilla replay: the same rollouts measured against a V of --loss grpo."""

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.steps for row in rows]

    @property
    def ids(self) -> list[list[Sequence[int]]]:
        """The rollouts that were graded or replayed, by their tokens."""
        return [[row["completion_ids"] for row in rows] for rows in self.steps]


def probed(found: Experiment) -> list[Probe]:
    """One set of verdicts per projected replay, with the vanilla replay of the same rollouts and their pool; and of a
    vanilla replay or a pool that stands alone, what can be said of it.

    Unfinished runs are passed over. BadInput on a damaged step file.
    """
    done = [member for member in found.members if member.finished and member.has_steps]
    vanilla = [m for m in done if m.kind == "probe_distill" and m.config.get("arm") == "vanilla"]
    projected = [m for m in done if m.kind == "probe_distill" and m.config.get("arm") == "projected"]
    pools = [_read(member) for member in done if member.kind == "teacher_pool"]
    pairs: list[tuple[Member | None, Member | None]] = [(_mate(member, vanilla), member) for member in projected]
    pairs += [(member, None) for member in vanilla if not any(member is mate for mate, _ in pairs)]
    sets = [_with_pool(pools, _with_loss(measured, vanilla), _read(removed)) for measured, removed in pairs]
    sets += [(pool, _Part(), _Part()) for pool in pools if not any(pool is used for used, _, _ in sets)]
    return [_judged(*parts) for parts in sets]


def _mate(projected: Member, vanilla: Sequence[Member]) -> Member | None:
    """The vanilla replay of the same rollouts with the same V: what another V measures says nothing about this one."""
    same = ("pool_hash", "vhack")
    return next((v for v in vanilla if all(v.manifest.get(s) == projected.manifest.get(s) for s in same)), None)


def _read(member: Member | None) -> _Part:
    if member is None:
        return _Part()
    control = (member.manifest.get("vhack") or {}).get("control", "none")
    told = "" if control == "none" else f" (a control: V is {control})"
    return _Part(member.name + told, read_run(member.path))


def _with_loss(measured: Member | None, vanilla: Sequence[Member]) -> _Part:
    """A vanilla replay, with the rows of the one that is the same but for its V's loss."""
    part = _read(measured)
    other = None if measured is None else grpo_beside(measured.manifest, [(m, m.manifest) for m in vanilla])
    return part if other is None else replace(part, grpo=_read(other).rows)


def _with_pool(pools: Sequence[_Part], vanilla: _Part, projected: _Part) -> tuple[_Part, _Part, _Part]:
    """The pool whose first groups were replayed, token by token: a replay may stop early."""
    replayed = (vanilla if vanilla.steps else projected).ids
    pool = next((pool for pool in pools if pool.ids[: len(replayed)] == replayed), _Part())
    return pool, vanilla, projected


def _judged(pool: _Part, vanilla: _Part, projected: _Part) -> Probe:
    title = f"pool {pool.name}, vanilla replay {vanilla.name}, projected replay {projected.name}"
    losses = None if vanilla.grpo is None else (vanilla.rows, vanilla.grpo)
    return Probe(title, of_probe(Evidence(pool.rows, vanilla.rows, projected.steps, losses)))
