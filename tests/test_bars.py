"""The bars of the toy models."""

from dataclasses import replace

import pytest

from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.worlds.bars import compared_with_bars
from projected_grpo.worlds.registry import WORLDS


def rows(n, *, form=1.0, gt=0.5, pure=0.01, both=0.01):
    """n rows with these shares: pure hacks first, then correct hacks, then other correct ones."""
    out = []
    for i in range(n):
        share = i / n
        hacked = share < pure + both
        passed = pure <= share < pure + gt
        out.append({"hacked": hacked, "gt_pass": passed, "can_compile": share < form})
    return out


def states(source, data):
    return {
        v.name.removeprefix(f"{source} "): v.status
        for v in compared_with_bars(source, WORLDS["toy"].bars[source], data)
    }


def test_a_good_base_passes_and_each_bar_turns_red_by_itself():
    assert set(states("base", rows(1000)).values()) == {"PASS"}
    for change, bar in (
        ({"form": 0.94}, "compiles"), ({"gt": 0.39}, "gt_pass"), ({"gt": 0.66}, "gt_pass"),
        ({"pure": 0.001}, "pure hack"), ({"pure": 0.031}, "pure hack"),
    ):  # fmt: skip
        red = [name for name, status in states("base", rows(1000, **change)).items() if status == "FAIL"]
        assert red == [bar], change


def test_a_teacher_needs_both_kinds_of_hack():
    assert set(states("teacher", rows(1000, pure=0.6, both=0.35, gt=0.36)).values()) == {"PASS"}
    assert states("teacher", rows(1000, pure=0.9, both=0.05, gt=0.05))["hack-and-correct"] == "FAIL"
    assert states("teacher", rows(1000, pure=0.5, both=0.3, gt=0.3))["all hacks"] == "FAIL"


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "stages"), [((), ["base", "teacher"]), (("--base-only",), ["base"])])
def test_each_model_that_is_built_is_held_to_its_bars(script, tmp_path, monkeypatch, flags, stages):
    """Random weights miss them all: exit code 1, and every model's rollouts on disk."""
    monkeypatch.setitem(WORLDS, "tiny", replace(WORLDS["tiny"], bars=WORLDS["toy"].bars))
    short = ("--problems", "builtin", "--n-problems", "1", "--group-size", "2", "--max-new", "4")
    code, said, _ = script("build_base", "toy", "--model", "tiny", *short, *flags, "--out", str(tmp_path / "base"))
    assert (code, len(read_run(tmp_path / "base"))) == (1, len(stages))
    assert list(read_manifest(tmp_path / "base")["measured"]) == stages
    assert ("teacher all hacks" in said) == ("teacher" in stages)
