"""What was run, when, by which code: the manifests of an experiment's runs, for a reader."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projected_grpo.report.page.experiment import Member

HASHES = ("model_hash", "tokenizer_hash", "problems_hash", "pool_hash")


@dataclass(frozen=True)
class About:
    """Facts of the whole by name, and two tables with one row per run."""

    facts: Mapping[str, str]
    run_header: Sequence[str]
    runs: Sequence[Sequence[str]]
    hash_header: Sequence[str]
    hashes: Sequence[Sequence[str]]


def about(members: Sequence[Member], arms: Iterable[str]) -> About:
    """What the page's head says of the runs; `arms` as the rollouts' filter names them."""
    runs = [
        [m.name, m.kind, str(m.config.get("seed", "-")), _when(m), "yes" if m.finished else "NO", _commit(m),
         " ".join(map(str, m.manifest.get("argv") or []))]
        for m in members
    ]  # fmt: skip
    hashes = [[m.name, *(str(m.manifest.get(name) or "-") for name in HASHES), _v(m)] for m in members]
    run_header = ("run", "kind", "seed", "started (UTC)", "finished", "commit", "argv")
    return About(_facts(members, arms), run_header, runs, ("run", *HASHES, "V"), hashes)


def _facts(members: Sequence[Member], arms: Iterable[str]) -> Mapping[str, str]:
    kinds = Counter(m.kind for m in members)
    starts = sorted(_when(m) for m in members)
    train = [m for m in members if m.kind == "train"] or list(members)
    versions = sorted({f"{name} {v}" for m in members for name, v in (m.manifest.get("versions") or {}).items()})
    return {
        "runs": ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())),
        "started": starts[0] if starts[0] == starts[-1] else f"{starts[0]} to {starts[-1]} (UTC)",
        "model": _each(m.config.get("model") for m in train),
        "adapter": _each(m.config.get("adapter") for m in train),
        "arms": _each(arms),
        "seeds": _each(m.config.get("seed") for m in train),
        "steps": _each(m.config.get("steps") for m in train),
        "commit": _each(_commit(m) for m in members),
        "versions": ", ".join(versions),
    }


def _each(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(v) for v in values if v is not None)) or "-"


def _when(member: Member) -> str:
    return str(member.manifest.get("started") or "-").removesuffix("+00:00").replace("T", " ")


def _commit(member: Member) -> str:
    commit = str(member.manifest.get("commit") or "unknown")[:12]
    return commit + (" with uncommitted changes" if member.manifest.get("diff") else "")


def _v(member: Member) -> str:
    facts = member.manifest.get("vhack") or {}
    return (
        ", ".join(f"{name} {facts[name]}" for name in ("control", "modes", "k", "pairs_hash") if name in facts) or "-"
    )
