"""Pin every dependency, transitive ones too, at today's versions in pyproject.toml ([tool.uv] constraint-dependencies).

uv.lock names the registry it was made from, so it stays out of git; the versions that it found are what is kept.
"""

import argparse
import re
import subprocess
from pathlib import Path

from projected_grpo.ledger.errors import EXIT_FAILED, fail

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
PINS = re.compile(r"^constraint-dependencies = \[.*?^\]\n", re.DOTALL | re.MULTILINE)
PIN = re.compile(r'^  "[^"]+==', re.MULTILINE)
EXPORT = ("--all-groups", "--all-extras", "--no-hashes", "--no-emit-project", "--no-annotate", "--no-header")


def uv(*words: str) -> str:
    """What a quiet uv prints, run beside pyproject.toml."""
    done = subprocess.run(
        ["uv", *words, "--quiet"], cwd=PYPROJECT.parent, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def newest(text: str) -> str:
    """pyproject.toml with the newest versions pinned; the file itself goes without pins meanwhile."""
    free = PINS.sub("", text)
    PYPROJECT.write_text(free, "utf-8")  # yesterday's pins must not bind today's resolution
    uv("lock", "--upgrade")
    pins = [line.strip().replace('"', "'") for line in uv("export", *EXPORT).splitlines() if "==" in line]
    block = "constraint-dependencies = [\n" + "".join(f'  "{pin}",\n' for pin in pins) + "]\n"
    return free.replace("[tool.uv]\n", f"[tool.uv]\n{block}")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    text = before = PYPROJECT.read_text("utf-8")
    try:
        text = newest(before)
    except (OSError, subprocess.CalledProcessError) as e:
        fail(f"{PYPROJECT.name} keeps the pins it had: {e}", EXIT_FAILED)
    finally:  # Ctrl-C too
        PYPROJECT.write_text(text, "utf-8")
    print(f"{len(PIN.findall(text))} versions pinned in {PYPROJECT.name}")


if __name__ == "__main__":
    main()
