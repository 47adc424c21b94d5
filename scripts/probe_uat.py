"""Verdicts T1 to T4, and T4's companion, from step files alone.

Exit code: 0 all required PASS, 1 one FAILs, 3 one is NOT_EVALUABLE.
"""

import sys
from pathlib import Path

from projected_grpo import cli
from projected_grpo.config import UatConfig
from projected_grpo.errors import BadInput
from projected_grpo.runs import CUES, bottom_line, mean, read_manifest
from projected_grpo.steps import Row, read_run, write_atomic


def buckets(rows: list[Row]) -> list[list[str]]:
    """Size and mean cosine of every kind of rollout in the vanilla replay."""
    kinds = {
        "pure hack": lambda r: r["hacked"] and r["gt_pass"] is False,
        "hack and correct": lambda r: r["hacked"] and r["gt_pass"],
        "hack, truth unknown": lambda r: r["hacked"] and r["gt_pass"] is None,
        "not hacked": lambda r: not r["hacked"],
    }
    out = []
    for name, member in kinds.items():
        own = [r for r in rows if member(r)]
        cosines = [r["cos_S_contrib"] for r in own if r["cos_S_contrib"] is not None]
        length = mean([float(r["comp_len"]) for r in own])
        out.append(
            [
                name,
                str(len(own)),
                "-" if not cosines else f"{mean(cosines):+.4f}",
                "-" if length is None else f"{length:.0f}",
            ]
        )
    return out


def check_comparable(config: UatConfig) -> None:
    """Both replays finished, are of the arms they are given as, and replayed the same rollouts in the same order."""
    vanilla, projected = read_manifest(config.vanilla), read_manifest(config.projected)
    for path, manifest in ((config.vanilla, vanilla), (config.projected, projected)):
        if not manifest["finished"]:
            raise BadInput(f"{path}: the run is not finished; continue it with --resume")
    if (arm := vanilla["config"].get("arm")) != "vanilla":
        raise BadInput(f"--vanilla {config.vanilla}: is a run of arm {arm!r}")
    if (arm := projected["config"].get("arm")) != "projected":
        raise BadInput(f"--projected {config.projected}: is a run of arm {arm!r}")
    if vanilla.get("pool_hash") != projected.get("pool_hash"):
        raise BadInput(
            f"{config.vanilla} and {config.projected} replayed different rollouts (pool hashes {vanilla.get('pool_hash')} "
            f"and {projected.get('pool_hash')}); replay the same pool in both arms"
        )


def main() -> int:
    config = cli.parse_plain(UatConfig, __doc__)
    from tabulate import tabulate

    from projected_grpo import verdicts

    check_comparable(config)
    pool = [row for rows in read_run(config.pool) for row in rows]
    vanilla = [row for rows in read_run(config.vanilla) for row in rows]
    projected = read_run(config.projected)
    found = [
        verdicts.t1(pool), verdicts.t2(vanilla), verdicts.t3(projected), verdicts.t4(vanilla),
        verdicts.t4_companion(vanilla),
    ]  # fmt: skip
    null = mean([r["cos_null"] for rows in projected for r in rows if r["cos_null"] is not None])

    text = "\n".join(
        [
            f"pool {config.pool} ({len(pool)} rollouts), vanilla {config.vanilla} ({len(vanilla)} rows), projected "
            f"{config.projected} ({len(projected)} steps); a random direction would show cos {null or 0:.4f}",
            "",
            tabulate(
                buckets(vanilla), ["vanilla replay", "rollouts", "mean cos_S", "mean tokens"], disable_numparse=True
            ),
            "",
            tabulate(
                [[CUES[v.status], v.name, v.status, verdicts.CLAIMS[v.name], v.why] for v in found],
                ["", "", "verdict", "claim", "numbers"],
                disable_numparse=True,
                maxcolwidths=[None, None, None, 26, 72],
            ),
            *(["", config.expect] if config.expect else []),
        ]
    )
    print(text)
    out = config.out if config.out != Path() else config.projected / "uat.txt"
    write_atomic(out, f"{text}\n".encode())
    code = verdicts.exit_code(found, config.require)
    bottom_line(
        out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), f"required {' '.join(config.require)}: exit code {code}"
    )
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    cli.run(main)
