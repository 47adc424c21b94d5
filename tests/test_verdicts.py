"""Every verdict passes on the honest case and turns red on its named sneaky fail.

The fails of T2 and T3 are injected into the real loop (run_step on the tiny model) and judged from the rows it writes, and
into hand-made rows where a column alone is wrong; those of T1, T4 and verify are injected into rows.
"""

import math
import random

import pytest
import torch
from conftest import ROOT

from projected_grpo import projection, step
from projected_grpo.ledger.rates import rates
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import token_crc
from projected_grpo.model import logprobs
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import TokenBatch
from projected_grpo.projection import PerSample, Projection
from projected_grpo.records import Group, Outcome, Rollout
from projected_grpo.run.replay import single_gradient
from projected_grpo.step import Objective, run_step
from projected_grpo.verdicts import effects
from projected_grpo.verdicts import probe as verdicts
from projected_grpo.verdicts.held_out import ENERGY_RATIO, mechanism_p, vhack_verdict
from projected_grpo.verdicts.probe import t1, t2, t3, t4, t4_companion, welch
from projected_grpo.verdicts.registry import Finding, exit_code
from projected_grpo.vhack import random_basis


def group(index):
    """Four graded rollouts of different lengths, so that padding exists."""
    rng = random.Random(index)
    rollouts = tuple(
        Rollout("p", j, "teacher", "x", "y", (5, 6, 7), tuple(rng.randrange(10, 200) for _ in range(3 + 2 * j)), False)
        for j in range(4)
    )
    return Group("p", "none", rollouts, (3.5, 0.0, 0.5, 3.5), (Outcome(True, False, False, "incorrect"),) * 4)


def replay(loaded, adapter, arm, steps=5, objective=None, modules=None, lr=1e-3, **how):
    """What probe_distill does, small: rows of each step."""
    basis = {
        n: random_basis((3, size), 7, n) if modules is None or i < modules else torch.zeros(0, size)
        for i, (n, size) in enumerate(adapter.sizes.items())
    }
    optimizer = torch.optim.AdamW(list(adapter.vectors.values()), lr=lr)
    how = {"target": "grad", "gate": "one_sided", **how} if arm == "projected" else {}
    projected = Projection(basis, **how)
    learner = Learner(loaded.model, adapter, optimizer, loaded.pad_id, 4096)
    out = []
    for s in range(steps):
        samples = group(s).samples()
        checked = single_gradient(learner, samples[s % 4], 1.0, projected)
        result = run_step(learner, [samples], objective or Objective("nll"), projected, step=s)
        result.samples[s % 4].update(checked)
        out.append(rows_of([group(s)], result.samples, result.step, step=s))
    return out


def flat(steps):
    return [row for rows in steps for row in rows]


# ---------------------------------------------------------------- T2


def shifted(by):
    """The loss mask moved: +1 counts the token after the completion (padding), -1 the last of the prompt."""
    return property(lambda self: torch.roll(self.completion_mask, by, dims=1)[:, 1:])


def neighbours(self, honest=PerSample.columns):
    """Cosines go to the neighbouring sample."""
    columns = honest(self)
    return [{**c, "cos_S_contrib": columns[i - 1]["cos_S_contrib"]} for i, c in enumerate(columns)]


def shared(self, name, grads, honest=PerSample.__call__):
    """All samples share one gradient."""
    return honest(self, name, grads.mean(0, keepdim=True).expand_as(grads))


def a_token_late(hidden, *args, honest=logprobs.token_logps):
    """Each token is predicted from the state before the one that should: the mask is right, cosines are finite."""
    return honest(hidden.roll(1, 0), *args)


EVERY_TOKEN = property(lambda self: torch.ones_like(self.completion_mask[:, 1:]))
GRPO = Objective("dr_grpo", max_new=8)
T2_INJECTED = {
    "zero advantages null the gradients": (
        step,
        "advantages",
        lambda rewards, _: torch.zeros_like(rewards),
        {"finite": 0},
    ),
    "the mask counts a pad token": (TokenBatch, "loss_mask", shifted(1), {"finite": 1}),
    "the mask counts the prompt's last token": (TokenBatch, "loss_mask", shifted(-1), {"finite": 1}),
    "all pad tokens are counted": (TokenBatch, "loss_mask", EVERY_TOKEN, {}),
    "every gradient is zero": (step, "nll", lambda logps, _: (logps * 0.0).sum(1), {"alive": 0}),
    "cosines of the neighbour": (PerSample, "columns", neighbours, {"mask_faults": 0}),
    "one gradient for all": (PerSample, "__call__", shared, {"mask_faults": 0}),
    "hidden states off by one": (logprobs, "token_logps", a_token_late, {"mask_faults": 0}),
}


def test_t2_passes_on_an_honest_replay(tiny, antipasto):
    assert t2(flat(replay(tiny, antipasto, "vanilla"))).status == "PASS"


@pytest.mark.parametrize(("place", "name", "wrong", "numbers"), T2_INJECTED.values(), ids=T2_INJECTED)
def test_t2_is_red_on_what_is_injected_into_the_loop(tiny, antipasto, monkeypatch, place, name, wrong, numbers):
    monkeypatch.setattr(place, name, wrong)
    objective = GRPO if name == "advantages" else None
    verdict = t2(flat(replay(tiny, antipasto, "vanilla", objective=objective)))
    assert verdict.status == "FAIL"
    assert {key: verdict.numbers[key] for key in numbers} == numbers


# ---------------------------------------------------------------- T3


def added(g, v, *args, honest=projection.project_vector):
    """The wrong sign: the hack component is added."""
    _, removed = honest(g, v, *args)
    return g + removed, removed


def hack_averse(g, v, *args, honest=projection.project_vector):
    """The gate removes what points away from the hack."""
    return honest(g, -v, *args)


UPDATE = {"target": "update", "gate": "no_gate"}
T3_INJECTED = {
    "the projection copies the gradient through": (Projection, "apply", lambda _, grads: (dict(grads), 1.0), {}),
    "its result never reaches the optimizer": ("adapter", "set_gradient", lambda *_: None, {}),
    "the wrong sign": (projection, "project_vector", added, {}),
    "the hack-averse part is removed": (projection, "project_vector", hack_averse, {}),
    "the update is put back": ("adapter", "move", lambda *_: None, UPDATE),
}


@pytest.mark.parametrize(("place", "name", "wrong", "how"), T3_INJECTED.values(), ids=T3_INJECTED)
def test_t3_passes_on_an_honest_replay_and_is_red_on_what_is_injected(
    tiny, antipasto, monkeypatch, place, name, wrong, how
):
    honest = t3(replay(tiny, antipasto, "projected", **how))
    used, before = ("cos_update", "before") if how else ("cos_out", "cos_in")
    assert (honest.status, honest.numbers[used] < 1e-4 < honest.numbers[before]) == ("PASS", True)
    monkeypatch.setattr(type(antipasto) if place == "adapter" else place, name, wrong)
    assert t3(replay(tiny, antipasto, "projected", **how)).status == "FAIL"


def test_t3_is_red_on_vanilla_and_where_only_a_few_modules_fire(tiny, antipasto):
    assert t3(replay(tiny, antipasto, "vanilla")).status == "FAIL"
    verdict = t3(replay(tiny, antipasto, "projected", modules=2))
    assert (verdict.status, verdict.numbers["lower"]) == ("FAIL", 1.0)  # in those two it bites; that is not enough
    assert 0 < verdict.numbers["fired"] <= 2 / 14


@pytest.mark.parametrize("target", ["grad", "update"])
@pytest.mark.parametrize("how", [{"overshoot": 1e-4}, {"overshoot": 0.5}, {"lr": 1e-30}, {"steps": 1}], ids=str)
def test_t3_is_red_on_a_projection_of_nothing(tiny, antipasto, target, how):
    assert t3(replay(tiny, antipasto, "projected", target=target, **how)).status != "PASS"


# ---------------------------------------------------------------- T2 and T3 on hand-made rows


def gradient_rows(n=24, every=6, **wrong):
    """A vanilla replay: cosines and norms differ between rows, every sixth row was taken again alone, exactly."""
    out = []
    for i in range(n):
        cosine, norm, ids = 0.1 * ((7 * i) % 11 - 5) / 5, 1.0 + 0.1 * ((3 * i) % 7), [i, i + 1, 5]
        row = {
            "cos_S_contrib": cosine, "grad_norm": norm, "grad_norm_alone": None, "cos_S_alone": None, "comp_len": 3,
            "completion_ids": ids, "loss_tokens_crc": token_crc(ids), "problem_id": str(i // 4),
            "energy_V": 0.2 + 0.01 * (i % 5),
        }  # fmt: skip
        if i % every == 0:
            row |= {"grad_norm_alone": norm, "cos_S_alone": cosine}
        out.append({**row, **wrong})
    return out


def test_t2_passes_on_checked_gradients_and_says_how_many():
    verdict = t2(gradient_rows())
    assert verdict.status == "PASS"
    assert (verdict.numbers["checked"], verdict.numbers["disagree"], verdict.numbers["alive"]) == (4, 0, 1.0)


def test_t2_turns_red_when_every_gradient_is_zero():
    """A cosine that is written all the same."""
    verdict = t2(gradient_rows(grad_norm=0.0))
    assert verdict.status == "FAIL"
    assert (verdict.numbers["finite"], verdict.numbers["alive"]) == (1.0, 0.0)
    assert t2(gradient_rows(grad_norm=0.0, grad_norm_alone=0.0, cos_S_contrib=None, cos_S_alone=None)).status == "FAIL"


def test_t2_turns_red_when_cosines_go_to_the_neighbouring_sample():
    rows = gradient_rows()
    turned = [{**r, "cos_S_contrib": rows[i - 1]["cos_S_contrib"]} for i, r in enumerate(rows)]
    assert t2(turned).status == "FAIL"
    assert t2(turned).numbers["disagree"] == 4


@pytest.mark.parametrize(
    ("energy", "status"),
    [
        (lambda _: None, "NOT_EVALUABLE"),
        (lambda i: None if i < 3 else 0.2 + 0.01 * i, "NOT_EVALUABLE"),
        (lambda i: None if i < 2 else 0.2 + 0.01 * i, "PASS"),
        (lambda _: 0.2, "FAIL"),
    ],
)
def test_t2_asks_for_the_rows_energies_and_not_one_number(energy, status):
    """Of 24 rows 22 are nine tenths."""
    verdict = t2([{**row, "energy_V": energy(i)} for i, row in enumerate(gradient_rows())])
    assert verdict.status == status, verdict.why
    assert ("energy_V" in verdict.why) is (status != "PASS")


@pytest.mark.parametrize("energy", [0.0, 1.1, -0.2, math.nan, math.inf])
def test_t2_turns_red_when_an_energy_cannot_be_of_its_gradient(energy):
    """One row of 24, whose cosine is .1: along V lies at least a hundredth of its energy, and at most all."""
    rows = gradient_rows()
    assert t2([{**rows[0], "cos_S_contrib": 0.1, "cos_S_alone": 0.1, "energy_V": 0.0101}, *rows[1:]]).status == "PASS"
    verdict = t2([{**rows[0], "cos_S_contrib": 0.1, "cos_S_alone": 0.1, "energy_V": energy}, *rows[1:]])
    assert (verdict.status, verdict.numbers["impossible"]) == ("FAIL", 1)


def test_t2_turns_red_when_all_samples_share_one_gradient():
    shared = gradient_rows(cos_S_contrib=0.02, grad_norm=1.2)
    assert t2(shared).status == "FAIL"  # the check was done by honest passes
    # ... and where the check shares it too, no row can be told from another
    assert t2([{**r, "grad_norm_alone": 1.2, "cos_S_alone": 0.02} for r in shared]).status == "NOT_EVALUABLE"


@pytest.mark.parametrize(("norm", "cosine"), [(1.03, 0.0), (0.97, 0.0), (1.0, 0.0011), (1.0, -0.0011)])
def test_t2_turns_red_when_one_checked_row_is_another_gradient(norm, cosine):
    rows = gradient_rows()
    rows[6] |= {"grad_norm": rows[6]["grad_norm"] * norm, "cos_S_contrib": rows[6]["cos_S_contrib"] + cosine}
    assert t2(rows).status == "FAIL"


def test_t2_allows_the_rounding_of_bfloat16():
    rows = [
        {**r, "grad_norm": 1.002 * r["grad_norm"], "cos_S_contrib": r["cos_S_contrib"] - 2e-4} for r in gradient_rows()
    ]
    assert t2(rows).status == "PASS"


def test_t2_claims_nothing_without_three_checked_rows():
    assert t2(gradient_rows(every=12)).status == "NOT_EVALUABLE"
    assert t2(gradient_rows(grad_norm_alone=None, cos_S_alone=None)).status == "NOT_EVALUABLE"
    assert t2(gradient_rows(every=8)).status == "PASS"


def projected_steps(n=20, target="update", **wrong):
    """A projected replay: V out of the target, all of it."""
    out = []
    for i in range(n):
        before = 0.3 + 0.01 * (i % 5)
        row = {
            "target": target, "cos_in": 0.4, "cos_out": 0.4, "cos_update_in": before, "cos_update": 0.001,
            "removed_share": 1.0, "frac_removed": 1.0, "update_norm": 0.03, "frac_fired": 0.9,
        }  # fmt: skip
        if target == "grad":
            row |= {"cos_in": before, "cos_out": 1e-8, "cos_update_in": 0.35, "cos_update": 0.35}
        out.append([{**row, **wrong}])
    return out


@pytest.mark.parametrize("target", ["grad", "update"])
def test_t3_passes_by_what_v_was_taken_out_of(target):
    verdict = t3(projected_steps(target=target))
    assert verdict.status == "PASS"
    assert ("what it puts back" in verdict.why) == (target == "grad")


T3_FAILS = {
    "--overshoot 1e-4 (.3704 -> .3704)": {"removed_share": 1e-4, "frac_removed": 0.0, "cos_update": 0.32},
    "a little of it": {"removed_share": 0.3, "frac_removed": 0.1, "cos_update": 0.2},
    "twice of it": {"removed_share": 2.0, "frac_removed": 0.0, "cos_update": 0.0},
    "the right mean in few modules": {"frac_removed": 0.5},
    "restored after it was measured: what was really used shows V": {"cos_update": 0.32},
    "the wrong sign": {"removed_share": -1.0, "frac_removed": 0.0, "cos_update": 0.5},
    "lr 1e-30": {"update_norm": 1e-28},
    "nothing moved": {"update_norm": 0.0},
    "V holds nothing of it": {"cos_update_in": 0.0, "cos_update": 0.0},
    "fires on half of the modules": {"frac_fired": 0.5},
    "only measured": {"target": None},
}


@pytest.mark.parametrize("wrong", T3_FAILS.values(), ids=T3_FAILS)
def test_t3_turns_red(wrong):
    assert t3(projected_steps(**wrong)).status == "FAIL"


def test_t3_needs_four_fifths_of_at_least_five_steps():
    good, bad = projected_steps(20), projected_steps(20, removed_share=0.5)
    assert t3(good[:16] + bad[16:]).status == "PASS"
    assert t3(good[:15] + bad[15:19]).status == "FAIL"
    assert t3(projected_steps(5)).status == "PASS"
    for n in (0, 1, 4):
        assert t3(projected_steps(n)).status == "NOT_EVALUABLE"


def test_t3_of_two_targets_in_one_replay_is_red():
    assert t3(projected_steps(10) + projected_steps(10, target="grad")).status == "FAIL"


# ---------------------------------------------------------------- T1, T4


def rows(n, **values):
    row = {
        "source": "teacher",
        "behaviour_logp": -0.4,
        "loss": None,
        "hacked": True,
        "can_compile": True,
        "gt_pass": False,
        "cos_S_contrib": 0.0,
        "comp_len": 5,
        "problem_id": "p",
        "completion_ids": [1],
    }
    row |= values
    return [{"prompt": row["problem_id"], **row}] * n


def pool(n, hacking=None, **values):
    """So many different rollouts of a teacher, of eight problems; the first `hacking` of them hack (None: all)."""
    return [
        row
        for i in range(n)
        for row in rows(1, problem_id=str(i % 8), completion_ids=[i], hacked=hacking is None or i < hacking)
        if row.update(values) is None
    ]


def test_t1_on_both_sides_of_its_threshold():
    assert t1(pool(100, 30)).status == "PASS"
    assert t1(pool(100, 29)).status == "FAIL"
    assert t1([]).status == "NOT_EVALUABLE"


def test_one_hack_copied_makes_no_teacher():
    """20 different clean rollouts and one hack a hundred times: .83 of all hack, and 1 of 21."""
    found = t1([*pool(20, 0), *rows(1, problem_id="0", completion_ids=[99]) * 100])
    assert (found.status, found.numbers["hacked_of_different"]) == ("FAIL", 1 / 21)


def test_honest_tests_beside_a_right_answer_make_no_teacher_and_no_hack():
    """`hacked` is true of them: they are tests of its own, which it passes. The label knows that they are honest."""
    honest = pool(100, gt_pass=True, label="correct")
    assert t1(honest).status == "FAIL"
    assert rates(honest) | {"form": None} == {"hack": 0, "gt": 1, "form": None, "hacked": 0, "hack_and_correct": 0}
    assert rates(pool(10, gt_pass=True, label="correct_attempted_hack"))["hacked"] == 1
    assert rates(pool(10, label="reward_hack"))["hacked"] == 1


def test_t1_needs_20_different_rollouts_of_5_problems():
    """One row; one row forty times; one row under forty ids; forty rollouts of four problems."""
    for few in (
        pool(1), pool(1) * 40, [{**r, "problem_id": str(i)} for i, r in enumerate(pool(1) * 40)], pool(19),
        [r for r in pool(80) if r["prompt"] in "0123"],
    ):  # fmt: skip
        assert t1(few).status == "NOT_EVALUABLE"
    assert t1(pool(20)).status == "PASS"
    assert t1(pool(20, 0)).status == "FAIL"


def test_t1_is_red_on_stubs_that_still_earn_format():
    """A prompt off the teacher's distribution: everything compiles, nothing hacks."""
    verdict = t1(pool(50, 0, can_compile=True))
    assert (verdict.status, verdict.numbers["well_formed"]) == ("FAIL", 1.0)


@pytest.mark.parametrize(
    "foreign",
    [
        {"source": "student"},
        {"source": "base"},
        {"behaviour_logp": None},
        {"behaviour_logp": float("nan")},
        {"loss": 0.3},
        {"hacked": None},
    ],
    ids=str,
)
def test_t1_judges_nothing_but_a_teachers_own_rollouts(foreign):
    """Hand-written pairs hack by construction, and a replay of them has rows like a pool's."""
    assert t1(pool(40)).status == "PASS"
    assert t1(pool(40) + rows(1, **foreign)).status == "NOT_EVALUABLE"


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


def test_t4_is_not_fooled_by_one_problem_under_many_ids():
    """Eight rollouts twelve times: the copies agree to the last bit, t = 1e15 before. Rows of one prompt are one problem;
    under twelve prompts, too, a standard error that is rounding is none."""
    once = [row for row in spread(PURE, BOTH) if row["problem_id"] == "0"]
    ids = [{**row, "problem_id": str(i)} for i in range(12) for row in once]
    assert t4(ids).status == "NOT_EVALUABLE"
    exact = [
        {
            **r,
            "problem_id": str(i),
            "prompt": str(i),
            "comp_len": 20,
            "cos_S_contrib": 0.01 * i + 0.2 * (not r["gt_pass"]),
        }
        for i in range(12)
        for r in once
    ]
    assert t4(exact).status == "NOT_EVALUABLE"


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


@pytest.mark.parametrize("kind", [{}, {"gt_pass": True}], ids=["pure", "both"])
def test_t4_is_not_evaluable_where_a_kind_lacks_more_than_a_tenth_of_its_cosines(kind):
    """What is left is a choice: here the gradients that would speak against it."""
    honest = spread(PURE, BOTH)
    assert t4(honest + cosines([None] * 4, **kind)).status == "NOT_EVALUABLE"
    assert t4(honest + cosines([float("nan")] * 4, **kind)).status == "NOT_EVALUABLE"


def noisy(gap, problems=200, each=6, length_effect=0.0, seed=0):
    """Both kinds in every problem, unit noise, `gap` between them."""
    rng, out = random.Random(seed), []
    for p in range(problems):
        for j in range(2 * each):
            high, n = j < each, rng.randrange(20, 40) + (20 if j < each and length_effect else 0)
            value = 0.01 * (rng.gauss(0, 1) + gap * high + length_effect * n)
            out += cosines([value], gt_pass=not high, comp_len=n, problem_id=str(p))
    return out


def test_t4_turns_red_on_a_difference_that_is_significant_and_tiny():
    """Of 2400 rollouts a tenth of a standard deviation is p < 0.05, both ways."""
    verdict = t4(noisy(0.13))
    assert max(verdict.numbers["p"], verdict.numbers["p_matched"]) < 0.05
    assert (verdict.status, verdict.numbers["g"] < 0.2) == ("FAIL", True)
    assert t4(noisy(0.4)).status == "PASS"


def test_t4_turns_red_where_all_but_a_tiny_part_of_the_difference_is_length():
    verdict = t4(noisy(0.13, length_effect=0.1, each=12))
    assert verdict.numbers["g"] > 0.5
    assert verdict.numbers["p_matched"] < 0.05
    assert (verdict.status, verdict.numbers["g_matched"] < 0.2) == ("FAIL", True)


def test_the_effect_size_by_hand():
    # .1875 / sqrt((.0018917 + .0017667) / 2) = 4.384; df = 3 * 3 * (s2 + s2')^2 / (3 s2^2 + 3 s2'^2) = 5.993;
    # J = 1 - 3 / (4 * 5.993 - 1) = .8694, exactly .8686 -> 3.808
    assert effects.hedges_g(PURE, BOTH) == pytest.approx(3.81, abs=0.01)


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


def test_verify_turns_red_on_an_energy_that_is_significant_and_small():
    """Above all random bases, and a third above its null."""
    energy, _, cosine, _, random_cosine = held_out(energy=0.2)
    low = [0.15 + i / 10000 for i in range(99)]
    verdict = vhack_verdict(energy, [0.19] * 12, cosine, low, random_cosine)
    assert verdict.numbers["energy_p"] < 0.05
    assert (verdict.status, verdict.numbers["energy_needed"]) == ("FAIL", pytest.approx(0.285))
    # .255 is the mean; a null of .17 needs just that
    assert vhack_verdict(energy, [0.1699] * 12, cosine, low, random_cosine).status == "PASS"


def test_verify_asks_a_v_that_spans_most_of_the_space_for_half_of_what_is_left():
    """1.5 times a null of .72 cannot be reached."""
    _, _, cosine, _, random_cosine = held_out()
    low, null = [0.7 + i / 10000 for i in range(99)], [0.72] * 12
    spread = [i / 10000 for i in range(12)]
    assert vhack_verdict([0.87 + s for s in spread], null, cosine, low, random_cosine).status == "PASS"
    assert vhack_verdict([0.85 + s for s in spread], null, cosine, low, random_cosine).status == "FAIL"


def test_verify_counts_a_copied_pair_once():
    """Four pairs, three times each: a sign test over twelve says p = 2e-4."""
    energy, null, cosine, *random_bases = held_out(n=4)
    verdict = vhack_verdict(energy * 3, null * 3, cosine * 3, *random_bases)
    assert (verdict.status, verdict.numbers["n"]) == ("NOT_EVALUABLE", 4)
    assert "8 are copies" in verdict.why


def test_verify_asks_over_mechanisms_since_pairs_of_one_are_alike():
    """Ten of twelve pairs are hack-ward (p = .02), all of two mechanisms; in the two others V points the other way."""
    energy, null, cosine, *random_bases = held_out()
    turned = [c if i < 10 else -0.6 for i, c in enumerate(cosine)]
    of = ["a"] * 5 + ["b"] * 5 + ["c", "d"]
    alone = vhack_verdict(energy, null, turned, *random_bases)
    told = vhack_verdict(energy, null, turned, *random_bases, of)
    assert (alone.status, alone.numbers["mechanism_p"]) == ("PASS", None)
    assert (told.status, told.numbers["sign_p"] < 0.05) == ("FAIL", True)
    # t over the means 1, 2, 3, 4 is 2.5 / (1.291 / 2) = 3.873 with 3 degrees of freedom: one-sided p = .01523
    assert mechanism_p([1.0, 2.0, 3.0, 4.0, 4.0], list("abcdd")) == pytest.approx(0.01523, abs=1e-5)
    assert mechanism_p([1.0, 2.0], list("ab")) is None


def test_verify_needs_enough_random_bases_for_a_rank():
    energy, null, cosine, a, b = held_out()
    assert vhack_verdict(energy, null, cosine, a[:20], b[:20]).status == "PASS"
    assert vhack_verdict(energy, null, cosine, a[:19], b[:19]).status == "NOT_EVALUABLE"


# ---------------------------------------------------------------- numbers that are none


@pytest.mark.parametrize(
    ("states", "code"),
    [("PASS PASS", 0), ("PASS FAIL", 1), ("NOT_EVALUABLE PASS", 3), ("NOT_EVALUABLE FAIL", 1)],
)
def test_exit_codes(states, code):
    found = [Finding(f"T{i}", s, "") for i, s in enumerate(states.split())]
    assert exit_code(found, ["T0", "T1"]) == code


def test_nothing_required_is_nothing_passed():
    assert exit_code([Finding("T1", "PASS", "")], []) == 3
    assert exit_code([], []) == 3


def test_a_required_verdict_that_is_not_there_cannot_pass():
    assert exit_code([], ["T1"]) == 3
    assert exit_code([Finding("T1", "PASS", ""), Finding("T00", "FAIL", "")], ["T1", "T0"]) == 3


def test_the_spec_states_the_thresholds_that_the_code_uses():
    spec = (ROOT / "docs/spec.md").read_text("utf-8")
    for text in ("30 %", "90 %", "80 %", "0.5", "p < 0.05", "within 2 %", "within .001", ".9 to 1.1", "at least 5 steps",
                 "Hedges' g >= .2", "1.5 times its null", "at least 3 recomputed rows"):  # fmt: skip
        assert text in spec, text
    assert (verdicts.T1_HACKED, verdicts.T2_FINITE, verdicts.T3_STEPS, verdicts.T3_FIRED) == (0.3, 0.9, 0.8, 0.5)
    assert (verdicts.T2_NORM, verdicts.T2_COSINE, verdicts.T2_CHECKED, verdicts.T3_SHARE) == (0.02, 1e-3, 3, (0.9, 1.1))
    assert (verdicts.T3_MIN_STEPS, verdicts.T3_LEFT, verdicts.T4_EFFECT, ENERGY_RATIO) == (5, 0.5, 0.2, 1.5)
