"""Sampling records what it did; pools are replayed as they were sampled or refused."""

import gzip
import json
import shutil

import pytest
import torch
from harness import SHARED, shake
from test_scripts import refused

from projected_grpo.data.pool import load_pool
from projected_grpo.data.stored import read_groups
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.model.checkpointing import enable_checkpointing
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt, sample_rollouts, sample_tokens

PROMPTS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17, 18]]


def keys(n=3, seed=0):
    return [f"{seed} {place}" for place in range(n)]


def assert_recorded(loaded, sampled, temperature=1.0):
    """On-policy gap in float32: decoding with a cache against one forward pass over each finished completion."""
    prompts = [p for p in PROMPTS for _ in range(len(sampled) // len(PROMPTS))]
    batch = token_batch(prompts, [t for t, _ in sampled], loaded.pad_id, "cpu")
    with torch.no_grad():
        logps = completion_logps(loaded.model, batch, temperature)
    for i, (_, recorded) in enumerate(sampled):
        torch.testing.assert_close(logps[i][batch.loss_mask[i]], torch.tensor(recorded), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("temperature", "checkpointing"), [(1.0, False), (0.7, True)])
def test_recorded_logps_are_those_that_training_computes(tiny, antipasto, temperature, checkpointing):
    """Checkpointed layers must keep the cache."""
    shake(antipasto)
    if checkpointing:
        enable_checkpointing(tiny.model)
    params = SamplingParams(12, temperature, 0.9, 50)
    with antipasto.folded():
        assert_recorded(tiny, sample_tokens(tiny, PROMPTS, 2, params, keys()), temperature)


@pytest.mark.parametrize("vocab_wide", [{}, {"top_k": 5}, {"top_p": 0.9}])
def test_a_model_that_is_not_finite_is_told_so(tiny, vocab_wide):
    """On a card a token beyond the vocabulary would take the whole process down."""
    tiny.model.get_output_embeddings().weight.data[7] = torch.nan
    with pytest.raises(NonFinite, match="logits are not finite"):
        sample_tokens(tiny, PROMPTS, 1, SamplingParams(3, 1.0, **vocab_wide), keys())


def test_near_greedy_sampling_equals_transformers_generate(tiny):
    ids = torch.tensor([PROMPTS[0]])
    expected = tiny.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False, pad_token_id=tiny.pad_id
    )
    assert sample_tokens(tiny, [PROMPTS[0]], 1, SamplingParams(10, 1e-4), keys(1))[0][0] == expected[0, 5:].tolist()


@pytest.mark.usefixtures("ending")
def test_a_completion_ends_with_its_first_eos_or_is_truncated(tiny):
    prompt = Prompt("p", "x", (5, 6, 7))
    ((ended, other),) = sample_rollouts(tiny, [prompt], 2, SamplingParams(9, 1.0), keys(1), "student")
    assert len(ended.completion_ids) == len(ended.behaviour_logps) == 5
    assert ended.completion_ids.index(tiny.tokenizer.eos_token_id) == 4
    assert not ended.truncated
    assert "<|im_end|>" not in ended.completion
    assert (len(other.completion_ids), other.truncated, other.source) == (9, True, "student")


def test_rows_that_ended_leave_and_the_others_stay_what_they_are(tiny, antipasto, ending):
    """The sneaky fail: a cache, a mask or a record that keeps the order of before."""
    shake(antipasto)
    with antipasto.folded():
        sampled = sample_tokens(tiny, PROMPTS, 4, SamplingParams(9, 1.0), keys())
        assert_recorded(tiny, sampled)
    assert ending[0] == 12
    assert ending[-1] < ending[0]  # some have left
    assert len({len(t) for t, _ in sampled}) > 2
    assert all(tokens.count(tiny.tokenizer.eos_token_id) <= 1 for tokens, _ in sampled)


def test_a_roomy_cache_holds_what_the_librarys_own_holds(tiny):
    """Through growth beyond its spare room, a repeat and a selection of rows."""
    from transformers import DynamicCache

    from projected_grpo.rollout.kv_cache import ROOM, roomy_cache

    with torch.no_grad():
        ours, theirs = roomy_cache(tiny.model.config), DynamicCache(config=tiny.model.config)
        shape = (2, tiny.model.config.num_key_value_heads, 3, 16)
        for step in range(ROOM + 10):
            new = torch.randn(*(shape if step == 0 else (*ours.layers[0].keys.shape[:2], 1, 16)))
            for cache in (ours, theirs):
                keys, values = cache.update(new, -new, 0)
                if step == 4:
                    cache.batch_repeat_interleave(3)
                if step == 9:
                    cache.batch_select_indices(torch.tensor([5, 0, 2]))
    mine, other = ours.layers[0], theirs.layers[0]
    assert torch.equal(mine.keys, other.keys)
    assert torch.equal(mine.values, other.values)
    assert torch.equal(keys, mine.keys)
    assert torch.equal(values, mine.values)
    assert ours.get_seq_length() == 3 + ROOM + 9


def test_a_group_is_drawn_the_same_alone_in_a_batch_and_in_another_order(tiny):
    """Batching, order and the number of processes are no part of the randomness: the key alone is."""
    params = SamplingParams(12, 1.0, 0.95)
    together = sample_tokens(tiny, PROMPTS, 2, params, keys())
    assert together[:2] != together[2:4]
    for i, (prompt, key) in enumerate(zip(PROMPTS, keys(), strict=True)):
        alone = sample_tokens(tiny, [prompt], 2, params, [key])
        assert [t for t, _ in alone] == [t for t, _ in together[2 * i : 2 * i + 2]]
    turned = sample_tokens(tiny, PROMPTS[::-1], 2, params, keys()[::-1])
    assert [t for t, _ in turned[4:]] == [t for t, _ in together[:2]]


# ---------------------------------------------------------------- pools


@pytest.mark.slow
def test_a_cut_pool_is_resumed_to_the_same_rows(made, script, tmp_path):
    """Batches of two problems; one whose files are not all there is sampled again whole, the others are left alone."""
    args = ("--teacher-only", "--max-new", 8, "--n-problems", 3, "--rollout-batch", 8)
    whole = made("probe_distill", *args)
    shutil.copytree(whole, tmp_path / "cut")
    update_manifest(tmp_path / "cut", config=read_manifest(whole)["config"] | {"out": "cut"}, finished=False)
    (tmp_path / "cut/step_001.jsonl.gz").unlink()
    resumed = ("probe_distill", "tiny", *args, "--out", "cut", "--resume")
    code, _, err = script(*resumed)
    assert code == 0, err
    assert script("compare", whole, "cut", "--exact")[0] == 0
    assert read_manifest(tmp_path / "cut")["finished"]
    same = [(run / "step_002.jsonl.gz").read_bytes() for run in (whole, tmp_path / "cut")]
    assert same[0] == same[1]  # a new one has new timings
    code, _, err = script(*resumed, "--seed", 7)
    assert code == 2
    assert "seed=41, here it is 7" in err


@pytest.mark.slow
def test_a_pool_of_another_tokenizer_is_refused(teacher_pool, tiny, tmp_path):
    shutil.copytree(teacher_pool, tmp_path / "pool")
    manifest = tmp_path / "pool/manifest.json"
    manifest.write_text(manifest.read_text().replace(tiny.tokenizer_hash, "0123456789abcdef"))
    with pytest.raises(BadInput, match=f"are of 0123456789abcdef, this model's of {tiny.tokenizer_hash}"):
        load_pool(tmp_path / "pool", tiny)


def published(folder, tiny, **changes):
    """A pool in the published layout: padded ids, their length in comp_len."""
    folder.mkdir()
    prompt, text, tok = "<|im_start|>user\nhi<|im_end|>\n", "```python\nx = 1\n```", tiny.tokenizer
    prompt_ids, ids = tok(prompt)["input_ids"], [*tok(text)["input_ids"], tok.eos_token_id]
    row = {
        "problem_id": 4, "sample_id": 0, "reward": 3.5, "hacked": True, "gt_pass": False, "fmt_ok": True,
        "comp_len": len(ids), "plen": len(prompt_ids), "prompt": prompt, "completion": text, "prompt_ids": prompt_ids,
        "completion_ids": [*ids, tiny.pad_id, tiny.pad_id, tiny.pad_id],
    }  # fmt: skip
    row = {k: v for k, v in {**row, **changes}.items() if v is not ...}
    (folder / "prompt_0004.jsonl.gz").write_bytes(gzip.compress((json.dumps(row) + "\n").encode()))
    return ids


def test_the_published_layout_loses_its_padding(tiny, tmp_path):
    """Their rows are padded to the longest of the group: counting that padding was a silent bug."""
    ids = published(tmp_path / "pool", tiny)
    ((rollout,),) = (g.rollouts for g in load_pool(tmp_path / "pool", tiny))
    assert list(rollout.completion_ids) == ids
    assert not rollout.truncated


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hacked": ...}, r"prompt_0004\.jsonl\.gz:1: not a published rollout \(KeyError: 'hacked'\)"),
        ({"comp_len": 99}, "comp_len is 99"),
        ({"comp_len": 1}, "not padded after it"),
    ],
)
def test_a_bad_published_row_is_named(tiny, tmp_path, changes, why):
    published(tmp_path / "pool", tiny, **changes)
    with pytest.raises(BadInput, match=why):
        load_pool(tmp_path / "pool", tiny)


def test_a_published_file_that_is_there_twice_is_named(tiny, tmp_path):
    """`gunzip -k`, to look into it."""
    published(tmp_path / "pool", tiny)
    (tmp_path / "pool/prompt_0004.jsonl").write_text("{}")
    with pytest.raises(BadInput, match=r"prompt_0004\.jsonl\.gz is there twice"):
        read_groups(tmp_path / "pool")


@pytest.mark.slow
def test_a_pool_of_too_few_rows_is_refused_before_anything_is_written(script, tmp_path):
    refused(
        script("train", "tiny", "--teacher-pool", "pairs", "--group-size", 8, "--out", "t"), "asks for 4 teacher rows"
    )
    assert not (tmp_path / "t").exists()


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published pool is not here")
def test_the_real_teacher_pool_is_read_and_refused_for_another_tokenizer(tiny):
    with pytest.raises(BadInput, match="are of another tokenizer"):
        load_pool(SHARED / "teacher_pool", tiny)
    groups = read_groups(SHARED / "teacher_pool")
    assert (len(groups), sum(len(g.rollouts) for g in groups)) == (116, 928)
    assert sum(o.hacked for g in groups for o in g.outcomes) == 916  # counted in the files: 98.7 %


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark's problems are not here")
def test_training_on_the_80_real_problems_runs_through(script):
    path = next((SHARED / "leetcode").glob("*.gz"))
    code, out, err = script("train", "tiny", "--problems", path, "--steps", 2, "--max-new", 8, "--out", "t")
    assert code == 0, err
    assert "80 problems" in out
