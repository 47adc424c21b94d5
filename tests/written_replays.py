"""A pool and its replays on disk, made up."""

import random

from loguru import logger
from written_runs import rows

from projected_grpo.config import ProbeConfig
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.ledger.step_file import token_crc, write_step
from projected_grpo.report.replays import UatConfig

MIX = ("hack", "hack", "hack", "both", "both", "both", "good", "good")


COS_IN = {"vanilla": 0.5, "projected": 0.5, "random": 0.2}


def rollouts(problem, kinds, length):
    """Rows of one group; `length(kind, rng)` in tokens."""
    rng = random.Random(problem)
    of = {"problem_id": f"p{problem}", "prompt": f"p{problem}", "source": "teacher", "cos_null": 0.3, "frac_fired": 0.9}
    for i, (kind, row) in enumerate(zip(kinds, rows(problem, {"arm": "vanilla"}, kinds, **of), strict=True)):
        n = length(kind, rng)
        ids = [rng.randrange(10, 200) for _ in range(n)]
        yield {
            **row, "sample_id": i, "comp_len": n, "energy_V": 0.5 + 0.01 * i, "completion": f"{problem} {i}",
            "completion_ids": ids, "loss_tokens_crc": token_crc(ids), "grad_norm": 1.0 + 0.01 * i,
        }  # fmt: skip


ROWS_OF = {
    # sampled, nothing trained
    "pool": {"behaviour_logp": -0.4, **dict.fromkeys(("loss", "logp", "grad_norm", "cos_S_contrib"))},
    # V removed from the update
    "projected": {"target": "update", "cos_update_in": 0.4, "cos_update": 0.0, "removed_share": 1.0, "frac_removed": 1.0,
                  "update_norm": 0.02},
}  # fmt: skip
"""What a run's rows say beside those of a vanilla replay."""


def same_length(_kind, rng):
    return rng.randrange(20, 40)


def write(path, name, cosine, kinds=MIX, problems=12, length=same_length, **facts):
    """A run of the probe: `name` is pool, vanilla, projected, random or grpo; `cosine(row, rng)` makes cos_S_contrib;
    every problem has these `kinds`."""
    arm = "projected" if name == "projected" else "vanilla"
    config = {**vars(ProbeConfig(pool="x")), "arm": arm, "group_size": 0}
    vhack = {"control": "random" if name == "random" else "none", "k": "8", "pairs_hash": "h",
             "loss": "grpo" if name == "grpo" else "nll"}  # fmt: skip
    shared = {"model_hash": "m", "pool_hash": "one", "vhack": vhack, **facts}
    open_run(path / name, "teacher_pool" if name == "pool" else "probe_distill", config, **shared)
    for problem in range(problems):
        rng = random.Random(f"{name} {problem}")
        group = list(rollouts(problem, kinds, length))
        cos_in = COS_IN.get(name, 0.5) + 0.01 * rng.random()
        for row in group:
            row |= {"cos_in": cos_in, "cos_out": cos_in, "cos_S_contrib": cosine(row, rng), **ROWS_OF.get(name, {})}
        write_step(path / name, problem, group)
    update_manifest(path / name, finished=True, steps_done=problems)
    logger.remove()
    return path / name


def noise(_row, rng):
    return rng.gauss(0, 0.05)


def sees_pure(row, rng):
    """A V that knows pure hacks, a little."""
    return rng.gauss(0.1 if row["hacked"] and row["gt_pass"] is False else 0.0, 0.05)


def write_all(path, v=sees_pure, random_v=noise, **shared):
    """Pool and replays; without `random_v` no random one."""
    for name in ("pool", "vanilla", "projected"):
        write(path, name, v, **shared)
    if random_v is not None:
        write(path, "random", random_v, **shared)
    return config_of(path)


def config_of(path):
    return UatConfig(pool=path / "pool", vanilla=path / "vanilla", projected=path / "projected")
