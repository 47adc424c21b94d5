"""Runs the whole pipeline on a tiny random model, one script after another in this process: V, verify, train, probe,
UAT.

Catches a broken path between any two parts. On random weights a verdict may honestly fail (exit code 1 or 3); bad
input and crashes may not."""

import sys
from pathlib import Path

from projected_grpo.run import cli


def main() -> int:
    d = Path(sys.argv[1])
    v, pool = d / "vhack/vhack.safetensors", d / "teacher_pool"
    use_v, replay = ("--vhack", v), ("--pool", pool, "--vhack", v)
    # Half of each training group is hand-written.
    train = (*use_v, "--teacher-pool", "pairs")
    cli.call("extract_vhack_grad", "tiny", "--out", d / "vhack")
    cli.call("verify_vhack", "tiny", *use_v, verdict=True)
    cli.call("train", "tiny", *train, "--out", d / "train_vanilla")
    cli.call("train", "tiny", "--arm", "projected", *train, "--out", d / "train_projected")
    cli.call("probe_distill", "tiny", "--teacher-only", "--out", pool)
    cli.call("probe_distill", "tiny", *replay, "--out", d / "replay_vanilla")
    cli.call("probe_distill", "tiny", "--arm", "projected", *replay, "--out", d / "replay_projected")
    runs = ("--pool", pool, "--vanilla", d / "replay_vanilla", "--projected", d / "replay_projected")
    code = cli.call("probe_uat", *runs, "--require", "T2", "T3", verdict=True)
    print(f"\nRead a step:    uv run just show {d}/train_projected 0")
    print(f"Read a sample:  uv run just show {d}/train_projected 0 2")
    return code


if __name__ == "__main__":
    cli.run(main)
