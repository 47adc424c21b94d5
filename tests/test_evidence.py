"""A run is evidence if its directory is the whole of what it wrote: whatever is taken out, edited or added is named."""

import gzip
import hashlib
import json
import shutil

import pytest
from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger import evidence
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import open_run, read_manifest, update_manifest
from projected_grpo.ledger.step_file import COLUMNS, read_step, step_path, write_step

BLANK = {"int": 1, "float": 0.5, "bool": True, "str": "x", "ints": [1], "floats": [0.5], "dict": {"total": 2.0}}


def row(step, sample, arm="vanilla", source="student"):
    """A hacked row with tokens of its own."""
    own = {"step": step, "arm": arm, "source": source, "problem_id": f"p{sample % 2}", "completion_ids": [step, sample]}
    return {**{c.name: BLANK[c.type] for c in COLUMNS}, "channels": None, **own}


def written(path, arm="vanilla", kind="train", source="student", beside=()):
    """Two steps of 2 prompts x 2 completions, an evaluation before them and one after; `beside`: names of other files."""
    config = {**vars(TrainConfig()), "arm": arm, "steps": 2, "prompts_per_step": 2, "group_size": 2}
    open_run(path, kind, config)
    logger.remove()  # the run's log file
    for step in range(2):
        write_step(path, step, [row(step, i, arm, source) for i in range(4)])
    for done in (0, 2):
        write_step(path / "eval", done, [row(done, 9, arm)])
    for name in beside:
        (path / name).write_bytes(name.encode())
    evidence.seal(path)
    return path


def why(path):
    return evidence.check(path, read_manifest(path))


def rewritten(path, change):
    """A gzipped file, its rows changed and zipped again."""
    rows = read_step(path)
    path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in change(rows)).encode()))


def test_a_finished_run_is_evidence_and_its_fingerprint_is_as_documented(tmp_path):
    run = written(tmp_path / "a")
    assert why(run) == ""
    found = read_manifest(run)["evidence"]
    assert (found["steps"], found["rows"]) == (2, 8)
    whole = b""
    for name, path in (
        ("/step_000.jsonl.gz", step_path(run, 0)), ("/step_001.jsonl.gz", step_path(run, 1)),
        ("eval/step_000.jsonl.gz", step_path(run / "eval", 0)), ("eval/step_002.jsonl.gz", step_path(run / "eval", 2)),
    ):  # fmt: skip
        whole += name.encode() + b"\n" + gzip.decompress(path.read_bytes())
    assert found["sha256"] == hashlib.sha256(whole).hexdigest()
    rollouts = "".join(f'["p{i % 2}", [{step}, {i}]]\n' for step in range(2) for i in range(4))
    assert found["rollouts_sha256"] == hashlib.sha256(rollouts.encode()).hexdigest()


def test_zipping_the_same_bytes_again_changes_nothing(tmp_path):
    run = written(tmp_path / "a")
    content = gzip.decompress(step_path(run, 1).read_bytes())
    step_path(run, 1).write_bytes(gzip.compress(content, 1))
    assert why(run) == ""


INJECTED = {
    "a hacked row deleted": (lambda run: rewritten(step_path(run, 1), lambda rows: rows[1:]), "holds 3 rows"),
    "a row written twice": (lambda run: rewritten(step_path(run, 1), lambda rows: [*rows, rows[0]]), "holds 5 rows"),
    "a reward edited": (
        lambda run: rewritten(step_path(run, 0), lambda rows: [{**rows[0], "reward": 3.5}, *rows[1:]]),
        "its sha256 is",
    ),
    "a label edited": (
        lambda run: rewritten(step_path(run, 0), lambda rows: [{**rows[0], "hacked": False}, *rows[1:]]),
        "its sha256 is",
    ),
    "the last step dropped": (lambda run: step_path(run, 1).unlink(), "1 step files, but its manifest says 2"),
    "the first step dropped": (lambda run: step_path(run, 0).unlink(), "step 0 is missing"),
    "two steps exchanged": (
        lambda run: (
            step_path(run, 0).rename(run / "x"), step_path(run, 1).rename(step_path(run, 0)),
            (run / "x").rename(step_path(run, 1)),
        ),
        "its sha256 is",
    ),
    "an evaluation dropped": (lambda run: step_path(run / "eval", 2).unlink(), "its sha256 is"),
    "an evaluation renamed": (
        lambda run: step_path(run / "eval", 0).rename(step_path(run / "eval", 1)), "its sha256 is",
    ),
    "an evaluation edited": (
        lambda run: rewritten(step_path(run / "eval", 2), lambda rows: [{**rows[0], "gt_pass": False}]),
        "its sha256 is",
    ),
    "a torn file": (lambda run: step_path(run, 1).write_bytes(b"no gzip"), "step_001.jsonl.gz: damaged"),
    "every step dropped": (lambda run: [step_path(run, s).unlink() for s in range(2)], "no step files"),
    "not finished": (lambda run: update_manifest(run, finished=False), "not finished"),
    "no fingerprint": (lambda run: update_manifest(run, evidence=None), "no `evidence`"),
    "fewer steps done than files": (lambda run: update_manifest(run, steps_done=1), "2 step files"),
}  # fmt: skip


BESIDE = {"rounds_sha256": evidence.ROUNDS, "deployed_sha256": evidence.DEPLOYED}
HARMED = {
    "edited": (list(BESIDE.values()), lambda path: path.write_bytes(path.read_bytes() + b"\n")),
    "dropped": (list(BESIDE.values()), lambda path: path.unlink()),
    "added": ([], lambda path: path.write_bytes(b"{}\n")),
}


@pytest.mark.parametrize("key", BESIDE)
@pytest.mark.parametrize("how", HARMED)
def test_what_lies_beside_the_rows_is_what_the_run_ended_with(tmp_path, key, how):
    """A replica's rounds, and what an arm deploys."""
    beside, harm = HARMED[how]
    run = written(tmp_path / "a", beside=beside)
    assert why(run) == ""
    sealed = hashlib.sha256(BESIDE[key].encode()).hexdigest() if beside else None
    assert read_manifest(run)["evidence"][key] == sealed
    harm(run / BESIDE[key])
    assert f"its {key} is" in why(run)


def test_a_run_whose_version_had_no_fingerprint_of_them_is_evidence(tmp_path):
    """Of what its config says that it writes: a replica its rounds, an arm with a page what it deploys."""
    run = written(tmp_path / "a", arm="quarantine", beside=BESIDE.values())
    config = {**read_manifest(run)["config"], "meet": "torchft://host:1"}

    def of_that_version(**config):
        update_manifest(run, config=config)
        now = {"manifest_sha256": evidence.manifest_sha256(read_manifest(run))}
        found = {name: value for name, value in read_manifest(run)["evidence"].items() if name not in BESIDE}
        update_manifest(run, evidence=found | now)
        return why(run)

    assert of_that_version(**config) == ""
    assert "rounds.jsonl was put there afterwards" in of_that_version(**config | {"meet": ""})
    assert "deployed.safetensors was put there afterwards" in of_that_version(**config | {"arm": "vanilla"})


@pytest.mark.parametrize("key", ["steps", "rows", "sha256", "rollouts_sha256", "manifest_sha256"])
def test_a_fingerprint_that_lacks_a_part_is_none(tmp_path, key):
    """The sneaky fail: labels edited, and the hash that would say so taken out."""
    run = written(tmp_path / "a")
    found = read_manifest(run)["evidence"]
    found.pop(key)
    rewritten(step_path(run, 0), lambda rows: [{**rows[0], "hacked": False}, *rows[1:]])
    update_manifest(run, evidence=found)
    assert f"lacks {key}" in why(run)


def test_a_manifest_that_was_edited_is_not_that_of_the_run(tmp_path):
    """Trained with another weight decay than it now says, and then the checksum taken out too."""
    run = written(tmp_path / "a")
    update_manifest(run, config={**read_manifest(run)["config"], "weight_decay": 0.3})
    assert "its manifest was edited" in why(run)
    found = read_manifest(run)["evidence"]
    found.pop("manifest_sha256")
    update_manifest(run, evidence=found)
    assert "lacks manifest_sha256" in why(run)


@pytest.mark.parametrize("what", INJECTED)
def test_it_is_red_on(tmp_path, what):
    inject, told = INJECTED[what]
    run = written(tmp_path / "a")
    inject(run)
    assert told in why(run)


def test_a_run_may_stop_before_its_cap_and_says_where(tmp_path):
    run = written(tmp_path / "a")
    manifest = read_manifest(run)
    manifest["config"]["steps"] = 900
    assert "2 step files, but its manifest says 900" in evidence.check(run, manifest)
    manifest["steps_done"] = 2
    manifest["evidence"]["manifest_sha256"] = evidence.manifest_sha256(manifest)
    assert evidence.check(run, manifest) == ""


def test_the_same_rollouts_under_another_name_are_known_again(tmp_path):
    """The arm is no rollout; a teacher's rows are not the student's."""
    one, other = (evidence.fingerprint(written(tmp_path / arm, arm)) for arm in ("vanilla", "projected"))
    assert one["sha256"] != other["sha256"]
    assert one["rollouts_sha256"] == other["rollouts_sha256"]
    pool = evidence.fingerprint(written(tmp_path / "pool", "teacher", "teacher_pool", "teacher"))
    assert pool["rollouts_sha256"] is None


@pytest.mark.parametrize("kind", ["teacher_pool", "probe_distill"])
def test_pools_and_replays_are_held_to_their_fingerprint(tmp_path, kind):
    run = written(tmp_path / "a", kind=kind)
    if kind == "teacher_pool":  # 4 rows a step, but groups of 2
        assert "holds 4 rows, but its config says 2" in why(run)
        update_manifest(run, config={**read_manifest(run)["config"], "group_size": 4}, finished=False)
        evidence.seal(run)
    assert why(run) == ""
    shutil.copy(step_path(run, 1), step_path(run, 2))
    assert "3 step files, but its manifest says 2" in why(run)


def test_what_is_sealed_stays_sealed(tmp_path):
    """A second --resume of a finished run does not make edited rows right."""
    run = written(tmp_path / "a")
    rewritten(step_path(run, 0), lambda rows: [{**rows[0], "reward": 0.0}, *rows[1:]])
    evidence.seal(run)
    assert "its sha256 is" in why(run)


def test_a_gap_has_no_fingerprint(tmp_path):
    run = written(tmp_path / "a")
    step_path(run, 0).unlink()
    with pytest.raises(BadInput, match="step 0 is missing"):
        evidence.fingerprint(run)
