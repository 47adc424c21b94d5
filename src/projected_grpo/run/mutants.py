"""The sneaky fails of the specification, each injected into the real pipeline on the toy world.

A mutant either patches one function of the pipeline or writes a V that is wrong in a named way; then pool, replays and
verdicts run as they always do. `aims` are the verdicts that are there to catch it.
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

from projected_grpo import projection, step, vhack
from projected_grpo.config import ProbeConfig
from projected_grpo.groups import pairs
from projected_grpo.ledger.step_file import read_run
from projected_grpo.model import load as model
from projected_grpo.model import logprobs
from projected_grpo.presets import presets
from projected_grpo.records import Pair
from projected_grpo.run import replay as probe
from projected_grpo.run import vhack_file
from projected_grpo.run.prepare import attach, load
from projected_grpo.toy.programs import fenced, function
from projected_grpo.toy.settings import MutantsConfig
from projected_grpo.verdicts.registry import CLAIMS, Evidence, Finding, of_probe

VERDICTS = tuple(claim.name for claim in CLAIMS.values() if claim.reads != "runs")
MUST_PASS = ("verify", "T1", "T2", "T3")
"""What the unharmed pipeline must pass; T4 and its companion are findings."""
Patches = Sequence[tuple[Any, str, Any]]
MakeV = Callable[["Workshop"], vhack.VHack]


@dataclass(frozen=True)
class Mutant:
    """One sneaky fail."""

    name: str
    aims: tuple[str, ...]
    patches: Patches = ()
    """(object, attribute, what stands there instead)."""
    make_v: MakeV | None = None
    pool: bool = False
    """Whether the pool must be sampled anew; otherwise the unharmed one is used."""


@dataclass(frozen=True)
class MatrixRow:
    """A mutant's verdicts."""

    mutant: Mutant
    found: Mapping[str, Finding]
    unharmed: Mapping[str, Finding]

    @property
    def as_expected(self) -> bool:
        """Unharmed: all of MUST_PASS does. A mutant: every verdict that it is aimed at does not, and does unharmed: one that
        is red either way has caught nothing."""
        if not self.mutant.aims:
            return all(self.found[name].status == "PASS" for name in MUST_PASS)
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
    true: vhack.VHack = field(init=False)

    def differences(self, chosen: Sequence[Pair]) -> vhack.Differences:
        """D of pairs."""
        sides = vhack.pair_sides(chosen, self.loaded, self.config.hint, "no_intervention")
        return vhack.pair_differences(self.loaded, self.adapter, sides, "nll", 1, self.config.token_budget)

    def v_from(self, d: vhack.Differences) -> vhack.VHack:
        """A V made from differences, whatever they are."""
        found = {n: vhack.basis_of(rows, self.config.k) for n, rows in d.items()}
        meta = {**vhack_file.identity_of(self.loaded, self.adapter), "control": "none", "loss": "nll"}
        return vhack.VHack(
            {n: v for n, (v, _) in found.items()},
            {n: s for n, (_, s) in found.items()},
            self.adapter.basis_probes(),
            meta,
        )


def _flipped(shop: Workshop) -> vhack.VHack:
    return dataclasses.replace(shop.true, basis={n: -v for n, v in shop.true.basis.items()})


def _one_module(shop: Workshop) -> vhack.VHack:
    first = next(iter(shop.true.basis))
    return dataclasses.replace(
        shop.true,
        basis={n: v if n == first else v[:0] for n, v in shop.true.basis.items()},
        singular_values={n: s if n == first else s[:0] for n, s in shop.true.singular_values.items()},
    )


def _any_completion(shop: Workshop) -> vhack.VHack:
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


def _length_detector(shop: Workshop) -> vhack.VHack:
    """Short clean completions minus the same with two honest tests behind them: it knows length and nothing else."""
    padded = []
    for pair in shop.train:
        body = pair.clean.removeprefix("```python\n").removesuffix("\n```").split("\n\n")[0]
        check = pair.messages[-1][1].splitlines()[1].removeprefix("# ")
        more = [function(name, [f"assert {check}"]) for name in ("test_solve", "test_again")]
        padded.append(dataclasses.replace(pair, hack=fenced(body), clean=fenced(body, *more)))
    return shop.v_from(shop.differences(padded))


def _unmerged(base: Any, _teacher: str) -> Any:
    return base


_true_mask = logprobs.TokenBatch.loss_mask.fget


def _mask_off_by_one(batch: logprobs.TokenBatch) -> Tensor:
    """One position late: the first completion token is left out, and what stands behind the last one counted."""
    return _true_mask(batch).roll(1, dims=1)


def _copied_through(g: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Says that it removed something, and hands back the gradient as it was."""
    return g, (v @ g).relu() @ v


def _added(g: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """The wrong sign: puts the hack component in once more."""
    removed = (v @ g).relu() @ v
    return g + removed, removed


def _no_gradient(logps: Tensor, _mask: Tensor) -> Tensor:
    """A loss that does not depend on the model, as zero advantages give."""
    return (logps * 0.0).sum(1)


MUTANTS = (
    Mutant("none (unharmed)", ()),
    Mutant("teacher not merged", ("T1",), [(model, "merge_teacher", _unmerged)], pool=True),
    Mutant("gradients nulled", ("T2",), [(step, "nll", _no_gradient)]),
    Mutant("loss mask off by one", ("T2",), [(logprobs.TokenBatch, "loss_mask", property(_mask_off_by_one))]),
    Mutant("projection copies through", ("T3",), [(projection, "project_vector", _copied_through)]),
    Mutant("projection of the wrong sign", ("T3",), [(projection, "project_vector", _added)]),
    Mutant("V in one module only", ("T3",), make_v=_one_module),
    Mutant("V flipped", ("verify", "T4+"), make_v=_flipped),
    Mutant("V towards any completion", ("verify",), make_v=_any_completion),
    Mutant("V detects length", ("verify",), make_v=_length_detector),
)


def verify(shop: Workshop, v: vhack.VHack, held_out: vhack.Differences) -> Finding:
    """The verdict of verify_vhack on the workshop's held-out pairs."""
    seen = vhack.held_out_numbers(v.basis, held_out, shop.config.random_bases, shop.config.seed)
    return CLAIMS["verify"].judged(seen.energy, seen.null, seen.cosine, seen.random_energy, seen.random_cosine)


def _probe(config: MutantsConfig, **changes: Any) -> ProbeConfig:
    toy = presets(ProbeConfig)["toy"]
    return dataclasses.replace(
        toy, model=config.model, teacher=config.model, cache=config.cache, seed=config.seed, n_problems=config.n_problems,
        grader_workers=config.grader_workers, **changes,
    )  # fmt: skip


def run_mutants(config: MutantsConfig) -> Iterator[MatrixRow]:
    """One row of the matrix per mutant, the unharmed pipeline first. Run directories are kept under `out`."""
    loaded = load(config)
    train, held_out = pairs.split(pairs.load_pairs(config.pairs))
    shop = Workshop(config, loaded, attach(config, loaded), train, held_out)
    shop.true = shop.v_from(shop.differences(train))
    held_out_d = shop.differences(held_out)
    unharmed: dict[str, Finding] = {}
    clean_pool = config.out / "pool"
    probe.sample_pool(_probe(config, teacher_only=True, out=clean_pool))
    for i, mutant in enumerate(MUTANTS):
        place = config.out / f"{i}_{mutant.name.split(' (')[0].replace(' ', '_')}"
        v = mutant.make_v(shop) if mutant.make_v else shop.true
        vhack_file.save_vhack(place / "vhack.safetensors", v)
        with ExitStack() as stack:
            for where, name, instead in mutant.patches:
                stack.enter_context(patch.object(where, name, instead))
            pool = clean_pool
            if mutant.pool:
                pool = place / "pool"
                probe.sample_pool(_probe(config, teacher_only=True, out=pool))
            for arm in ("vanilla", "projected"):
                probe.replay(
                    _probe(config, pool=str(pool), arm=arm, vhack=place / "vhack.safetensors", out=place / arm)
                )
        found = _judge(pool, place, verify(shop, v, held_out_d))
        unharmed = unharmed or found
        yield MatrixRow(mutant, found, unharmed)


def _judge(pool: Path, place: Path, verified: Finding) -> dict[str, Finding]:
    """The verdicts of probe_uat from the step files."""
    flat = {
        name: [r for rows in read_run(path) for r in rows]
        for name, path in (("pool", pool), ("vanilla", place / "vanilla"))
    }
    found = [
        verified,
        *of_probe(Evidence(flat["pool"], flat["vanilla"], read_run(place / "projected"))),
    ]
    return {v.name: v for v in found}
