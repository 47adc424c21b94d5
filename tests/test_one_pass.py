"""A run's files are read once, fast, and to the same end: what json and the schema say of every row still holds."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_results import write_all
from test_steps import lines, row

from projected_grpo.ledger import files
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import parsed
from projected_grpo.ledger.step_file import OF_CHANNEL, read_step, step_path
from projected_grpo.toy.programs import mechanism_of
from projected_grpo.verdicts.finished_runs import read_runs


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
