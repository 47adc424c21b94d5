"""Chains: every need is met, what is done is skipped, what was cut is resumed, a failure stops only what needs it."""

import json
import shutil
import textwrap
from dataclasses import replace

import pytest

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import SCHEMA_VERSION
from projected_grpo.queue.links import Link, is_done, read_chain, write_chain
from projected_grpo.queue.run_link import resumed, run_chain

WRITES_A_RUN = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[1]); out.mkdir(parents=True, exist_ok=True)
with open(out.parent / "order.txt", "a") as f: f.write(out.name + (" resumed" if "--resume" in sys.argv else "") + "\\n")
if "fail" in sys.argv: sys.exit(1)
(out / "manifest.json").write_text(json.dumps({"kind": "train", "finished": True, "schema_version": %d}))
"""


@pytest.fixture
def link(tmp_path):
    """Make a link that runs a small script writing a finished run."""
    path = tmp_path / "link.py"
    path.write_text(textwrap.dedent(WRITES_A_RUN % SCHEMA_VERSION))

    def make(name, *needs, check=False, fail=False):
        out = tmp_path / "home" / name
        return Link(name, (str(path), str(out), *(["fail"] if fail else [])), out, needs, check)

    return make


def order(tmp_path):
    return (tmp_path / "home/order.txt").read_text().split("\n")[:-1]


@pytest.mark.slow
def test_a_chain_runs_in_order_and_a_failed_link_stops_what_needs_it_and_nothing_else(link, tmp_path):
    links = [link("a"), link("bad", "a", fail=True), link("last", "bad"), link("sibling", "a")]
    assert run_chain(links, tmp_path / "home") == 1
    assert order(tmp_path)[0] == "a"
    assert sorted(order(tmp_path)) == ["a", "bad", "sibling"]
    (tmp_path / "link.py").write_text((tmp_path / "link.py").read_text().replace('"fail" in sys.argv', "False"))
    assert run_chain(links, tmp_path / "home") == 0
    assert order(tmp_path)[3:] == ["bad", "last"]
    assert run_chain(links, tmp_path / "home") == 0
    assert len(order(tmp_path)) == 5, "what is done is not done again"
    assert read_chain(tmp_path / "home") == {t.name: t for t in links}


def test_a_cut_run_is_resumed_and_one_cut_before_its_checkpoint_starts_anew(link, tmp_path):
    cut, anew = link("r"), link("n")
    for each in (cut, anew):
        each.out.mkdir(parents=True)
        (each.out / "log.txt").write_text("cut")
    (cut.out / "checkpoint.pt").write_text("")
    assert run_chain([cut, anew], tmp_path / "home") == 0
    assert order(tmp_path) == ["r resumed", "n"]
    assert not (anew.out / "log.txt").exists()


@pytest.mark.parametrize(
    ("kind", "goes_on"), [("teacher_pool", True), ("multi_turn", True), ("teachers", True), ("train", False)]
)
def test_what_goes_on_from_its_own_files_needs_no_checkpoint(tmp_path, kind, goes_on):
    """Answers of a teacher that was paid for are not asked for again."""
    (out := tmp_path / "out").mkdir()
    (out / "manifest.json").write_text(json.dumps({"kind": kind, "finished": False, "schema_version": SCHEMA_VERSION}))
    assert resumed(("ask",), out) == (("ask", "--resume") if goes_on else ("ask",))
    assert out.exists() == goes_on


@pytest.mark.slow
def test_a_check_is_done_once_it_has_passed_and_again_once_what_it_judged_was_made_again(link, tmp_path):
    failed = link("failed", check=True, fail=True)
    assert run_chain([failed], tmp_path / "home") == 1
    assert not is_done(failed, tmp_path / "home", {})
    run, check = link("run"), link("verify", "run", check=True)
    assert run_chain([run, check], tmp_path / "home") == 0
    assert is_done(check, tmp_path / "home", {t.name: t for t in (run, check)})
    shutil.rmtree(run.out)
    assert run_chain([run, check], tmp_path / "home") == 0
    assert order(tmp_path)[1:] == ["run", "verify", "run", "verify"]


@pytest.mark.slow
def test_a_run_that_finished_but_missed_its_bars_is_not_done(link, tmp_path):
    """build_toy writes all its files and then says that the model is no good."""
    (tmp_path / "link.py").write_text((tmp_path / "link.py").read_text() + "sys.exit(1)\n")
    base, user = link("base"), link("user", "base")
    assert run_chain([base, user], tmp_path / "home") == 1
    assert not is_done(base, tmp_path / "home", {})
    assert run_chain([base, user], tmp_path / "home") == 1
    assert order(tmp_path) == ["base", "base"]


def test_a_folder_is_not_continued_with_other_settings(link, tmp_path):
    home = tmp_path / "home"
    write_chain(home, [link("a")])
    write_chain(home, [link("a", fail=True)])  # nothing has begun: it may change
    (home / "a").mkdir()
    with pytest.raises(BadInput, match=r"a was begun as .*fail.*now asked for as.*another --out"):
        write_chain(home, [link("a")])
    write_chain(home, [link("b")])
    assert set(read_chain(home)) == {"a", "b"}  # a queued link must find itself there


@pytest.mark.slow
def test_a_report_is_done_whatever_its_verdict_but_not_when_it_broke(link, tmp_path):
    report = replace(link("results", check=True, fail=True), accept=(0, 1, 3))
    assert run_chain([report], tmp_path / "home") == 0  # it wrote its folder and says FAIL
    broken = replace(report, name="broken", out=tmp_path / "home/never")
    assert run_chain([broken], tmp_path / "home") == 1
