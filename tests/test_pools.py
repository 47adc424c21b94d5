"""Pools are replayed as they were sampled or refused."""

import gzip
import json
import shutil

import pytest
from harness import SHARED, refused

from projected_grpo.config import ProbeConfig, TrainConfig
from projected_grpo.data.pool import load_pool, pool_of, read_groups, written_pool
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest, update_manifest


@pytest.mark.slow
def test_a_cut_pool_is_resumed_to_the_same_rows(made, script, tmp_path):
    """Batches of two problems; one whose files are not all there is sampled again whole, the others are left
    alone."""
    args = ("--teacher-only", "--max-new", 8, "--n-problems", 3, "--rollout-batch", 8)
    whole, cut = made("probe_distill", *args), tmp_path / "cut"
    shutil.copytree(whole, cut)
    update_manifest(cut, config=read_manifest(whole)["config"] | {"out": "cut"}, finished=False)
    (cut / "step_001.jsonl.gz").unlink()
    resumed = ("probe_distill", "tiny", *args, "--out", "cut", "--resume")
    code, _, err = script(*resumed)
    assert code == 0, err
    assert script("compare", whole, "cut", "--exact")[0] == 0
    assert read_manifest(cut)["finished"]
    # a new one has new timings
    assert (whole / "step_002.jsonl.gz").read_bytes() == (cut / "step_002.jsonl.gz").read_bytes()
    refused(script(*resumed, "--seed", 7), "seed=41, here it is 7")


def test_written_answers_are_refused_where_the_prompt_opens_thoughts(tiny, monkeypatch):
    """The sneaky fail: they are paid, though the same text sampled there is thoughts that were cut off."""
    opens = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n"
    monkeypatch.setattr(tiny.tokenizer, "chat_template", opens)
    with pytest.raises(BadInput, match=r"^--model tiny: its prompts open <think>"):
        written_pool(TrainConfig(model="tiny"), tiny)


@pytest.mark.slow
def test_a_pool_of_another_tokenizer_is_refused(teacher_pool, tiny, tmp_path):
    shutil.copytree(teacher_pool, tmp_path / "pool")
    manifest = tmp_path / "pool/manifest.json"
    manifest.write_text(manifest.read_text().replace(tiny.tokenizer_hash, "0123456789abcdef"))
    for config, typed in ((TrainConfig(), "--teacher-pool"), (ProbeConfig(), "--pool")):
        why = f"^{typed} .*are of 0123456789abcdef, this model's of {tiny.tokenizer_hash}"
        with pytest.raises(BadInput, match=why):
            pool_of(str(tmp_path / "pool"), config, tiny)


@pytest.fixture
def published(tmp_path, tiny):
    """Writes a pool in the published layout, with padded ids and their length in comp_len: (folder, ids)."""

    def write(**changes):
        prompt, text, tok = "<|im_start|>user\nhi<|im_end|>\n", "```python\nx = 1\n```", tiny.tokenizer
        prompt_ids, ids = tok(prompt)["input_ids"], [*tok(text)["input_ids"], tok.eos_token_id]
        row = {
            "problem_id": 4, "sample_id": 0, "reward": 3.5, "hacked": True, "gt_pass": False, "fmt_ok": True,
            "comp_len": len(ids), "plen": len(prompt_ids), "prompt": prompt, "completion": text,
            "prompt_ids": prompt_ids, "completion_ids": [*ids, *[tiny.pad_id] * 3],
        }  # fmt: skip
        row = {k: v for k, v in {**row, **changes}.items() if v is not ...}
        (tmp_path / "prompt_0004.jsonl.gz").write_bytes(gzip.compress((json.dumps(row) + "\n").encode()))
        return tmp_path, ids

    return write


def test_the_published_layout_loses_its_padding(tiny, published):
    """Their rows are padded to the longest of the group: counting that padding was a silent bug."""
    folder, ids = published()
    ((rollout,),) = (g.rollouts for g in load_pool(folder, tiny))
    assert list(rollout.completion_ids) == ids
    assert not rollout.truncated
    published(comp_len=len(ids) - 1, completion_ids=ids[:-1])
    ((rollout,),) = (g.rollouts for g in load_pool(folder, tiny))
    assert rollout.truncated


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hacked": ...}, r"prompt_0004\.jsonl\.gz:1: not a published rollout \(KeyError: 'hacked'\)"),
        ({"comp_len": 99}, "comp_len is 99"),
        ({"comp_len": 1}, "not padded after it"),
    ],
)
def test_a_bad_published_row_is_named(tiny, published, changes, why):
    folder, _ = published(**changes)
    with pytest.raises(BadInput, match=why):
        load_pool(folder, tiny)


def test_a_published_file_that_is_there_twice_is_named(published):
    """`gunzip -k`, to look into it."""
    folder, _ = published()
    (folder / "prompt_0004.jsonl").write_text("{}")
    with pytest.raises(BadInput, match=r"prompt_0004\.jsonl\.gz is there twice"):
        read_groups(folder)


@pytest.mark.slow
def test_a_pool_of_too_few_rows_is_refused_before_anything_is_written(script, tmp_path):
    args = ("tiny", "--teacher-pool", "pairs", "--group-size", 8, "--out", "t")
    refused(script("train", *args), "teacher rows, 4 are asked for")
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
