"""Step files: whole or absent, every column in every row, and a reader that refuses anything else. The log beside them, and
folders of the cache: built once, by one process at a time, and whole."""

import gzip
import json
import math
import os
import subprocess
import sys
import textwrap

import pytest
from test_results import BLANK

from projected_grpo.ledger import step_file as steps
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import built_once
from projected_grpo.ledger.step_file import COLUMNS, NAMES, read_run, read_step, step_path, write_step
from projected_grpo.ledger.step_log import step_header, step_line


def row(**values):
    """A legal row."""
    told = dict.fromkeys((number for _, number, _ in steps.CHANNEL_NUMBERS), 0.5)
    return {**{c.name: BLANK[c.type] for c in COLUMNS}, "step": 0, "channels": {"hint_distill": told}, **values}


def test_round_trip_keeps_every_column_and_non_finite_numbers_are_null(tmp_path):
    """The same rows give the same bytes."""
    odd = {"loss": math.nan, "ratio": math.inf, "timing": {"a": math.nan}, "behaviour_logps": [-math.inf]}
    rows = [row(**odd), row(completion="ü \x00")]
    path = write_step(tmp_path, 0, rows)
    back = read_step(path)
    assert list(back[0]) == list(NAMES)
    assert back[1]["completion"] == "ü \x00"
    assert {name: back[0][name] for name in odd} == {
        **dict.fromkeys(odd),
        "timing": {"a": None},
        "behaviour_logps": [None],
    }
    assert path.read_bytes() == write_step(tmp_path / "again", 0, rows).read_bytes()


def lines(*rows):
    return "".join(json.dumps(r) + "\n" for r in rows).encode()


def packed(data):
    """Without the time of day: the parameters' names are the same in every process."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (packed(lines(row()))[:-20], "truncated or damaged gzip"),
        (b"not gzip at all", "damaged gzip"),
        (packed(lines(row()) + b'{"step": 0, "pro'), r":2: not JSON"),
        (packed(b"[1]\n"), "a list, where a JSON object"),
    ],
)
def test_the_reader_refuses_damage(tmp_path, data, why):
    step_path(tmp_path, 0).write_bytes(data)
    with pytest.raises(BadInput, match=f"step_000.jsonl.gz.*{why}"):
        read_step(step_path(tmp_path, 0))


@pytest.mark.parametrize(
    ("there", "why"), [((), "no such run directory"), ((0, 1, 3), "step 2 is missing among steps 0 to 3")]
)
def test_a_run_without_its_steps_is_refused(tmp_path, there, why):
    for step in there:
        write_step(tmp_path, step, [row(step=step)])
    with pytest.raises(BadInput, match=why):
        read_run(tmp_path)


def test_the_step_line_is_aligned_with_its_header():
    nulls = {c.name: None for c in COLUMNS if c.null}
    for values in (row(), row(**nulls, timing={})):
        assert len(step_line([values])) == len(step_header())


@pytest.mark.slow
@pytest.mark.parametrize("stream", [">/dev/full", "PYTHONUNBUFFERED=1 >/dev/full"])
def test_a_log_whose_stream_is_full_goes_on_without_it(tmp_path, stream):
    code = (
        "from loguru import logger\n"
        "from projected_grpo.ledger.console import log_to, start_log\n"
        "from pathlib import Path\n"
        "start_log()\n"
        "log_to(Path('log.txt'))\n"
        "for i in range(3): logger.info(f'line {i}')"
    )
    env = {**os.environ, "PYTHONUNBUFFERED": "", "CODE": code}
    command = f'{stream} {sys.executable} -c "$CODE"'
    done = subprocess.run(
        ["bash", "-c", command], stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "line 2" in (tmp_path / "log.txt").read_text()


# ---------------------------------------------------------------- a folder of the cache


def test_a_build_that_fails_leaves_nothing_and_one_that_was_killed_is_swept(tmp_path):
    left = tmp_path / ".a.tmp"
    left.mkdir()

    def full(_folder):
        raise OSError("no space left on device")

    with pytest.raises(BadInput, match=r"cannot write .no space left"):
        built_once(tmp_path / "a", full)
    assert [p.name for p in tmp_path.iterdir()] == [".a.lock"]


@pytest.mark.slow
def test_several_at_once_build_once_and_the_others_wait(tmp_path):
    code = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from projected_grpo.ledger.files import built_once
        def build(folder):
            print("built", flush=True)
            time.sleep(1)
            (folder / "x").write_text("x")
        built_once(Path(sys.argv[1]), build, "about to build")
    """)
    argv = [sys.executable, "-c", code, str(tmp_path / "a")]
    several = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [p.communicate() for p in several]
    assert [p.returncode for p in several] == [0, 0, 0], told
    assert sum("built" in out for out, _ in told) == 1
    assert sum("about to build" in err for _, err in told) == 1
