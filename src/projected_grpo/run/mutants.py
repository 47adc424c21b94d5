"""The sneaky fails of the specification, each injected into the real pipeline on the toy world.

A mutant patches functions of the pipeline, runs it with settings under which it does nothing, writes a V that is wrong in a
named way, or hands a judge evidence of another kind; then the runs that its verdicts read are made anew and judged as they
always are. What a mutant does not touch is not run again: a mutant is shown by the verdicts whose evidence it made. `aims`
are the verdicts that are there to catch it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from projected_grpo import measures, projection, step, vhack
from projected_grpo.config import ProbeConfig
from projected_grpo.groups import pairs
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.model import load as model
from projected_grpo.model import logprobs
from projected_grpo.presets import presets
from projected_grpo.records import Pair
from projected_grpo.run import replay as probe
from projected_grpo.run import vhack_file
from projected_grpo.run.prepare import attach, load
from projected_grpo.toy.settings import MutantsConfig
from projected_grpo.verdicts.registry import CLAIMS, Finding
from projected_grpo.written import fenced, function

MADE_HERE = ("pairs", "pool", "vanilla", "projected")
"""The evidence that a mutant can harm."""
VERDICTS = tuple(claim.name for claim in CLAIMS.values() if claim.reads in MADE_HERE)
MUST_PASS = ("verify", "T1", "T2", "T3")
"""What the unharmed pipeline must pass; T4 and its companion are findings."""
STEPS = 8
"""Groups that a mutant of T2 or T3 replays: both judges need at least 5."""
ON_GRADIENT: dict[str, Any] = {"project": "grad", "gate": "one_sided"}
Patches = Sequence[tuple[Any, str, Any]]
MakeV = Callable[["Workshop"], vhack.VBasis]
Distort = Callable[[vhack.Differences], vhack.Differences]


@dataclass(frozen=True)
class Mutant:
    """One sneaky fail."""

    name: str
    aims: tuple[str, ...]
    patches: Patches = ()
    """(object, attribute, what stands there instead)."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the replays that are otherwise."""
    make_v: MakeV | None = None
    held_out: Distort | None = None
    """What is verified on in place of the held-out pairs' gradients."""
    pool_of: str = ""
    """Which run of the unharmed pipeline is given as the teacher's pool."""
    unharmed: tuple[str, ...] = ()
    """Nothing is wrong, and these verdicts must pass."""

    @property
    def reads(self) -> set[str]:
        """The evidence that must be made anew."""
        return {CLAIMS[name].reads for name in (*self.aims, *self.unharmed)}


@dataclass(frozen=True)
class MatrixRow:
    """A mutant's verdicts: those of them whose evidence it made."""

    mutant: Mutant
    found: Mapping[str, Finding]
    unharmed: Mapping[str, Finding]

    @property
    def as_expected(self) -> bool:
        """Unharmed: all that must pass does. A mutant: every verdict that it is aimed at does not, and does unharmed: one
        that is red either way has caught nothing."""
        if not self.mutant.aims:
            return all(self.found[name].status == "PASS" for name in self.mutant.unharmed)
        return all(
            self.found[name].status != "PASS" and self.unharmed[name].status == "PASS" for name in self.mutant.aims
        )


@dataclass
class Workshop:
    """Model, adapter and pairs from which V and its mutants are made."""

    config: MutantsConfig
    loaded: Any
    adapter: Any
    train: Sequence[Pair]
    held_out: Sequence[Pair]
    true: vhack.VBasis = field(init=False)

    def differences(self, chosen: Sequence[Pair]) -> vhack.Differences:
        """D of pairs."""
        sides = vhack.pair_sides(chosen, self.loaded, self.config.hint, "no_intervention")
        return vhack.pair_differences(self.loaded, self.adapter, sides, "nll", 1, self.config.token_budget)

    def v_from(self, d: vhack.Differences) -> vhack.VBasis:
        """A V made from differences, whatever they are."""
        found = {n: vhack.basis_of(rows, self.config.k) for n, rows in d.items()}
        meta = {**vhack_file.identity_of(self.loaded, self.adapter), "control": "none", "loss": "nll"}
        return vhack.VBasis(
            {n: v for n, (v, _) in found.items()},
            {n: s for n, (_, s) in found.items()},
            self.adapter.basis_probes(),
            meta,
        )


def _flipped(shop: Workshop) -> vhack.VBasis:
    return dataclasses.replace(shop.true, basis={n: -v for n, v in shop.true.basis.items()})


def _one_module(shop: Workshop) -> vhack.VBasis:
    first = next(iter(shop.true.basis))
    return dataclasses.replace(
        shop.true,
        basis={n: v if n == first else v[:0] for n, v in shop.true.basis.items()},
        singular_values={n: s if n == first else s[:0] for n, s in shop.true.singular_values.items()},
    )


def _any_completion(shop: Workshop) -> vhack.VBasis:
    """Towards any completion: the gradients of clean completions themselves, nothing subtracted."""
    sides = vhack.pair_sides(shop.train, shop.loaded, shop.config.hint, "no_intervention")
    rows = [_one_side(shop, side) for side in sides[1::2]]
    return shop.v_from({n: torch.stack([row[n] for row in rows]) for n in shop.adapter.sizes})


def _one_side(shop: Workshop, side: vhack.PairSide) -> dict[str, Tensor]:
    batch = logprobs.token_batch([side.prompt_ids], [side.completion_ids], shop.loaded.pad_id, shop.loaded.model.device)
    shop.adapter.zero_grad()
    logps = logprobs.completion_logps(shop.loaded.model, batch)
    (-logps.sum() / batch.loss_mask.sum()).backward()
    grads = {n: g.detach().float().cpu().clone() for n, g in shop.adapter.grads().items()}
    shop.adapter.zero_grad()
    return grads


def _length_detector(shop: Workshop) -> vhack.VBasis:
    """Short clean completions minus the same with two honest tests behind them: it knows length and nothing else."""
    padded = []
    for pair in shop.train:
        body = pair.clean.removeprefix("```python\n").removesuffix("\n```").split("\n\n")[0]
        check = pair.messages[-1][1].splitlines()[1].removeprefix("# ")
        more = [function(name, [f"assert {check}"]) for name in ("test_solve", "test_again")]
        padded.append(dataclasses.replace(pair, hack=fenced(body), clean=fenced(body, *more)))
    return shop.v_from(shop.differences(padded))


def _random(shop: Workshop) -> vhack.VBasis:
    """Knows nothing: Haar directions of V's ranks."""
    drawn = {n: vhack.random_basis((v.shape[0], v.shape[1]), shop.config.seed, n) for n, v in shop.true.basis.items()}
    return dataclasses.replace(shop.true, basis=drawn)


def _with_nan(shop: Workshop) -> vhack.VBasis:
    """One number of it is lost."""
    first, *_ = shop.true.basis
    broken = shop.true.basis[first].clone()
    broken[0, 0] = torch.nan
    return dataclasses.replace(shop.true, basis={**shop.true.basis, first: broken})


def _one_pair(d: vhack.Differences) -> vhack.Differences:
    """One held-out pair, counted as often as there were pairs."""
    return {name: rows[:1].expand_as(rows) for name, rows in d.items()}


def _few_pairs(d: vhack.Differences) -> vhack.Differences:
    return {name: rows[:4] for name, rows in d.items()}


def _unmerged(base: Any, _teacher: str) -> Any:
    return base


_true_mask = logprobs.TokenBatch.loss_mask.fget
_true_logps = logprobs.token_logps
_true_columns = measures.PerSample.columns
_true_own = measures.PerSample.__call__
_true_project = step.project_gradient


def _mask_off_by_one(batch: logprobs.TokenBatch) -> Tensor:
    """One position late: the first completion token is left out, and what stands behind the last one counted."""
    return _true_mask(batch).roll(1, dims=1)


def _states_off_by_one(hidden: Tensor, *args: Any) -> Tensor:
    """The mask is right; each token is predicted from the state before the one that should."""
    return _true_logps(hidden.roll(1, 0), *args)


def _neighbours(own: measures.PerSample) -> list[dict[str, float | None]]:
    columns = _true_columns(own)
    return [{**c, "cos_S_contrib": columns[i - 1]["cos_S_contrib"]} for i, c in enumerate(columns)]


def _norms_of_nothing(own: measures.PerSample) -> list[dict[str, float | None]]:
    return [{**c, "grad_norm": 0.0} for c in _true_columns(own)]


def _shared(own: measures.PerSample, name: str, grads: Tensor) -> None:
    _true_own(own, name, grads.mean(0, keepdim=True).expand_as(grads))


def _scaled(own: measures.PerSample, name: str, grads: Tensor) -> None:
    """By the number of rows, as a mean over the batch would be."""
    _true_own(own, name, grads / len(grads))


def _unchecked(*_: Any) -> dict[str, float | None]:
    return {"grad_norm_alone": None, "cos_S_alone": None}


def _copied_through(g: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Says that it removed something, and hands back the gradient as it was."""
    return g, (v @ g).relu() @ v


def _added(g: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """The wrong sign: puts the hack component in once more."""
    removed = (v @ g).relu() @ v
    return g + removed, removed


def _averse(g: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """The wrong side of the gate: takes out what points away from the hack."""
    removed = -(-(v @ g)).relu() @ v
    return g - removed, removed


_kept: dict[str, Tensor] = {}


def _remembered(adapter: Any, projected: projection.Projection) -> float:
    _kept.update({name: g.clone() for name, g in adapter.grads().items()})
    return _true_project(adapter, projected)


def _restored(learner: step.Learner) -> float:
    """The gradient as it was, put back where the optimizer takes it from."""
    for name, p in learner.adapter.vectors.items():
        p.grad = _kept[name]
    return 1.0


def _dropped(adapter: Any, projected: projection.Projection) -> float:
    """Computed, reported and never used."""
    return projected.apply(adapter.grads())[1]


def _update_dropped(adapter: Any, start: Mapping[str, Tensor], projected: projection.Projection) -> float:
    return projected.apply(step.descent(adapter, start))[1]


def _no_gradient(logps: Tensor, _mask: Tensor) -> Tensor:
    """A loss that does not depend on the model, as zero advantages give."""
    return (logps * 0.0).sum(1)


def _gradients(name: str, *patches: tuple[Any, str, Any]) -> Mutant:
    return Mutant(name, ("T2",), patches, {"n_problems": STEPS})


def _removal(name: str, *patches: tuple[Any, str, Any], make_v: MakeV | None = None, **changes: Any) -> Mutant:
    return Mutant(name, ("T3",), patches, {"n_problems": STEPS, **changes}, make_v)


MUTANTS = (
    Mutant("none (unharmed)", (), unharmed=MUST_PASS),
    Mutant("none (V out of the gradient)", (), changes={"n_problems": STEPS, **ON_GRADIENT}, unharmed=("T3",)),
    Mutant("teacher not merged", ("T1",), [(model, "merge_teacher", _unmerged)]),
    Mutant("a replay given as the pool", ("T1",), pool_of="vanilla"),
    _gradients("gradients nulled", (step, "nll", _no_gradient)),
    _gradients("norms are 0, cosines written", (measures.PerSample, "columns", _norms_of_nothing)),
    _gradients("loss mask off by one", (logprobs.TokenBatch, "loss_mask", property(_mask_off_by_one))),
    _gradients("hidden states off by one", (logprobs, "token_logps", _states_off_by_one)),
    _gradients("cosines of the neighbour", (measures.PerSample, "columns", _neighbours)),
    _gradients("one gradient for all samples", (measures.PerSample, "__call__", _shared)),
    _gradients("gradients over the rows", (measures.PerSample, "__call__", _scaled)),
    _gradients("no row is taken again", (step, "alone", _unchecked)),
    _removal("projection copies through", (projection, "project_vector", _copied_through)),
    _removal("projection of the wrong sign", (projection, "project_vector", _added)),
    _removal("gate of the wrong side", (projection, "project_vector", _averse)),
    _removal("update put back", (step, "project_update", _update_dropped)),
    _removal("projected gradient dropped", (step, "project_gradient", _dropped), **ON_GRADIENT),
    _removal(
        "gradient restored",
        (step, "project_gradient", _remembered),
        (step, "clip", _restored),
        **ON_GRADIENT,
    ),
    _removal("overshoot 1e-4", overshoot=1e-4),
    _removal("half of it", overshoot=0.5),
    _removal("lr 1e-30", lr=1e-30),
    _removal("one step", n_problems=1),
    _removal("V in one module only", make_v=_one_module),
    Mutant("V flipped", ("verify",), make_v=_flipped),
    Mutant("V random", ("verify",), make_v=_random),
    Mutant("V towards any completion", ("verify",), make_v=_any_completion),
    Mutant("V detects length", ("verify",), make_v=_length_detector),
    Mutant("V with a number lost", ("verify",), make_v=_with_nan),
    Mutant("one held-out pair, copied", ("verify",), held_out=_one_pair),
    Mutant("four held-out pairs", ("verify",), held_out=_few_pairs),
)


def verify(shop: Workshop, v: vhack.VBasis, held_out: vhack.Differences) -> Finding:
    """The verdict of verify_vhack on the workshop's held-out pairs."""
    seen = vhack.held_out_numbers(v.basis, held_out, shop.config.random_bases, shop.config.seed)
    mechanisms = [pair.mechanism for pair in shop.held_out][: len(seen.energy)]
    return CLAIMS["verify"].judged(
        seen.energy, seen.null, seen.cosine, seen.random_energy, seen.random_cosine, mechanisms
    )


def _probe(config: MutantsConfig, **changes: Any) -> ProbeConfig:
    toy = presets(ProbeConfig)["toy"]
    settings = {"n_problems": config.n_problems, **changes}
    return dataclasses.replace(
        toy, model=config.model, teacher=config.model, cache=config.cache, seed=config.seed, base_seed=config.base_seed,
        grader_workers=config.grader_workers, **settings,
    )  # fmt: skip


def run_mutants(config: MutantsConfig, mutants: Sequence[Mutant] = MUTANTS) -> Iterator[MatrixRow]:
    """One row of the matrix per mutant; the first is the unharmed pipeline. Run directories are kept under `out`."""
    loaded = load(config)
    train, held_out = pairs.split(pairs.load_pairs(config.pairs))
    shop = Workshop(config, loaded, attach(config, loaded), train, held_out)
    shop.true = shop.v_from(shop.differences(train))
    held_out_d = shop.differences(held_out)
    unharmed: dict[str, Finding] = {}
    for i, mutant in enumerate(mutants):
        place = config.out / f"{i}_{mutant.name.split(' (')[0].replace(' ', '_')}"
        v = mutant.make_v(shop) if mutant.make_v else shop.true
        found = _judged(config, mutant, place, v)
        if "pairs" in mutant.reads:
            d = mutant.held_out(held_out_d) if mutant.held_out else held_out_d
            found["verify"] = verify(shop, v, d)
        unharmed = unharmed or found
        yield MatrixRow(mutant, found, unharmed)


def _judged(config: MutantsConfig, mutant: Mutant, place: Path, v: vhack.VBasis) -> dict[str, Finding]:
    """Make the runs that a mutant's verdicts read, harmed, and judge them; the rest is the unharmed pipeline's."""
    first = config.out / f"0_{MUTANTS[0].name.split(' (')[0]}"
    runs = {name: first / name for name in ("pool", "vanilla", "projected")}
    with ExitStack() as stack:
        for where, name, instead in mutant.patches:
            stack.enter_context(patch.object(where, name, instead))
        if mutant.pool_of:
            runs["pool"] = runs[mutant.pool_of]
        elif "pool" in mutant.reads:
            runs["pool"] = place / "pool"
            probe.sample_pool(_probe(config, teacher_only=True, out=runs["pool"]))
        for arm in ("vanilla", "projected"):
            if arm in mutant.reads:
                file, runs[arm] = place / "vhack.safetensors", place / arm
                vhack_file.save_vhack(file, v)
                changes = {"pool": str(runs["pool"]), "arm": arm, "vhack": file, "out": runs[arm], **mutant.changes}
                probe.replay(_probe(config, **changes))
    found = {}
    for claim in CLAIMS.values():
        if claim.on_probe and claim.reads in mutant.reads:
            steps = read_run(runs[claim.reads])
            found[claim.name] = claim.judged(steps if claim.reads == "projected" else _flat(steps))
    return found


def _flat(steps: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for rows in steps for row in rows]
