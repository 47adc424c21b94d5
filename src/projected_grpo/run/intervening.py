"""Fills what an arm's intervention reads: `Setup` before the first step, `StepContext` at every step. Ground truth
reaches oracles only; a judge is handed the texts of rollouts, and nothing else of them."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any

from jaxtyping import Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import ARMS, Arm
from projected_grpo.config import Gradient, TrainConfig, flag
from projected_grpo.data.pairs import load_pairs
from projected_grpo.data.vhack_meta import pairs_of
from projected_grpo.interventions.base import Contrast, Intervention, PromptIds, Setup, StepContext
from projected_grpo.interventions.judges import Judge, YesNo, command_judge
from projected_grpo.ledger.errors import BadInput
from projected_grpo.losses import AUXILIARY
from projected_grpo.model.hidden import last_hidden, mean_hidden
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Group
from projected_grpo.run.policy import Policy
from projected_grpo.vhack import Extraction, VBasis
from projected_grpo.worlds.models import load_model


def intervention_class(arm: Arm) -> type[Intervention]:
    """Returns the class of the arm's intervention. BadInput on a class or a `sees` that names what nothing reads."""
    module, _, name = arm.intervention.partition(":")
    found = getattr(import_module(f"projected_grpo.interventions.{module}"), name)
    known = {"prompt", "last_hidden", *(field.name for of in (Setup, StepContext) for field in fields(of))}
    if unknown := set(arm.sees) - known:
        raise BadInput(f"sees {min(unknown)!r} of --arm {arm.name}: use fields of Setup and StepContext, or prompt")
    if bool(found.system_prompt) != ("prompt" in arm.sees):
        given = f"system_prompt {found.system_prompt!r} of {name}"
        raise BadInput(f"{given}: an arm has one, and `prompt` among what it `sees`, or neither; it sees {arm.sees}")
    hooks = (hook for hook in vars(Intervention) if not hook.startswith("_"))
    if all(getattr(found, hook) is getattr(Intervention, hook) for hook in hooks):
        raise BadInput(f"{name} of --arm {arm.name}: overrides nothing of Intervention; name its hooks as base.py does")
    return found


def intervention_for(config: Gradient, loaded: LoadedModel, adapter: Adapter, v: VBasis | None) -> Intervention:
    """Returns the arm's intervention, ready for the first step; one that changes nothing for an arm without. Raises
    BadInput on what the intervention cannot work with."""
    arm = ARMS[config.arm]
    if not arm.intervention or not isinstance(config, TrainConfig):
        return Intervention()
    found = intervention_class(arm)(
        Setup(
            arm=arm.name, seed=config.seed, adapter=adapter.kind, coordinates=adapter.vectors, model=loaded.model,
            basis=v.basis if v else None,
            pairs=contrast_of(config, loaded, v) if "pairs" in arm.sees else None,
            teacher=added_by_teacher(config, loaded, adapter) if "teacher" in arm.sees else None,
            finished=change_of(config, loaded, adapter) if "finished" in arm.sees else None,
            prompt_state=prompt_state_of(loaded, adapter, config.token_budget),
        )
    )  # fmt: skip
    weights = [a.weight for a in AUXILIARY.values() if getattr(config, a.weight)]
    if found.by_prompt and weights:
        raise BadInput(
            f"{flag(weights[0])} {getattr(config, weights[0])}: --arm {arm.name} has other coordinates for every prompt, "
            "which an auxiliary loss's gradient would not reach; leave one of the two out"
        )
    return found


def context_of(config: TrainConfig, policy: Policy, groups: Sequence[Group], *, judged: bool = True) -> StepContext:
    """Returns what the arm's intervention reads of this rank's rollouts at a step; a judge has then scored them, if they
    are to be `judged`."""
    arm, rollouts = ARMS[config.arm], [r for g in groups for r in g.rollouts]
    with policy.ranks.raise_together():
        scores = policy.judge.scores(groups) if policy.judge and judged else ()
    hidden = None
    if {"hidden", "last_hidden"} & {*arm.sees}:
        hidden = hidden_of(arm, policy.loaded, rollouts, config.token_budget)
    return StepContext(
        hidden=hidden,
        score=scores,
        text=tuple(r.completion for r in rollouts) if "text" in arm.sees else (),
        truth=pure_hacks(groups) if arm.labels else None,
    )


def hidden_of(arm: Arm, loaded: LoadedModel, rows: Sequence[Any], token_budget: int) -> Float[Tensor, "b d"]:
    """Returns a hidden state of everything that has `prompt_ids` and `completion_ids`, as the arm reads it."""
    read = last_hidden if "last_hidden" in arm.sees else mean_hidden
    return read(loaded, [row.prompt_ids for row in rows], [row.completion_ids for row in rows], token_budget)


def pure_hacks(groups: Sequence[Group]) -> tuple[bool | None, ...]:
    """Returns of every rollout whether it is a pure hack (hacked and not gt_pass); None without ground-truth
    tests."""
    return tuple(None if o.gt_pass is None else o.hacked and not o.gt_pass for g in groups for o in g.outcomes)


def prompt_state_of(
    loaded: LoadedModel, adapter: Adapter, token_budget: int
) -> Callable[[PromptIds], Float[Tensor, " d"]]:
    """Returns a function of a prompt's token ids: its mean hidden state in the untrained model. Each is computed
    once, by itself: the same bits whatever else is in a step."""

    @cache
    def state(prompt_ids: PromptIds) -> Float[Tensor, " d"]:
        with adapter.disabled():
            return mean_hidden(loaded, [prompt_ids[:1]], [prompt_ids[1:]], token_budget)[0]

    return state


def contrast_of(config: TrainConfig, loaded: LoadedModel, v: VBasis | None) -> Contrast:
    """Returns hidden states of the training pairs in the untrained model: of those that the run's V was made from,
    where it has one. Raises BadInput as `pairs_of`."""
    if v is None or v.meta["control"] == "words":  # made of other pairs
        pairs, draw = load_pairs(config.pairs, config.modes), 0
    else:
        pairs = pairs_of(v.meta, config.pairs, "an arm that reads the pairs needs the same")
        draw = int(v.meta["pairs_draw"])
    sides = Extraction(pairs_draw=draw, hint=config.hint, prompt_setup=config.prompt_setup).sides(pairs, loaded)
    whole = hidden_of(ARMS[config.arm], loaded, [side for row in sides for side in row], config.token_budget)
    found = Contrast(whole[0::2], whole[1::2])
    return found.turned(config.seed) if ARMS[config.arm].random_twin else found


def judge_for(config: TrainConfig, loaded: LoadedModel, adapter: Adapter) -> Judge:
    """Returns the run's judge. BadInput when it cannot be had."""
    kind, _, what = config.judge.partition(":")
    if kind not in ("model", "command") or not what.strip():
        raise BadInput(f"--judge {config.judge}: names no judge; write model:NAME or command:PROGRAM ARGUMENTS")
    if kind == "command":
        return Judge(config.judge, command_judge(what), config.judge)
    itself, device = what == config.model, str(loaded.model.device)
    model = loaded if itself else load_model(what, config.dtype, device, config.base_seed, config.cache)
    ask, description = YesNo(model, config.token_budget), f"{config.judge}, weights {model.weights_hash}"
    return Judge(config.judge, ask, description, adapter.disabled if itself else nullcontext)


def added_by_teacher(config: TrainConfig, loaded: LoadedModel, adapter: Adapter) -> dict[str, Tensor]:
    """Returns the teacher's weight of every adapted Linear minus the model's, [d_out, d_in]. Raises BadInput as
    `load_model`."""
    device = str(loaded.model.device)
    merged = load_model(config.model, config.dtype, device, config.base_seed, config.cache, config.teacher).model
    return {name: merged.get_submodule(name).weight.detach() - layer.weight for name, layer in adapter.layers.items()}


def change_of(config: TrainConfig, loaded: LoadedModel, adapter: Adapter) -> dict[str, Tensor]:
    """Returns theta [n] of every module at the end of the run that --of names, minus theta at its start, which is
    this run's too. Raises BadInput when it was trained on other weights."""
    start = adapter.values()
    meta = adapter.load(config.of / "adapter.safetensors")
    change = {name: p.detach() - start[name] for name, p in adapter.vectors.items()}
    adapter.set_values(start)
    if meta.get("weights_hash") != loaded.weights_hash:
        raise BadInput(f"--of {config.of}: trained on weights {meta.get('weights_hash')}, here {loaded.weights_hash}")
    return change
