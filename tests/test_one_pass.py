"""A run's files are read once, fast, and to the same end: what json and the schema say of every row still holds."""

import gzip
import json

import pytest
from test_results import write_all
from test_steps import lines, row

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import parsed
from projected_grpo.ledger.step_file import read_step, step_path
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
    *map(str, (2**63, 2**64 - 1, -(2**63))), f"{2**64}.5", "0.00012345678901234567", '{"a": 1, "b": 2, "a": 3}',
    r'"\ud800"', r'"\ud83d\ude00"', '"\ud800"', '"\x00"', '"\t"', '"\x7f"', "'a'", "{a: 1}", "nul", "\ufeff1", " \v1",
)  # fmt: skip


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
def test_a_line_is_read_and_refused_as_json_does(codec):
    """Where orjson alone differs: it refuses NaN and lone surrogates. No column has integers beyond 64 bits."""
    for text in AWKWARD:
        line = text.encode(codec, "surrogatepass")
        assert said(parsed, line) == said(json.loads, line), text
    assert said(parsed, b'"\xff"') == said(json.loads, b'"\xff"')


# ---------------------------------------------------------------- the schema


def test_a_row_of_another_version_among_good_ones_is_refused(tmp_path):
    """The sneaky fail: what was found of one row is taken for granted of the next."""
    good = row()
    step_path(tmp_path, 0).write_bytes(gzip.compress(lines(good, good, {**good, "surprise": 1}, good)))
    with pytest.raises(BadInput, match=r"step_000.jsonl.gz:3: has unknown column 'surprise'"):
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
