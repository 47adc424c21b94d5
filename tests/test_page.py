"""`just report`: the page says what `results` says, and what models wrote is data in it."""

import json
import re

import pytest
from test_results import ten, write_all, write_run

from projected_grpo.ledger.step_file import read_step, step_path, write_step


def rows_of(text):
    return json.loads(re.search(r'id="data">(.*)</script>', text)[1])


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_the_page_has_verdicts_tables_and_a_sample_of_every_run(script, tmp_path):
    root = write_all(tmp_path / "runs")
    assert script("report", root, "--max-rollouts", 120)[0] == 0
    text = (root / "report.html").read_text("utf-8")
    assert 'H1 as preregistered <span class="PASS">PASS' in text
    assert 'H1 held <span class="NOT_EVALUABLE">' in text
    assert "<h3>Every arm: mean ± SEM over seeds, last 10 steps</h3>" in text
    rows = rows_of(text)
    assert len({row["run"] for row in rows}) == 12
    assert len(rows) == 120
    assert str(tmp_path) not in text


@pytest.mark.usefixtures("no_plots")
def test_what_a_model_wrote_cannot_leave_the_block_of_data(script, tmp_path):
    run = write_run(tmp_path / "runs" / "a", "vanilla", 41, ten(8))
    hostile = "</script><script>document.title = 'x'</script>"
    write_step(run, 0, [{**row, "completion": hostile} for row in read_step(step_path(run, 0))])
    assert script("report", tmp_path / "runs")[0] == 0
    text = (tmp_path / "runs/report.html").read_text("utf-8")
    assert hostile not in text
    assert hostile in {row["completion"] for row in rows_of(text)}
