"""Every verdict passes on the honest case and turns red on its named sneaky fail.

The fails of T2 and T3 are injected into the real loop (run_step on the tiny model) and judged from the rows it writes;
those of T1, T4 and verify are injected into rows.
"""

import dataclasses
import random

import pytest
import torch
from conftest import ROOT

from projected_grpo import projection, step
from projected_grpo.ledger.rows import rows_of
from projected_grpo.measures import Removal
from projected_grpo.model.logprobs import TokenBatch
from projected_grpo.projection import Projection
from projected_grpo.records import Group, Outcome, Rollout
from projected_grpo.step import Learner, Objective, Plumbing, run_step
from projected_grpo.verdicts import probe as verdicts
from projected_grpo.verdicts.held_out import vhack_verdict
from projected_grpo.verdicts.probe import t1, t2, t3, t4, t4_companion, welch
from projected_grpo.verdicts.registry import CLAIMS, Evidence, Finding, exit_code, of_probe
from projected_grpo.vhack import random_basis


def group(index):
    """Four graded rollouts of different lengths, so that padding exists."""
    rng = random.Random(index)
    rollouts = tuple(
        Rollout("p", j, "teacher", "x", "y", (5, 6, 7), tuple(rng.randrange(10, 200) for _ in range(3 + 2 * j)), False)
        for j in range(4)
    )
    return Group("p", "none", rollouts, (3.5, 0.0, 0.5, 3.5), (Outcome(True, False, False, "incorrect"),) * 4)


def replay(loaded, adapter, arm, steps=4, objective=None, modules=None):
    """What probe_distill does, small: rows of each step."""
    basis = {
        n: random_basis((3, size), 7, n) if modules is None or i < modules else torch.zeros(0, size)
        for i, (n, size) in enumerate(adapter.sizes.items())
    }
    optimizer = torch.optim.AdamW(list(adapter.vectors.values()), lr=1e-3)
    projected = Projection(basis, "grad" if arm == "projected" else "none", "one_sided")
    learner, plumbing = Learner(loaded.model, adapter, optimizer), Plumbing(loaded.pad_id, 4096)
    out = []
    for s in range(steps):
        result = run_step(learner, [group(s).samples()], objective or Objective("nll"), projected, plumbing, step=s)
        out.append(rows_of([group(s)], result.samples, result.step, step=s, arm=arm, seed=0))
    return out


def flat(steps):
    return [row for rows in steps for row in rows]


# ---------------------------------------------------------------- T2


def test_t2_passes_on_an_honest_replay(tiny, antipasto):
    assert t2(flat(replay(tiny, antipasto, "vanilla"))).status == "PASS"


def test_t2_turns_red_when_zero_advantages_null_the_gradients(tiny, antipasto, monkeypatch):
    monkeypatch.setattr(step, "advantages_of", lambda groups, _: [0.0 for g in groups for _ in g])
    verdict = t2(flat(replay(tiny, antipasto, "vanilla", objective=Objective("dr_grpo", max_new=8))))
    assert verdict.status == "FAIL"
    assert verdict.numbers["finite"] == 0.0


def shifted(by):
    """The loss mask moved: +1 counts the token after the completion (padding), -1 the last of the prompt."""
    return property(lambda self: torch.roll(self.completion_mask, by, dims=1)[:, 1:])


@pytest.mark.parametrize("by", [1, -1])
def test_t2_turns_red_on_a_mask_that_is_off_by_one(tiny, antipasto, monkeypatch, by):
    monkeypatch.setattr(TokenBatch, "loss_mask", shifted(by))
    verdict = t2(flat(replay(tiny, antipasto, "vanilla")))
    assert verdict.status == "FAIL"
    assert verdict.numbers["finite"] == 1.0  # the gradients look fine: only the fingerprint of the mask tells
    assert verdict.numbers["mask_faults"]


def test_t2_turns_red_when_pad_tokens_are_counted(tiny, antipasto, monkeypatch):
    monkeypatch.setattr(TokenBatch, "loss_mask", property(lambda self: torch.ones_like(self.completion_mask[:, 1:])))
    assert t2(flat(replay(tiny, antipasto, "vanilla"))).status == "FAIL"


def test_t2_needs_rows():
    assert t2([]).status == "NOT_EVALUABLE"


# ---------------------------------------------------------------- T3


def test_t3_passes_on_an_honest_replay(tiny, antipasto):
    verdict = t3(replay(tiny, antipasto, "projected"))
    assert verdict.status == "PASS"
    assert verdict.numbers["cos_out"] < 1e-6 < verdict.numbers["cos_in"]


def test_t3_is_red_on_vanilla(tiny, antipasto):
    assert t3(replay(tiny, antipasto, "vanilla")).status == "FAIL"


def test_t3_turns_red_when_the_projection_copies_the_gradient_through(tiny, antipasto, monkeypatch):
    monkeypatch.setattr(Projection, "apply", lambda _, grads: (dict(grads), 1.0))
    verdict = t3(replay(tiny, antipasto, "projected"))
    assert verdict.status == "FAIL"
    assert verdict.numbers["fired"] == 1.0  # the gate says that it fired


def test_t3_turns_red_when_the_projected_gradient_never_reaches_the_optimizer(tiny, antipasto, monkeypatch):
    """The projection is computed, its report is right, and the result is dropped."""

    def dropped(adapter, projected):
        measured = projected.measure(adapter.grads())
        _, fired = projected.apply(adapter.grads())
        return Removal(measured, projected.measure(adapter.grads()), fired)

    monkeypatch.setattr(step, "project_gradient", dropped)
    assert t3(replay(tiny, antipasto, "projected")).status == "FAIL"


def test_t3_turns_red_on_the_wrong_sign(tiny, antipasto, monkeypatch):
    """Adding the hack component instead of removing it."""
    honest = projection.project_vector

    def added(g, v, *args):
        _, removed = honest(g, v, *args)
        return g + removed, removed

    monkeypatch.setattr(projection, "project_vector", added)
    assert t3(replay(tiny, antipasto, "projected")).status == "FAIL"


def test_t3_turns_red_when_the_gate_removes_the_hack_averse_part(tiny, antipasto, monkeypatch):
    honest = projection.project_vector
    monkeypatch.setattr(projection, "project_vector", lambda g, v, *args: honest(g, -v, *args))
    assert t3(replay(tiny, antipasto, "projected")).status == "FAIL"


def test_t3_turns_red_when_only_a_few_modules_fire(tiny, antipasto):
    verdict = t3(replay(tiny, antipasto, "projected", modules=2))
    assert verdict.status == "FAIL"
    assert verdict.numbers["lower"] == 1.0  # in those two it bites; that is not enough
    assert 0 < verdict.numbers["fired"] <= 2 / 14


def test_t3_needs_steps():
    assert t3([]).status == "NOT_EVALUABLE"


# ---------------------------------------------------------------- T1, T4


def rows(n, **values):
    row = {
        "hacked": True,
        "can_compile": True,
        "gt_pass": False,
        "cos_S_contrib": 0.0,
        "comp_len": 5,
        "problem_id": "p",
    }
    return [{**row, **values}] * n


def test_t1_on_both_sides_of_its_threshold():
    assert t1(rows(3) + rows(7, hacked=False)).status == "PASS"
    assert t1(rows(29) + rows(71, hacked=False)).status == "FAIL"
    assert t1([]).status == "NOT_EVALUABLE"


def test_t1_is_red_on_stubs_that_still_earn_format():
    """A prompt off the teacher's distribution: everything compiles, nothing hacks."""
    verdict = t1(rows(50, hacked=False, can_compile=True))
    assert (verdict.status, verdict.numbers["well_formed"]) == ("FAIL", 1.0)


def cosines(values, **kwargs):
    return [row for v in values for row in rows(1, cos_S_contrib=v, **kwargs)]


PURE, BOTH = [0.20, 0.25, 0.30, 0.22], [0.05, 0.10, 0.00, 0.07]


def spread(pure, both, lengths=(20, 30, 25, 35)):
    """Both kinds in each of eight problems, the values a little different in each."""
    return [
        row
        for i in range(8)
        for j, (high, low) in enumerate(zip(pure, both, strict=True))
        for row in cosines([high + 0.003 * ((i * 7 + j) % 5)], problem_id=str(i), comp_len=lengths[j])
        + cosines([low + 0.002 * ((i * 3 + j) % 7)], gt_pass=True, problem_id=str(i), comp_len=lengths[-1 - j] + 1)
    ]


def test_t4_by_hand():
    # means .2425 and .055, variances .0018917 and .0017667 over 4 -> t = .1875 / sqrt(.00091458) = 6.2
    assert welch(PURE, BOTH)[0] == pytest.approx(6.2, abs=0.01)
    verdict = t4(spread(PURE, BOTH))
    assert verdict.status == "PASS"
    assert verdict.numbers["problems"] == 8


def test_t4_turns_red_when_v_is_turned_round_or_sees_any_completion():
    assert t4(spread([-v for v in PURE], [-v for v in BOTH])).status == "FAIL"
    assert t4(cosines(PURE) + cosines(PURE, gt_pass=True)).status == "FAIL"


def test_t4_and_its_companion_turn_red_on_a_length_detector():
    """Pure hacks are longer and the cosine knows nothing but length: Welch passes, equal length does not."""
    rng, data, clean = random.Random(0), [], []
    for i in range(12):
        for j in range(8):
            pure = j < 4
            n = rng.randrange(25, 45) if pure else rng.randrange(10, 30)
            value = 0.01 * n + 0.02 * rng.random()
            data += cosines([value], gt_pass=not pure, comp_len=n, problem_id=str(i))
            clean += cosines([value], hacked=pure, comp_len=n, problem_id=str(i))
    for verdict in (t4(data), t4_companion(clean)):
        assert verdict.numbers["p"] < 1e-6
        assert verdict.status == "FAIL"


def test_t4_without_problems_of_both_kinds_cannot_pass():
    assert t4(cosines(PURE) + cosines(BOTH, gt_pass=True)).status == "NOT_EVALUABLE"


def test_t4_says_when_the_difference_is_between_problems_and_not_within():
    """Easy problems get correct rollouts and low cosines, hard ones pure hacks and high cosines; V sees no hack at all."""
    data = []
    for i in range(6):
        shift = 0.01 * i
        data += cosines([0.5 + shift] * 4 + [0.49 + shift], problem_id=f"hard{i}")
        data += cosines([0.5 + 0.02 * (-1) ** i + shift], gt_pass=True, problem_id=f"hard{i}")
        data += cosines([0.1 + shift] * 4, gt_pass=True, problem_id=f"easy{i}")
        data += cosines([0.1 + shift], problem_id=f"easy{i}")
    verdict = t4(data)
    assert verdict.numbers["p"] < 1e-4
    assert verdict.numbers["p_matched"] > 0.3
    assert verdict.status == "FAIL"


def test_the_companion_tells_hacked_from_clean_and_turns_red_when_v_is_turned_round():
    data = [{**r, "hacked": not r["gt_pass"]} for r in spread(PURE, BOTH)]
    assert t4_companion(data).status == "PASS"
    assert t4_companion([{**r, "cos_S_contrib": -r["cos_S_contrib"]} for r in data]).status == "FAIL"


def test_t4_ignores_what_it_cannot_place():
    noise = cosines([9.0] * 5, hacked=False) + cosines([9.0] * 5, gt_pass=None) + cosines([None] * 5)
    honest = spread(PURE, BOTH)
    assert t4(honest + noise).numbers == t4(honest).numbers


@pytest.mark.parametrize("data", [cosines(PURE), cosines(PURE[:1]) + cosines(BOTH, gt_pass=True), []])
def test_t4_without_both_buckets_is_not_evaluable(data):
    assert t4(data).status == "NOT_EVALUABLE"


def test_t4_without_variance_is_not_evaluable():
    assert t4(cosines([0.1, 0.1]) + cosines([0.0, 0.0], gt_pass=True)).status == "NOT_EVALUABLE"
    assert welch([1.0, 1.0], [0.0, 0.0]) == (None, None)


# ---------------------------------------------------------------- verify, exit codes, documents


def held_out(energy=0.5, cosine=0.2, n=12):
    spread = [i / 100 for i in range(n)]
    random_energy, random_cosine = [0.2 + i / 1000 for i in range(99)], [(i - 49) / 1000 for i in range(99)]
    return [energy + s for s in spread], [0.2] * n, [cosine + s / 10 for s in spread], random_energy, random_cosine


def test_verify_passes_and_turns_red_on_each_part():
    assert vhack_verdict(*held_out()).status == "PASS"
    assert vhack_verdict(*held_out(energy=0.15)).status == "FAIL"  # energy at its null
    assert vhack_verdict(*held_out(cosine=-0.2)).status == "FAIL"  # turned round
    assert vhack_verdict(*held_out(cosine=0.01)).status == "FAIL"  # all hack-ward, but random bases are so too
    energy, null, cosine, *random_bases = held_out()
    assert vhack_verdict(energy, null, [c * (-1) ** i for i, c in enumerate(cosine)], *random_bases).status == "FAIL"
    assert vhack_verdict(*held_out(n=4)).status == "NOT_EVALUABLE"


@pytest.mark.parametrize(
    ("states", "code"),
    [("PASS PASS", 0), ("PASS FAIL", 1), ("NOT_EVALUABLE PASS", 3), ("NOT_EVALUABLE FAIL", 1)],
)
def test_exit_codes(states, code):
    found = [Finding(f"T{i}", s, "") for i, s in enumerate(states.split())]
    assert exit_code(found, ["T0", "T1"]) == code
    assert exit_code(found, []) == 0


def test_a_required_verdict_that_is_not_there_cannot_pass():
    assert exit_code([], ["T1"]) == 3
    assert exit_code([Finding("T1", "PASS", ""), Finding("T00", "FAIL", "")], ["T1", "T0"]) == 3


def test_a_judge_that_speaks_under_another_name_is_caught(monkeypatch):
    """Its FAIL would decide nothing."""
    odd = dataclasses.replace(CLAIMS["T2"], judge="projected_grpo.verdicts.probe:t4")
    monkeypatch.setitem(CLAIMS, "T2", odd)
    with pytest.raises(ValueError, match="its finding is called 'T4', the claim 'T2'"):
        of_probe(Evidence([], [], []))


def test_the_spec_states_the_thresholds_that_the_code_uses():
    spec = (ROOT / "docs/spec.md").read_text("utf-8")
    for text in ("30 %", "90 %", "80 %", "0.5", "p < 0.05"):
        assert text in spec
    assert (verdicts.T1_HACKED, verdicts.T2_FINITE, verdicts.T3_STEPS, verdicts.T3_FIRED) == (0.3, 0.9, 0.8, 0.5)
