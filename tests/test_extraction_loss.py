"""T7: V from the training loss against V from the NLL, on the same rollouts. Every sneaky fail is injected and seen red."""

import json

import pytest
from test_results import reseal
from test_uat import config_of, noise, projected_row, rollouts, same_length, sees_pure, write, write_all

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.report.results_md import report_on
from projected_grpo.report.second_v import second_v
from projected_grpo.report.uat import numbers as uat
from projected_grpo.report.uat import text as uat_text
from projected_grpo.report.uat.inputs import read_replays
from projected_grpo.report.uat.remarks import remarks
from projected_grpo.verdicts.extraction import MARGIN, t7
from projected_grpo.verdicts.registry import CLAIMS, REQUIRABLE

V_NLL = {"control": "none", "k": "8", "pairs_hash": "h", "loss": "nll", "max_new": "unused", "v_sha256": "a"}
V_GRPO = {**V_NLL, "loss": "grpo", "max_new": "72", "v_sha256": "b"}


def measured(cosine, energy=None):
    """A V by its cosines; `energy(row, rng)` along it."""

    def of(row, rng):
        row["energy_V"] = (energy or (lambda _, r: 0.3 + 0.2 * r.random()))(row, rng)
        return cosine(row, rng)

    return of


def better(row, rng):
    return rng.gauss(0.16 if row["hacked"] and row["gt_pass"] is False else 0.0, 0.05)


def write_both(path, nll=sees_pure, grpo=sees_pure, energy=None, **shared):
    """A whole probe with both replays; by default two V of their own that tell as well."""
    config = write_all(path, v=measured(nll, energy), random_v=None, vhack=V_NLL, **shared)
    write(path, "grpo", measured(grpo, energy), vhack=V_GRPO, **shared)
    return config


def both(path, **kwargs):
    config = write_both(path, **kwargs)
    rows = {name: [r for s in read_run(path / name) for r in s] for name in ("vanilla", "grpo")}
    return config, (rows["vanilla"], rows["grpo"])


def judged(path, **kwargs):
    return t7(both(path, **kwargs)[1])


def test_a_v_that_tells_as_well_passes_with_its_interval(tmp_path):
    found = judged(tmp_path, grpo=better, problems=40)
    assert found.status == "PASS", found.why
    n = found.numbers
    assert n["gain"] == pytest.approx(n["g_grpo"] - n["g_nll"])
    assert n["low"] < n["gain"] < n["high"]
    assert n["low"] > 0
    assert n["gain_plus"] is not None


def test_a_v_that_tells_nothing_fails_beside_one_that_does(tmp_path):
    found = judged(tmp_path, grpo=noise)
    assert found.status == "FAIL"
    assert found.numbers["high"] < 0
    assert found.numbers["low"] < -MARGIN


def test_two_v_that_tell_nothing_are_not_as_good_as_each_other(tmp_path):
    found = judged(tmp_path, nll=noise, grpo=noise)
    assert found.status == "NOT_EVALUABLE"
    assert "neither V tells" in found.why


def test_an_interval_that_holds_both_0_and_the_margin_decides_nothing(tmp_path):
    found = judged(tmp_path, problems=6)
    assert (found.status, found.numbers["low"] < -MARGIN < found.numbers["high"]) == ("NOT_EVALUABLE", True)
    assert "more problems are needed" in found.why


def test_too_few_problems_are_not_evaluable_with_the_reason(tmp_path):
    found = judged(tmp_path, problems=4)
    assert found.status == "NOT_EVALUABLE"
    assert "4 problems" in found.why


def test_a_length_detector_is_not_as_good(tmp_path):
    """Over rollouts it tells better; at equal length it tells nothing."""

    def longer(kind, rng):
        return rng.randrange(38, 58) if kind == "pure" else rng.randrange(20, 40)

    found = judged(
        tmp_path, grpo=lambda row, rng: 0.02 * row["comp_len"] + 0.01 * rng.random(), length=longer, problems=40
    )
    assert found.numbers["gain"] > 0
    assert found.status == "FAIL", found.why
    assert "at equal length -" in found.why


# ---------------------------------------------------------------- sneaky fail: one V under two names


@pytest.mark.parametrize("lie", [{}, {"v_sha256": "another", "energy": "0.9", "directions": "7"}])
def test_nll_inside_the_grpo_extraction_is_red_whatever_the_metadata_say(tmp_path, lie):
    """The second file says grpo; its rows are the first one's."""
    config = write_all(tmp_path, v=measured(sees_pure), random_v=None, vhack=V_NLL)
    write_same(tmp_path, {**V_GRPO, "v_sha256": V_NLL["v_sha256"], **lie})
    found = next(v for v in uat.uat(read_replays(config)).verdicts if v.name == "T7")
    assert found.status == "FAIL"
    assert "one V under two names" in found.why


def write_same(path, vhack, change=lambda row: row):
    """The vanilla replay again as `grpo`: its rows, changed or not."""
    again = {(r["problem_id"], r["sample_id"]): change(dict(r)) for s in read_run(path / "vanilla") for r in s}

    def copied(row, _rng):
        same = again[row["problem_id"], row["sample_id"]]
        row["energy_V"] = same["energy_V"]
        return same["cos_S_contrib"]

    write(path, "grpo", copied, vhack=vhack)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: {**r, "cos_S_contrib": -r["cos_S_contrib"]},  # every row of V with its sign turned
        lambda r: {
            **r,
            "cos_S_contrib": 0.3 * r["cos_S_contrib"],
        },  # some signs turned, or the rows turned in their span
        lambda r: {
            **r,
            "energy_V": r["energy_V"] * (1 + 1e-4),
            "cos_S_contrib": r["cos_S_contrib"] * 1.001,
        },  # rounding
    ],
)
def test_the_same_v_up_to_signs_order_and_rounding_is_red(tmp_path, change):
    config = write_all(tmp_path, v=measured(sees_pure), random_v=None, vhack=V_NLL)
    write_same(tmp_path, V_GRPO, change)
    (found,) = (v for v in uat.uat(read_replays(config)).verdicts if v.name == "T7")
    assert found.status == "FAIL", found.why


def test_where_the_energy_is_not_known_one_v_cannot_be_told_from_two(tmp_path):
    found = judged(tmp_path, energy=lambda row, rng: None if row["sample_id"] < 2 else rng.random())
    assert found.status == "NOT_EVALUABLE"
    assert "cannot be told" in found.why


def test_other_rollouts_are_not_compared():
    rows = list(rollouts(1, ("pure", "both"), same_length))
    found = t7((rows, [projected_row({**r, "completion": "other"}) for r in rows]))
    assert (found.status, "same rollouts" in found.why) == ("NOT_EVALUABLE", True)


# ---------------------------------------------------------------- where it is printed


def test_the_uat_prints_both_v_and_asks_for_the_second_where_it_is_missing(tmp_path):
    config = write_both(tmp_path, problems=12)
    replays = read_replays(config)
    found = uat.uat(replays)
    text = uat_text.printout(found, remarks(found), replays, config)
    for what in ("V, grpo", "V, nll", "grpo - nll", " T7 ", "V by grpo"):
        assert what in text, what
    assert "T7 is not judged" not in text
    assert max(map(len, uat_text.losses_text(found).splitlines())) <= 120
    data = json.loads(json.dumps(uat.as_json(found, []), allow_nan=False))
    assert data["losses"][0]["g_grpo_minus_g_nll"]["g"] == pytest.approx(
        next(v for v in found.verdicts if v.name == "T7").numbers["gain"]
    )
    alone = write_all(tmp_path / "alone")
    replays = read_replays(alone)
    text = uat_text.printout(uat.uat(replays), [], replays, alone)
    assert "T7 is not judged: no replay" in text
    assert "T6" in text
    assert [v.name for v in uat.uat(replays).verdicts] == ["T1", "T2", "T3", "T4", "T4+"]


def test_t7_stands_beside_the_verdicts_of_the_probe():
    assert CLAIMS["T7"].on_probe
    assert "T7" not in REQUIRABLE


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("grpo", {"loss": "nll"}, "was measured against a V of --loss nll, where --loss grpo is needed"),
        ("vanilla", {"loss": "grpo"}, "was measured against a V of --loss grpo, where --loss nll is needed"),
        ("grpo", {"k": "4"}, "V's k"),
        ("grpo", {"pairs_hash": "other"}, "V's pairs_hash"),
        ("grpo", {"control": "random"}, "made with --control random"),
    ],
)
def test_replays_that_are_not_a_pair_are_refused(tmp_path, name, wrong, told):
    config = write_both(tmp_path)
    reseal(tmp_path / name, vhack={**read_manifest(tmp_path / name)["vhack"], **wrong})
    with pytest.raises(BadInput, match=told):
        read_replays(config)


def test_a_replay_of_another_pool_is_refused(tmp_path):
    config = write_both(tmp_path)
    reseal(tmp_path / "grpo", pool_hash="two")
    with pytest.raises(BadInput, match="replayed different rollouts"):
        read_replays(config_of(tmp_path, out=config.out))


def test_results_and_the_report_find_the_pair_of_replays(tmp_path):
    from test_results import ten, write_run

    write_both(tmp_path / "probe")
    ((names, found),) = second_v(tmp_path)
    assert names == "probe/vanilla and probe/grpo"
    assert found.name == "T7"
    write_run(tmp_path / "train" / "a", "vanilla", 41, ten(8))
    report = report_on(tmp_path)
    assert f"T7 {found.status} (probe/vanilla and probe/grpo)" in report.printout()
    assert "T7" in report.markdown([])
    assert json.loads(report.json())["beside"][0]["status"] == found.status
    reseal(tmp_path / "probe/grpo", pool_hash="two")
    assert second_v(tmp_path) == []
