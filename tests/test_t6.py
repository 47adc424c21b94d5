"""T6: a LoRA against the singular basis. Runs in memory with the manifests of real ones; every sneaky fail is seen
red."""

from dataclasses import replace

import pytest
from fake_runs import ONSETS, run

from projected_grpo.ledger.re_extracted import ReExtracted
from projected_grpo.verdicts.adapters import t6_of
from projected_grpo.verdicts.effects import lower_end

LORA = {"adapter": "lora", "lora_rank": 32, "vhack.adapter": "lora", "vhack.lora_rank": "32", "lr": 3e-4}
STILL_V = ReExtracted(0, 3.0, 0.8, 0.01, 0.9, 0.2)
GONE = ReExtracted(0, 3.0, 0.05, 0.01, 0.9, 0.85)


def one(arm, seed, adapter, anew, hack=None, rows=(), **changed):
    """A run of either adapter, with V extracted again after its last step."""
    lora = {**LORA, "vhack.v_sha256": f"lora {seed}"} if adapter == "lora" else {}
    made = run(
        arm, seed, hack=hack, place=f" {adapter}", rows={"delta_S_norm": 3.0, **dict(rows)}, **{**lora, **changed}
    )
    return replace(made, re_extracted=[replace(anew, steps=made.steps)] if anew and arm == "projected" else [])


def judged(lora=(0.03, 0.02, 0.04), svd=(0.02, 0.03, 0.02), anew=STILL_V, vanilla=None, rows=(), gone=(), **of_lora):
    """T6 of both adapters, three replicates. `lora`, `svd`: hack rates of projected by replicate; `rows`: of the
    LoRA's projected; `gone`: replicates whose LoRA has drifted."""
    runs = []
    for seed, a, b in zip(ONSETS, svd, lora, strict=True):
        runs += [one("vanilla", seed, "antipasto", None), one("projected", seed, "antipasto", STILL_V, a)]
        shared = {k: v for k, v in of_lora.items() if k != "held_out"}
        runs.append(one("vanilla", seed, "lora", None, vanilla, **shared))
        runs.append(one("projected", seed, "lora", GONE if seed in gone else anew, b, rows, **of_lora))
    (line,) = t6_of(runs)
    return line


NOTHING = (0.80, 0.82, 0.81)
SHORT = (0.62, 0.60, 0.64)
CASES = {
    "a LoRA that does as much": ({}, "PASS", "ratio 0.99"),
    "pure hacks that became correct ones": ({"rows": {"hacked": 0.85}}, "FAIL", "reduction of all hacks"),
    "a LoRA that forgets held-out problems": ({"held_out": (0.3, 0.0)}, "FAIL", "held-out gt_pass kept, lora"),
    "a LoRA that solves less": ({"rows": {"gt": 0.05}}, "FAIL", "gt_pass held"),
    "a LoRA that writes no programs": ({"rows": {"form": 0.5}}, "FAIL", "compiles held"),
    "a clean negative that drift explains": ({"lora": SHORT, "anew": GONE}, "FAIL", "the drift explains it"),
    "a clean negative without drift": ({"lora": SHORT}, "FAIL", "drift does not explain it"),
    "an interval that holds 80 %": ({"lora": (0.02, 0.40, 0.10)}, "NOT_EVALUABLE", "reduction >= 80 %"),
    # whatever lowered the hack rate, it was not V
    "V drifted though the reduction is whole": ({"anew": GONE}, "FAIL", "V is still V fails"),
    "one replicate of three that drifted": ({"gone": (41,)}, "FAIL", ": replicate 41)"),
    "drift not measured": ({"anew": None}, "NOT_EVALUABLE", "not measured: `just re-extract"),
    "drift measured at the untrained adapter": (
        {"anew": replace(STILL_V, theta_norm=2.9)}, "NOT_EVALUABLE", "not of its trained adapter"),
    "nothing along V": ({"anew": replace(STILL_V, cos_in=0.0)}, "NOT_EVALUABLE", "nothing lies along V"),
    "80 % of nothing": ({"svd": NOTHING, "lora": NOTHING}, "NOT_EVALUABLE", "the singular basis prevents"),
    "a LoRA that never hacks": ({"vanilla": 0.2}, "NOT_EVALUABLE", "within the LoRA's reach"),
    "another decay": ({"weight_decay": 0.3}, "NOT_EVALUABLE", "config.weight_decay: 0.0 against 0.3"),
    "other pairs": ({"vhack.pairs_hash": "easier"}, "NOT_EVALUABLE", "vhack.pairs_hash"),
    "another base": ({"model_hash": "another base"}, "NOT_EVALUABLE", "model_hash"),
}  # fmt: skip


@pytest.mark.parametrize(("kwargs", "status", "why"), CASES.values(), ids=CASES)
def test_t6(kwargs, status, why):
    line = judged(**kwargs)
    assert (line.verdict.status, why in line.verdict.why) == (status, True), line.verdict.why


def test_the_numbers_of_a_pass_and_of_a_clean_negative():
    # reductions 82 83 81 (LoRA) against 83 82 83, in pp
    numbers = judged().verdict.numbers
    assert numbers["ratio"] == pytest.approx(246 / 248)
    assert numbers["lower"] == pytest.approx(lower_end([82 - 0.8 * 83, 83 - 0.8 * 82, 81 - 0.8 * 83]))
    assert judged(lora=SHORT).verdict.numbers["upper"] < 0
