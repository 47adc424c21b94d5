"""The bars of the toy models, and the logic of the mutants' matrix; `just mutants` runs the matrix itself."""

import pytest

from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.run.bars import BARS, held_to_bars
from projected_grpo.run.mutants import MUST_PASS, MUTANTS, VERDICTS, MatrixRow, Mutant
from projected_grpo.verdicts.registry import Finding


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
    return {v.name.removeprefix(f"{source} "): v.status for v in held_to_bars("toy", source, data)}


def test_a_good_base_passes_and_each_bar_turns_red_by_itself():
    assert set(states("base", rows(1000)).values()) == {"PASS"}
    for change, bar in (
        ({"form": 0.94}, "well-formed"), ({"gt": 0.39}, "gt_pass"), ({"gt": 0.66}, "gt_pass"),
        ({"pure": 0.001}, "pure hack"), ({"pure": 0.031}, "pure hack"),
    ):  # fmt: skip
        red = [name for name, status in states("base", rows(1000, **change)).items() if status == "FAIL"]
        assert red == [bar], change


def test_a_teacher_needs_both_kinds_of_hack():
    assert set(states("teacher", rows(1000, pure=0.6, both=0.35, gt=0.36)).values()) == {"PASS"}
    assert states("teacher", rows(1000, pure=0.9, both=0.05, gt=0.05))["hack-and-correct"] == "FAIL"
    assert states("teacher", rows(1000, pure=0.5, both=0.3, gt=0.3))["all hacks"] == "FAIL"
    with pytest.raises(ValueError, match="student"):
        held_to_bars("toy", "student", rows(10))


@pytest.mark.parametrize(("flags", "stages"), [((), ["base", "teacher"]), (("--base-only",), ["base"])])
def test_each_model_that_is_built_is_held_to_its_bars(script, tmp_path, monkeypatch, flags, stages):
    """Random weights miss them all: exit code 1, and every model's rollouts on disk."""
    monkeypatch.setitem(BARS, "tiny", BARS["toy"])
    short = ("--problems", "builtin", "--n-problems", "1", "--group-size", "2", "--max-new", "4")
    code, said, _ = script("build_base", "toy", "--model", "tiny", *short, *flags, "--out", str(tmp_path / "base"))
    assert (code, [rows[0]["arm"] for rows in read_run(tmp_path / "base")]) == (1, stages)
    assert list(read_manifest(tmp_path / "base")["measured"]) == stages
    assert ("teacher all hacks" in said) == ("teacher" in stages)


def found(**status):
    return {name: Finding(name, status.get(name.replace("+", "_plus"), "PASS"), "") for name in VERDICTS}


def test_the_unharmed_pipeline_must_pass_every_gate_and_a_mutant_must_be_seen():
    whole, hurt = Mutant("none", (), unharmed=MUST_PASS), Mutant("hurt", ("T2",))
    assert MatrixRow(whole, found(T4="FAIL"), found(T4="FAIL")).as_expected  # a finding, no gate
    assert not MatrixRow(whole, found(T3="NOT_EVALUABLE"), found(T3="NOT_EVALUABLE")).as_expected
    assert MatrixRow(hurt, found(T2="FAIL"), found()).as_expected
    assert not MatrixRow(hurt, found(T1="FAIL"), found()).as_expected  # red somewhere else is not caught


def test_a_verdict_that_is_red_unharmed_has_caught_nothing():
    hurt = Mutant("hurt", ("verify", "T4+"))
    both = {"verify": "FAIL", "T4_plus": "FAIL"}
    assert MatrixRow(hurt, found(**both), found()).as_expected
    assert not MatrixRow(hurt, found(**both), found(T4_plus="FAIL")).as_expected


def test_every_gate_has_a_mutant():
    assert {aim for m in MUTANTS for aim in m.aims} >= set(MUST_PASS)


def test_there_are_enough_of_them_and_each_makes_only_the_evidence_that_its_verdicts_read():
    assert sum(bool(m.aims) for m in MUTANTS) >= 24
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert {m.name: m.reads for m in MUTANTS}["overshoot 1e-4"] == {"projected"}
    assert MUTANTS[0].reads == {"pairs", "pool", "vanilla", "projected"}
    assert set(MUTANTS[0].unharmed) >= set(MUST_PASS)
