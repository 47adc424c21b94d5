"""The UAT: what may stand side by side, what each number is, and that each remark turns up when its fail is injected.

Runs are written with the real writer; cosines are made so that the fail is known.
"""

import json
import random
import re
from pathlib import Path

import pytest
from loguru import logger
from test_results import BLANK

from projected_grpo.config import ProbeConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.ledger.step_file import COLUMNS, token_crc, write_step
from projected_grpo.report.uat import numbers as uat
from projected_grpo.report.uat import text as uat_text
from projected_grpo.report.uat.inputs import UatConfig, read_replays
from projected_grpo.verdicts.registry import CLAIMS

KINDS = {
    "pure": {"hacked": True, "gt_pass": False},
    "both": {"hacked": True, "gt_pass": True},
    "clean": {"hacked": False, "gt_pass": True},
    "unknown": {"hacked": True, "gt_pass": None},
}
MIX = ("pure", "pure", "pure", "both", "both", "both", "clean", "clean")
COS_IN = {"vanilla": 0.5, "projected": 0.5, "random": 0.2}


def rollouts(problem, kinds, length):
    """Rows of one group; `length(kind, rng)` in tokens."""
    rng = random.Random(problem)
    for i, kind in enumerate(kinds):
        n = length(kind, rng)
        ids = [rng.randrange(10, 200) for _ in range(n)]
        yield {
            **{c.name: BLANK[c.type] for c in COLUMNS}, **KINDS[kind], "channels": None,
            "step": problem, "sample_id": i, "comp_len": n, "energy_V": 0.5 + 0.01 * i,
            "problem_id": f"p{problem}", "prompt": f"p{problem}", "completion": f"{problem} {i}", "completion_ids": ids,
            "loss_tokens_crc": token_crc(ids), "cos_null": 0.3, "frac_fired": 0.9, "target": None,
            "grad_norm": 1.0 + 0.01 * i, "source": "teacher",
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


def write(path, name, cosine, kinds=MIX, problems=12, length=same_length, finished=True, control=None, arm=None, kind=None,
          settings=None, **facts):  # fmt: skip
    """A run of the probe: `name` is pool, vanilla, projected or random; `cosine(row, rng)` makes cos_S_contrib; `kinds` of
    every problem."""
    arm = arm or ("projected" if name == "projected" else "vanilla")
    config = {**vars(ProbeConfig(pool="x")), "arm": arm, "group_size": 0, **(settings or {})}
    vhack = {"control": control or ("random" if name == "random" else "none"), "k": "8", "pairs_hash": "h"}
    shared = {"model_hash": "m", "pool_hash": "one", "vhack": vhack, **facts}
    open_run(path / name, kind or ("teacher_pool" if name == "pool" else "probe_distill"), config, **shared)
    for problem in range(problems):
        rng = random.Random(f"{name} {problem}")
        rows = list(rollouts(problem, kinds, length))
        cos_in = COS_IN.get(name, 0.5) + 0.01 * rng.random()
        for row in rows:
            row |= {"cos_in": cos_in, "cos_out": cos_in, "cos_S_contrib": cosine(row, rng), **ROWS_OF.get(name, {})}
        write_step(path / name, problem, rows)
    update_manifest(path / name, finished=finished, steps_done=problems)
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


def judged(path, **kwargs):
    """The numbers, the contrasts by name, the remarks."""
    found = uat.uat(read_replays(write_all(path, **kwargs)))
    return found, {one.contrast.name: one for one in found.separations}, uat.remarks(found)


# ---------------------------------------------------------------- T4 beside a random V


def test_a_v_that_knows_pure_hacks_passes_beats_the_random_v_and_draws_no_remark(tmp_path):
    found, told, lines = judged(tmp_path)
    t4 = told["T4"]
    assert {name: v.status for name, v in t4.verdicts.items()} == {"V": "PASS", "random V": "FAIL"}
    v, random_v, gain = t4.effects.values()
    assert v.interval.above_0
    assert gain.interval.above_0
    assert gain.g == pytest.approx(v.g - random_v.g)
    assert [line for line in lines if line.startswith("T4:")] == []
    assert [v.name for v in found.verdicts] == ["T1", "T2", "T3", "T4", "T4+"]
    # what V holds of the gradient, next to what the random V holds
    assert list(found.cos_in.values()) == pytest.approx([0.5, 0.2, 0.3 / 2**0.5], abs=0.01)
    assert found.captured == pytest.approx(0.3, abs=0.02)


def test_a_v_that_is_the_other_way_round_is_named(tmp_path):
    _, told, lines = judged(tmp_path, v=lambda row, rng: -sees_pure(row, rng))
    assert told["T4"].verdicts["V"].status == "FAIL"
    assert any(line.startswith("T4: the other way round") for line in lines)


def test_a_v_that_knows_only_length_passes_welch_fails_matched_t4_and_is_named(tmp_path):
    """cos = f(length), and pure hacks are longer."""

    def longer(kind, rng):
        return rng.randrange(25, 45) if kind == "pure" else rng.randrange(10, 30)

    _, told, lines = judged(tmp_path, v=lambda row, rng: 0.01 * row["comp_len"] + 0.02 * rng.random(), length=longer)
    t4 = told["T4"]
    assert t4.verdicts["V"].numbers["p"] < 1e-6
    assert t4.effects["V"].interval.above_0  # neither the effect size nor its interval can see it
    assert t4.verdicts["V"].status == "FAIL"
    assert any(line.startswith("T4: passes over rollouts, fails within problems at equal length") for line in lines)


# ---------------------------------------------------------------- buckets, texts


def test_every_rollout_is_in_one_bucket_and_numbers_are_by_hand(tmp_path):
    kinds = ("pure", "both", "clean", "unknown")
    cosine = {(True, False): 0.2, (True, True): 0.1, (False, True): -0.1, (True, None): 0.4}
    found, _, _ = judged(
        tmp_path, v=lambda r, _: cosine[r["hacked"], r["gt_pass"]] + 0.01 * (r["step"] % 2), kinds=kinds, problems=6,
        length=lambda kind, _: 10 * len(kind),
    )  # fmt: skip
    by_hand = zip(uat.KINDS, [40, 40, 70, 50], [0.205, 0.105, 0.405, -0.095], strict=True)
    for bucket, (kind, tokens, cos) in zip(found.buckets, by_hand, strict=True):
        wanted = {"kind": kind, "rollouts": 6, "problems": 6, "tokens": tokens, "cos": pytest.approx(cos)}
        assert {**bucket, **wanted} == bucket


def test_nothing_hacks(tmp_path):
    """What preset tiny gives: empty buckets everywhere."""
    replays = read_replays(write_all(tmp_path, kinds=("clean",) * 4))
    found = uat.uat(replays)
    text = uat_text.printout(found, replays)
    assert [v.status for v in found.verdicts] == ["FAIL", "PASS", "PASS", "NOT_EVALUABLE", "NOT_EVALUABLE"]
    assert "Nothing that was replayed hacks" in text
    assert "nan" not in text
    json.dumps(uat.as_json(found), allow_nan=False)


@pytest.mark.parametrize("random_v", [noise, None])
def test_the_printout_fits_120_columns_and_shows_both_v(tmp_path, monkeypatch, random_v):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path, random_v=random_v)
    replays = read_replays(config_of(Path()))
    found = uat.uat(replays)
    text, brief = uat_text.printout(found, replays), uat_text.summary(found, replays)
    assert max(map(len, (*text.splitlines(), *brief.splitlines()))) <= 120
    for what in (*uat.KINDS, "10000 resamples", "T4+: hacked above clean?"):
        assert what in text
    assert len(brief.splitlines()) <= 35
    for v in found.verdicts:  # each with its number
        assert re.search(rf" {re.escape(v.name)} +{v.status} .*\d", brief)
    assert all(len(claim.says.split()) <= 8 for claim in CLAIMS.values())
    assert ("\nrandom V  " in text) == (random_v is not None)
    assert ("just probe-v-replay random N" in text) == (random_v is None)


# ---------------------------------------------------------------- what may stand side by side


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong", "parts"),
    [
        ("vanilla", {"control": "random"}, ["--vanilla", "--control random", "--control none is needed"]),
        ("vanilla", {"arm": "projected"}, ["--vanilla", "arm 'projected'"]),
        ("random", {"control": "none"}, ["--random", "--control none", "--control random is needed"]),
        ("random", {"finished": False}, ["random", "not finished", "--resume"]),
        ("random", {"pool_hash": "two"}, ["differ in pool_hash: 'one' against 'two'", "replay the same pool"]),
        ("random", {"settings": {"lr": 1.0}}, ["config.lr: 0.001 against 1.0"]),
        ("random", {"vhack": {"control": "random", "k": "9"}}, ["vhack.k: '8' against '9'"]),
        ("pool", {"kind": "probe_distill"}, ["--pool", "kind 'probe_distill'", "'teacher_pool' is needed"]),
        ("vanilla", {"kind": "teacher_pool"}, ["--vanilla", "kind 'teacher_pool'", "'probe_distill' is needed"]),
        ("projected", {"vhack": {"control": "none", "k": "8", "pairs_hash": "i"}}, ["pairs_hash: 'h' against 'i'"]),
        ("pool", {"problems": 1}, ["--pool", "does not hold the rollouts"]),
    ],
    ids=lambda v: " ".join(map(str, v)) if isinstance(v, (dict, list)) else v,
)
def test_runs_that_do_not_belong_together_are_refused(tmp_path, name, wrong, parts):
    for each in ("pool", "vanilla", "projected", "random"):
        write(tmp_path, each, noise, **{"problems": 2, **(wrong if each == name else {})})
    with pytest.raises(BadInput) as told:
        read_replays(config_of(tmp_path))
    assert [part for part in parts if part not in str(told.value)] == []
