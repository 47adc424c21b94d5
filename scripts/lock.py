"""Pin every dependency, transitive ones too, at today's versions: this project's in pyproject.toml ([tool.uv]
constraint-dependencies), those of the frameworks that have an environment of their own in tests/environments/.

uv.lock names the registry it was made from, so it stays out of git; the versions that it found are what is kept.
"""

import argparse
import re
import subprocess
from pathlib import Path

from projected_grpo.ledger.errors import EXIT_FAILED, fail

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
GRADER = Path("packages/loophole-grader/pyproject.toml")
FRAMEWORKS = ("inspect", "verifiers")
"""Extras of the grader (docs/use-in-your-trainer.md)."""
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


def pin_environment(extra: str) -> Path:
    """Newest versions of a framework's environment, in its file; one that cannot be found leaves the file as it is."""
    path = PYPROJECT.parent / "tests" / "environments" / f"{extra}.txt"
    words = ("--no-config", "--no-header", "--no-annotate", "--universal", "--python-version", "3.11", "--upgrade")
    uv("pip", "compile", str(GRADER), "--extra", extra, *words, "--output-file", str(path))
    return path


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
    for extra in FRAMEWORKS:
        try:
            path = pin_environment(extra)
        except (OSError, subprocess.CalledProcessError) as e:
            fail(f"the environment of {extra} keeps the pins it had: {e}", EXIT_FAILED)
        print(f"{sum('==' in line for line in path.read_text('utf-8').splitlines())} versions pinned in {path.name}")


if __name__ == "__main__":
    main()
