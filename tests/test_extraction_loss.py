"""T7: V from the training loss against V from the NLL, on the same rollouts. Every sneaky fail is injected and seen red."""

import dataclasses
import json
import re
import shutil

import pytest
from harness import ROOT
from test_results import ten, write_run
from test_scripts import refused
from test_uat import config_of, noise, sees_pure, write, write_all

from projected_grpo.ledger.folder import update_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.report.results import report_on
from projected_grpo.report.uat import numbers as uat
from projected_grpo.report.uat import text as uat_text
from projected_grpo.report.uat.inputs import read_replays
from projected_grpo.verdicts.extraction import MARGIN, T7Replicate, t7, t7_over
from projected_grpo.verdicts.extraction_file import replicates_at
from projected_grpo.verdicts.registry import Finding

V_NLL = {"control": "none", "k": "8", "pairs_hash": "h", "loss": "nll", "max_new": "unused", "v_sha256": "a"}
V_GRPO = {**V_NLL, "loss": "grpo", "max_new": "72", "v_sha256": "b"}


def measured(cosine):
    """A V by its cosines, with energies of its own."""

    def of(row, rng):
        row["energy_V"] = 0.3 + 0.2 * rng.random()
        return cosine(row, rng)

    return of


def better(row, rng):
    return rng.gauss(0.16 if row["hacked"] and row["gt_pass"] is False else 0.0, 0.05)


def write_both(path, grpo=sees_pure, **shared):
    """A whole probe with both replays; by default two V of their own that tell as well."""
    config = write_all(path, v=measured(sees_pure), random_v=None, vhack=V_NLL, **shared)
    write(path, "grpo", measured(grpo), vhack=V_GRPO, **shared)
    return config


def replayed(path, name, cosine, **shared):
    """Rows of one replay."""
    return [row for step in read_run(write(path, name, measured(cosine), **shared)) for row in step]


def judged(path, nll=sees_pure, grpo=sees_pure, **shared):
    return t7((replayed(path, "vanilla", nll, **shared), replayed(path, "grpo", grpo, **shared)))


def by_length(row, rng):
    return 0.02 * row["comp_len"] + 0.01 * rng.random()


def longer(kind, rng):
    return rng.randrange(38, 58) if kind == "hack" else rng.randrange(20, 40)


CASES = {
    "a V that tells better": (
        {"grpo": better, "problems": 40}, "PASS",
        lambda n: 0 < n["low"] < n["gain"] < n["high"] and n["gain"] == pytest.approx(n["g_grpo"] - n["g_nll"])),
    "a V that tells nothing, and one that does": (
        {"grpo": noise}, "FAIL", lambda n: n["high"] < 0 and n["low"] < -MARGIN),
    "two V that tell nothing": ({"nll": noise, "grpo": noise}, "NOT_EVALUABLE", lambda n: n["g_nll"] < 0.5),
    "an interval that holds both 0 and the margin": (
        {"problems": 6}, "NOT_EVALUABLE", lambda n: n["low"] < -MARGIN < n["high"]),
    # over rollouts it tells better; at equal length it tells nothing
    "a length detector": (
        {"grpo": by_length, "length": longer, "problems": 40}, "FAIL",
        lambda n: n["gain"] > 0 and n["g_matched_grpo"] - n["g_matched_nll"] < -MARGIN),
}  # fmt: skip


@pytest.mark.parametrize(("made", "status", "numbers"), CASES.values(), ids=CASES)
def test_t7_of_one_replicate(tmp_path, made, status, numbers):
    found = judged(tmp_path, **made)
    assert (found.status, numbers(found.numbers)) == (status, True), found.why


# ---------------------------------------------------------------- sneaky fail: one V under two names


ONE_V = {
    "the same bytes": lambda r: r,
    "every row of V with its sign turned": lambda r: {**r, "cos_S_contrib": -r["cos_S_contrib"]},
    "some signs turned, or the rows turned in their span": lambda r: {**r, "cos_S_contrib": 0.3 * r["cos_S_contrib"]},
    "rounding": lambda r: {**r, "energy_V": r["energy_V"] * (1 + 1e-4), "cos_S_contrib": r["cos_S_contrib"] * 1.001},
}


@pytest.mark.parametrize("change", ONE_V.values(), ids=ONE_V)
def test_one_v_under_two_names_is_red(tmp_path, change):
    """The NLL inside the GRPO extraction: what the second file shows are the first one's rows."""
    rows = replayed(tmp_path, "vanilla", sees_pure)
    found = t7((rows, [change(row) for row in rows]))
    assert (found.status, "one V under two names" in found.why) == ("FAIL", True)


# ---------------------------------------------------------------- where it is printed


def test_the_uat_prints_both_v_and_asks_for_the_second_where_it_is_missing(tmp_path):
    replays = read_replays(write_both(tmp_path))
    found = uat.uat(replays)
    text = uat_text.printout(found, replays)
    for what in ("\ngrpo  ", "\nnll  ", "\ngrpo - nll", " T7 "):
        assert what in text, what
    assert "T7 is not judged" not in text
    gain = uat.as_json(found)["contrasts"][2]["effects"]["grpo - nll"]["g"]
    assert gain == next(v for v in found.verdicts if v.name == "T7").numbers["gain"]
    shutil.rmtree(tmp_path / "grpo")
    replays = read_replays(config_of(tmp_path))
    assert "T7 is not judged: no replay" in uat_text.printout(uat.uat(replays), replays)


# ---------------------------------------------------------------- over replicates


def replicates(gains=(0.1, 0.2, 0.3), g_nll=(0.5, 0.6, 0.7), at_length=(0.0, 0.0, 0.0), **changed):
    """Three replicates of T7: their difference, g of the NLL's V, and the difference at equal length; the first changed."""
    out = []
    for i, (gain, nll, matched) in enumerate(zip(gains, g_nll, at_length, strict=True)):
        n = {"n": 200, "energies_differ": 0.9 + i / 100, "gain": gain, "g_nll": nll, "g_grpo": nll + gain,
             "g_matched_nll": 0.4, "g_matched_grpo": 0.4 + matched}  # fmt: skip
        out.append(
            T7Replicate(f"replicate {i}", Finding("T7", "PASS", "said", n), f"pool {i}", (f"nll {i}", f"grpo {i}"))
        )
    out[0] = dataclasses.replace(out[0], **changed)
    return out


def test_over_replicates_by_hand():
    # gains .1 .2 .3: mean .2, sd .1, SEM .05774; t of .95 with 2 degrees of freedom 2.9200: .2 -+ .16859
    found = t7_over(replicates())
    assert (found.name, found.status) == ("T7 over replicates", "PASS")
    n = found.numbers
    assert [n["n"], n["gain"], n["low"], n["high"]] == pytest.approx([3, 0.2, 0.03141, 0.36859], abs=1e-5)
    # V of the NLL .5 .6 .7: .6 -+ 4.3027 * .05774 = .3516 to .8484
    assert "nll +0.35 to +0.85" in found.why


@pytest.mark.parametrize(
    ("made", "status", "told"),
    [
        ({"gains": (-0.5, -0.6, -0.7)}, "FAIL", "worse"),
        ({"gains": (-0.9, 0.0, 0.9)}, "NOT_EVALUABLE", "more replicates are needed"),
        ({"gains": (-0.1, -0.11, -0.12)}, "PASS", "-0.11"),  # surely worse, by less than the margin
        ({"at_length": (-0.3, -0.3, -0.1)}, "FAIL", "at equal length -0.23"),
        ({"g_nll": (-0.5, -0.6, -0.7)}, "NOT_EVALUABLE", "neither V tells"),
        ({"pool": "pool 1"}, "NOT_EVALUABLE", "not independent: 2 share a pool (pool 1)"),
        ({"v": ("nll 2", "grpo 0")}, "NOT_EVALUABLE", "not independent: 2 share a V (nll 2)"),
        ({"v": ("nll 0", "nll 0")}, "NOT_EVALUABLE", "share a V"),
        ({"finding": Finding("T7", "NOT_EVALUABLE", "too few problems", {"gain": None})}, "NOT_EVALUABLE", "too few"),
        (
            {"finding": Finding("T7", "FAIL", "one V under two names: 3")},
            "FAIL",
            "one V under two names in replicate 0",
        ),
    ],
)
def test_over_replicates_each_sneaky_fail_is_red(made, status, told):
    found = t7_over(replicates(**made))
    assert (found.status, told in found.why) == (status, True), found.why


def test_replicates_of_one_draw_or_of_other_settings_are_not_averaged():
    """Sneaky fails: V made again from one draw of the pairs; a replicate of another world, rank or code among the others."""
    drawn = [dataclasses.replace(u, draw=d) for u, d in zip(replicates(), ("42", "45", "42"), strict=True)]
    assert t7_over(drawn).why == "not independent: 2 share a draw of pairs (42)"
    odd = [dataclasses.replace(u, setting={"vhack.k": k}) for u, k in zip(replicates(), ("48", "48", "8"), strict=True)]
    assert t7_over(odd).why == "not matched: replicate 2 and replicate 0 differ in vhack.k: '8' against '48'"
    assert {t7_over(drawn).status, t7_over(odd).status} == {"NOT_EVALUABLE"}


@pytest.fixture(scope="module")
def replays(tmp_path_factory):
    """Three replicates whose V of the training loss tells better, and nothing else. Nobody may change it."""
    root = tmp_path_factory.mktemp("losses") / "replays"
    for i in range(3):
        write_both(root / f"replicate_{i}", grpo=better, problems=40 + i)
        for name, v in (("vanilla", V_NLL), ("grpo", V_GRPO)):
            facts = {"pool_hash": f"pool {i}", "vhack": {**v, "v_sha256": f"{v['loss']} {i}"}}
            update_manifest(root / f"replicate_{i}" / name, **facts)
    return root


@pytest.fixture
def study(replays, tmp_path):
    """A copy that may be changed."""
    return shutil.copytree(replays, tmp_path / "replays")


@pytest.mark.slow
def test_replays_alone_are_judged_by_t7_and_their_file_again(script, study, tmp_path):
    """Of a directory and of the file that is written of it: the same verdict, printout and file."""
    code, out, err = script("results", study, "--out", "made")
    assert code == 0, (out, err)
    assert "T7 over replicates: PASS" in out
    assert "H1" not in out  # nothing was trained
    document = (tmp_path / "made/results.md").read_text("utf-8")
    assert "| replicate_2/vanilla and replicate_2/grpo | PASS" in document
    data = json.loads((tmp_path / "made/results.json").read_text())
    assert (len(data["verdicts"][0]["clauses"]), data["arms"]) == (3, [])
    assert not (tmp_path / "made/plots").exists()
    assert script("results", study, "--require", "H1", "--out", "h1")[0] == 3
    again = shutil.copy(tmp_path / "made/losses.json", tmp_path / "toy.losses.json")
    code, told, _ = script("results", again)
    assert code == 0
    assert told.startswith("read from toy.losses.json, T7 of 3 replicates whose step files are not here")
    assert out.splitlines()[:2] == told.splitlines()[1:3]
    assert (tmp_path / "out/results/toy/losses.json").read_bytes() == (tmp_path / "made/losses.json").read_bytes()


@pytest.mark.slow
def test_next_to_training_runs_t7_decides_nothing(script, study):
    write_run(study / "train" / "a", "vanilla", 41, ten(8))
    report = report_on(study)
    assert "T7 over replicates: PASS" in report.text()
    assert "T7" not in {line.verdict.name.split()[0] for line in report.lines}
    for name in ("vanilla", "grpo"):  # which belongs to which would hang on the folders' names
        update_manifest(study / "replicate_0" / name, pool_hash="pool 1")
    refused(script("results", study), "2 replays of one pool against a V of --loss grpo", "leave one of them")


def test_the_replicates_in_the_repository_say_what_the_documents_say():
    place = ROOT / "docs/evidence/toy-losses.losses.json"
    assert not re.search(r'"[^"]*(?:^|[\s"])/\w', place.read_text("utf-8"))  # no path of the machine that made it
    line = replicates_at(place).over
    assert line.verdict.status == "NOT_EVALUABLE"
    assert "g(grpo) - g(nll) -0.038 (replicates: -0.068, -0.092, +0.047)" in line.verdict.why
    assert "`just results docs/evidence/toy-losses.losses.json`" in (ROOT / "docs/toy.md").read_text("utf-8")
