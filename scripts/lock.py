"""Pin every dependency, transitive ones too, in pyproject.toml ([tool.uv] constraint-dependencies).

uv.lock names the registry it was made from, so it stays out of git; the versions that it found are what is kept.
"""

import re
import subprocess
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
PINS = re.compile(r"^constraint-dependencies = \[.*?^\]\n", re.DOTALL | re.MULTILINE)


def main() -> None:
    free = PINS.sub("", PYPROJECT.read_text("utf-8"))
    PYPROJECT.write_text(free, "utf-8")  # yesterday's pins must not bind today's resolution
    subprocess.run(["uv", "lock", "--upgrade", "--quiet"], cwd=PYPROJECT.parent, check=True)
    export = [
        "uv",
        "export",
        "--all-groups",
        "--no-hashes",
        "--no-emit-project",
        "--no-annotate",
        "--no-header",
        "--quiet",
    ]
    done = subprocess.run(export, cwd=PYPROJECT.parent, check=True, capture_output=True, text=True)
    pins = [line.strip() for line in done.stdout.splitlines() if "==" in line]
    block = "constraint-dependencies = [\n" + "".join(f'  "{p.replace(chr(34), chr(39))}",\n' for p in pins) + "]\n"
    PYPROJECT.write_text(free.replace("[tool.uv]\n", f"[tool.uv]\n{block}"), "utf-8")
    print(f"{len(pins)} versions pinned in {PYPROJECT.name}")


if __name__ == "__main__":
    main()
