"""The sample of rollouts that a page shows: spread over runs, labels and steps, the same every time, and told truly."""

from hypothesis import given
from hypothesis import strategies as st
from test_results import write_run

from projected_grpo.report.page.columns import columns
from projected_grpo.report.page.rollouts import KINDS, Source, evenly, over_steps, sample, shares


def source(path, arm="vanilla"):
    return Source(path, path.name, arm, f"out/{path.name}")


def test_shares_by_hand():
    assert shares([10, 10, 10], 9) == [3, 3, 3]
    assert shares([1, 10, 10], 9) == [1, 4, 4]  # what one cannot use, the others get
    assert shares([1, 10, 10], 8) == [1, 4, 3]
    assert shares([5, 5], 99) == [5, 5]
    assert shares([5, 5, 5], 2) == [1, 1, 0]
    assert shares([], 5) == []


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 200))
def test_shares_use_every_place_and_none_is_passed_over_for_a_larger_one(sizes, places):
    found = shares(sizes, places)
    assert sum(found) == min(places, sum(sizes))
    assert all(n <= size for n, size in zip(found, sizes, strict=True))
    cut = [n for n, size in zip(found, sizes, strict=True) if n < size]
    assert all(n <= low + 1 for n in found for low in cut)


def test_evenly_has_both_ends():
    assert evenly(list(range(11)), 3) == [0, 5, 10]
    assert evenly([1, 2, 3], 3) == [1, 2, 3]
    assert evenly([1, 2, 3], 1) == [2]
    assert evenly([1, 2, 3], 0) == []


def test_every_step_has_one_before_any_has_two():
    by_step = {0: [0, 1, 2], 1: [5], 2: [7, 8]}
    assert over_steps(by_step, 3) == [(0, 0), (1, 5), (2, 7)]
    assert over_steps(by_step, 5) == [(0, 0), (1, 5), (2, 7), (0, 1), (2, 8)]
    assert [step for step, _ in over_steps({t: [0] for t in range(100)}, 3)] == [0, 49, 99]


def test_rare_labels_and_short_runs_are_in_the_sample(tmp_path):
    """One hack among a thousand is what a reader looks for."""
    steps = [["good"] * 100] * 9 + [["good"] * 99 + ["hack"]]
    long = source(write_run(tmp_path / "long", "vanilla", 41, steps))
    short = source(write_run(tmp_path / "short", "vanilla", 42, [["unknown", "bad"]]))
    shown = sample([long, short], 12)
    labels = [(i, row["label"], row["step"]) for i, _, row in shown.rows]
    assert (len(labels), shown.total) == (12, 1002)
    assert (0, "reward_hack", 9) in labels
    assert {(1, None, 0), (1, "incorrect", 0)} <= set(labels)
    assert {step for i, label, step in labels if (i, label) == (0, "correct")} >= {0, 9}
    assert labels == sorted(labels, key=lambda x: (x[0], x[2]))
    assert shown.note.startswith("12 of 1,002 rollouts shown (runs: 2), chosen")
    assert sample([long, short], 12) == shown
    everything = sample([long, short], 5000)
    assert len(everything.rows) == everything.total
    assert everything.note == "all 1,002 rollouts shown (runs: 2)"


def test_columns_say_what_the_rows_say(tmp_path):
    shown = sample([source(write_run(tmp_path / "a", "vanilla", 41, [["hack", "unknown"], ["good"]]))], 100)
    data = columns(shown)
    own = data["rows"]
    assert [KINDS[i] for i in own["label"]] == ["reward_hack", "unknown", "correct"]
    assert [data["steps"][i][1] for i in own["at"]] == [0, 0, 1]
    assert data["per_step"] == ("cos_in", "cos_out", "cos_update_in", "cos_update", "cos_null")
    assert data["steps"][0] == (0, 0, 0.4, 0.0, 0.5, 0.1, 0.2)
    assert own["gt_pass"] == [False, None, True]
    assert (data["prompts"], data["texts"], own["row"]) == (["x"], [["x", []]], [0, 1, 0])
    assert {len(column) for column in own.values()} == {3}
