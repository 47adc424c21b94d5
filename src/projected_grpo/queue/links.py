"""One link of a chain, chain.json (the links of a chain's folder), and the rule by which a link is done. Torch-free."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import first_fault, write_atomic


@dataclass(frozen=True)
class Link:
    """A script with its arguments, the folder it writes, and what must be done before it."""

    name: str
    argv: tuple[str, ...]
    """Script and its arguments; the interpreter is the back end's."""
    out: Path
    """Folder (or, of a check, file) that it writes."""
    needs: tuple[str, ...] = ()
    check: bool = False
    """It only reads runs, and writes a file or a report, which is made again whenever they are."""
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
    def label(self) -> str:
        """What a queue shows next to it."""
        return f"why: {self.why}; resolve: {self.resolve}"


Chain = dict[str, Link]
_CHAIN = TypeAdapter(Chain)


def passed_file(link: Link, home: Path) -> Path:
    """The file that marks a link as done, since its modification time."""
    return home / "logs" / f"{link.name}.passed"


def is_done(link: Link, home: Path, chain: Chain) -> bool:
    """Returns True if a link has passed and its run is there; of a check, if it passed after all that it judges."""
    mark = passed_file(link, home)
    if not link.check or not mark.exists():
        return mark.exists() and link.out.exists()
    needs = [chain[name] for name in link.needs]
    return all(
        is_done(need, home, chain) and passed_file(need, home).stat().st_mtime <= mark.stat().st_mtime for need in needs
    )


def read_chain(home: Path) -> Chain:
    """Returns the links of the chain in `home` by name. BadInput when they are of another version."""
    path = home / "chain.json"
    try:
        return _CHAIN.validate_json(path.read_bytes(), extra="forbid")
    except ValidationError as e:
        raise BadInput(
            f"{path}: damaged or of another version ({first_fault(e)}); queue the chain again with another --out"
        ) from e


def write_chain(home: Path, links: Sequence[Link]) -> Chain:
    """Writes the links of a chain into its folder, next to those of earlier calls. Returns all of them.

    BadInput when nothing can be written there, or when a link that has begun there would change: its numbers would be mixed
    up with those of the rest.
    """
    before = read_chain(home) if (home / "chain.json").exists() else {}
    for link in links:
        old = before.get(link.name)
        if old and old.argv != link.argv and old.out.exists():
            raise BadInput(
                f"--out {home}: {link.name} was begun as `{shlex.join(old.argv)}`, now asked for as "
                f"`{shlex.join(link.argv)}`; give the same settings, or another --out"
            )
    chain = before | {link.name: link for link in links}
    write_atomic(home / "chain.json", _CHAIN.dump_json(chain, indent=1))
    (home / "logs").mkdir(exist_ok=True)
    return chain
