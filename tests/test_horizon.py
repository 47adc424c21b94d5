"""How long a run is: by its replicate's own onset, and by nothing that a gradient sees."""

import pytest
from written_runs import ten, write_run

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.ledger.rates import onset_of
from projected_grpo.run.horizon import with_horizon
from projected_grpo.run.stopping import hack_rate, reached


def rows(hacked, of=4, source="student"):
    return [{"source": source, "hacked": i < hacked, "gt_pass": False, "can_compile": True} for i in range(of)]


def stopped_at(hacked, until=3.0):
    """After how many steps a run with these numbers of hacks (of 4 rollouts) stops; None: never."""
    rates = [hack_rate(rows(n)) for n in hacked]
    return next((done for done in range(1, len(rates) + 1) if reached(until, rates[:done])), None)


def test_it_stops_at_three_times_its_own_onset():
    """The mean of ten steps is above one half first at step 15, of the 6 full steps 10 to 15: 45 steps."""
    hacked = [0] * 10 + [4] * 90
    assert onset_of([n / 4 for n in hacked]) == 15
    assert [stopped_at(hacked), stopped_at(hacked, 2.0), stopped_at(hacked, 0.0)] == [45, 30, None]
    assert stopped_at([2] * 100) is None  # one half is not above one half


def test_a_step_of_which_too_little_is_known_has_no_hack_rate():
    """One of ten rollouts is judged, and hacks; what a teacher wrote is no onset."""
    assert hack_rate([{**row, "gt_pass": None if i else False} for i, row in enumerate(rows(10, of=10))]) is None
    assert hack_rate(rows(4, source="teacher")) is None


@pytest.mark.parametrize(
    ("facts", "settings", "why"),
    [
        ({"finished": False}, {}, "not finished; continue it with --resume"),
        ({"kind": "probe_distill"}, {}, "is a run of kind .probe_distill., where .train. is needed"),
        ({}, {"arm": "projected"}, "is a run of --arm projected, where one of --arm vanilla is needed"),
        ({}, {"seed": 42}, "config.seed: .*42.* against"),
        ({}, {"until_onsets": 0.0}, "ran without --until-onsets"),
    ],
)
def test_only_the_replicates_own_finished_vanilla_gives_the_length(tmp_path, facts, settings, why):
    run = write_run(tmp_path / "vanilla", "vanilla", 41, ten(8), until_onsets=3.0)
    config = TrainConfig(horizon_of=run, steps=900, prompts_per_step=1, group_size=10)
    assert with_horizon(config).steps == 10
    update_manifest(run, config={**read_manifest(run)["config"], **settings}, **facts)
    with pytest.raises(BadInput, match=why):
        with_horizon(config)
