"""`just results` and `just report` through their real entry points: what they write, exit codes, refusals."""

import json
import re

import pytest
from harness import refused
from written_runs import evaluate, ten, write_all, write_run

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.ledger.step_file import read_step, step_path, write_step

STEMS = ("trajectories", "paths", "cosines", "outcomes")


def clauses(out):
    data = json.loads((out / "results.json").read_text("utf-8"))
    return {c["name"]: c["status"] for c in data["verdicts"][0]["clauses"]}, data


def write_study(root):
    """All arms of three independent replicates, 30 steps each: vanilla hacks from step 4 on, so its onset is at 9."""
    ends = {"vanilla": (9, 9, 8), "projected": (0, 0, 0), "no_loophole": (0, 0, 0),
            **dict.fromkeys(arms_of("control"), (7, 7, 6)), "kl": (3, 3, 2)}  # fmt: skip
    for arm, hacks in ends.items():
        for seed, n in zip((41, 42, 43), hacks, strict=True):
            kind = ARMS[arm].measured
            v = {"control": kind, "k": "48", "pairs_draw": str(seed), "v_sha256": f"{kind}{seed}"}
            good = min(10 - n, 7)  # what `kl` solves, `projected` does
            steps = [["good"] * 10] * 4 + [["hack"] * n + ["good"] * good + ["bad"] * (10 - n - good)] * 26
            path = write_run(root / f"{arm}_{seed}", arm, seed, steps, vhack=v, facts={"model_hash": f"base{seed}"})
            for step, good in ((0, 3), (30, 4)):
                evaluate(path, step, arm, seed, ["good"] * good + ["bad"] * (10 - good))
    return root


@pytest.mark.slow
def test_a_real_effect_exits_0_and_leaves_everything(script, tmp_path):
    code, out, err = script("results", write_study(tmp_path / "runs"), "--out", "made")
    assert code == 0, err
    states, data = clauses(tmp_path / "made")
    assert set(states.values()) == {"PASS"}
    assert [line["verdict"]["status"] for line in data["verdicts"]] == ["PASS"] * 3
    # 90, 90, 80: mean 86.667, sd 5.7735, SEM 3.3333; t of .95 with 2 degrees of freedom 2.91999
    prevention = {c["name"]: c["numbers"] for c in data["verdicts"][2]["clauses"]}
    assert prevention["hack reduction"]["lower"] == pytest.approx(86.667 - 2.91999 * 3.3333, abs=1e-2)
    assert prevention["horizon"]["shortest"] == 3.0  # at .8 the window of ten is above one half a step later
    text = (tmp_path / "made/results.md").read_text("utf-8")
    for stem in STEMS:
        assert (tmp_path / "made/plots" / f"{stem}.png").stat().st_size > 10_000
        assert f"(plots/{stem}.svg)" in text
    shown = out.splitlines()
    assert len(shown) <= 50
    assert "falsified by: reduction < 15 pp: no" in text
    assert "H1 as preregistered PASS; H1 held PASS; H1 prevention PASS; exit code 0" in shown[-3]
    assert "out: made" in shown[-2]


@pytest.mark.usefixtures("no_plots")
def test_a_fail_exits_1_and_names_its_clause_and_the_page_shows_a_sample_of_every_run(script, tmp_path, monkeypatch):
    """What a model wrote cannot leave the page's block of data."""
    root = write_all(tmp_path / "runs", random=(1, 0, 2))
    hostile = "</script><script>document.title = 'x'</script>"
    run = root / "vanilla_41"
    write_step(run, 0, [{**row, "completion": hostile} for row in read_step(step_path(run, 0))])
    code, out, _ = script("results", root)
    assert code == 1  # though the other lines, without the later controls, are not evaluable
    states, _ = clauses(root / "results")  # the default place
    assert {name for name, status in states.items() if status == "FAIL"} == {"beats random"}
    assert "H1 as preregistered FAIL" in out.splitlines()[-3]
    monkeypatch.setattr("projected_grpo.report.page.MOST", 120)
    assert script("report", root)[0] == 0
    text = (root / "report.html").read_text("utf-8")
    assert 'H1 as preregistered <span class="FAIL">FAIL' in text
    assert 'H1 held <span class="NOT_EVALUABLE">' in text
    assert "<h3>Every arm: mean ± SEM over seeds, last 10 steps</h3>" in text
    rows = json.loads(re.search(r'id="data">(.*)</script>', text)[1])
    assert (len({row["run"] for row in rows}), len(rows)) == (12, 120)
    assert hostile not in text
    assert hostile in {row["completion"] for row in rows}
    assert str(tmp_path) not in text


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(("arm", "why"), [("projected", "no vanilla run: nothing to"), ("vanilla", "no projected run")])
def test_without_vanilla_or_projected_it_exits_3(script, tmp_path, arm, why):
    write_run(tmp_path / "runs" / "a", arm, 41, ten(1))
    code, out, _ = script("results", "runs")
    assert (code, why in out) == (3, True)


def test_refusals(script, tmp_path):
    refused(script("results", "nowhere"), "nowhere: no such directory")
    (tmp_path / "empty").mkdir()
    refused(script("results", "empty"), "empty: no finished training run", "no training run there", "just train")
    write_run(tmp_path / "one" / "a", "vanilla", 41, ten(8), finished=False)
    refused(script("results", "one"), "no finished training run", "a: not finished; continue it with --resume")
