"""`just watch`: what it says is what the files say, each file is read once, and nobody watching is one plain page."""

import fcntl
import gzip
import json

import pytest
from test_results import rows, write_run
from test_scripts import refused

from projected_grpo.chains.links import Link, write_chain
from projected_grpo.ledger.evidence import seal
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.ledger.step_file import read_step, step_path, write_step
from projected_grpo.watch import follow
from projected_grpo.watch.follow import Followed
from projected_grpo.watch.page import spark

CONFIG = {"arm": "projected", "seed": 41}
KINDS = (["hack", "good"], ["hack", "bad"], ["hack", "hack"], ["bad", "broken"])
SAID = """\
run  train projected seed 41: finished, 4 steps
               last  last 10
hack     ▅▅█▁  0.00  0.50
gt       ▅▁▁▁  0.00  0.12
form     ███▅  0.50  0.88
cos_in   ████  0.40  0.40
cos_out  ▁▁▁▁  0.00  0.00
upd_out  ▃▃▃▃  0.10  0.10
rates of the student's rows, from 0 to 1; cosines, from 0 to 0.40
last words
"""


def page(told):
    """A page without the blanks at the ends of its lines."""
    return "".join(f"{line.rstrip()}\n" for line in told.splitlines())


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path / "run", "projected", 41, KINDS, finished=False)
    (tmp_path / "run/log.txt").write_text("I first words\nlast words\n")
    return tmp_path / "run"


@pytest.fixture
def reads(monkeypatch):
    """Names of the step files that were read."""
    names = []
    monkeypatch.setattr(follow, "read_step", lambda path: names.append(path.name) or read_step(path))
    return names


@pytest.mark.parametrize(
    ("values", "width", "top", "line"),
    [
        ([0.0, 0.5, 1.0], 60, 1.0, "▁▅█"),
        ([0.0, 1.0, 1.0, 1.0], 2, 1.0, "▅█"),  # each cell the mean of its steps
        ([None, 0.1], 60, 0.1, " █"),
        ([0.0], 60, 0.0, "▁"),
        ([-0.2, 2.0], 60, 1.0, "▁█"),
        ([], 60, 1.0, ""),
    ],
)
def test_a_sparkline_is_its_values(values, width, top, line):
    assert spark(values, width, top) == line


def test_a_finished_run_is_one_plain_page(script, run):
    seal(run)
    code, out, err = script("watch", "run", "--lines", 1)
    assert (code, page(out), err) == (0, SAID, "")


def test_where_nobody_watches_a_run_that_goes_on_is_one_page_too(script, run):
    """All of its numbers are there, and no escape sequence of a terminal."""
    update_manifest(run, config={**json.loads((run / "manifest.json").read_text())["config"], "steps": 10})
    code, out, _ = script("watch", "run")
    head, *body = page(out).splitlines()
    assert code == 0
    assert head.startswith("run  train projected seed 41: 4 of 10 steps, 12 s left, last step ")  # 6 of 2 s
    assert body == ["               last  last 10", *SAID.splitlines()[2:-1], "I first words", "last words"]
    assert "\x1b" not in out


def test_a_run_that_evaluates_before_its_first_step_is_shown_as_that(script, tmp_path):
    """Minutes of nothing would else look like a run that hangs."""
    run = write_run(tmp_path / "run", "projected", 41, KINDS[:1], finished=False)
    step_path(run, 0).unlink()
    asked = {**json.loads((run / "manifest.json").read_text())["config"], "steps": 10, "eval_every": 5}
    update_manifest(run, config=asked)
    head = "run  train projected seed 41: 0 of 10 steps, "
    assert page(script("watch", "run")[1]).splitlines()[0] == head + "evaluates before step 0"
    write_step(run / "eval", 0, rows(0, CONFIG, ["good", "good"]))
    assert page(script("watch", "run")[1]).splitlines()[0] == head + "- left"
    update_manifest(run, config={**asked, "eval_plain": True})
    assert page(script("watch", "run")[1]).splitlines()[0] == head + "evaluates before step 0"
    link = Link("train_projected_41", ("scripts/train.py",), run, kind="run")
    write_chain(tmp_path / "home", [link])
    (tmp_path / "home/logs").mkdir()
    with (tmp_path / "home/logs/train_projected_41.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the link that runs holds it
        assert "train_projected_41  evaluates" in script("watch", "home", "--once")[1]


def test_every_step_file_is_read_once(run, reads):
    followed = Followed(run)
    followed.look()
    followed.look()
    assert reads == [f"step_00{i}.jsonl.gz" for i in range(4)]
    write_step(run, 4, rows(4, CONFIG, ["good", "good"]))
    followed.look()
    assert reads[4:] == ["step_004.jsonl.gz"]
    assert followed.series["gt"] == [0.5, 0.0, 0.0, 0.0, 1.0]


def test_a_run_that_was_begun_again_is_read_from_its_start(run, reads):
    """The sneaky fail: a page that goes on with the numbers of a run that is no longer there."""
    followed = Followed(run)
    followed.look()
    for step in range(1, 4):
        step_path(run, step).unlink()
    write_step(run, 0, rows(0, CONFIG, ["good", "good"]))
    followed.look()
    assert followed.done == 1  # as a resumed run, which does again what it takes back
    update_manifest(run, started="later")
    followed.look()
    assert (followed.series["gt"], len(reads)) == ([1.0], 5)


def test_a_log_is_read_on_from_where_it_was(run):
    followed = Followed(run, keep=3)
    followed.look()
    with (run / "log.txt").open("a") as f:
        f.write("one\ntwo\nhal")
    followed.look()
    assert list(followed.log.lines) == ["last words", "one", "two"]
    with (run / "log.txt").open("a") as f:
        f.write("f\n")
    followed.look()
    assert list(followed.log.lines) == ["one", "two", "half"]


def test_a_live_page_follows_the_run_and_ends_with_it(script, run, monkeypatch):
    looks = []

    def wait(seconds):
        looks.append(seconds)
        write_step(run, 4, rows(4, CONFIG, ["good", "good"]))
        if len(looks) == 2:
            seal(run)

    monkeypatch.setattr("watch.time.sleep", wait)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes it for a terminal
    code, out, _ = script("watch", "run", "--every", 5)
    assert (code, looks) == (0, [5, 5])
    assert "4 of 4 steps" in out.split("5 of 4 steps")[0]
    assert "finished, 5 steps" in out.rpartition("\x1b[?1049l")[2]  # after the live page the screen is as it was


def test_a_chain_is_a_line_per_link(script, tmp_path, run):
    """Of links that train their curves, of all their state; the running and the failed at the top."""
    write_run(tmp_path / "home/train_vanilla_41", "vanilla", 41, KINDS[:2])
    links = [Link(name, ("scripts/train.py",), tmp_path / "home" / name, kind="run")
             for name in ("train_vanilla_41", "train_placebo_41")]  # fmt: skip
    links.append(Link("results", ("scripts/results.py",), tmp_path / "home/r", kind="check"))
    links.append(Link("train_projected_41", ("scripts/train.py",), run, kind="run"))
    write_chain(tmp_path / "home", links)
    (tmp_path / "home/logs").mkdir()
    (tmp_path / "home/logs/train_projected_41.json").write_text('{"started": "2026-01-01T00:00:00", "code": 1}')
    (tmp_path / "home/logs/train_projected_41.txt").write_text("E it broke\n")
    code, out, _ = script("watch", "home", "--once")
    head, _, *lines = page(out).splitlines()
    assert (code, head) == (0, "home: 1 of 4 links done")
    assert [" ".join(line.split()) for line in lines] == [
        "🔴 train_projected_41 failed 4 of 4 ▅▅█▁ 0.50 ▅▁▁▁ 0.12 ███▅ 0.88 ████ 0.40 ▃▃▃▃ 0.10",
        "🟢 train_vanilla_41 done 2 ▅▅ 0.50 ▅▁ 0.25 ██ 1.00 ██ 0.40 ▃▃ 0.10",
        "⚪ train_placebo_41 waiting",
        "⚪ results waiting",
        "train_projected_41: E it broke",
    ]


def test_what_is_no_run_is_refused(script, tmp_path):
    refused(script("watch", "nowhere"), "nowhere: neither a run (manifest.json) nor a chain's folder")
    refused(script("watch", tmp_path, "--every", 0), "--every 0: must be above 0")


# ---------------------------------------------------------------- damaged and foreign folders


def manifest_with(run, **changed):
    path = run / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changed}))


@pytest.mark.parametrize("config", [[], None, "x"])
def test_a_manifest_that_is_none_of_ours_is_named(script, run, config):
    manifest_with(run, config=config)
    refused(
        script("watch", run, "--once"), f"manifest.json: config is a {type(config).__name__}, no object", "name another"
    )


@pytest.mark.parametrize("links", ["{}", "[]"])
def test_a_chain_without_links_is_named(script, tmp_path, links):
    (tmp_path / "chain.json").write_text(links)
    refused(
        script("watch", tmp_path, "--once"),
        "chain.json: names no links",
        "queue the chain again, or name another folder",
    )


@pytest.mark.parametrize("steps", ["x", -5, None])
def test_steps_that_are_no_number_leave_no_time_to_tell(script, run, steps):
    manifest_with(run, config={**CONFIG, "steps": steps})
    code, told, _ = script("watch", run, "--once")
    assert code == 0
    assert "4 steps, - left" in told
    assert "-1 min" not in told


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "x", True])
def test_what_is_no_number_is_not_known(odd):
    assert follow.known(odd) is None
    assert follow.known(0.5) == 0.5


def test_a_log_cannot_move_the_cursor(script, run):
    (run / "log.txt").write_bytes(b"first\n\x1b[2J\x1b]0;pwned\x07evil\tword\n")
    code, told, _ = script("watch", run, "--once", "--lines", 10**20)
    assert code == 0
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "evil" in told


def test_a_log_that_is_a_folder_has_no_lines(script, run):
    (run / "log.txt").unlink()
    (run / "log.txt").mkdir()
    assert script("watch", run, "--once")[0] == 0


def step_with(path, **values):
    """The step file with other values, as our own writer would never have them."""
    found = [row | values for row in read_step(path)]
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in found).encode()))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_a_cosine_that_no_float_holds_is_a_gap(script, run, value):
    step_with(step_path(run, 3), cos_in=value, timing={"total": value})
    code, out, err = script("watch", "run")
    assert (code, err) == (0, "")
    assert "cos_in   ███   -     0.40" in page(out)


@pytest.mark.parametrize(("steps", "seconds"), [(10, 1e308), (10**400, 2.0)])
def test_a_time_that_no_float_holds_is_not_told(script, run, steps, seconds):
    manifest_with(run, config={**CONFIG, "steps": steps})
    for step in range(4):
        step_with(step_path(run, step), timing={"total": seconds})
    code, out, _ = script("watch", "run")
    assert (code, " steps, - left" in out) == (0, True)


def test_cosines_whose_sum_no_float_holds_are_a_full_bar():
    assert spark([1e308, 1e308], 1, 1e308) == "█"


def test_true_is_no_number_of_steps(script, run):
    """`4 of True steps`."""
    manifest_with(run, config={**CONFIG, "steps": True})
    assert "4 steps, - left" in script("watch", "run")[1]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"a \x1b[1;31mred\x1b[0m word", "a red word"),
        (b"\x1b]0;title\x07evil", "evil"),
        (b"\x1b]52;c;aGk=\x1b\\evil", "evil"),
        (b"\x1b]never ends", "]never ends"),
        (b"\xc2\x9b2Jevil\x00\x08\x7f", "evil"),  # the same in one character
        ("grün 🟢".encode(), "grün 🟢"),
    ],
)
def test_of_a_log_the_text_is_left(script, run, raw, shown):
    (run / "log.txt").write_bytes(raw + b"\n")
    assert page(script("watch", "run")[1]).splitlines()[-1] == shown


def test_a_manifest_and_a_chain_cannot_move_the_cursor_either(script, tmp_path, run):
    """Half a character, which JSON can name, is nothing that a terminal could print."""
    manifest_with(run, config={**CONFIG, "arm": "\x1b[2Jevil\ud800"})
    assert page(script("watch", "run")[1]).startswith("run  train evil seed 41: ")
    write_chain(tmp_path / "home", [Link("\x1b[2Jlink", ("scripts/train.py",), run, kind="run")])
    (tmp_path / "home/logs").mkdir()
    (tmp_path / "home/logs/\x1b[2Jlink.json").write_text('{"started": "2026-01-01T00:00:00", "code": 1}')
    (tmp_path / "home/logs/\x1b[2Jlink.txt").write_text("\x1b[31mE it broke\n")
    code, out, _ = script("watch", "home", "--once")
    assert (code, page(out).splitlines()[-1]) == (0, "link: E it broke")
    assert "\x1b" not in out


def test_a_place_that_cannot_be_read_is_refused(script):
    refused(script("watch", "x" * 300), "xxx/chain.json: cannot be read (File name too long)", "name another place")


def test_a_wait_past_the_clock_is_refused(script):
    refused(script("watch", "run", "--every", "inf"), "--every inf: must be above 0, and 86400 (a day) at most")
