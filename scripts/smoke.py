"""Trains one arm on the tiny model twice, with a cold and a warm cache, and compares the runs number by number: a
cache may change nothing."""

import sys
import tempfile
from pathlib import Path

from projected_grpo.run import cli


def main() -> int:
    arm = sys.argv[1]
    Path("out/smoke").mkdir(parents=True, exist_ok=True)
    d = Path(tempfile.mkdtemp(prefix=f"{arm}-", dir="out/smoke"))
    for heat in ("cold", "warm"):
        v = d / heat / "vhack"
        cli.call("extract_vhack_grad", "tiny", "--cache", d / "cache", "--out", v)
        cli.call(
            "train", "tiny", "--arm", arm, "--cache", d / "cache", "--vhack", v / "vhack.safetensors",
            "--teacher-pool", "pairs", "--out", d / heat / "train",
        )  # fmt: skip
    return cli.call("compare", d / "cold/train", d / "warm/train", "--exact", verdict=True)


if __name__ == "__main__":
    cli.run(main)
