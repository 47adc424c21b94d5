"""Step files: whole or absent, every column in every row, and a reader that refuses anything else. The side file of
modules, the log, and folders of the cache: built once, by one process at a time, and whole."""

import gzip
import json
import math
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from written_runs import BLANK

from projected_grpo.ledger import step_file as steps
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import built_once
from projected_grpo.ledger.step_file import COLUMNS, NAMES, read_run, read_step, step_path, write_step
from projected_grpo.measures import projection_columns
from projected_grpo.projection import Projection


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
    nulls = {**dict.fromkeys(odd), "timing": {"a": None}, "behaviour_logps": [None]}
    assert {name: back[0][name] for name in odd} == nulls
    assert path.read_bytes() == write_step(tmp_path / "again", 0, rows).read_bytes()


def packed(data):
    """Without the time of day: the parameters' names are the same in every process."""
    return gzip.compress(data, mtime=0)


LINE = json.dumps(row()).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (packed(LINE)[:-20], "truncated or damaged gzip"),
        (b"not gzip at all", "damaged gzip"),
        (packed(LINE + b'{"step": 0, "pro'), r":2: not JSON"),
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


@pytest.mark.slow
@pytest.mark.parametrize("stream", [">/dev/full", "PYTHONUNBUFFERED=1 >/dev/full"])
def test_a_log_whose_stream_is_full_goes_on_without_it(tmp_path, stream):
    code = textwrap.dedent("""
        from loguru import logger
        from projected_grpo.ledger.console import log_to, start_log
        from pathlib import Path
        start_log()
        log_to(Path('log.txt'))
        for i in range(3): logger.info(f'line {i}')
    """)
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


# ---------------------------------------------------------------- the side file of modules

MODULES = ("layers.0.q_proj", "layers.0.o_proj", "layers.1.q_proj")
V = {"layers.0.q_proj": torch.eye(4)[:2], "layers.0.o_proj": torch.eye(2)[:1], "layers.1.q_proj": torch.zeros(0, 2)}
GRADIENT = {
    "layers.0.q_proj": torch.tensor([3.0, -4.0, 0.0, 12.0]),  # norm 13; V g = (3, -4)
    "layers.0.o_proj": torch.tensor([-2.0, 0.0]),  # V g = -2
    "layers.1.q_proj": torch.tensor([1.0, 1.0]),  # no V
}
WITHOUT = {**GRADIENT, "layers.0.q_proj": torch.tensor([0.0, 0.0, 0.0, 12.0]), "layers.0.o_proj": torch.zeros(2)}
STAGES = ("gradient", "used", "proposed", "applied")


def columns(target):
    """What is removed from the update, or from the gradient; the other stays as it was."""
    used = (GRADIENT, WITHOUT, GRADIENT, GRADIENT) if target == "grad" else (GRADIENT, GRADIENT, GRADIENT, WITHOUT)
    return projection_columns(dict(zip(STAGES, used, strict=True)), Projection(V, target), 1.0)[1]


@pytest.mark.parametrize("target", ["update", "grad"])
def test_the_columns_of_three_modules_by_hand(target):
    """||g||^2 = 169 + 4 + 2 = 175, of which 25 and 4 go."""
    found = columns(target)
    assert found["k"] == [2, 1, 0]
    assert found["cos_in"] == pytest.approx([3 / 13, 0.0, None])
    assert found["energy_in"] == pytest.approx([25 / 169, 1.0, None])
    assert found["grad_share"] == pytest.approx([169 / 175, 4 / 175, 2 / 175])
    assert found["removed"] == pytest.approx([25 / 175, 4 / 175, 0.0])
    assert projection_columns(dict.fromkeys(STAGES, GRADIENT), Projection(), 1.0)[1] == {}  # without a V


@pytest.mark.slow
def test_every_steps_columns_are_the_means_and_sums_over_the_side_files_modules(projected):
    side, run = steps.read_modules(projected()), read_run(projected())
    assert len(side.steps) == len(run) == 4
    for modules, rows in zip(side.steps, run, strict=True):
        known = [v for v in modules["cos_in"] if v is not None]
        assert sum(known) / len(known) == pytest.approx(rows[0]["cos_in"], rel=1e-5, abs=1e-7)
        assert sum(modules["removed"]) == pytest.approx(rows[0]["update_removed"], rel=1e-5)
        assert sum(modules["removed"]) > 0.01
        assert len({round(v, 6) for v in modules["cos_in"]}) > 1  # not one mean, written for all


def append(run, *numbers):
    """Writes steps of three modules."""
    run.mkdir(exist_ok=True)
    for step in numbers:
        values = {c.name: [2 if c.type == "int" else step + 0.1234567891] * 3 for c in steps.MODULE_COLUMNS}
        steps.append_modules(run, step, dict(zip(MODULES, (4, 2, 2), strict=True)), values)
        steps.step_path(run, step).touch()


def test_the_side_file_is_read_to_seven_digits_and_a_run_is_cut_on_resume(tmp_path):
    for name in ("whole", "a"):
        append(tmp_path / name, 0, 1, 2)
    found = steps.read_modules(tmp_path / "whole")
    assert (found.names, found.sizes, len(found.steps)) == ([*MODULES], [4, 2, 2], 3)
    assert (found.steps[1]["cos_in"], found.steps[2]["k"]) == ([1.123457] * 3, [2, 2, 2])
    steps.cut_run(tmp_path / "a", 1)
    assert steps.steps_in(tmp_path / "a") == [0, 1]
    assert len(steps.read_modules(tmp_path / "a").steps) == 2
    append(tmp_path / "a", 2)
    whole, resumed = ((tmp_path / name / steps.MODULE_FILE).read_bytes() for name in ("whole", "a"))
    assert resumed == whole
