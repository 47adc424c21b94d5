"""Replicas without a common network: a round is a folder of an object store that all can read and write, through fsspec.

    round_00000/replica_2.safetensors    what a replica has learned since the last round, [n + replicas]
    round_00000/closed.json              whose count: written once, by whoever finds all there or has waited long enough
    round_00000/state.safetensors        origin and momentum after the round, for one that comes later

An object is written once and never changed: who comes second reads what the first has written. So all replicas average the
same objects in the same order, and hold the same bits. A local folder does that by hard links, S3 by conditional writes
(If-None-Match); a store that has neither is not to be used.

Vectors carry their SHA-256 (`packed`), as nobody else would see a changed number: it is as finite and as long as the right
one. And each that averages holds its own result against the state that is there.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from loguru import logger
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from projected_grpo.ledger.errors import BadInput, BrokenWorld
from projected_grpo.replicas.meeting import START_PATIENCES, Outer, check_facts
from projected_grpo.run.vhack_file import content_of

FIRST_LOOK_S, LAST_LOOK_S = 0.1, 5.0
"""Between two looks into the store while others are waited for: longer and longer."""


class ByStore:
    """A replica's place in a folder of a store."""

    @staticmethod
    def check(address: str) -> None:
        """BadInput for an address that fsspec cannot open."""
        try:
            url_to_fs(address)
        except (ImportError, ValueError, OSError) as e:
            raise BadInput(f"--meet {address}: {e}") from e

    def __init__(self, outer: Outer, address: str, patience: float) -> None:
        self.outer, self.patience, self.address = outer, patience, address
        self.fs, self.root = url_to_fs(address, use_listings_cache=False)
        self.name = f"replica_{outer.flat.replica}"

    # ------------------------------------------------------------ objects

    def put(self, place: str, data: bytes) -> bool:
        """Write an object unless it is there. Whether it was written: of several that race, by one alone."""
        path = f"{self.root}/{place}"
        try:
            if isinstance(self.fs, LocalFileSystem):
                return put_local(Path(path), data)
            self.fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except OSError as e:  # S3 refuses both of two that race at the very same moment
            if self.get(place) is None:
                raise BrokenWorld(f"--meet {self.address}: {place} cannot be written ({e})") from e
            return False
        return True

    def get(self, place: str) -> bytes | None:
        """An object; None where there is none."""
        try:
            return self.fs.cat_file(f"{self.root}/{place}")
        except FileNotFoundError:
            return None
        except OSError as e:
            raise BrokenWorld(f"--meet {self.address}: {place} cannot be read ({e})") from e

    def names(self, place: str) -> list[str]:
        """Names in a folder, in order; none where there is no folder."""
        try:
            found = [path.rstrip("/").rpartition("/")[2] for path in self.fs.ls(f"{self.root}/{place}", detail=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))  # half-written ones begin with a dot

    # ------------------------------------------------------------ the meeting

    def begin(self, facts: Mapping[str, Any]) -> bool:
        """Wait until all have left a name, or somebody has held a round."""
        self.put("facts.json", json.dumps(facts).encode())
        check_facts(facts, self.get("facts.json") or b"", f"--meet {self.address}: facts.json")
        self.put(f"start/{self.name}", b"")
        look = Looks(self.patience * START_PATIENCES)
        while not (begun := self.get(f"{folder(0)}/closed.json") is not None):
            if len(there := [n for n in self.names("start") if n in self._everyone]) == self.outer.flat.replicas:
                break
            if look.over():
                logger.warning(f"only {', '.join(there)} came; they begin")
                break
        return begun

    def hold(self, *, brings: bool) -> None:
        """As Meeting.hold; a replica that was late or is back catches up from the latest state in the store. BrokenWorld
        where that is the last: a round beyond it would be one of this replica alone."""
        self.outer.behind = 0
        self.outer.flat.take(brings=brings)
        if not brings:
            self._wait_for_own()
        self._catch_up()
        while brings:
            self._check_open()
            learned = self.outer.origin - self.outer.flat.flat.detach()
            self._bring(learned)
            members = self._closed()
            self._average(members)
            if self.name in members:
                break
            with torch.no_grad():  # closed without this one: on top of the new origin, for the next round
                self.outer.flat.flat.copy_(self.outer.origin - learned)
            self.outer.behind += 1
        self.outer.flat.give()

    def _check_open(self) -> None:
        """BrokenWorld where all rounds have been held; the coordinates are the group's then, not this one's beside them."""
        if not self.outer.over:
            return
        with torch.no_grad():
            self.outer.flat.flat.copy_(self.outer.origin)
        self.outer.flat.give()
        raise BrokenWorld(
            f"--meet {self.address}: the others have held the last round, {self.outer.round}, without {self.name}; what it "
            "has learned since its own last one counts nowhere, and --resume ends it with the group's coordinates"
        )

    def _bring(self, learned: Tensor) -> None:
        """Write what was learned. BrokenWorld where another run has this replica's number."""
        place, data = f"{folder(self.outer.round)}/{self.name}.safetensors", packed(learned=learned)
        if self.put(place, data) or self.get(place) == data:
            return
        if self.outer.round:
            raise BrokenWorld(
                f"--meet {self.address}: {place} is another run's: two runs have this number; end one, and continue the "
                "other with --resume"
            )
        logger.warning(f"{place} was there: what was brought before this run was cut and begun anew counts")

    def _wait_for_own(self) -> None:
        """Back after a kill between bringing something and the round's end: it still counts, so that end is waited for."""
        if self.get(f"{folder(self.outer.round)}/{self.name}.safetensors") is not None:
            self._average(self._closed())

    def _closed(self) -> list[str]:
        """The names of those who count in the open round, once it is closed."""
        place, look = folder(self.outer.round), Looks(self.patience)
        while (closed := self.get(f"{place}/closed.json")) is None:
            found = self.names(place)
            there = [name for name in self._everyone if f"{name}.safetensors" in found]
            if len(there) == self.outer.flat.replicas or look.over():
                self.put(f"{place}/closed.json", json.dumps(there).encode())
        return self._members(place, closed)

    def _members(self, place: str, closed: bytes) -> list[str]:
        """What `closed.json` says. BrokenWorld where it names what is no replica of this group, or nobody."""
        with contextlib.suppress(ValueError, TypeError):
            members = json.loads(closed)
            if isinstance(members, list) and members and sorted(members) == sorted(set(members) & set(self._everyone)):
                return members
        raise self._unfit(
            f"{place}/closed.json",
            f"{closed.decode(errors='replace')!r:.80} names no replicas of this group, once each",
        )

    @property
    def _everyone(self) -> list[str]:
        return [f"replica_{i}" for i in range(self.outer.flat.replicas)]

    def _learned(self, place: str) -> Tensor:
        """What a replica has brought. BrokenWorld where it is another's."""
        flat = self.outer.flat
        (learned,) = self._loaded(place, self.get(place) or b"", "learned")
        mark = torch.tensor([place.endswith(f"/replica_{i}.safetensors") for i in range(flat.replicas)])
        if not torch.equal(learned[-flat.replicas :], mark.to(learned)):
            raise self._unfit(place, "is marked as another replica's")
        return learned

    def _loaded(self, place: str, data: bytes, *names: str) -> list[Tensor]:
        """Vectors of an object. BrokenWorld where it holds none of ours, or not those that were written: a store is
        anybody's who can write there."""
        try:
            content = load(data)
            found = [content[name] for name in names]
        except (SafetensorError, KeyError) as e:
            raise self._unfit(place, f"cannot be read ({e})") from e
        like = self.outer.flat.flat
        for vector in found:
            if vector.shape != like.shape or vector.dtype != like.dtype:
                raise self._unfit(
                    place, f"is {tuple(vector.shape)} {vector.dtype}, not {tuple(like.shape)} {like.dtype}"
                )
            if not vector.isfinite().all():
                raise self._unfit(place, "holds numbers that are not finite")
        if sha256_told(data) != content_of({name: content[name] for name in names}):
            raise self._unfit(place, "holds other numbers than were written: their SHA-256 is not the one it tells")
        return found

    def _unfit(self, place: str, why: str) -> BrokenWorld:
        return BrokenWorld(f"--meet {self.address}: {place} {why}; take it away, and continue with --resume")

    def _average(self, members: list[str]) -> None:
        """The outer step of the round that has closed."""
        place, flat = folder(self.outer.round), self.outer.flat.flat
        found = [self._learned(f"{place}/{name}.safetensors") for name in members]
        with torch.no_grad():
            flat.copy_(self.outer.origin)
        flat.grad = torch.stack(found).mean(0)
        self.outer.optimizer.step()
        self.outer.origin, self.outer.round = flat.detach().clone(), self.outer.round + 1
        self._leave_state(f"{place}/state.safetensors")

    def _leave_state(self, place: str) -> None:
        """Write the state after a round. BrokenWorld where another is there: all average the same objects to the same
        bits, and who comes later would take that one."""
        state = packed(origin=self.outer.origin, momentum=self.outer.optimizer.momentum)
        if not self.put(place, state) and self.get(place) != state:
            raise self._unfit(place, f"is not what the round's objects make of round {self.outer.round - 1} here")

    @torch.no_grad()
    def _catch_up(self) -> None:
        """Stand where the latest state stands, with what was learned since the old origin on top."""
        there = (number_of(name) for name in self.names(""))
        for number in sorted((n for n in there if n is not None and n >= self.outer.round), reverse=True):
            place, held = folder(number), number + 1
            if (data := self.get(state := f"{place}/state.safetensors")) is not None:
                origin, momentum = self._loaded(state, data, "origin", "momentum")
                flat = self.outer.flat.flat
                flat.copy_(origin + (flat - self.outer.origin))
                self.outer.origin, self.outer.optimizer.momentum = origin, momentum
                closed = self.get(f"{place}/closed.json")  # none where somebody took away a damaged one
                self.outer.optimizer.brought = () if closed is None else numbers(self._members(place, closed))
                self.outer.behind, self.outer.round = held - self.outer.round, held
                return

    def close(self) -> None:
        """Nothing is held open."""


class Looks:
    """Waiting for what others do: ever longer pauses, for so many seconds in all."""

    def __init__(self, patience: float) -> None:
        self.end, self.pause = time.monotonic() + patience, FIRST_LOOK_S

    def over(self) -> bool:
        """Whether the patience has run out; sleeps a little where it has not."""
        if (left := self.end - time.monotonic()) <= 0:
            return True
        time.sleep(min(self.pause, left))
        self.pause = min(LAST_LOOK_S, 1.5 * self.pause)
        return False


def numbers(names: list[str]) -> tuple[int, ...]:
    """Of replicas, by the names of what they bring."""
    return tuple(sorted(int(name.removeprefix("replica_")) for name in names))


def folder(number: int) -> str:
    """Of the round that makes coordinates of `number` rounds into those of one more."""
    return f"round_{number:05d}"


def number_of(name: str) -> int | None:
    """Of the round whose folder has this name; None for what is no round's, which is nobody's concern here."""
    digits = name.removeprefix("round_")
    return int(digits) if digits.isdecimal() and folder(int(digits)) == name else None


def packed(**vectors: Tensor) -> bytes:
    """An object of the store: vectors, and their SHA-256 in the metadata of its header."""
    return save(vectors, {"sha256": content_of(vectors)})


def sha256_told(data: bytes) -> str | None:
    """The SHA-256 in a safetensors object's header, which `load` leaves out: 8 bytes of length, then JSON."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return (header.get("__metadata__") or {}).get("sha256")


def put_local(path: Path, data: bytes) -> bool:
    """As ByStore.put: whole under a name of its own, then linked to the real one, which fails where that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        own.write_bytes(data)
        path.hardlink_to(own)
    except FileExistsError:
        return False
    finally:
        own.unlink(missing_ok=True)
    return True
