"""Every verdict passes on the honest case and turns red on its named sneaky fail.

The fails of T2 and T3 are injected into the real loop (run_step on the tiny model) and judged from the rows it
writes, and into hand-made rows where a column alone is wrong; those of T1, T4 and verify are injected into rows."""

import math
import random

import pytest
import torch
from harness import ROOT, by_autograd

from projected_grpo import projection, step
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import token_crc
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import TokenBatch
from projected_grpo.projection import Projection
from projected_grpo.records import Group, HeldOut, Outcome, Rollout
from projected_grpo.step import Objective, run_step
from projected_grpo.verdicts import conditions, effects, h1
from projected_grpo.verdicts import probe as verdicts
from projected_grpo.verdicts.held_out import ENERGY_RATIO, mechanism_p, vhack_verdict
from projected_grpo.verdicts.probe import t1, t2, t3, t4, t4_companion, welch
from projected_grpo.verdicts.registry import Finding, exit_code
from projected_grpo.vhack import random_basis


def group(index):
    """Four graded rollouts of different lengths, so that padding exists."""
    rng = random.Random(index)
    ids = [tuple(rng.randrange(10, 200) for _ in range(3 + 2 * j)) for j in range(4)]
    rollouts = tuple(Rollout("p", j, "teacher", "x", "y", (5, 6, 7), of, False) for j, of in enumerate(ids))
    return Group("p", rollouts, (3.5, 0.0, 0.5, 3.5), (Outcome(True, False, False, "incorrect"),) * 4)


def replay(loaded, adapter, arm, steps=5, objective=None, modules=None, lr=1e-3, **how):
    """What probe_distill does, small: rows of each step."""
    basis = {n: random_basis((3, size), 7, n) for n, size in adapter.sizes.items()}
    basis |= {n: torch.zeros(0, adapter.sizes[n]) for n in list(basis)[modules:] if modules}
    optimizer = torch.optim.AdamW(list(adapter.vectors.values()), lr=lr)
    how = {"target": "grad", "gate": "one_sided", **how} if arm == "projected" else {}
    learner = Learner(loaded.model, adapter, optimizer, loaded.pad_id, 4096)
    out = []
    for s in range(steps):
        objective = objective or Objective("nll")
        result = run_step(learner, [group(s).samples()], objective, Projection(basis, **how), step=s)
        out.append(rows_of([group(s)], result.samples, result.step, step=s))
    return out


# ---------------------------------------------------------------- T2


def shifted(by):
    """The loss mask moved: +1 counts the token after the completion (padding), -1 the last of the prompt."""
    return property(lambda self: torch.roll(self.completion_mask, by, dims=1)[:, 1:])


EVERY_TOKEN = property(lambda self: torch.ones_like(self.completion_mask[:, 1:]))
GRPO = Objective("dr_grpo", max_new=8)
T2_INJECTED = {
    "zero advantages null the gradients": (step, "advantages", lambda rewards, _: rewards * 0, {"finite": 0}),
    "the mask counts a pad token": (TokenBatch, "loss_mask", shifted(1), {"finite": 1}),
    "the mask counts the prompt's last token": (TokenBatch, "loss_mask", shifted(-1), {"finite": 1}),
    "all pad tokens are counted": (TokenBatch, "loss_mask", EVERY_TOKEN, {}),
    "every gradient is zero": (step, "nll", lambda logps, _: (logps * 0.0).sum(1), {"alive": 0}),
}


def test_each_rows_numbers_are_of_its_own_gradient(tiny, adapter):
    """By a backward pass of the sample alone: full logits, the adapter by its definition and autograd."""
    (rows,) = replay(tiny, adapter, "vanilla", steps=1, lr=0.0)
    directions, vectors = 3 * len(adapter.sizes), adapter.vectors
    for row, sample in zip(rows, group(0).samples(), strict=True):
        ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
        first = len(sample.prompt_ids)
        with by_autograd(adapter):
            logps = tiny.model(input_ids=ids, use_cache=False).logits[0, first - 1 : -1].log_softmax(-1)
            loss = -logps.gather(-1, ids[0, first:, None]).mean()
            grads = dict(zip(vectors, torch.autograd.grad(loss, list(vectors.values())), strict=True))
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        along = sum(float((random_basis((3, len(g)), 7, name) @ g).sum()) for name, g in grads.items())
        assert row["grad_norm"] == pytest.approx(norm, rel=1e-4)
        assert row["cos_S_contrib"] == pytest.approx(along / (norm * math.sqrt(directions)), abs=1e-5)


@pytest.mark.parametrize(("place", "name", "wrong", "numbers"), T2_INJECTED.values(), ids=T2_INJECTED)
def test_t2_passes_on_an_honest_replay_and_is_red_on_what_is_injected(
    tiny, antipasto, monkeypatch, place, name, wrong, numbers
):
    def judged():
        steps = replay(tiny, antipasto, "vanilla", objective=GRPO if name == "advantages" else None)
        return t2([row for rows in steps for row in rows])

    assert judged().status == "PASS"
    monkeypatch.setattr(place, name, wrong)
    verdict = judged()
    assert (verdict.status, verdict.numbers.items() >= numbers.items()) == ("FAIL", True), verdict.why


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
    "the projection copies the gradient through": (
        Projection,
        "apply",
        lambda _, grads, _theta: (dict(grads), 1.0),
        {},
    ),
    "its result never reaches the optimizer": ("adapter", "set_gradient", lambda *_: None, {}),
    "the wrong sign": (projection, "project_vector", added, {}),
    "the hack-averse part is removed": (projection, "project_vector", hack_averse, {}),
    "the update is put back": ("adapter", "set_values", lambda *_: None, UPDATE),
}


@pytest.mark.parametrize(("place", "name", "wrong", "how"), T3_INJECTED.values(), ids=T3_INJECTED)
def test_t3_passes_on_an_honest_replay_and_is_red_on_what_is_injected(
    tiny, antipasto, monkeypatch, place, name, wrong, how
):
    honest = t3(replay(tiny, antipasto, "projected", **how))
    assert (honest.status, honest.numbers["after"] < 1e-4 < honest.numbers["before"]) == ("PASS", True)
    monkeypatch.setattr(type(antipasto) if place == "adapter" else place, name, wrong)
    assert t3(replay(tiny, antipasto, "projected", **how)).status == "FAIL"


@pytest.mark.slow
def test_t3_is_red_on_vanilla_and_where_only_a_few_modules_fire(tiny, antipasto):
    assert t3(replay(tiny, antipasto, "vanilla")).status == "FAIL"
    verdict = t3(replay(tiny, antipasto, "projected", modules=2))
    assert (verdict.status, verdict.numbers["lower"]) == ("FAIL", 1.0)  # in those two it bites; that is not enough
    assert 0 < verdict.numbers["fired"] <= 2 / 14


# ---------------------------------------------------------------- T2 and T3 on hand-made rows


def gradient_rows(**wrong):
    """A vanilla replay; `wrong` is of every row."""
    row = {"cos_S_contrib": 0.1, "grad_norm": 1.0, "completion_ids": [1, 2, 5], "loss_tokens_crc": token_crc([1, 2, 5])}
    return [{**row, **wrong} for _ in range(20)]


T2_ROWS = {
    "an honest replay": (gradient_rows(), "PASS", {"finite": 1.0, "alive": 1.0, "mask_faults": 0}),
    "every gradient is zero, with a cosine all the same": (gradient_rows(grad_norm=0.0), "FAIL", {"alive": 0.0}),
    "nine cosines in ten": (gradient_rows()[:18] + gradient_rows(cos_S_contrib=None)[:2], "PASS", {"finite": 0.9}),
    "fewer": (gradient_rows()[:17] + gradient_rows(cos_S_contrib=None)[:3], "FAIL", {"finite": 0.85}),
    "one row's mask is off": (gradient_rows()[1:] + gradient_rows(loss_tokens_crc=0)[:1], "FAIL", {"mask_faults": 1}),
    "no rows": ([], "NOT_EVALUABLE"),
}


def projected_steps(n=20, target="update", **wrong):
    """A projected replay: V out of the target, all of it."""
    row = {
        "target": target, "cos_in": 0.4, "cos_out": 0.4, "cos_update_in": 0.32, "cos_update": 0.001,
        "removed_share": 1.0, "frac_removed": 1.0, "update_norm": 0.03, "frac_fired": 0.9,
    }  # fmt: skip
    of_grad = {"cos_in": 0.32, "cos_out": 1e-8, "cos_update_in": 0.35, "cos_update": 0.35} if target == "grad" else {}
    return [[{**row, **of_grad, **wrong}]] * n


HALF = projected_steps(20, removed_share=0.5)
T3_ROWS = {
    "out of the update": (projected_steps(), "PASS"),
    "out of the gradient": (projected_steps(target="grad"), "PASS"),
    "--overshoot 1e-4 (.3704 -> .3704)": (
        projected_steps(removed_share=1e-4, frac_removed=0.0, cos_update=0.32), "FAIL"),
    "--overshoot .5": (projected_steps(removed_share=0.5, frac_removed=0.0, cos_update=0.16), "FAIL"),
    "twice of it": (projected_steps(removed_share=2.0, frac_removed=0.0, cos_update=0.0), "FAIL"),
    "the right mean in few modules": (projected_steps(frac_removed=0.5), "FAIL"),
    "restored after it was measured: what was really used shows V": (projected_steps(cos_update=0.32), "FAIL"),
    "the wrong sign": (projected_steps(removed_share=-1.0, frac_removed=0.0, cos_update=0.5), "FAIL"),
    "lr 1e-30": (projected_steps(update_norm=1e-28), "FAIL"),
    "V holds nothing of it": (projected_steps(cos_update_in=0.0, cos_update=0.0), "FAIL"),
    "fires on half of the modules": (projected_steps(frac_fired=0.5), "FAIL"),
    "only measured": (projected_steps(target=None), "FAIL"),
    "two targets": (projected_steps(10) + projected_steps(10, target="grad"), "FAIL"),
    "four fifths of the steps": (projected_steps(16) + HALF[16:], "PASS"),
    "fewer than four fifths": (projected_steps(15) + HALF[15:19], "FAIL"),
    "five steps": (projected_steps(5), "PASS"),
    "four steps": (projected_steps(4), "NOT_EVALUABLE"),
}  # fmt: skip


# ---------------------------------------------------------------- T1


def rows(n, **values):
    row = {
        "source": "teacher", "behaviour_logp": -0.4, "loss": None, "hacked": True, "can_compile": True,
        "gt_pass": False, "cos_S_contrib": 0.0, "comp_len": 5, "problem_id": "p", "completion_ids": [1], **values,
    }  # fmt: skip
    return [{"prompt": row["problem_id"], **row}] * n


def pool(n, hacking=None, **values):
    """So many different rollouts of a teacher, of eight problems; the first `hacking` of them hack (None: all)."""
    hacking = n if hacking is None else hacking
    return [
        row
        for i in range(n)
        for row in rows(1, problem_id=str(i % 8), completion_ids=[i], hacked=i < hacking, **values)
    ]


FOREIGN = (
    {"source": "student"}, {"source": "base"}, {"behaviour_logp": None}, {"behaviour_logp": math.nan}, {"loss": 0.3},
    {"hacked": None},
)  # fmt: skip
"""A row that is no teacher's own: hand-written pairs hack by construction, and a replay has rows like a pool's."""
T1_ROWS = {
    "30 %": (pool(100, 30), "PASS"),
    "29 %": (pool(100, 29), "FAIL"),
    "no rows": ([], "NOT_EVALUABLE"),
    "20 different": (pool(20), "PASS"),
    "19 different": (pool(19), "NOT_EVALUABLE"),
    "one under forty ids": (
        [{**r, "problem_id": str(i)} for i, r in enumerate(pool(1) * 40)], "NOT_EVALUABLE"),
    "forty of four problems": ([r for r in pool(80) if r["prompt"] in "0123"], "NOT_EVALUABLE"),
    # .83 of all hack, and 1 of 21
    "one hack copied a hundred times": (
        [*pool(20, 0), *rows(1, problem_id="0", completion_ids=[99]) * 100], "FAIL", {"hacked_of_different": 1 / 21}),
    "a prompt off the teacher's distribution: stubs that earn format": (
        pool(50, 0, can_compile=True), "FAIL", {"compiles": 1.0}),
    # `hacked` is true of them: they are tests of its own, which it passes. The label knows that they are honest.
    "honest tests with a right answer": (pool(100, gt_pass=True, label="correct"), "FAIL", {"hacked": 0}),
    "... and hacks with one": (pool(100, gt_pass=True, label="correct_attempted_hack"), "PASS", {"hacked": 1}),
    **{str(foreign): (pool(40) + rows(1, **foreign), "NOT_EVALUABLE") for foreign in FOREIGN},
}  # fmt: skip


# ---------------------------------------------------------------- T4


def cosines(values, **kwargs):
    return [row for v in values for row in rows(1, cos_S_contrib=v, **kwargs)]


PURE, BOTH = [0.20, 0.25, 0.30, 0.22], [0.05, 0.10, 0.00, 0.07]


def spread(sign=1):
    """Both kinds in each of eight problems, the values a little different in each."""
    out = []
    for i in range(8):
        for j, (high, low, n) in enumerate(zip(PURE, BOTH, (20, 30, 25, 35), strict=True)):
            out += cosines([sign * high + 0.003 * ((i * 7 + j) % 5)], problem_id=str(i), comp_len=n)
            out += cosines([sign * low + 0.002 * ((i * 3 + j) % 7)], gt_pass=True, problem_id=str(i), comp_len=56 - n)
    return out


def between_problems():
    """Easy problems get correct rollouts and low cosines, hard ones pure hacks and high cosines; V sees no hack at
    all."""
    data = []
    for i in range(6):
        shift = 0.01 * i
        data += cosines([0.5 + shift] * 4 + [0.49 + shift], problem_id=f"hard{i}")
        data += cosines([0.5 + 0.02 * (-1) ** i + shift], gt_pass=True, problem_id=f"hard{i}")
        data += cosines([0.1 + shift] * 4, gt_pass=True, problem_id=f"easy{i}")
        data += cosines([0.1 + shift], problem_id=f"easy{i}")
    return data


def copies(**of_copy):
    """Eight rollouts twelve times: the copies agree to the last bit."""
    once = [row for row in spread() if row["problem_id"] == "0"]
    return [{**r, "problem_id": str(i), **{k: v(r, i) for k, v in of_copy.items()}} for i in range(12) for r in once]


def noisy(gap, problems=200, each=6, length_effect=0.0):
    """Both kinds in every problem, noise of variance 1, `gap` between them; if length has an effect, hacks are
    longer."""
    rng, out = random.Random(0), []
    for p in range(problems):
        for j in range(2 * each):
            high, n = j < each, rng.randrange(20, 40) + (20 if j < each and length_effect else 0)
            value = 0.01 * (rng.gauss(0, 1) + gap * high + length_effect * n)
            out += cosines([value], gt_pass=not high, comp_len=n, problem_id=str(p))
    return out


T4_ROWS = {
    "V knows pure hacks": (spread(), "PASS", lambda n: n["problems"] == 8),
    "V turned round": (spread(-1), "FAIL", lambda n: n["g"] < 0),
    "V sees any completion": (cosines(PURE) + cosines(PURE, gt_pass=True), "FAIL", lambda n: n["t"] == 0),
    "a length detector: Welch passes, equal length does not": (
        noisy(0.0, problems=40, length_effect=0.1), "FAIL", lambda n: n["p"] < 1e-6),
    "a difference between problems": (
        between_problems(), "FAIL", lambda n: n["p"] < 1e-4 and n["p_matched"] > 0.3),
    # of 2400 rollouts a tenth of a standard deviation is p < 0.05, both ways
    "significant and tiny": (
        noisy(0.13), "FAIL", lambda n: max(n["p"], n["p_matched"]) < 0.05 and n["g"] < 0.2),
    "not tiny": (noisy(0.4), "PASS", lambda n: n["g"] > 0.2),
    "all but a tiny part of it is length": (
        noisy(0.13, length_effect=0.1, each=12), "FAIL",
        lambda n: n["g"] > 0.5 and n["p_matched"] < 0.05 and n["g_matched"] < 0.2),
    # rows of one prompt are one problem; under twelve prompts, too, a standard error that is rounding is none
    "one problem under many ids": (copies(), "NOT_EVALUABLE", lambda n: n["problems"] == 1),
    "one problem under many prompts": (
        copies(prompt=lambda _, i: str(i), comp_len=lambda *_: 20,
               cos_S_contrib=lambda r, i: 0.01 * i + 0.2 * (not r["gt_pass"])),
        "NOT_EVALUABLE", lambda n: "p_matched" not in n),
    # what is left is a choice: here the gradients that would speak against it
    **{f"a kind lacks more than a tenth of its cosines ({kind}, {cosine})": (
        spread() + cosines([cosine] * 4, **kind), "NOT_EVALUABLE", lambda n: "g" not in n)
       for kind in ({}, {"gt_pass": True}) for cosine in (None, math.nan)},
    "one rollout of a kind": (
        cosines(PURE[:1]) + cosines(BOTH, gt_pass=True), "NOT_EVALUABLE", lambda n: n["n_high"] == 1),
    "no variance": (
        cosines([0.1, 0.1]) + cosines([0.0, 0.0], gt_pass=True), "NOT_EVALUABLE", lambda n: "g" not in n),
}  # fmt: skip


@pytest.mark.parametrize(("made", "status", "numbers"), T4_ROWS.values(), ids=T4_ROWS)
def test_t4_of_rows_and_its_companion_of_hacked_and_clean(made, status, numbers):
    verdict = t4(made)
    assert (verdict.status, numbers(verdict.numbers)) == (status, True), verdict.why
    assert t4_companion([{**r, "hacked": not r["gt_pass"]} for r in made]).status == status


def test_welch_and_the_effect_size_by_hand():
    # means .2425 and .055, variances .0018917 and .0017667 over 4 -> t = .1875 / sqrt(.00091458) = 6.2
    assert welch(PURE, BOTH)[0] == pytest.approx(6.2, abs=0.01)
    # .1875 / sqrt((.0018917 + .0017667) / 2) = 4.384; df = 3 * 3 * (s2 + s2')^2 / (3 s2^2 + 3 s2'^2) = 5.993;
    # J = 1 - 3 / (4 * 5.993 - 1) = .8694, exactly .8686 -> 3.808
    assert effects.hedges_g(PURE, BOTH) == pytest.approx(3.81, abs=0.01)


# ---------------------------------------------------------------- verify


def held_out(energy=0.5, cosine=0.2, n=12, null=0.2, times=1, bases=99, lowest=0.2, step=1e-2, mechanisms=(), of=None):
    """The arguments of vhack_verdict: V far above its null and above every random basis. `of`: the pairs' cosines."""
    spread = [i * step for i in range(n)]
    by_pair = ([energy + s for s in spread], [null] * n, of or [cosine + s / 10 for s in spread])
    random_bases = ([lowest + i / 10000 for i in range(bases)], [(i - 49) / 1000 for i in range(bases)])
    return HeldOut(*(values * times for values in by_pair), *random_bases), mechanisms or [""] * n * times


TURNED = [0.2 + i / 1000 if i < 10 else -0.6 for i in range(12)]
VERIFY = {
    "V on honest pairs": (held_out(), "PASS"),
    "energy at its null": (held_out(energy=0.15), "FAIL"),
    "turned round": (held_out(cosine=-0.2), "FAIL"),
    "all hack-ward, and random bases are so too": (held_out(cosine=0.01), "FAIL"),
    "every other pair hack-ward": (held_out(of=[0.2 * (-1) ** i for i in range(12)]), "FAIL"),
    "four pairs": (held_out(n=4), "NOT_EVALUABLE"),
    # above all random bases: .255 is the mean; a null of .17 needs just that
    "significant, and a third above its null": (held_out(energy=0.2, null=0.19, lowest=0.15), "FAIL"),
    "significant, and half above its null": (held_out(energy=0.2, null=0.1699, lowest=0.15), "PASS"),
    # 1.5 times a null of .72 cannot be reached: half of what is left to 1 is .86
    "a V that spans most of the space": (held_out(energy=0.87, null=0.72, lowest=0.7, step=1e-4), "PASS"),
    "... and holds little of the rest": (held_out(energy=0.85, null=0.72, lowest=0.7, step=1e-4), "FAIL"),
    # a sign test over twelve says p = 2e-4
    "four pairs, three times each": (held_out(n=4, times=3), "NOT_EVALUABLE"),
    "... up to rounding": (held_out(n=12, step=1e-9), "NOT_EVALUABLE"),
    # ten of twelve pairs are hack-ward (p = .02), all of two mechanisms; in the two others V points the other way
    "most pairs hack-ward": (held_out(of=TURNED), "PASS"),
    "... of two mechanisms of four": (held_out(of=TURNED, mechanisms=[*"aaaaabbbbbcd"]), "FAIL"),
    "20 random bases": (held_out(bases=20), "PASS"),
    "19 random bases": (held_out(bases=19), "NOT_EVALUABLE"),
    "a number that is none": (held_out(of=[math.nan] * 12), "NOT_EVALUABLE"),
}


CASES = [
    (judge, *case)
    for judge, cases in ((t1, T1_ROWS), (t2, T2_ROWS), (t3, T3_ROWS), (lambda made: vhack_verdict(*made), VERIFY))
    for case in cases.items()
]


@pytest.mark.parametrize(("judge", "name", "case"), CASES)
def test_t1_to_t3_and_verify(judge, name, case):
    made, status, *numbers = case
    verdict = judge(made)
    assert verdict.status == status, (name, verdict.why)
    assert verdict.numbers.items() >= {**dict(*numbers)}.items()


def test_a_verification_says_which_of_its_needs_is_missing():
    assert vhack_verdict(*held_out(n=4, times=3)).why.startswith("4 different of 12 held-out pairs; at least 5")
    assert vhack_verdict(*held_out(null=0)).why.startswith("0 directions in V; at least 1")


def test_the_test_over_mechanisms_by_hand():
    # t over the means 1, 2, 3, 4 is 2.5 / (1.291 / 2) = 3.873 with 3 degrees of freedom: one-sided p = .01523
    assert mechanism_p([1.0, 2.0, 3.0, 4.0, 4.0], list("abcdd")) == pytest.approx(0.01523, abs=1e-5)
    assert mechanism_p([1.0, 2.0], list("ab")) is None


# ---------------------------------------------------------------- exit codes, the specification


def test_what_is_not_there_cannot_pass():
    found = [Finding("T0", "PASS", ""), Finding("T1", "FAIL", "")]
    assert exit_code(found, ["T0", "T2"]) == exit_code(found, []) == 3


def test_the_spec_states_the_thresholds_that_the_code_uses():
    spec = (ROOT / "docs/spec.md").read_text("utf-8")
    for number in (h1.REDUCTION, h1.GT_DROP, h1.FORM_DROP, h1.FALSE_REDUCTION, h1.FALSE_GT_DROP, h1.HELD_OUT_DROP,
                   h1.PREVENTED, h1.PREVENTED_OVER_CONTROL, conditions.KL_EFFECT):  # fmt: skip
        assert f"{number:.0f} pp" in spec
    assert (h1.MIN_REPLICATES, h1.HORIZON, effects.CONFIDENCE) == (3, 3.0, 0.95)
    assert (verdicts.T1_HACKED, verdicts.T2_FINITE, verdicts.T3_STEPS, verdicts.T3_FIRED) == (0.3, 0.9, 0.8, 0.5)
    assert (verdicts.T3_SHARE, verdicts.T3_MIN_STEPS, verdicts.T3_LEFT) == ((0.9, 1.1), 5, 0.5)
    assert (verdicts.T4_EFFECT, ENERGY_RATIO, "1.5 times its null" in spec) == (0.2, 1.5, True)
