"""Rows and summaries that contradict themselves, sealed again: each was once read as evidence."""

import gzip
import json

import pytest
from test_evidence import rewritten
from test_matching import run as in_memory
from test_results import held_out, reseal, rows, ten, write_run

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import step_path, write_step
from projected_grpo.report import tables
from projected_grpo.report.results_md import remarks_on, report_on
from projected_grpo.verdicts.finished_runs import Found, load_runs
from projected_grpo.verdicts.matching import differences
from projected_grpo.verdicts.run_summaries import read_summaries, write_summaries


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Ten steps of ten rollouts, and what they are; the summary of the run."""
    root = tmp_path_factory.mktemp("honest")
    write_run(root / "runs/a", "projected", 41, ten(1), vhack={"k": "8"})
    write_summaries(root / "a.runs.jsonl.gz", (root / "runs", load_runs(root / "runs")))
    return (root / "a.runs.jsonl.gz").read_bytes()


def test_what_is_known_of_a_tenth_is_shown_as_not_known(tmp_path):
    """Ground truth of nine hacks in ten is unknown: no hack rate of 0, no difference to vanilla, no onset."""
    write_run(tmp_path / "p", "projected", 41, [["unknown"] * 9 + ["good"]] * 10)
    write_run(tmp_path / "v", "vanilla", 41, [["hack"] + ["unknown"] * 9] * 10)
    report = report_on(tmp_path)
    for run in report.found.runs:
        assert [run.last(name) for name in ("hack", "gt", "reward_hack", "hack_and_correct")] == [None] * 4
        assert (run.whole("hack"), run.onset) == (None, None)
        assert run.last("hacked") is not None
    arms = json.loads(report.json())["arms"]
    assert [arm["minus_vanilla_pp"]["hack"]["mean"] for arm in arms] == [None, None]
    assert sum("too little ground truth is known" in line for line in report.remarks) == 2


@pytest.mark.parametrize(
    ("after", "values"),
    [(["good"] * 5 + ["unknown"] * 95, {}), (["good"] * 100, {"problem_id": "x"}), (["good"] * 100, {"reward": 0.5})],
    ids=["unknown", "trained on", "unpaid"],
)
def test_a_held_out_gain_that_is_no_evidence_is_not_shown(tmp_path, after, values):
    path = write_run(tmp_path / "a", "projected", 41, ten(1))
    write_step(path / "eval", 0, held_out(["good"] * 20 + ["bad"] * 80))
    write_step(path / "eval", 10, [{**row, **values} for row in held_out(after, 10)])
    reseal(path)
    report = report_on(tmp_path)
    (run,) = report.found.runs
    assert [tables.change_pp(run, rate) for rate in ("hack", "gt")] == [None, None]
    assert json.loads(report.json())["runs"][0]["held_out"]["10"]["gt"] is None
    assert any(line.startswith("a: ") and "shown" in line for line in report.remarks)


# ---------------------------------------------------------------- rows

EDITED = {
    "a hack called right, its label kept": (
        lambda old: [{**old[0], "hacked": False, "gt_pass": True}, *old[1:]],
        "label of 1 rows",
    ),
    "a step's value in the first row alone": (
        lambda old: [{**old[0], "update_removed": 0.9}, *old[1:]],
        "'update_removed' is of the step",
    ),
    "another seed in the second row": (
        lambda old: [old[0], {**old[1], "seed": 40}, *old[2:]],
        "'seed' is of the step",
    ),
    "NaN": (lambda old: [{**row, "update_removed": float("nan")} for row in old], "'update_removed' is nan"),
}


@pytest.mark.parametrize("what", EDITED)
def test_rows_that_contradict_themselves_are_refused(tmp_path, what):
    change, told = EDITED[what]
    path = write_run(tmp_path / "a", "projected", 41, ten(1)[:1])
    rewritten(step_path(path, 0), change)
    reseal(path)
    with pytest.raises(BadInput, match=told):
        load_runs(tmp_path)


def test_hacks_called_the_teachers_stand_where_the_students_rows_do(tmp_path):
    """As many rows of each as the mix says: the student hacks, the teacher does not, and the names are swapped."""
    teacher = rows(0, {"arm": "vanilla", "seed": 41}, ["good"] * 2, source="teacher")
    path = write_run(
        tmp_path / "a", "vanilla", 41, [["hack"] * 2], extra=teacher, teacher_pool="pool", mix="teacher=.5"
    )
    assert load_runs(tmp_path).runs[0].last("hack") == 1.0
    swap = {"student": "teacher", "teacher": "student"}
    rewritten(step_path(path, 0), lambda old: [{**row, "source": swap[row["source"]]} for row in old])
    reseal(path)
    with pytest.raises(BadInput, match="row 0 is called teacher's where each group has student, student, teacher"):
        load_runs(tmp_path)


def test_a_config_that_does_not_say_whose_rows_there_are_is_none_of_today(tmp_path):
    path = write_run(tmp_path / "a", "vanilla", 41, [["good", "bad"]])
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["config"].pop("group_size")
    reseal(path, config=manifest["config"])
    with pytest.raises(BadInput, match="its config lacks 'group_size'"):
        load_runs(tmp_path)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"arm": "no_loophole"}, "mixes two runs"),
        ({"seed": 99}, "mixes two runs"),
        ({"source": "teacher"}, "rows of source 'teacher'"),
        ({"step": 3}, "holds rows of step 3"),
        ({"hint": "none"}, "rows of hint 'none'"),
    ],
)
def test_an_evaluation_of_another_run_is_refused(tmp_path, values, told):
    path = write_run(tmp_path / "a", "projected", 41, [["good"]])
    write_step(path / "eval", 1, [{**row, **values} for row in held_out(["good"], 1)])
    reseal(path)
    with pytest.raises(BadInput, match=told):
        load_runs(tmp_path)


def test_a_rank_that_is_not_known_is_no_other_runs_rank():
    a, b = (in_memory(arm, 41, **{"vhack.k": k}) for arm, k in (("random_energy", None), ("projected", "48")))
    assert any(line.startswith("vhack.k: ") for line in differences(a, b))


# ---------------------------------------------------------------- summaries


def test_ten_of_thirty_minus_one_of_thirty_is_thirty_points_from_a_summary_too(tmp_path):
    for arm, hacks in (("vanilla", 10), ("projected", 1)):
        write_run(tmp_path / f"runs/{arm}", arm, 41, [["hack"] * hacks + ["good"] * (30 - hacks)] * 10)
    found = load_runs(tmp_path / "runs")
    lost = [(tmp_path / "runs/gone", "not finished; continue it with --resume")]
    write_summaries(tmp_path / "a.runs.jsonl.gz", (tmp_path / "runs", Found(found.runs, tuple(lost))))
    again = read_summaries(tmp_path / "a.runs.jsonl.gz")
    assert [run.last("hack") for run in again.runs] == [run.last("hack") for run in found.runs]
    assert any("gone: when the summary was written: not finished" in line for line in remarks_on(again))


HARM = {
    "no update_removed": (lambda run: run["series"].pop("update_removed"), "its series lack 'update_removed'"),
    "a rate below 0": (lambda run: run["series"].update(hack=[-0.5] * 10), "'hack' is -0.5, which is no share"),
    "NaN": (lambda run: run["series"].update(update_norm=[float("nan")] * 10), "'update_norm' is nan"),
    "a step too few": (lambda run: run["series"].update(hack=[0.5] * 9), "'hack' has 9 values, and the run 10 steps"),
    "no rates": (lambda run: run["evals"].update({"0": 7}), "damaged"),
    "another arm": (lambda run: run.update(arm="vanilla"), "is called vanilla 41"),
}


@pytest.mark.parametrize("what", HARM)
def test_a_summary_that_no_run_gives_is_refused_in_one_line(honest, tmp_path, what):
    harm, told = HARM[what]
    head, run = map(json.loads, gzip.decompress(honest).splitlines())
    path = tmp_path / "a.runs.jsonl.gz"
    path.write_bytes(honest)
    assert len(read_summaries(path).runs) == 1
    harm(run)
    path.write_bytes(gzip.compress(f"{json.dumps(head)}\n{json.dumps(run)}\n".encode()))
    with pytest.raises(BadInput, match=f"a.runs.jsonl.gz:2: .*{told}"):
        read_summaries(path)
