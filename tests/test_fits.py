"""What is predicted on fake tensors is what a real run holds, counted the same way; and what a card makes of it."""

import dataclasses
import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

from projected_grpo import step as step_module
from projected_grpo.config import ExtractConfig, TrainConfig
from projected_grpo.fits import stages
from projected_grpo.fits.cards import CARDS, GIB, cards_of
from projected_grpo.fits.counter import LiveStorage, seconds_at_least
from projected_grpo.fits.estimate import Stage, room_on
from projected_grpo.fits.fake import Answers, fake_adapter, fake_basis, fake_loaded, mode_of, no_memory
from projected_grpo.fits.graph import ReadsOnHost, decoding_step
from projected_grpo.fits.lengths import lengths_of
from projected_grpo.fits.measured import SLACK, Measured, told
from projected_grpo.fits.settings import fits_presets
from projected_grpo.fits.stages import Subject, extraction, fuller, sampling, stands_for, training
from projected_grpo.fits.told import verdict
from projected_grpo.groups.pairs import load_pairs, split
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets
from projected_grpo.projection import Projection
from projected_grpo.rollout import kv_cache
from projected_grpo.rollout.decoding import FixedDecoder
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import sample_tokens
from projected_grpo.run.shapes import WRITTEN, shape_of

CONFIG = TrainConfig(max_new=40, prompts_per_step=2, group_size=4, temperature=1.0, top_p=1.0, token_budget=300)
PROMPT, RANK = 60, 4
PAIRS = [(50, 30, 20)] * 6


def fakes(config, kind):
    loaded = fake_loaded(config, "float32")
    return Subject(loaded, fake_adapter(loaded.model, kind, RANK), card=False)


@pytest.fixture
def both(adapter, tiny):
    """A real model off its start and a fake one of its shape."""
    with torch.no_grad():
        for theta in adapter.vectors.values():
            theta.normal_(std=0.01)
    return Subject(tiny, adapter, card=False), fakes(tiny.model.config, adapter.kind)


def counted(real, work):
    """(counter, what `work` gives) of a real subject."""
    counter = LiveStorage(real.held())
    return counter, work(counter, real)


def predicted(fake, work, found="none"):
    """The same of a fake one."""
    counter = Answers(mode_of(fake.loaded.model), fake.held(), found)
    with no_memory():
        return counter, work(counter, fake)


def work_of(done):
    """FLOPs."""
    return sum(flops * times for (flops, _, _), times in done.products.items())


def real_basis(_, adapter, k):
    return {n: torch.linalg.qr(torch.randn(p.numel(), k)).Q.T.contiguous() for n, p in adapter.vectors.items()}


def one_step(per_sample):
    def work(counter, subject):
        fake = subject.loaded.tokenizer is None
        basis = (fake_basis if fake else real_basis)(subject.loaded.model, subject.adapter, 3)
        return training(counter, subject, CONFIG, PROMPT, Projection(basis, "update"), per_sample=per_sample)

    return work


def pair_gradients(counter, subject):
    return extraction(counter, subject, PAIRS, "nll", 40, 300)


def test_a_row_that_is_alone_in_its_pass_has_a_backward_pass(tiny):
    """Its group is flat then, and a run would leave that pass out; what is asked for is the most that a step may need."""
    work = []
    for budget in (PROMPT + 40, 2000):
        config = dataclasses.replace(CONFIG, beta=0.0, token_budget=budget)
        subject = fakes(tiny.model.config, "antipasto")
        _, done = predicted(
            subject,
            lambda c, s: training(c, s, config, PROMPT, Projection(None), per_sample=True),  # noqa: B023
        )
        work.append(work_of(done))
    assert work[0] == pytest.approx(work[1], rel=0.2)  # a forward pass alone is a third


@pytest.mark.parametrize(
    "work",
    [one_step(True), one_step(False), pair_gradients],
    ids=["step, per sample", "step, prompts shared", "extraction"],
)
def test_the_peak_is_that_of_a_real_run(both, work):
    real, fake = both
    (measured, told), (expected, foretold) = counted(real, work), predicted(fake, work)
    assert expected.peak == pytest.approx(measured.peak, rel=0.1)
    assert expected.peak > 2 * sum(t.nbytes for t in real.held())  # not the weights alone
    # A LoRA off its start needs no warm point, and the fake one is told that it does: some products more.
    assert work_of(foretold) == pytest.approx(work_of(told), rel=0.01)


@pytest.mark.parametrize("per_sample", [True, False])
def test_rows_a_little_shorter_may_fill_more(both, per_sample, monkeypatch):
    """Of rows of .6 of the budget a micro-batch takes one, of rows of half of it two: a real run meets those too."""
    real, fake = both
    config = dataclasses.replace(CONFIG, token_budget=150, prompts_per_step=8, group_size=1)

    def work(prompt):
        def run(counter, subject):
            made = fake_basis if subject.loaded.tokenizer is None else real_basis
            projection = Projection(made(subject.loaded.model, subject.adapter, 3), "update")
            return training(counter, subject, config, prompt, projection, per_sample=per_sample)

        return run

    expected, foretold = predicted(fake, work(PROMPT))
    assert fuller(config, PROMPT, 1, shared=not per_sample) == (35, 40)
    assert fuller(config, 35, 2, shared=not per_sample) is None
    monkeypatch.setattr(stages, "fuller", lambda *_, **__: None)
    (long, told), (short, _) = counted(real, work(PROMPT)), counted(real, work(35))
    assert expected.peak == pytest.approx(short.peak, rel=0.1)
    held = sum(t.nbytes for t in real.held())
    assert short.peak - held > 1.2 * (long.peak - held)
    assert work_of(foretold) == pytest.approx(work_of(told), rel=0.01)  # the time stays that of the longest rows


def test_pairs_that_fill_a_micro_batch_better_than_the_longest_are_taken(both):
    """One pair of 200 tokens, and four of 145 of which two fit into 300: the peak is theirs."""
    real, fake = both
    long, short = (120, 50, 30), (65, 50, 30)

    def of(pairs):
        return lambda counter, subject: extraction(counter, subject, pairs, "nll", 40, 300)

    expected, _ = predicted(fake, of([long, *[short] * 4]))
    peaks = [counted(real, of([one] * 5))[0].peak for one in (long, short)]
    assert expected.peak == pytest.approx(max(peaks), rel=0.1)
    held = sum(t.nbytes for t in real.held())
    assert peaks[1] - held > 1.2 * (peaks[0] - held)
    of_one, of_two = (work_of(predicted(fake, of([short] * n))[1]) for n in (1, 2))
    assert of_two == pytest.approx(2 * of_one, rel=0.05)  # they are not one pair twice, which is run once


@pytest.mark.parametrize(
    ("prompt", "budget", "n", "shared", "found"),
    [
        (60, 300, 3, False, None),  # three rows of 100: full
        (60, 300, 4, True, (50, 40)),  # a prompt and 4 x 40; a fifth row begins a second prompt: 2 x 50 + 5 x 40 = 300
        (500, 300, 1, False, None),  # one row beyond the budget fills more than any two within it
        (60, 10_000, 8, False, None),  # all rows are in it
        (10, 90, 1, False, (5, 40)),  # 50 tokens; two of 45
    ],
)
def test_a_fuller_micro_batch_by_hand(prompt, budget, n, shared, found):
    assert fuller(dataclasses.replace(CONFIG, token_budget=budget), prompt, n, shared=shared) == found


def test_sampling_in_a_few_steps_is_sampling_token_by_token(tiny, antipasto, monkeypatch):
    """Peak and FLOPs; the real run is the loop itself, over every token."""
    monkeypatch.setattr(kv_cache, "ROOM", 16)  # several growths in a few tokens
    real = Subject(dataclasses.replace(tiny, eos_ids=frozenset({-1})), antipasto, card=False)
    fake = fakes(tiny.model.config, "antipasto")
    params, prompts = SamplingParams(70, 1.0), [(3,) * PROMPT, (4,) * PROMPT]

    def whole(counter, subject):
        with counter, subject.adapter.folded():
            sample_tokens(subject.loaded, prompts, 4, params, ["a", "b"])

    measured, _ = counted(real, whole)
    expected, done = predicted(fake, lambda counter, subject: sampling(counter, subject, prompts, 4, params), "all")
    assert expected.peak == pytest.approx(measured.peak, rel=0.1)
    assert work_of(done) == pytest.approx(measured.flops, rel=0.01)
    assert expected.operators < measured.operators / 3


def test_a_run_that_holds_more_than_its_code_says_is_seen(tiny, antipasto, monkeypatch):
    """The sneaky fail: the real step keeps whole logits, the prediction was made of the code without them."""
    real, fake = Subject(tiny, antipasto, card=False), fakes(tiny.model.config, "antipasto")
    expected, _ = predicted(fake, one_step(False))
    plain, kept = step_module.logps_of, []

    def greedy(model, batch, temperature):
        kept.append(torch.zeros(8, 100, model.config.vocab_size))
        return plain(model, batch, temperature)

    monkeypatch.setattr(step_module, "logps_of", greedy)
    measured, _ = counted(real, one_step(False))
    assert expected.peak != pytest.approx(measured.peak, rel=0.1)


def test_a_few_steps_stand_for_all():
    """Steps 0 to 9, of which 0, 1, 4 and 9 are taken: an even growth and a level until the next are summed exactly."""
    at, grows = [0, 1, 4, 9], [10.0 + 3 * t for t in range(10)]
    assert sum(n * grows[t] for n, t in zip(stands_for(at, evenly=True), at, strict=True)) == sum(grows)
    assert stands_for(at, evenly=False) == [1, 3, 5, 1]
    assert stands_for([], evenly=True) == []


def test_live_storages_by_hand():
    held = torch.zeros(128)  # one block of 512 bytes
    with LiveStorage([held]) as counter:
        a = torch.zeros(1024)
        view = a[:3]
        assert counter.live == 512 + 4096
        del a
        assert counter.live == 512 + 4096  # the view holds it
        del view
        b = torch.zeros(1)  # a block, too
        assert (counter.live, counter.peak) == (1024, 512 + 4096)
        b @ b
    assert sum(counter.products.values()) <= 1


def test_the_time_bound_by_hand():
    """One product of [2, 3] [3, 4]: 48 FLOPs, 6 + 12 + 8 numbers of 4 bytes."""
    with LiveStorage() as counter:
        torch.zeros(2, 3) @ torch.zeros(3, 4)
    assert dict(counter.products) == {(48, 104, torch.float32): 1}
    for bandwidth, rate, seconds in ((104.0, 1e9, 1.0), (1e9, 24.0, 2.0)):
        assert seconds_at_least({(48, 104, torch.float32): 1.0}, bandwidth, {torch.float32: rate}) == seconds


# ---------------------------------------------------------------- measured


def in_a_process(*argv):
    """Resident memory is a process's: one of its own, whose malloc nothing else has used."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("adapter", ["antipasto", "lora"])
def test_resident_memory_is_within_a_tenth_of_what_was_predicted(adapter):
    """No counter of ours has a say in it. Toy's shapes; every stage of a run."""
    options = ("--adapter", adapter, "--max-new", "129", "--token-budget", "4096", "--measure", "--device", "cpu")
    done = in_a_process(ROOT / "scripts/fits.py", "toy", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 stages within 10% of what was predicted" in done.stdout + done.stderr


RISES = """
import torch
from projected_grpo.fits.measured import Memory
memory = Memory(torch.device("cpu"))
before = memory.start()
held = torch.ones(2**22)  # 16 MiB
del held
print(memory.peak() - before)
before = memory.start()
print(memory.peak() - before)
"""


def test_what_is_held_for_a_moment_is_seen_and_not_seen_again():
    first, second = map(int, in_a_process("-c", RISES).stdout.split())
    assert abs(first - 2**24) < SLACK["cpu"]
    assert second < SLACK["cpu"]


def test_a_stage_that_takes_more_or_less_than_was_predicted_is_told():
    stage = Stage("sampling", "", 2**25, 2**24, {})
    assert Measured(stage, 2**24 * 21 // 20, 1).close
    assert not Measured(stage, 2**24 * 5 // 4, 1).close
    assert not Measured(stage, 2**24 * 3 // 4, 1).close
    near = Measured(stage, 2**24 * 5 // 4, 2**22)
    assert near.close
    assert "< 4 MiB apart" in told([near])


# ---------------------------------------------------------------- a graph


def test_the_decoding_step_reads_nothing_on_the_host(tiny):
    assert decoding_step(fakes(tiny.model.config, "antipasto").loaded, [(1, 2, 3), (4,)], 2) > 50


READS = {
    "item": ("token", lambda t: t.sum().item()),
    "bool": ("seen", lambda t: bool(t.any())),
    "nonzero": ("seen", lambda t: t.nonzero()),
    "tolist": ("place", lambda t: t.tolist()),
}


@pytest.mark.parametrize(("what", "read"), READS.values(), ids=READS)
def test_a_read_on_the_host_is_found(tiny, monkeypatch, what, read):
    plain, turn = FixedDecoder.forward, []

    def reading(decoder):
        turn.append(1)
        if len(turn) > 1:  # the first step makes room, and no graph records it
            read(getattr(decoder, what)[:, 0])
        return plain(decoder)

    monkeypatch.setattr(FixedDecoder, "forward", reading)
    with pytest.raises(ReadsOnHost, match="aten"):
        decoding_step(fakes(tiny.model.config, "antipasto").loaded, [(1, 2, 3)], 2)


# ---------------------------------------------------------------- shapes and cards


def test_the_shapes_are_the_published_ones():
    """Parameters: huggingface.co/Qwen/Qwen3-4B (4.02 B), HuggingFaceTB/SmolLM2-135M-Instruct (134,515,008)."""
    for name, numbers, modules in (("Qwen/Qwen3-4B", 4_022_468_096, 252), ("small", 134_515_008, 210)):
        loaded = fake_loaded(WRITTEN[name], "bfloat16")
        assert sum(p.numel() for p in loaded.model.parameters()) == numbers
        assert len(fake_adapter(loaded.model, "antipasto", 0).sizes) == modules


def test_the_shape_of_a_built_model_is_that_of_its_weights(loaded_once):
    own, theirs = shape_of("tiny")[0].to_dict(), loaded_once.model.config.to_dict()
    shapes = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "head_dim",
        "max_position_embeddings",
    )
    assert {k: own[k] for k in shapes} == {k: theirs[k] for k in shapes}


def test_an_unknown_model_is_refused():
    with pytest.raises(BadInput, match=r"--model nobody/knows: no folder.*Qwen/Qwen3-4B"):
        shape_of("nobody/knows")


def test_a_stage_that_does_not_fit_says_what_would():
    (card,) = (c for c in CARDS if c.name == "RTX 4090")
    room = room_on(card)
    assert room == 0.95 * 22.5 * GIB
    stage = Stage("sampling", "", 41 * GIB, 1 * GIB, {}, "--rollout-batch", 80)
    assert stage.smaller(21.0 * GIB) == 40
    line = verdict(card, [stage])
    assert not line.fits
    assert f"sampling needs 41.0 (try --rollout-batch {int(2 * (room / GIB - 1))})" in line.told
    assert verdict(card, [dataclasses.replace(stage, peak=20 * GIB)]).fits


def test_the_cards_of_a_size():
    assert [c.name for c in cards_of(80)] == ["A100 80 GB", "H100 SXM"]
    assert cards_of(0) == CARDS
    with pytest.raises(BadInput, match=r"--gpu 23: no card of that size.*24, 40, 80, 141"):
        cards_of(23)


def test_the_script_says_it_in_its_last_lines(script):
    code, out, err = script(
        "fits", "tiny", "--gpu", "24", "--eval-every", "2", "--prompt-tokens", "50", "--token-budget", "400"
    )
    assert code == 0, err
    assert all(f"\n{stage}" in out for stage in ("extraction ", "sampling ", "training step", "evaluation "))
    assert "every stage once on fake tensors" in out.splitlines()[0]  # before the wait
    assert "fits RTX 3090, RTX 4090" in out + err


def test_a_bar_counts_the_stages(script, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "projected_grpo.fits.estimate.progress", lambda items, what: seen.append((what, len(items))) or items
    )
    assert script("fits", "tiny", "--gpu", "24", "--prompt-tokens", "50", "--token-budget", "400")[0] == 0
    assert seen == [("stages", 3)]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        (("--device", "gpu"), "--device gpu: auto, cpu, cuda or cuda:N"),
        (("--prompt-tokens", "100000"), "--prompt-tokens 100000: with --max-new 32 beyond the model's context of 4096"),
    ],
)
def test_what_no_run_could_have_is_bad_input(script, option, why):
    code, out, err = script("fits", "tiny", *option)
    assert code == 2
    assert why in err
    assert "largest batch" not in out


def test_the_extraction_is_of_the_presets_mechanisms():
    """As `just extract-vhack tiny` takes them, not of all the pairs."""
    for name, config in fits_presets().items():
        _, tokenizer = shape_of(config.model)
        if tokenizer is not None:
            own = presets(ExtractConfig)[name]
            pairs, _ = split(load_pairs(own.pairs, own.modes))
            config = dataclasses.replace(config, eval_every=0, prompt_tokens=50)
            assert len(lengths_of(config, tokenizer, tokenizer, 4096, 50).pairs) == len(pairs), name


def test_less_than_a_group_is_not_advised():
    """Advice that is followed has to help: a batch holds one group at least."""
    (card,) = (c for c in CARDS if c.name == "RTX 4090")
    stage = Stage("sampling", "", 41 * GIB, 1 * GIB, {}, "--rollout-batch", 80, least=64)
    assert stage.smaller(room_on(card)) == 0
    assert "sampling needs 41.0 (not at any batch)" in verdict(card, [stage]).told


def test_a_size_that_nobody_sells_is_bad_input(script):
    code, out, err = script("fits", "tiny", "--gpu", "23")
    assert (code, out) == (2, "")
    assert "--gpu 23: no card of that size" in err
