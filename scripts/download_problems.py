"""Fetch the benchmark's problems, pinned to one commit, into out/problems: `fast` and `full` then train on the one file and
evaluate on the other. What was cut goes on where it was; what is there and whole is left."""

import hashlib
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli
from projected_grpo.worlds.benchmark import LEETCODE, PROBLEMS_FOLDER

SOURCE = "https://raw.githubusercontent.com/wassname/vGROUT_pub/c06721892d79dda466d407b10607fb493e58e867/data/leetcode"


@dataclass(frozen=True)
class DownloadConfig:
    """Where from."""

    source: str = SOURCE
    """A folder on a web server: a mirror of the benchmark's."""
    out: Path = PROBLEMS_FOLDER
    """Folder to write into."""


def blob_id(data: bytes) -> str:
    """Returns the name that git has for a file of these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def fetched(url: str, path: Path) -> bytes:
    """Returns what lies at a URL, going on with what an earlier call left in `path`. BadInput where there is no way to it,
    or on the way."""
    before = path.read_bytes() if path.exists() else b""
    request = urllib.request.Request(url, headers={"Range": f"bytes={len(before)}-"} if before else {})
    try:
        with (
            urllib.request.urlopen(request, timeout=30) as answer,
            path.open("ab" if answer.status == 206 else "wb") as out,
        ):
            while part := answer.read(1 << 16):
                out.write(part)
    except HTTPError as e:
        if e.code != 416:  # nothing is left to fetch
            raise BadInput(f"{url}: {e.code} {e.reason}; give --source another mirror") from e
    except (URLError, OSError) as e:
        raise BadInput(
            f"{url}: cannot be fetched ({getattr(e, 'reason', e)}); call it again when there is a network"
        ) from e
    return path.read_bytes()


def main() -> int:
    config = cli.parse_plain(DownloadConfig, __doc__ or "")
    config.out.mkdir(parents=True, exist_ok=True)
    for name, blob in LEETCODE.values():
        path = config.out / name
        if path.exists() and blob_id(path.read_bytes()) == blob:
            continue
        part = path.with_name(f"{name}.part")
        if (found := blob_id(fetched(f"{config.source}/{name}", part))) != blob:
            part.unlink()
            raise BadInput(
                f"{config.source}/{name}: is git blob {found}, not {blob}; call it again, or give another --source"
            )
        part.rename(path)
    bottom_line(config.out, "🟢", f"{len(LEETCODE)} files of problems, each the pinned one")
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
