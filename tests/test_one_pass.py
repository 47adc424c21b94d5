"""A run's files are read once, fast, and to the same end: what json and the schema say of every row still holds."""

import gzip
import json
import math
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_evidence import rewritten
from test_results import reseal, rows, write_all, write_run
from test_steps import lines, row

from projected_grpo.ledger import evidence, files
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import parsed
from projected_grpo.ledger.step_file import OF_CHANNEL, read_step, step_path, write_step
from projected_grpo.report.results_md import report_on
from projected_grpo.toy.programs import mechanism_of
from projected_grpo.verdicts.finished_runs import load_runs, read_runs


def said(read, line):
    """What a reader makes of a line, types and signs too, or its refusal."""
    try:
        return repr(read(line))
    except ValueError as e:
        return f"refused: {e}"


AWKWARD = (
    "NaN", "-Infinity", "[1, NaN]", "1e400", "-1e400", "1e-400", "-0", "-0.0", "01", "1.", "+1", "[1,]", "", "{}x",
    *map(str, (2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40)), f"[0.5, {2**64}]", f'{{"a":{2**70}}}',
    f"{2**64}.5", "0.00012345678901234567", "1" * 5000, '{"a": 1, "b": 2, "a": 3}', '{"a": NaN, "a": 1}',
    r'"\ud800"', r'"\ud83d\ude00"', '"\ud800"', '"\x00"', '"\t"', '"\x7f"', "'a'", "{a: 1}", "nul", "\ufeff1", " \v1",
)  # fmt: skip


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
def test_a_line_is_read_and_refused_as_json_does(codec):
    """Where orjson alone differs: it refuses NaN and lone surrogates, and rounds integers beyond 64 bits."""
    for text in AWKWARD:
        line = text.encode(codec, "surrogatepass")
        assert said(parsed, line) == said(json.loads, line), text
    assert said(parsed, b'"\xff"') == said(json.loads, b'"\xff"')
    assert said(files.orjson.loads, str(2**64).encode()) != str(2**64)  # so the test can fail


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.binary(max_size=3), st.floats(0, 1))
def test_any_line_torn_anywhere_is_read_and_refused_as_json_does(value, inserted, where):
    line = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    at = int(where * len(line))
    for damaged in (line, line[:at] + inserted + line[at:], line[:at] + inserted):
        assert said(parsed, damaged) == said(json.loads, damaged)


# ---------------------------------------------------------------- the schema

TOLD = dict.fromkeys((*OF_CHANNEL, "rows"), 0.5)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hacked": None}, "'hacked' is null"),
        ({"step": True}, "'step' should be int, is bool"),
        ({"channels": {"hint_distill": {**TOLD, "cos": "1"}}}, "'cos' should be a number"),  # the same types in the row
        ({"surprise": 1}, "unknown column 'surprise'"),
    ],
)
@pytest.mark.parametrize("channels", [None, {"hint_distill": TOLD}])
def test_a_bad_row_among_good_ones_is_refused(tmp_path, changed, why, channels):
    """The sneaky fail: what was found good of one row is taken for granted of the next."""
    good = row(channels=channels)
    step_path(tmp_path, 0).write_bytes(gzip.compress(lines(good, good, {**good, **changed}, good)))
    with pytest.raises(BadInput, match=rf"step_000.jsonl.gz:3: .*{why}"):
        read_step(step_path(tmp_path, 0))


# ---------------------------------------------------------------- one pass


@pytest.fixture
def run(tmp_path):
    """Twelve steps of ten rows, of which some hack, and two evaluations."""
    path = write_run(
        tmp_path / "runs/a", "vanilla", 41, [["hack"] * (i % 4) + ["good"] * (10 - i % 4) for i in range(12)]
    )
    config = {"arm": "vanilla", "seed": 41}
    for done in (0, 12):
        write_step(path / "eval", done, rows(done, config, ["good", "hack"], problem_id="held out"))
    return reseal(path)


def test_every_row_is_parsed_once(run, monkeypatch):
    calls, loads = [], files.orjson.loads
    monkeypatch.setattr(files.orjson, "loads", lambda line: calls.append(1) or loads(line))
    assert len(load_runs(run.parent).runs) == 1
    assert len(calls) == 12 * 10 + 2 * 2


def test_the_results_are_those_of_plain_json_byte_for_byte(run, monkeypatch):
    fast = report_on(run.parent, str.upper)
    monkeypatch.setattr(evidence, "parsed", json.loads)
    plain = report_on(run.parent, str.upper)
    assert (fast.json(), fast.markdown([])) == (plain.json(), plain.markdown([]))
    series = fast.found.runs[0].series["hack"]
    assert series == [(i % 4) / 10 for i in range(12)]


def test_what_no_step_file_should_hold_reaches_the_run_as_json_reads_it(run):
    """Integers beyond 64 bits, which to orjson are floats; and NaN, which no verdict can stand on."""
    rewritten(step_path(run, 3), lambda old: [{**r, "theta_after": 2**70} for r in old])
    assert "its sha256 is" in load_left_out(run)
    assert load_runs(reseal(run).parent).runs[0].steps == 12
    rewritten(step_path(run, 3), lambda old: [{**r, "grad_norm": math.nan} for r in old])
    reseal(run)
    with pytest.raises(BadInput, match=r"step_003.jsonl.gz: 'grad_norm' is nan"):
        load_runs(run.parent)


def load_left_out(run):
    """Why the only run is left out."""
    with pytest.raises(BadInput, match="no finished training run") as refused:
        load_runs(run.parent)
    return str(refused.value)


DAMAGE = {
    "a row that breaks the schema": (lambda r: {**r, "hacked": 7}, "'hacked' should be bool, is int"),
    "a row of another run": (lambda r: {**r, "seed": 40}, "the folder mixes two runs"),
    "a row that is called another's": (
        lambda r: {**r, "source": "teacher"},
        "but the manifest's mix says {'student': 10}",
    ),
    "a row of another step": (lambda r: {**r, "step": 4}, "holds rows of step 4"),
    "a row that no arithmetic survives": (lambda r: {**r, "reward": 10**400}, None),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_rows_of_a_run_that_is_no_evidence_are_not_judged(run, what):
    """Edited, it is left out, whatever else is wrong with it; sealed again, what is wrong with it is said."""
    change, why = DAMAGE[what]
    rewritten(step_path(run, 2), lambda old: [change(old[0]), *old[1:]])
    assert "its sha256 is" in load_left_out(run)
    reseal(run)
    if why:
        with pytest.raises(BadInput, match=why):
            load_runs(run.parent)
    else:
        with pytest.raises(OverflowError):
            load_runs(run.parent)


def test_rewards_that_contradict_labels_are_said_before_an_evaluation_is_judged(run):
    write_step(run, 2, rows(2, {"arm": "vanilla", "seed": 41}, ["good"] * 10, reward=0.5))
    rewritten(step_path(run / "eval", 12), lambda old: [{**r, "hacked": None} for r in old])
    reseal(run)
    assert "the reward of 10 of 120 rows contradicts their labels" in load_left_out(run)


def test_a_file_that_is_visited_is_that_of_its_step(run):
    seen = []
    assert evidence.check(run, json.loads((run / "manifest.json").read_text()), seen.append) == ""
    assert [(f.folder, f.place) for f in seen] == [*(("", i) for i in range(12)), ("eval", 0), ("eval", 12)]
    assert all(f.rows == read_step(f.path) for f in seen)
    written = b"".join(f.rollouts for f in seen).splitlines()
    student = chain.from_iterable(f.rows for f in seen if not f.folder)
    assert [json.loads(line) for line in written] == [[r["problem_id"], r["completion_ids"]] for r in student]


@pytest.mark.slow
def test_processes_that_share_the_runs_find_what_one_finds(tmp_path):
    """In the same order; a damaged run is refused in the same words, the first of two."""
    paths = sorted(write_all(tmp_path).iterdir())
    step_path(paths[5], 3).unlink()
    one, two = (read_runs(paths, mechanism_of, workers) for workers in (1, 2))
    assert one == two
    assert (len(one.runs), [path for path, _ in one.left_out]) == (11, [paths[5]])
    for at in (3, 7):
        (paths[at] / "manifest.json").write_text("{")
    refused = []
    for workers in (1, 2):
        with pytest.raises(BadInput) as why:
            read_runs(paths, mechanism_of, workers)
        refused.append(str(why.value))
    assert refused[0] == refused[1]
    assert str(paths[3]) in refused[0]
