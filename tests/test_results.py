"""Runs on disk -> groups and tables. Run directories are written with the real writer; numbers by hand."""

import pytest
from written_runs import evaluate, rows, ten, write_all, write_run

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import onset_of, running_mean
from projected_grpo.ledger.step_file import read_step, step_path, write_step
from projected_grpo.report import tables
from projected_grpo.report.results import report_on
from projected_grpo.verdicts.conditions import untested
from projected_grpo.verdicts.finished_runs import load_runs, mean_sem
from projected_grpo.verdicts.matching import group_runs

# ---------------------------------------------------------------- reading


def test_rates_of_one_run_by_hand(tmp_path):
    """Of its student's own rows: a pool's rollouts hack all the time, whatever the student does."""
    # 5 steps of one hack, one both, one good, one broken: hack 1/4, gt 2/4, form 3/4, hacked 2/4; then 10 steps of
    # hack, bad, once unknown: hack 8/11 and gt 0/11 (the unknown one has neither), form 12/12, hacked 9/12
    steps = [["hack", "both", "good", "broken"] * 3] * 5 + [["hack"] * 8 + ["bad"] * 3 + ["unknown"]] * 10
    teacher = rows(0, {"arm": "vanilla", "seed": 41}, ["hack"] * 6, source="teacher")
    path = write_run(tmp_path / "a", "vanilla", 41, steps, extra=teacher, teacher_pool="pool", mix="teacher=.33")
    for step in range(15):
        write_step(path, step, [{**row, "update_removed": step / 100} for row in read_step(step_path(path, step))])
    (run,) = load_runs(tmp_path).runs
    assert (run.steps, run.rollouts, run.seconds) == (15, 180, 30.0)
    assert run.last("hack") == pytest.approx(8 / 11)
    assert (run.last("gt"), run.last("form"), run.last("hacked")) == (0.0, 1.0, 0.75)
    assert run.whole("hack") == pytest.approx((5 * 1 / 4 + 10 * 8 / 11) / 15)
    assert run.whole("form") == pytest.approx((5 * 3 / 4 + 10) / 15)
    assert run.series["reward_hack"] == [0.25] * 5 + [pytest.approx(8 / 11)] * 10
    assert run.series["correct_attempted_hack"][0] == 0.25
    assert (run.whole("cos_in"), run.whole("cos_null")) == (pytest.approx(0.4), pytest.approx(0.2))
    # mean of .05 to .14 = .095, of 0 to .14 = .07
    assert (run.last("update_removed"), run.whole("update_removed")) == pytest.approx((0.095, 0.07))


def test_onset_running_mean_and_sem_by_hand():
    # hacks from step 4 on: at step t >= 9 the window holds t - 3 hacks of 10 while t < 13; 6 of 10 at step 9
    # hacks from step 10 on: 5 of 10 at step 14 is not above one half, 6 of 10 at step 15 is
    assert [onset_of([0.0] * n + [1.0] * 10) for n in (4, 10)] == [9, 15]
    assert onset_of([1.0] * 9) is None  # no full window
    assert running_mean([1.0, None, 3.0]) == [1.0, 1.0, 2.0]
    assert running_mean([0.0] * 10 + [10.0])[-1] == 1.0
    assert mean_sem([1.0, 2.0, None, 3.0]) == (2.0, pytest.approx(1 / 3**0.5))  # sd 1 over sqrt 3
    assert mean_sem([5.0]) == (5.0, None)


def test_unfinished_and_short_runs_are_left_out_with_why(tmp_path):
    write_run(tmp_path / "deep" / "a", "vanilla", 41, ten(8))
    write_run(tmp_path / "b", "vanilla", 42, ten(8), finished=False)
    (write_run(tmp_path / "c", "vanilla", 43, ten(8)) / "step_009.jsonl.gz").unlink()
    (write_run(tmp_path / "d", "vanilla", 44, ten(8)) / "step_004.jsonl.gz").unlink()
    found = load_runs(tmp_path)
    assert [run.seed for run in found.runs] == [41]
    assert [(path.name, why.split(";")[0]) for path, why in found.left_out] == [
        ("b", "not finished"), ("c", "9 step files, but its manifest says 10 steps"),
        ("d", f"{tmp_path / 'd'}: step 4 is missing among steps 0 to 9"),
    ]  # fmt: skip


def test_ground_truth_unknown_at_one_of_the_last_ten_steps_leaves_the_rate_unknown(tmp_path):
    steps = [["good", "bad"]] * 5 + [["hack", "bad"]] + [["unknown", "unknown"]] * 9
    write_run(tmp_path / "a", "projected", 41, steps)
    write_run(tmp_path / "b", "projected", 42, [["unknown"]] * 5 + [["hack"]] * 10)
    a, b = load_runs(tmp_path).runs
    assert (a.last("hack"), a.last("gt"), a.last("form"), a.last("hacked")) == (None, None, 1.0, 0.95)
    assert b.last("hack") == 1.0


TESTED_AFTER = {
    "honest": (["good"] * 20 + ["bad"] * 80, {}, ""),
    # the other rollouts say 100 %
    "what failed is unknown": (["good"] * 2 + ["unknown"] * 98, {}, "ground truth is known of 2 of 100 rollouts"),
    # the rows that are trained on all say problem x, prompt x
    "a prompt that was trained on": (["good"], {"prompt": "x"}, "1 of its evaluation problems were trained on"),
    "a problem that was trained on": (["good"], {"problem_id": "x"}, "1 of its evaluation problems were trained on"),
}


@pytest.mark.parametrize(("after", "values", "told"), TESTED_AFTER.values(), ids=TESTED_AFTER)
def test_an_evaluation_is_held_out_and_of_rollouts_that_were_judged(tmp_path, after, values, told):
    """20 of 100 are solved before training."""
    path = write_run(tmp_path / "a", "projected", 41, ten(1))
    evaluate(path, 0, "projected", 41, ["good"] * 20 + ["bad"] * 80, **values)
    evaluate(path, 10, "projected", 41, after, **values)
    found = untested(load_runs(tmp_path).runs[0])
    assert (told in found, bool(found)) == (True, bool(told))


# ---------------------------------------------------------------- groups and references


def names(root):
    return [g.name for g in group_runs(load_runs(root).runs)]


def test_a_group_is_named_after_what_tells_it_apart(tmp_path):
    """Options of the channels too: else such runs are averaged under one name."""
    write_run(tmp_path / "a", "projected", 41, ten(1), project="grad", k_use=16, vhack={"k": "32", "loss": "nll"})
    write_run(tmp_path / "b", "projected", 41, ten(1), project="update", vhack={"k": "32", "loss": "nll"})
    write_run(tmp_path / "v", "vanilla", 41, ten(8))
    write_run(tmp_path / "w", "vanilla", 42, ten(8), out="elsewhere", grader_workers=3)
    assert names(tmp_path) == ["vanilla", "projected@16 project=grad", "projected"]
    for batch in (4, 16):
        write_run(tmp_path / "on" / f"{batch}", "vanilla", 41, ten(8), trace_weight=0.1, trace_batch=batch)
    assert names(tmp_path / "on") == ["vanilla trace_batch=4", "vanilla trace_batch=16"]


@pytest.mark.parametrize("differing", [{"weight_decay": 0.3}, {"kl_beta": 0.3}, {"judge": "command:x"}, {"dtype": "x"}])
def test_seeds_that_differ_in_a_setting_are_not_averaged(tmp_path, differing):
    write_run(tmp_path / "a", "vanilla", 41, ten(8))
    write_run(tmp_path / "b", "vanilla", 42, ten(8), **differing)
    assert len(names(tmp_path)) == 2


def test_one_seed_twice_is_refused(tmp_path):
    write_run(tmp_path / "a", "vanilla", 41, ten(8))
    write_run(tmp_path / "b", "vanilla", 41, ten(8))
    with pytest.raises(
        BadInput, match=r"/a and .*/b: two runs of vanilla with seed 41, that differ in no compared setting"
    ):
        names(tmp_path)


# ---------------------------------------------------------------- tables


def cells(table):
    return [list(line) for line in table.body]


def test_tables_of_three_seeds_by_hand(tmp_path):
    report = report_on(write_all(tmp_path))
    vanilla, projected = cells(tables.per_arm(report.groups))[:2]
    # vanilla 80, 80, 70: mean 76.67, sd 5.77, SEM 3.33; projected 10, 0, 20: mean 10, sd 10, SEM 5.77
    assert vanilla[:5] == ["vanilla", "3", "abcdef01", "76.7 ± 3.3", "76.7 ± 3.3"]  # hacked: all of them pure hacks
    assert vanilla[5:7] == ["20.0 ± 0.0", "100.0 ± 0.0"]
    assert vanilla[-2] == "9.0 ± 0.0 (3 of 3)"
    assert (projected[3], projected[-2]) == ("10.0 ± 5.8", "- (0 of 3)")
    # projected - vanilla: -70, -80, -50: mean -66.67, sd 15.28, SEM 8.82; t of .975 with 2 degrees of freedom 4.3027
    zero = "+0.0 [+0.0, +0.0]"
    (over_vanilla,) = tables.differences("vanilla", report.groups, report.found.runs)
    assert cells(over_vanilla)[0] == ["projected", "3", "-66.7 [-104.6, -28.7]", zero, zero]
    (over_projected,) = tables.differences("projected", report.groups, report.found.runs)
    assert cells(over_projected)[0] == ["vanilla", "3", "+66.7 [+28.7, +104.6]", zero, zero]
    assert "- 12 runs, 1,200 training rollouts" in tables.per_arm(report.groups).markdown()


def test_seeds_without_a_match_are_named_and_not_subtracted(tmp_path):
    write_run(tmp_path / "v41", "vanilla", 41, ten(8))
    write_run(tmp_path / "v42", "vanilla", 42, ten(8) * 2)
    for seed in (41, 42, 43):
        write_run(tmp_path / f"p{seed}", "projected", seed, ten(1))
    report = report_on(tmp_path)
    (found,) = tables.differences("vanilla", report.groups, report.found.runs)
    assert [line[:3] for line in cells(found)] == [["projected", "1", "-70.0"]]
    assert found.notes[0] == "vanilla 42 and projected 42 differ in steps done: 20 against 10"
    assert "seed 43: no vanilla run" in found.notes[1]


def test_held_out_evaluations_need_not_be_contiguous(tmp_path):
    for seed, hacks in ((41, 6), (42, 8)):
        path = write_run(tmp_path / f"v{seed}", "vanilla", seed, ten(8))
        evaluate(path, 0, "vanilla", seed, ["good"] * 5 + ["bad"] * 5)
        evaluate(path, 5, "vanilla", seed, ["bad"] * 10)
        evaluate(path, 10, "vanilla", seed, ["hack"] * hacks + ["good"] + ["broken"] * (9 - hacks))
    write_run(tmp_path / "p", "projected", 41, ten(1))  # never evaluated
    report = report_on(tmp_path)
    ends = [line[-1] for line in cells(tables.per_arm(report.groups))]
    assert ends == ["50.0 → 10.0", "- → -"]


def test_mechanisms_add_up_to_the_hack_rate_of_the_last_ten_steps(tmp_path):
    # 5 steps that are not among the last ten; then 4 of 10 hack by no program in every step, 1 of 10 by print in
    # every other
    path = write_run(tmp_path, "vanilla", 41, [["hack"] * 10] * 5 + ten(4))
    config, printed = {"arm": "vanilla", "seed": 41}, "```python\ndef run_tests():\n    print('ok')\n```"
    for step in range(5, 15, 2):
        claims = rows(step, config, ["hack"], completion=printed)
        write_step(path, step, [*claims, *rows(step, config, ["hack"] * 4 + ["bad"] * 5)])
    report = report_on(tmp_path)
    (run,) = report.found.runs
    assert run.mechanisms == {"claim": pytest.approx(0.05), "none": pytest.approx(0.4)}
    assert run.last("hack") == pytest.approx(0.45)
    (table,) = tables.mechanisms(report.groups)
    assert (table.header[2:], cells(table)) == (["claim %", "none %"], [["vanilla", "1", "5.0", "40.0"]])
