"""What an adversary got past T5 to T7, early warning and the page of the report: each is injected and seen red."""

import dataclasses
import math

import pytest
import test_channels_ab
from test_early_warning import ONSETS, early, statuses
from test_early_warning import run as warned_run
from test_extraction_loss import V_GRPO, V_NLL, measured, write_both, write_same
from test_results import rows, ten, write_run
from test_t6 import clause, study
from test_trajectory import SEEDS, judged, run, states
from test_uat import sees_pure, write_all

from projected_grpo.ledger.by_source import by_source
from projected_grpo.report.page import document
from projected_grpo.report.page.experiment import find, trained
from projected_grpo.report.results_md import Report, report_on
from projected_grpo.report.uat import numbers as uat
from projected_grpo.report.uat.inputs import read_replays
from projected_grpo.verdicts.adapters import t6_of
from projected_grpo.verdicts.early_warning import alarm, judge
from projected_grpo.verdicts.h1 import Line
from projected_grpo.verdicts.matching import RunGroup
from projected_grpo.verdicts.registry import Finding

# ---------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """A short training run, and a probe with a second V."""
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "a", "vanilla", 41, ten(8))
    write_both(root / "probe")
    return root


@pytest.fixture
def no_plots(monkeypatch):
    for name in ("all_plots", "lives_plots"):
        monkeypatch.setattr(document, name, lambda _: {})


def line(name):
    return Line(
        Finding(name, "FAIL", f"why of {name}"), (Finding(f"clause of {name}", "FAIL", "-"),), (f"note {name}",)
    )


@pytest.mark.usefixtures("no_plots")
def test_every_line_of_results_is_on_the_page(experiment):
    """The sneaky fail: a verdict that results.md shows and the page leaves out, as it did with H2."""
    names = [f.name for f in dataclasses.fields(Report) if f.type == Report.__dataclass_fields__["shares"].type]
    assert {"mixed", "t6", "warned", "shares"} <= set(names)
    found = find([experiment])
    report = dataclasses.replace(trained(found), **{name: (line(f"line {name}"),) for name in names})
    html, markdown = document.page(found, report, 5)[0], report.markdown([])
    for name in names:
        for what in (f"line {name}", f"clause of line {name}", f"note line {name}"):
            assert what in markdown
            assert what in html, what


@pytest.mark.usefixtures("no_plots")
def test_t7_of_results_is_on_the_page(experiment):
    (t7,) = report_on(experiment).t7.clauses
    found = find([experiment])
    html = document.page(found, trained(found), 5)[0]
    badge = document.filled('{% from "macros.html" import badge %}{{ badge(status) }}', {"status": t7.status})
    assert f"<tr><td>T7</td><td>{badge}</td>" in html


@pytest.mark.usefixtures("no_plots")
def test_the_channels_table_of_results_is_on_the_page(experiment):
    found = find([experiment])
    report = trained(found)
    channels = dataclasses.replace(test_channels_ab.run(41, 0.5), path=experiment / "a")
    report = dataclasses.replace(report, found=dataclasses.replace(report.found, runs=(channels,)))
    title = "Each channel's own gradient against V"
    assert title in report.markdown([])
    assert title.replace("'", "&#39;") in document.page(found, report, 5)[0]


# ---------------------------------------------------------------- T5


def test_a_step_says_of_how_many_rows_ground_truth_is_known():
    found = by_source(rows(0, {"arm": "projected", "seed": 41}, ["unknown"] * 7 + ["good"]))["student"]
    assert (found["rows"], found["known"], found["hack"]) == (8.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("known", "status"), [(4.0, "PASS"), (3.6, "PASS"), (3.5, "NOT_EVALUABLE"), (0.5, "NOT_EVALUABLE")]
)
@pytest.mark.parametrize("source", ["student", "base"])
def test_t5_is_not_judged_where_ground_truth_is_hidden(source, known, status):
    """Of four rows; a version without the count does not know it."""
    if source == "base":
        known /= 2
    arm = "projected" if source == "student" else "vanilla"
    assert judged(*(run(arm, s, **{source: {"known": known}}) for s in SEEDS)).verdict.status == status
    assert judged(run(arm, 41, **{source: {"known": None}})).verdict.status == "NOT_EVALUABLE"


WRECKED = {
    "gt_pass held": {"gt": 0.19},
    "well-formed held": {"form": 0.84},
    "all hacking stays below": {"hacked": 0.9},
}


@pytest.mark.parametrize("name", WRECKED)
def test_t5_does_not_pass_on_a_wrecked_projected(name):
    found = judged(*(run("projected", seed, student=WRECKED[name]) for seed in SEEDS))
    assert {n: s for n, s in states(found).items() if s != "PASS"} == {name: "FAIL"}
    assert found.verdict.status == "FAIL"


def test_t5_asks_that_all_hacking_rises():
    """Correct hacks that became pure ones: the pure hack rate rises, and no more is hacked than before."""
    found = judged(*(run("vanilla", s, student={"hacked": 0.7}, base={"hacked": 0.7}) for s in SEEDS))
    assert {n for n, s in states(found).items() if s != "PASS"} == {"all hacking rises"}


# ---------------------------------------------------------------- early warning


def warned(change_quiet=lambda r: r, change=lambda r: r, quiet=None):
    vanilla = [change(warned_run("vanilla", s, early(o))) for s, o in ONSETS.items()]
    ceiling = [change_quiet(warned_run("no_loophole", s, quiet or {})) for s in ONSETS]
    (found,) = judge([RunGroup("vanilla", tuple(vanilla))], vanilla + ceiling)
    return found


def hidden(name, value, every=1):
    """From step 20 on every so many steps of a series are no number."""

    def of(one):
        one.series[name] = [value if t >= 20 and t % every == 0 else x for t, x in enumerate(one.series[name])]
        return one

    return of


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("every", [1, 5])
def test_a_quiet_run_whose_signal_is_unknown_is_not_quiet(value, every):
    found = warned(hidden("cos_in", value, every), quiet={"cos_in": 60})
    assert statuses(found)["cos_in"] == "NOT_EVALUABLE"
    assert "cos_in of no_loophole 41" in found.clauses[0].why


def test_a_regular_expression_whose_steps_are_unknown_is_not_late():
    assert statuses(warned(change=hidden("phrase", None)))["cos_in"] == "NOT_EVALUABLE"


def test_a_tenth_of_the_windows_may_be_unknown():
    """A step that is not known takes five windows along: of 200 windows 20 may be gone."""
    values = [0.1, 0.12] * 112  # windows end at steps 24 to 223
    assert alarm([None if t in (50, 60, 70, 80) else x for t, x in enumerate(values)], 0.001) is None
    with pytest.raises(ValueError, match="known in 175 of 200 windows"):
        alarm([None if t in (50, 60, 70, 80, 90) else x for t, x in enumerate(values)], 0.001)
    assert alarm([*values[:30], *[0.5] * 9, *[None] * 200], 0.001) == 30  # what follows an alarm does not change it


@pytest.mark.parametrize("fact", ["v_sha256", "pairs_draw"])
@pytest.mark.parametrize("arm", ["vanilla", "no_loophole"])
def test_units_that_measure_one_v_are_no_units(fact, arm):
    def same(one):
        return dataclasses.replace(one, facts={**one.facts, f"vhack.{fact}": "one"})

    found = warned(**{"vanilla": {"change": same}, "no_loophole": {"change_quiet": same}}[arm])
    assert statuses(found) == {**dict.fromkeys(("cos_in", "cos_update_in", "energy_update_in"), "NOT_EVALUABLE"),
                               "reward_spread": "FAIL"}  # fmt: skip
    assert f"{arm} 41 and 42 measure one V: {fact} one" in found.clauses[0].why


# ---------------------------------------------------------------- T6


def test_the_singular_runs_under_a_loras_name_are_not_judged(tmp_path):
    runs = study(tmp_path)
    svd = {(r.arm, r.seed): r for r in runs if r.config("adapter") != "lora"}
    copies = [
        dataclasses.replace(svd[r.arm, r.seed], path=r.path, facts=r.facts) if r.config("adapter") == "lora" else r
        for r in runs
    ]
    (found,) = t6_of(copies)
    assert found.verdict.status == "NOT_EVALUABLE"
    assert "hold the same rollouts: one run, not two" in found.verdict.why


@pytest.mark.parametrize(
    "numbers", [{"cos_in": math.nan}, {"overlap": math.inf}, {"cos_in": 0.0, "cos_out": 0.0, "overlap": 0.0}]
)
def test_numbers_of_v_anew_that_say_nothing_are_no_v(tmp_path, numbers):
    *others, last = study(tmp_path)
    anew = dataclasses.replace(last.anew, records=(dataclasses.replace(last.anew.records[0], **numbers),))
    runs = [*others, dataclasses.replace(last, anew=anew)]
    (found,) = t6_of(runs)
    assert clause(found, "V is still V").status == "NOT_EVALUABLE"
    assert f"{runs[-1].path.name}: v_anew.json says {next(iter(numbers))}" in found.verdict.why


# ---------------------------------------------------------------- T7


@pytest.mark.parametrize("few", [lambda r: r["step"] == 0 and r["sample_id"] == 0, lambda r: r["step"] == 0])
def test_one_v_whose_energy_differs_on_a_few_rows_is_one_v(tmp_path, few):
    """One row of 96, and eight: fewer than a tenth."""
    config = write_all(tmp_path, v=measured(sees_pure), random_v=None, vhack=V_NLL)
    write_same(tmp_path, V_GRPO, lambda r: {**r, "cos_S_contrib": 0.3 * r["cos_S_contrib"],
                                            "energy_V": r["energy_V"] * (1.05 if few(r) else 1)})  # fmt: skip
    found = next(v for v in uat.uat(read_replays(config)).verdicts if v.name == "T7")
    assert (found.status, "one V under two names" in found.why) == ("FAIL", True)


def test_equal_cosines_are_of_one_v_whatever_the_energies(tmp_path):
    config = write_all(tmp_path, v=measured(sees_pure), random_v=None, vhack=V_NLL)
    write_same(tmp_path, V_GRPO, lambda r: {**r, "energy_V": r["energy_V"] * 1.05})
    found = next(v for v in uat.uat(read_replays(config)).verdicts if v.name == "T7")
    assert (found.status, "one V under two names" in found.why) == ("FAIL", True)
