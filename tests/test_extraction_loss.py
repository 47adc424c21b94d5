"""T7: V from the training loss against V from the NLL, on the same rollouts. Every sneaky fail is injected and seen
red."""

import shutil

import pytest
from written_replays import config_of, noise, sees_pure, write, write_all

from projected_grpo.ledger.step_file import read_run
from projected_grpo.report import uat
from projected_grpo.report.replays import read_replays
from projected_grpo.verdicts.extraction import MARGIN, t7

V_NLL = {"control": "none", "k": "8", "pairs_hash": "h", "loss": "nll", "max_new": "unused", "v_sha256": "a"}
V_GRPO = {**V_NLL, "loss": "grpo", "max_new": "72", "v_sha256": "b"}


def measured(cosine):
    """A V by its cosines, with energies of its own."""

    def of(row, rng):
        row["energy_V"] = 0.3 + 0.2 * rng.random()
        return cosine(row, rng)

    return of


def better(row, rng):
    return rng.gauss(0.16 if row["hacked"] and row["gt_pass"] is False else 0.0, 0.05)


def write_both(path, grpo=sees_pure, **shared):
    """A whole probe with both replays; by default two V of their own that tell as well."""
    config = write_all(path, v=measured(sees_pure), random_v=None, vhack=V_NLL, **shared)
    write(path, "grpo", measured(grpo), vhack=V_GRPO, **shared)
    return config


def replayed(path, name, cosine, **shared):
    """Rows of one replay."""
    return [row for step in read_run(write(path, name, measured(cosine), **shared)) for row in step]


def judged(path, nll=sees_pure, grpo=sees_pure, **shared):
    return t7((replayed(path, "vanilla", nll, **shared), replayed(path, "grpo", grpo, **shared)))


CASES = {
    "a V that tells better": (
        {"grpo": better, "problems": 40}, "PASS",
        lambda n: 0 < n["low"] < n["gain"] < n["high"] and n["gain"] == pytest.approx(n["g_grpo"] - n["g_nll"])),
    "a V that tells nothing, and one that does": (
        {"grpo": noise}, "FAIL", lambda n: n["high"] < 0 and n["low"] < -MARGIN),
    "two V that tell nothing": ({"nll": noise, "grpo": noise}, "NOT_EVALUABLE", lambda n: n["g_nll"] < 0.5),
    "an interval that holds both 0 and the margin": (
        {"problems": 6}, "NOT_EVALUABLE", lambda n: n["low"] < -MARGIN < n["high"]),
    # over rollouts it tells better; at equal length it tells nothing
    "a length detector": (
        {"grpo": lambda row, rng: 0.02 * row["comp_len"] + 0.01 * rng.random(), "problems": 40,
         "length": lambda kind, rng: rng.randrange(38, 58) if kind == "hack" else rng.randrange(20, 40)}, "FAIL",
        lambda n: n["gain"] > 0 and n["at_length"] < -MARGIN),
}  # fmt: skip


@pytest.mark.parametrize(("made", "status", "numbers"), CASES.values(), ids=CASES)
def test_t7_of_one_replicate(tmp_path, made, status, numbers):
    found = judged(tmp_path, **made)
    assert (found.status, numbers(found.numbers)) == (status, True), found.why


# ---------------------------------------------------------------- sneaky fail: one V under two names


ONE_V = {
    "the same bytes": lambda r: r,
    "every row of V with its sign turned": lambda r: {**r, "cos_S_contrib": -r["cos_S_contrib"]},
    "some signs turned, or the rows turned in their span": lambda r: {**r, "cos_S_contrib": 0.3 * r["cos_S_contrib"]},
    "rounding": lambda r: {**r, "energy_V": r["energy_V"] * (1 + 1e-4), "cos_S_contrib": r["cos_S_contrib"] * 1.001},
}


@pytest.mark.parametrize("change", ONE_V.values(), ids=ONE_V)
def test_one_v_under_two_names_is_red(tmp_path, change):
    """The NLL inside the GRPO extraction: what the second file shows are the first one's rows."""
    rows = replayed(tmp_path, "vanilla", sees_pure)
    found = t7((rows, [change(row) for row in rows]))
    assert (found.status, "one V under two names" in found.why) == ("FAIL", True)


# ---------------------------------------------------------------- where it is printed


def test_the_uat_prints_both_v_and_asks_for_the_second_where_it_is_missing(tmp_path):
    replays = read_replays(write_both(tmp_path))
    found = uat.uat(replays)
    text = uat.printout(found, replays)
    for what in ("\nV of grpo  ", "\nV of grpo - V", " T7 "):
        assert what in text, what
    assert "T7 is not judged" not in text
    gain = found.contrasts[0].effects["V of grpo - V"].g
    assert gain == next(v for v in found.verdicts if v.name == "T7").numbers["gain"]
    shutil.rmtree(tmp_path / "grpo")
    replays = read_replays(config_of(tmp_path))
    assert "T7 is not judged: no replay" in uat.printout(uat.uat(replays), replays)
