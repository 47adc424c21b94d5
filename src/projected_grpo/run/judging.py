"""From `--judge` to scores of a step's rollouts. The judge is handed their texts, and nothing else of them."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from projected_grpo.adapters import Adapter
from projected_grpo.config import TrainConfig
from projected_grpo.interventions.judges import Judge, YesNo, command_judge, named, scores_of
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Group
from projected_grpo.worlds.models import load_model


@dataclass(frozen=True)
class Judging:
    """A judge, ready for the first step."""

    name: str
    """As --judge names it."""
    judge: Judge
    description: str
    """What it is, for the manifest."""
    adapter: Adapter | None = None
    """Of the model that is trained, where that is the judge: it judges as it was untrained."""

    def scores(self, groups: Sequence[Group]) -> list[float]:
        """Returns a score in [0, 1] of every rollout, groups one after the other. JudgeFailed as in `scores_of`."""
        with self.adapter.disabled() if self.adapter else nullcontext():
            return scores_of(self.judge, [(r.prompt, r.completion) for g in groups for r in g.rollouts], self.name)


def judge_for(config: TrainConfig, loaded: LoadedModel, adapter: Adapter) -> Judging:
    """Returns the run's judge. BadInput when it cannot be had."""
    kind, what = named(config.judge)
    if kind == "command":
        return Judging(config.judge, command_judge(what), config.judge)
    itself, place = what == config.model, str(loaded.model.device)
    model = loaded if itself else load_model(what, config.dtype, place, config.base_seed, config.cache)
    description = f"{config.judge}, weights {model.weights_hash}"
    return Judging(config.judge, YesNo(model, config.token_budget), description, adapter if itself else None)
