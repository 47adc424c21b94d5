"""What is known of a few rows is not shown; a summary gives the numbers of its step files, or one line."""

import gzip
import json

import pytest
from test_matching import run as in_memory
from test_results import held_out, ten, write_run

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import write_step
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
    [(["good"] * 5 + ["unknown"] * 95, {}), (["good"] * 100, {"problem_id": "x"})],
    ids=["unknown", "trained on"],
)
def test_a_held_out_gain_that_is_no_evidence_is_not_shown(tmp_path, after, values):
    path = write_run(tmp_path / "a", "projected", 41, ten(1))
    write_step(path / "eval", 0, held_out(["good"] * 20 + ["bad"] * 80))
    write_step(path / "eval", 10, [{**row, **values} for row in held_out(after, 10)])
    report = report_on(tmp_path)
    (run,) = report.found.runs
    assert [tables.change_pp(run, rate) for rate in ("hack", "gt")] == [None, None]
    assert json.loads(report.json())["runs"][0]["held_out"]["10"]["gt"] is None
    assert any(line.startswith("a: ") and "shown" in line for line in report.remarks)


# ---------------------------------------------------------------- rows


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
    "no rates": (lambda run: run["evals"].update({"0": 7}), "damaged"),
    "no arm": (lambda run: run.pop("arm"), "arm"),
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
