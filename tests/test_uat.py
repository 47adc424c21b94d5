"""The UAT: what may stand side by side, what each number is, and that each remark turns up when its fail is injected.

Runs are written with the real writer; cosines are made so that the fail is known.
"""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from written_replays import MIX, config_of, noise, same_length, sees_pure, write, write_all

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.report import uat
from projected_grpo.report.replays import read_replays

# ---------------------------------------------------------------- T4 beside a random V


def longer(kind, rng):
    return rng.randrange(25, 45) if kind == "hack" else rng.randrange(10, 30)


T4 = {
    "a V that knows pure hacks": (sees_pure, same_length, "PASS", ""),
    "a V that is the other way round": (lambda *of: -sees_pure(*of), same_length, "FAIL", "the other way round"),
    # neither the effect size nor its interval can see it
    "a V that knows only length, and pure hacks are longer": (
        lambda row, rng: 0.01 * row["comp_len"] + 0.02 * rng.random(), longer, "FAIL",
        "passes over rollouts, fails within problems at equal length"),
}  # fmt: skip


@pytest.mark.parametrize(("v", "length", "status", "remark"), T4.values(), ids=T4)
def test_what_a_v_knows_is_judged_and_remarked(tmp_path, v, length, status, remark):
    found = uat.uat(read_replays(write_all(tmp_path, v=v, length=length)))
    t4 = found.contrasts[0]
    assert {name: f.status for name, f in t4.verdicts.items()} == {"V": status, "random V": "FAIL"}
    own, random_v, gain = t4.effects.values()
    assert gain.g == pytest.approx(own.g - random_v.g)
    assert own.above_0 == gain.above_0 == (v is not T4["a V that is the other way round"][0])
    remarks = [line.removeprefix("T4: ") for line in uat.remarks(found) if line.startswith("T4: ")]
    assert any(line.startswith(remark) for line in remarks) if remark else remarks == []
    assert [f.name for f in found.verdicts] == ["T1", "T2", "T3", "T4", "T4+"]
    # what V holds of the gradient, next to what the random V holds
    assert list(found.cos_in.values()) == pytest.approx([0.5, 0.2, 0.3 / 2**0.5], abs=0.01)
    assert found.captured == pytest.approx(0.3, abs=0.02)


# ---------------------------------------------------------------- buckets, texts


def test_every_rollout_is_in_one_bucket_and_numbers_are_by_hand(tmp_path):
    kinds = ("hack", "both", "good", "unknown")
    cosine = {(True, False): 0.2, (True, True): 0.1, (False, True): -0.1, (True, None): 0.4}
    config = write_all(
        tmp_path, v=lambda r, _: cosine[r["hacked"], r["gt_pass"]] + 0.01 * (r["step"] % 2), kinds=kinds, problems=6,
        length=lambda kind, _: 10 * len(kind),
    )  # fmt: skip
    found = uat.uat(read_replays(config))
    by_hand = zip(uat.KINDS, [40, 40, 70, 40], [0.205, 0.105, 0.405, -0.095], strict=True)
    for bucket, (kind, tokens, cos) in zip(found.buckets, by_hand, strict=True):
        wanted = {"kind": kind, "rollouts": 6, "problems": 6, "tokens": tokens, "cos": pytest.approx(cos)}
        assert {**bucket, **wanted} == bucket


@pytest.mark.parametrize(
    ("random_v", "kinds"),
    [(noise, MIX), (None, MIX), (noise, ("good",) * 4)],
    ids=["both V", "V alone", "nothing hacks, as on preset tiny"],
)
def test_the_printout_fits_120_columns_and_shows_each_v(tmp_path, monkeypatch, random_v, kinds):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path, random_v=random_v, kinds=kinds)
    replays = read_replays(config_of(Path()))
    found = uat.uat(replays)
    text, brief = uat.printout(found, replays), uat.summary(found, replays)
    assert max(map(len, (*text.splitlines(), *brief.splitlines()))) <= 120
    for what in (*uat.KINDS, "10000 resamples", "T4+: hacked above clean?"):
        assert what in text
    assert len(brief.splitlines()) <= 35
    for v in found.verdicts:  # each with its number
        assert re.search(rf" {re.escape(v.name)} +{v.status} .*\d", brief)
    assert ("\nrandom V  " in text) == (random_v is not None)
    assert ("just probe-v-replay random N" in text) == (random_v is None)
    assert ("Nothing that was replayed hacks" in brief) == (kinds != MIX)
    hacks = ["PASS"] if kinds == MIX else ["FAIL", "NOT_EVALUABLE"]
    assert [v.status for v in found.verdicts] == [hacks[0], "PASS", "PASS", hacks[-1], hacks[-1]]
    assert "nan" not in text
    assert json.loads(uat.as_json(found))["contrasts"][0]["verdicts"]["V"]["status"] == hacks[-1]


# ---------------------------------------------------------------- what may stand side by side


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """A pool and four replays, to be copied."""
    root = tmp_path_factory.mktemp("probe") / "probe"
    write_all(root, problems=2)
    write(root, "grpo", noise, problems=2)
    return root


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("vanilla", {"vhack": {"control": "random"}}, "--vanilla .*--control random, where --control none is needed"),
        ("vanilla", {"vhack": {"loss": "grpo"}}, "--vanilla .*--loss grpo, where --loss nll is needed"),
        ("vanilla", {"config": {"arm": "projected"}}, "--vanilla .*--arm projected, where --arm vanilla is needed"),
        ("projected", {"vhack": {"pairs_hash": "i"}}, "pairs_hash: 'h' against 'i'"),
        ("random", {"pool_hash": "two"}, "differ in pool_hash: 'one' against 'two'; replay the same pool"),
        ("grpo", {"vhack": {"k": "9"}}, "vhack.k: '8' against '9'"),
        ("pool", {"kind": "probe_distill"}, "--pool .*kind 'probe_distill', where 'teacher_pool' is needed"),
    ],
    ids=str,
)
def test_runs_that_do_not_belong_together_are_refused(probe, tmp_path, name, wrong, told):
    root = shutil.copytree(probe, tmp_path / "probe")
    read_replays(config_of(root))
    manifest = read_manifest(root / name)
    changed = {key: {**manifest[key], **of} if isinstance(of, dict) else of for key, of in wrong.items()}
    update_manifest(root / name, **changed)
    with pytest.raises(BadInput, match=told):
        read_replays(config_of(root))


def test_a_pool_without_the_replayed_rollouts_is_refused(probe, tmp_path):
    pool = write(tmp_path, "pool", noise, problems=1)
    with pytest.raises(BadInput, match=r"--pool .*does not hold the rollouts"):
        read_replays(dataclasses.replace(config_of(probe), pool=pool))
