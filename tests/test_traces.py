"""Traces: what a file holds comes back exactly, and a file that is not what was written is refused in one line."""

import dataclasses
import gzip
import hashlib
import json

import pytest
from conftest import ROOT
from test_layering import LABELS, files_of, names_in

from projected_grpo.ledger.errors import BadInput
from projected_grpo.traces import openenv_format, verifiers_format
from projected_grpo.traces.exchange import export, imported
from projected_grpo.traces.file import Header, open_traces, write_traces
from projected_grpo.traces.record import Action, Step, Trace, fault_of

HEADER = Header("multi_turn", "tiny", "m1", "t1", "p1", "c1", "simple_overwrite_tests", True, 0.7)
CHAT = (("system", "Be brief."), ("user", "Write f."))
FIRST = Step(CHAT, (1, 2, 3, 4, 5), Action("```python\nx\n```", (10, 11, 9), (-0.5, -0.25, -0.125), False), 0.5, False)
SAID = (*CHAT, ("assistant", "```python\nx\n```"), ("user", "run_tests() raised AssertionError"))
SECOND = Step(
    SAID, (1, 2, 3, 4, 5, 10, 11, 9, 6, 7), Action("again \ud800 <|im_end|>", (12, 13), None, True), 3.5, True
)
TWO = Trace("t0", "g0", "p1", "student", 3, "turns", (FIRST, SECOND))
ONE = Trace("t1", "g0", "p1", "base", None, "passed", (dataclasses.replace(FIRST, done=True),))


@pytest.fixture
def written(tmp_path):
    """A file of two traces."""
    path = tmp_path / "traces.jsonl.gz"
    assert write_traces(path, HEADER, iter([TWO, ONE])) == 2
    return path


def lines_of(path):
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def signed(lines):
    """Lines of rows with a header before and an end behind that fits them: an edit by somebody who knows the format."""
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    ids = {str(json.loads(line)["trace"]) for line in lines[1:]}
    end = {"end": True, "traces": len(ids), "rows": len(lines) - 1, "sha256": digest}
    return [*lines, json.dumps(end).encode() + b"\n"]


def rewritten(path, lines):
    path.write_bytes(gzip.compress(b"".join(lines)))
    return path


def edited(line, **changes):
    """A row with other values at the given keys; `state__ids` is `ids` in `state`."""
    row = json.loads(line)
    for key, value in changes.items():
        *outer, name = key.split("__")
        place = row[outer[0]] if outer else row
        place[name] = value
    return json.dumps(row).encode() + b"\n"


@pytest.mark.parametrize("change", [{"traces": 999}, {"traces": True}, {"labels": 1}])
def test_the_end_says_what_is_there_and_no_more(written, change):
    """The checksum is of the lines before it."""
    lines = lines_of(written)
    rewritten(written, [*lines[:-1], edited(lines[-1], **change)])
    with pytest.raises(BadInput, match=r"its end says 999|an end that was edited"):
        open_traces(written)


def test_a_problem_without_a_name_is_the_same_there_and_back():
    nameless = dataclasses.replace(KNOWN, problem_id="")
    assert verifiers_format.from_episode(verifiers_format.to_episode(nameless, HEADER)).problem_id == ""


def test_what_was_written_comes_back_exactly(written):
    found = open_traces(written, model_hash="m1", tokenizer_hash="t1", problems_hash="p1")
    assert (found.header, found.traces, found.rows) == (HEADER, 2, 3)
    assert list(found) == list(found) == [TWO, ONE]


def test_the_same_traces_give_the_same_bytes(written, tmp_path):
    write_traces(tmp_path / "again.jsonl.gz", HEADER, [TWO, ONE])
    assert (tmp_path / "again.jsonl.gz").read_bytes() == written.read_bytes()


def test_a_trace_is_one_sequence_of_which_the_policy_wrote_the_actions():
    assert TWO.sequence == (1, 2, 3, 4, 5, 10, 11, 9, 6, 7, 12, 13)
    assert [i for i, acted in zip(TWO.sequence, TWO.acted, strict=True) if acted] == [10, 11, 9, 12, 13]
    assert TWO.rewards == (0.5, 3.5)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: lines[:-1], "truncated: it has no end after 3 rows"),
        (lambda lines: [*lines[:2], *lines[3:]], "its checksum is of other rows"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "its checksum is of other rows"),
        (lambda lines: [lines[0], edited(lines[1], reward=3.5), *lines[2:]], "its checksum is of other rows"),
        (lambda lines: [edited(lines[0], model_hash="m2"), *lines[1:]], "its checksum is of other rows"),
        (lambda lines: [*lines, *lines], "its checksum is of other rows"),
        (lambda lines: [*lines, b"{}\n"], "truncated: it has no end"),
        (lambda lines: [edited(lines[0], version=2), *lines[1:]], "trace format 2, this version reads 1"),
        (lambda lines: lines[1:], "no trace file of ours"),
        (lambda lines: lines[:1], "truncated: it has no end after 0 rows"),
        (lambda lines: lines[:0], "no trace file of ours"),
        (lambda lines: signed(lines[:1]), "no traces in it"),
        (lambda lines: signed([edited(lines[0], more=1), *lines[1:3]]), "its header lacks or adds 'more'"),
        (lambda lines: signed([edited(lines[0], loophole="no"), *lines[1:3]]), "its header's loophole is 'no'"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_refused_before_a_trace_is_handed_out(written, damage, said):
    rewritten(written, damage(lines_of(written)))
    with pytest.raises(BadInput, match=said) as refused:
        open_traces(written)
    assert "\n" not in str(refused.value)
    assert str(written) in str(refused.value)


def test_a_file_cut_at_any_byte_is_refused(written):
    whole = written.read_bytes()
    for length in range(0, len(whole), 7):
        written.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            open_traces(written)


@pytest.mark.parametrize(
    ("row", "changes", "said"),
    [
        (1, {"gt_pass": True}, "its row lacks or adds 'gt_pass'; a trace holds no other column"),
        (1, {"action__hacked": True}, "its action lacks or adds 'hacked'"),
        (1, {"state": 3}, "its state is a int"),
        (1, {"done": True}, "turn 0 of 2: done is True"),
        (2, {"done": False}, "turn 1 of 2: done is False"),
        (2, {"turn": 0}, "its row 1 is turn 0"),
        (2, {"problem": "p2"}, "or of another trace"),
        (1, {"state__ids": [1, 2, 3, 4, 6]}, "turn 1: its state does not go on"),
        (1, {"action__ids": [10, 11, 8]}, "turn 1: its state does not go on"),
        (1, {"action__text": "y"}, "turn 1: its messages do not go on"),
        (1, {"action__logps": [-0.5]}, "1 log-probabilities for 3 tokens"),
        (1, {"action__logps": [-0.5, -0.25, 0.125]}, "not finite or above 0"),
        (1, {"reward": float("nan")}, "its row is no JSON object"),
        (1, {"reward": True}, "a reward and a log-probability are numbers"),
        (1, {"reward": "3.5"}, "a reward and a log-probability are numbers"),
        (1, {"action__logps": ["-1", "-1", "-1"]}, "a reward and a log-probability are numbers"),
        (1, {"reward": 10**400}, "trace t0: "),
        (1, {"trace": ["t0"]}, "names are texts"),
        (1, {"state__messages": [{"role": "user", "content": None}]}, "a message is role and content"),
        (1, {"state__messages": [{"role": "user", "content": "x", "gt_pass": True}]}, "a message is role and content"),
        (1, {"action__ids": [10, 11, True]}, "token ids must be"),
        (3, {"source": "nobody"}, "has source 'nobody'"),
        (3, {"trace": "t0", "group": "g0"}, "its row 2 is turn 0"),
    ],
)  # fmt: skip
def test_rows_that_are_no_trace_are_refused_whatever_their_checksum(written, row, changes, said):
    lines = lines_of(written)[:-1]
    lines[row] = edited(lines[row], **changes)
    rewritten(written, signed(lines))
    with pytest.raises(BadInput, match=said.replace("(", r"\(").replace(")", r"\)")):
        list(open_traces(written))


@pytest.mark.parametrize("name", ["model_hash", "tokenizer_hash", "problems_hash"])
def test_a_file_of_another_model_tokenizer_or_problems_is_refused_and_both_sides_are_named(written, name):
    with pytest.raises(BadInput, match=f"its {name} is {name[0]}1, here it is other"):
        open_traces(written, **{name: "other"})


def test_no_file_and_no_traces_are_one_line(tmp_path):
    with pytest.raises(BadInput, match="no such file; write one with `just traces RUN`"):
        open_traces(tmp_path / "none.jsonl.gz")
    with pytest.raises(BadInput, match="there are no traces to write"):
        write_traces(tmp_path / "new.jsonl.gz", HEADER, [])
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_fails_leaves_nothing_and_a_file_is_never_overwritten(written, tmp_path):
    before = written.read_bytes()
    with pytest.raises(BadInput, match="never overwritten"):
        write_traces(written, HEADER, [ONE])
    for bad in (dataclasses.replace(ONE, steps=()), TWO):
        with pytest.raises(ValueError, match=r"has no steps|stands twice"):
            write_traces(tmp_path / "new.jsonl.gz", HEADER, [TWO, bad])
    assert (written.read_bytes(), [p.name for p in tmp_path.iterdir()]) == (before, [written.name])


def test_the_rules_of_a_trace_hold_for_the_writer_too():
    assert (fault_of(TWO), fault_of(ONE)) == ("", "")
    assert "done is False" in fault_of(dataclasses.replace(TWO, steps=(FIRST,)))


def test_no_label_is_named_where_traces_are_read_and_written():
    files = [p for p in files_of("traces") if p.stem != "turns"]
    assert len(files) >= 4
    for path in files:
        assert not set(names_in(path)) & LABELS, path


# ---------------------------------------------------------------- other projects' formats

UPSTREAM = json.loads((ROOT / "tests/references/trace_formats.json").read_text("utf-8"))
SECOND_KNOWN = dataclasses.replace(SECOND, action=Action("again", (12, 13), (-1.5, -0.0625), True))
KNOWN = dataclasses.replace(TWO, steps=(FIRST, SECOND_KNOWN))
FOREIGN = dataclasses.replace(KNOWN, source="teacher", group="g0", policy_step=3)
DONE_ONE = dataclasses.replace(ONE, stop="turns", steps=(dataclasses.replace(FIRST, done=True),))


@pytest.mark.parametrize("kind", ["verifiers", "openenv"])
def test_there_and_back_is_exact(kind, tmp_path):
    traces = [KNOWN, DONE_ONE, *([TWO, ONE] if kind == "verifiers" else [])]
    traces = [dataclasses.replace(trace, trace_id=f"t{i}") for i, trace in enumerate(traces)]
    export(kind, tmp_path / "new", HEADER, traces)
    header, found = imported(kind, tmp_path / "new")
    assert (header, list(found)) == (HEADER, traces)
    with pytest.raises(BadInput, match="never overwritten"):
        export(kind, tmp_path / "new", HEADER, traces)


def test_a_record_that_verifiers_itself_wrote_is_read():
    """Another's record has no place for our source: its policy is a teacher's to us."""
    record = UPSTREAM["verifiers"]["episode"]
    assert verifiers_format.from_episode(record) == dataclasses.replace(FOREIGN, trace_id="t0")
    assert verifiers_format.header_of_episode(record).model_hash == "unknown"


def test_our_record_is_verifiers_own_but_for_times_and_what_it_fills_in():
    ours = verifiers_format.to_episode(KNOWN, dataclasses.replace(HEADER, model="m"))
    theirs = UPSTREAM["verifiers"]["episode"]["traces"][0]
    (own,) = ours["traces"]
    assert [(n.get("token_ids", []), n.get("mask", []), n.get("logprobs", []), n["parent"] if i else None, n["message"])
            for i, n in enumerate(own["nodes"])] == [
        (n["token_ids"], n["mask"], n["logprobs"], n.get("parent"), n["message"]) for n in theirs["nodes"]
    ]  # fmt: skip
    assert own["calls"] == [{k: v for k, v in call.items() if k != "time"} for call in theirs["calls"]]
    for key in ("version", "rewards", "is_completed", "ok", "stop_condition"):
        assert own[key] == theirs[key], key
    assert ours["run"]["work"] == UPSTREAM["verifiers"]["episode"]["run"]["work"]
    assert ours["group"] == UPSTREAM["verifiers"]["episode"]["group"]
    assert list(KNOWN.sequence) == UPSTREAM["verifiers"]["token_ids"]
    assert list(KNOWN.acted) == UPSTREAM["verifiers"]["sampled_mask"]
    assert UPSTREAM["verifiers"]["reward"] == KNOWN.rewards[-1]


def test_our_record_is_openenvs_own():
    ours, theirs = openenv_format.to_record(KNOWN), UPSTREAM["openenv"]["episode"]
    assert ours.keys() == theirs.keys()
    for key in ("messages", "reward", "done", "tool_trace", "metrics", "verify_metrics", "task"):
        assert ours[key] == theirs[key], key
    token_trace, upstream = ours["artifacts"]["training_trace"], theirs["artifacts"]["training_trace"]
    assert [{**t, "metadata": {}} for t in token_trace["turns"]] == [{**t, "metadata": {}} for t in upstream["turns"]]
    assert ours["artifacts"]["reset"] == UPSTREAM["openenv"]["reset"]
    assert ours["artifacts"]["steps"][0]["response"] == UPSTREAM["openenv"]["step"]
    assert ours["artifacts"]["steps"][0]["request"]["action"].keys() == UPSTREAM["openenv"]["request"]["action"].keys()
    for own, entry in zip(openenv_format.trace_entries(KNOWN), UPSTREAM["openenv"]["trace_entries"], strict=True):
        assert {**own, "metadata": {"node_id": own["metadata"]["node_id"]}} == {**entry, "reward": own["reward"]}
    assert openenv_format.from_record(theirs).sequence == KNOWN.sequence


def changed(record, change):
    record = json.loads(json.dumps(record))
    change(record)
    return record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["traces"].append(r["traces"][0]), "2 agents' traces"),
        (lambda r: r["traces"][0].update(version=2), "trace schema 2"),
        (lambda r: r["traces"][0].update(ok=False), "its rollout failed"),
        (lambda r: r["traces"][0].update(is_completed=False), "its rollout failed"),
        (lambda r: r["traces"][0]["nodes"][4].update(parent=1), "its messages branch"),
        (lambda r: r["traces"][0]["nodes"][2].update(mask=[]), "turn 0: no token ids"),
        (lambda r: r["traces"][0]["nodes"][2].update(token_ids=[], mask=[]), "turn 0: no token ids"),
        (lambda r: r["traces"][0]["nodes"][4].update(mask=[False, True, True, False]), "turn 1: no token ids"),
        (lambda r: r["traces"][0]["nodes"][4].update(sampled=False), "its last message was not sampled"),
        (lambda r: r["traces"][0].update(rewards={}), "it was not scored"),
        (lambda r: r["traces"][0]["nodes"][2]["message"].update(tool_calls=[{"id": "x"}]), "only texts are replayed"),
        (lambda r: r["traces"][0]["nodes"][2].update(logprobs=[-1.0]), "1 log-probabilities for 3 tokens"),
    ],
)
def test_a_verifiers_record_that_cannot_be_replayed_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        verifiers_format.from_episode(changed(UPSTREAM["verifiers"]["episode"], change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["artifacts"].pop("training_trace"), "no training_trace"),
        (lambda r: r["artifacts"]["training_trace"].update(schema_version=2), "schema 2"),
        (lambda r: r.update(reward=0.5), "its reward is 0.5"),
        (lambda r: r["messages"].pop(), "its messages are not those of its training_trace"),
        (lambda r: r["artifacts"]["steps"][0]["response"].update(done=True), "its steps are not those"),
        (lambda r: r["artifacts"]["steps"][0]["request"]["action"].update(text="z"), "its steps are not those"),
        (lambda r: r["artifacts"]["training_trace"]["turns"][0].update(loss_mask=[1] * 8), "its loss mask is not"),
    ],
)
def test_an_openenv_record_whose_parts_contradict_each_other_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        openenv_format.from_record(changed(openenv_format.to_record(KNOWN), change))


def test_what_other_writers_put_is_read_or_refused_in_one_line(tmp_path):
    """Tracebacks before, and a header with `1` for `1.0` that our own reader refused after it was written."""
    export("verifiers", folder := tmp_path / "v", dataclasses.replace(HEADER, temperature=1.0), [KNOWN])
    path = folder / "traces.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"temperature": 1.0', '"temperature": 1'))
    header, found = imported("verifiers", folder)
    assert type(header.temperature) is float
    write_traces(tmp_path / "t.jsonl.gz", header, found)
    assert list(open_traces(tmp_path / "t.jsonl.gz")) == [KNOWN]
    for wrong in ('"temperature": NaN', '"temperature": 1e999', '"temperature": true'):
        path.write_text(text.replace('"temperature": 1.0', wrong))
        with pytest.raises(BadInput, match=r"traces\.jsonl:1: cannot be replayed: its header's temperature"):
            imported("verifiers", folder)
    for wrong in (text.replace("3.5", str(10**400)), "[" * 200_000):
        path.write_text(wrong)
        with pytest.raises(BadInput):
            list(imported("verifiers", folder)[1])
    export("openenv", folder := tmp_path / "o", HEADER, [KNOWN])
    (metadata,) = folder.glob("*.json")
    for wrong in ('{"projected_grpo": [1]}', "[" * 200_000):
        metadata.write_text(wrong)
        with pytest.raises(BadInput, match=metadata.name):
            imported("openenv", folder)


def test_traces_that_a_format_cannot_hold_are_one_line_and_nothing_is_written(tmp_path):
    with pytest.raises(BadInput, match="trace t0: no openenv record: it has no log-probabilities"):
        export("openenv", tmp_path / "new", HEADER, [TWO])
    assert not (tmp_path / "new").exists()
    with pytest.raises(BadInput, match="no such file"):
        imported("verifiers", tmp_path)
