"""One link of a chain, and chain.json: the file in which a chain's folder says what its links are. Torch-free."""

import dataclasses
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic

Kind = Literal["once", "run", "check"]


@dataclass(frozen=True)
class Link:
    """A script with its arguments, the folder it writes, and what must be done before it."""

    name: str
    argv: tuple[str, ...]
    """Script and its arguments; the interpreter is the back end's."""
    out: Path
    """Folder (or, of a check, file) that it writes."""
    needs: tuple[str, ...] = ()
    kind: Kind = "once"
    """once: writes a run directory in one go; run: the same, and can be resumed; check: a verdict on finished runs."""
    threads: int = 1
    """CPU threads. Fixed, since their number can change the last digits; 0 = the back end's default (GPU runs)."""
    gpu: bool = True
    """Whether it would use a GPU: no for what only reads step files."""
    minutes: float = 0.2
    """Roughly how long it takes: of a core for presets that run on a CPU, of an H100 for the others."""
    why: str = ""
    resolve: str = ""
    """What its outcome decides."""
    accept: tuple[int, ...] = (0,)
    """Exit codes that mean done, if `out` is there too: a report is made whatever its verdict."""

    @property
    def command(self) -> str:
        """What a person would type."""
        return shlex.join(("python", *self.argv))

    @property
    def label(self) -> str:
        """What a queue shows beside it."""
        return f"why: {self.why}; resolve: {self.resolve}"


def _as_json(link: Link) -> dict[str, Any]:
    return {**dataclasses.asdict(link), "out": str(link.out)}


def _from_json(found: Mapping[str, Any]) -> Link:
    values: dict[str, Any] = {**found, **{key: tuple(found[key]) for key in ("argv", "needs", "accept")}}
    values["out"] = Path(found["out"])
    return Link(**values)


def chain_file(home: Path) -> Path:
    """Where a chain's folder keeps its links."""
    return home / "chain.json"


def read_chain(home: Path) -> dict[str, Link]:
    """Links of the chain in `home` by name. BadInput when there is none, or its file is damaged or of another version."""
    path = chain_file(home)
    try:
        return {found["name"]: _from_json(found) for found in json.loads(path.read_text("utf-8"))}
    except FileNotFoundError as e:
        raise BadInput(f"{path}: no such file; {home} is no chain's folder") from e
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise BadInput(f"{path}: damaged or of another version ({e}); queue the chain again with another --out") from e


def write_chain(home: Path, links: Sequence[Link]) -> list[Link]:
    """Write the links of a chain into its folder, next to those that an earlier call put there. Returns them.

    ValueError when a need is nobody's name; BadInput when the folder cannot be made, or when a link that has begun there
    would now be another: its numbers would be mixed up with those of the rest.
    """
    if unknown := {need for t in links for need in t.needs} - {t.name for t in links}:
        raise ValueError(f"needs of no link: {sorted(unknown)}")
    before = read_chain(home) if chain_file(home).exists() else {}
    begun = {name: old for name, old in before.items() if old.out.exists()}
    for link in links:
        old = begun.get(link.name)
        if old and old.argv != link.argv:
            raise BadInput(
                f"--out {home}: {link.name} was begun as `{shlex.join(old.argv)}`, now asked for as "
                f"`{shlex.join(link.argv)}`; give the same settings, or another --out"
            )
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"--out {home}: cannot be made ({e.strerror or e})") from e
    now = {**before, **by_name(links)}
    write_atomic(chain_file(home), (json.dumps([_as_json(t) for t in now.values()], indent=1) + "\n").encode())
    return list(links)


def by_name(links: Iterable[Link]) -> dict[str, Link]:
    """Links by their names."""
    return {t.name: t for t in links}
