"""The A/B of channels: its verdicts by hand, its sneaky fails, where its pairs come from, and its chain."""

import dataclasses
import math
from pathlib import Path

import pytest
from harness import ROOT, flags, names_in

from projected_grpo.data.preferences import MAJORITY, read_preferences
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import write_step
from projected_grpo.queue.chains import chain_of
from projected_grpo.queue.settings import QueueConfig
from projected_grpo.records import Group, Outcome, Rollout
from projected_grpo.report.channels import against_v, output
from projected_grpo.traces.votes import pairs_of_pools
from projected_grpo.verdicts.channels import judged
from projected_grpo.verdicts.finished_runs import Found, Run

STEPS = 12
TESTED = frozenset((f"p{i}", j) for i in range(50) for j in range(2))


def run(seed, gt, *, on=True, arm="vanilla", hack=0.25, steps=STEPS, energy=0.1, share=0.4, **facts):
    """A finished run, with trace DPO or alone."""
    channels = {"trace_dpo": share, "policy": 1 - share} if on else {}
    series = {name: [0.25] * steps for name in ("hack", "gt", "form", "hacked", "seconds", "known", "own")}
    series |= {"cos_null": [0.4] * steps, "removed_share": [1.0 if arm == "projected" else None] * steps}
    for channel, own in channels.items():
        numbers = {"loss": 0.6, "cos": 0.2, "cos_signed": 0.1, "energy": energy, "removed": 0.0, "share": own}
        series |= {f"{channel}.{name}": [value] * steps for name, value in numbers.items()}
    rates = {"gt": gt, "hack": hack, "form": 1.0, "hacked": hack}
    own = {"config.arm": arm, "config.seed": seed, "config.lr": 0.1, "model_hash": "b", "steps done": steps,
           "config.trace_weight": 0.1 if on else 0.0, **({"pairs_sha256": "c"} if on else {}),
           "vhack.v_sha256": f"V {seed}", "vhack.pairs_draw": str(seed), "vhack.control": "none", **facts}  # fmt: skip
    untrained = {"gt": 0.4, "hack": 0.02, "form": 1.0, "hacked": 0.02}
    return Run(Path(f"/r/{arm}_{seed}_{on}"), arm, seed, own, 8, series, {0: untrained, steps: rates}, None,
               tested={0: TESTED, steps: TESTED}, beside={"eval_plain": {steps: rates}})  # fmt: skip


def replicates(gains=(5.0, 6.0, 7.0), *, of_first=None, **with_it):
    """Runs without the channel, then as many with it: pass@1 goes from .5 up by these points. `of_first`: of the
    first of those with it; the rest: of each of them."""
    first = {**with_it, **(of_first or {})}
    runs = [run(seed, 0.5, on=False) for seed in range(len(gains))]
    return runs + [run(s, 0.5 + g / 100, **(first if s == 0 else with_it)) for s, g in enumerate(gains)]


@pytest.mark.parametrize(
    ("gains", "status"),
    [
        ((3.0, 3.5, 4.0), "VALIDATED"),
        ((1.0, 1.1, 1.2), "PARTIAL"),  # surely above 0, and below 2
        ((12.0, 0.0, -1.0), "PARTIAL"),  # mean 3.7: one lucky replicate, an interval that holds 0
        ((0.5, -0.5, 0.6), "INVALIDATED"),
        ((-3.0, -3.1, -3.2), "INVALIDATED"),
        ((5.0, 5.0), "NOT_EVALUABLE"),
    ],
)
def test_the_thresholds(gains, status):
    assert judged(replicates(gains))[0].status == status


def test_the_gain_by_hand():
    """3, 4, 5 pp: mean 4, half width 4.303 x 1 / sqrt 3 = 2.48."""
    [found] = judged(replicates((3.0, 4.0, 5.0)))
    assert found.why == "pass@1 +4.0 pp (needs 2), 95 % +1.5 to +6.5 (needs above 0), n = 3"
    assert found.hack == {0: 0.0, 1: 0.0, 2: 0.0}


def last(**changed):
    """Replicates whose last run with the channel has other fields."""
    *runs, one = replicates()
    return [*runs, dataclasses.replace(one, **changed)]


def projected(**facts):
    return [
        run(s, gt, on=on, arm="projected", **facts)
        for s in range(3)
        for on, gt in ((False, 0.5), (True, 0.54 + s / 100))
    ]


ONE_ROLLOUT, OTHERS = frozenset([("p0", 0)]), frozenset((f"q{i}", 0) for i in range(100))
NO_EVIDENCE = {
    "steps done: 13 against 12": replicates(of_first={"steps": 13}),
    "config.lr: 0.2 against 0.1": replicates(of_first={"config.lr": 0.2}),
    "trace_dpo was off at some step, or .1 % of the gradient at 0 of 12": replicates(of_first={"share": 0.0}),
    "replicate 0: trace_dpo was off": replicates(of_first={"share": 1e-9}),
    ".1 % of the gradient at 0 of 12": replicates(of_first={"share": math.nan}),
    "share projected's V: v_sha256 one": projected(**{"vhack.v_sha256": "one", "vhack.pairs_draw": "1"}),
    "written when the hack had been seen": projected(**{"vhack.pairs": "small-informed"}),
    "replicate 2: the evaluation after 12 steps: unknown truth": last(flaws={STEPS: "unknown truth"}),
    "on 1 different rollouts": last(tested={0: ONE_ROLLOUT, STEPS: ONE_ROLLOUT}),
    "on other rollouts": last(tested={0: OTHERS, STEPS: OTHERS}),
    "replicate 2: not evaluated both before": last(evals={STEPS: {"gt": 0.57, "hack": 0.0}}),
    # the whole gain was there before the channel had taught anything
    "replicate 2: with and without differ before": last(evals={0: {"gt": 0.57}, STEPS: {"gt": 0.57, "hack": 0.0}}),
}


@pytest.mark.parametrize(("why", "runs"), NO_EVIDENCE.items(), ids=NO_EVIDENCE)
def test_runs_that_are_no_evidence(why, runs):
    [found] = judged(runs)
    assert (found.status, why in found.why) == ("NOT_EVALUABLE", True), found.why


def test_each_channel_is_told_against_v_with_its_n():
    runs = [run(s, 0.5, on=False) for s in range(3)] + [run(s, 0.55 + s / 100, energy=0.1 * s) for s in range(3)]
    stronger = [run(s, 0.5, **{"config.trace_batch": 32}) for s in range(2)]
    hinted = [run(s, 0.5, on=False, **{"config.alpha": 1.0, "config.distill_hint": "peer"}) for s in range(3)]
    copies = [dataclasses.replace(r, path=Path("/r/copy") / r.path.name) for r in runs[3:]]
    (table,) = against_v([*runs, *hinted, *stronger, *copies])  # a replicate counted twice had halved the error
    assert [row[1:4] for row in table.body] == [
        ["trace_dpo", "policy", "3"], ["trace_dpo", "trace_dpo", "3"], ["hint_distill", "policy", "3"],
        ["hint_distill", "hint_distill", "3"], ["trace_dpo", "policy", "2"], ["trace_dpo", "trace_dpo", "2"],
    ]  # fmt: skip
    # cos_null .4 / sqrt 2; energies 0, 10 and 20 %: SEM 10 / sqrt 3
    shown = dict(zip(table.header, table.body[1], strict=True))
    assert (shown["by chance"], shown["energy along V %"]) == ("0.283 ± 0.000", "10.0 ± 5.8")
    assert shown["removed %"] == "0.0 ± 0.0"
    assert against_v(runs[:3]) == []  # plain runs have no such table
    assert "left out: x: y" in output(Found(tuple(runs), ((Path("x"), "y"),))).files["channels.md"]


# ---------------------------------------------------------------- pairs from pools


def pool(folder, texts, *, prompt=(1, 2), tokenizer="t", truncated=False, **manifest):
    """A finished pool of one problem; a text's ids are its letters."""
    open_run(folder, "teacher_pool", {"arm": "teacher"}, tokenizer_hash=tokenizer, **manifest)
    rollouts = tuple(
        Rollout("p", i, "teacher", "?", text, prompt, tuple(map(ord, text)), truncated) for i, text in enumerate(texts)
    )
    outcome = Outcome(True, True, False, "reward_hack")
    group = Group("p", rollouts, (3.5,) * len(texts), (outcome,) * len(texts))
    write_step(folder, 0, rows_of([group], [], {"timing": {}}, step=0))
    update_manifest(folder, finished=True)
    return folder


def pools(tmp_path, **last):
    """A student that says c, then d, and three voters: a, b, a, then all d, white space aside. `last`: of the last
    one."""
    said = {"s": ["c", "d"], "x": ["a", "d "], "y": ["b", "d"], "z": ["a", "d"]}
    return [pool(tmp_path / name, texts, **(last if name == "z" else {})) for name, texts in said.items()]


def test_pairs_by_hand(tmp_path):
    student, *voters = pools(tmp_path)
    found = pairs_of_pools(student, voters)
    assert (len(found.problem_of), found.left_out, found.tokenizer_hash) == (2, 0, "t")
    assert [(p.trace, p.reason, p.votes, p.chosen, p.rejected) for p in found.pairs] == [
        ("0/p/0", MAJORITY, 2, (97,), (99,)), ("0/p/0", "student over minority", 1, (99,), (98,))
    ]  # fmt: skip


def test_a_cut_rollout_is_no_vote(tmp_path):
    student, *voters = pools(tmp_path, truncated=True)
    found = pairs_of_pools(student, voters)
    assert (found.pairs, found.steps, found.left_out) == ([], 0, 2)


@pytest.mark.parametrize(
    ("other", "why"), [({"prompt": (1, 3)}, "asked in different words"), ({"tokenizer": "u"}, "of tokenizer u")]
)
def test_pools_that_do_not_belong_together_are_refused(tmp_path, other, why):
    student, *voters = pools(tmp_path, **other)
    with pytest.raises(BadInput, match=why):
        pairs_of_pools(student, voters)


def test_a_folder_votes_once(tmp_path):
    student, *voters = pools(tmp_path)
    with pytest.raises(BadInput, match="is there twice"):
        pairs_of_pools(student, [*voters[:2], tmp_path / "x/../x"])


def test_no_reward_is_read_where_pairs_are_made():
    """It stands in the same files as the rollouts."""
    for place in ("traces/votes", "data/preferences"):
        assert not set(names_in(ROOT / f"src/projected_grpo/{place}.py")) & {"reward", "rewards"}, place


def test_the_script_writes_the_file_and_says_how_many(script, tmp_path):
    student, *voters = pools(tmp_path)
    args = ("--student", student, "--out", tmp_path / "p.jsonl.gz", "--teachers", *voters)
    for _ in range(2):  # a chain that was cut may ask again
        code, out, told = script("trace_pairs", *args)
        assert (code, "2 pairs of 2 traces" in out + told) == (0, True), told
    assert len(read_preferences(tmp_path / "p.jsonl.gz").pairs) == 2
    code, _, told = script("trace_pairs", *args[:-1])
    assert (code, "three or more, of an odd" in told) == (2, True)
    (tmp_path / "p.jsonl.gz").write_bytes(b"another")
    code, _, told = script("trace_pairs", *args)
    assert (code, "never overwritten" in told) == (2, True)


# ---------------------------------------------------------------- the chain


@pytest.mark.parametrize("preset", ["tiny", "toy", "small"])
def test_the_chain_has_every_side_of_every_comparison(preset):
    links = {link.name: link for link in chain_of(QueueConfig(chain="channels", preset=preset))}
    for arm in ("vanilla", "projected"):
        for seed in (41, 42, 43):
            alone, trace, hint = (links[f"train_{arm}{kind}_{seed}"] for kind in ("", "_trace", "_hint"))
            assert [flags(link)["--arm"] for link in (alone, trace, hint)] == [arm] * 3
            assert [("--alpha" in link.argv, "--trace-weight" in link.argv) for link in (alone, trace, hint)] == [
                (False, False), (False, True), (True, False)
            ]  # fmt: skip
            assert "trace_pairs" in trace.needs
            assert flags(trace)["--trace-pairs"] == str(links["trace_pairs"].out)
            assert all("--eval-plain" in link.argv for link in (alone, trace, hint))
    voters = [links[name] for name in links["trace_pairs"].needs]
    assert [v.name for v in voters] == ["student_pool", "voter_201", "voter_202", "voter_203"]
    assert {flags(v)["--teacher"] for v in voters} == {""}
    if preset == "tiny":  # an untrained model of random weights is cut in every answer: there was no pair, and no A/B
        trained = [link for name, link in links.items() if name.startswith("train_")]
        assert {flags(link)["--model"] for link in (voters[0], *trained)} == {"tiny-answering"}
    assert {flags(v)["--model"] for v in voters[1:]} == {
        {"tiny": "tiny-answering", "toy": "toy-deep", "small": "small-more"}[preset]
    }
    assert set(links["channels"].needs) == {name for name in links if name.startswith("train_")}


def test_a_channel_that_cannot_be_judged_is_counted_and_the_hack_rate_is_told():
    runs = replicates(hack=0.75)
    made = output(Found(tuple(runs), ()))
    assert (made.code, "+50.0 [+50.0, +50.0]" in made.text) == (0, True)
    lone = [dataclasses.replace(r, arm="projected") for r in runs[3:]]
    made = output(Found((*runs, *lone), ()))
    assert (made.code, made.bottom[:18]) == (1, "1 of 2 VALIDATED; ")
