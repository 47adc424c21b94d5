"""V extracted again from its own pairs: in training (--refresh-every), or at the trained adapters of a finished run.

V is written in the coordinates of the untrained model. A LoRA's move: dL/dB = (dL/dW) A^T and dL/dA = B^T (dL/dW), so once
A and B have changed, the same row of V is another direction of the weights. The singular basis stays; there only the policy
moves. Both are measured alike, on the run's pairs: D at the trained adapter, its V, and how much of the pairs' mean gradient
lies along that V before and after the V in use is removed.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from loguru import logger
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import GATES
from projected_grpo.config import REFRESHED, TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.re_extracted import ReExtracted, ReExtractions
from projected_grpo.model.load import LoadedModel
from projected_grpo.projection import compared, overlap
from projected_grpo.run.session import Session
from projected_grpo.run.trained import load_base, trained_adapters, trained_with
from projected_grpo.vhack import (
    Differences,
    Extraction,
    PairSide,
    VBasis,
    basis_of,
    load_vhack,
    pair_differences,
    pairs_of,
)


def sides_of(v: VBasis, source: str, loaded: LoadedModel, why: str) -> list[PairSide]:
    """Returns the completions that V was made from. BadInput, saying `why` it matters, when `source` has other pairs."""
    return Extraction.of(v.meta).sides(pairs_of(v.meta, source, why), loaded)


def differences_at(
    loaded: LoadedModel, adapter: Adapter, v: VBasis, sides: Sequence[PairSide], token_budget: int
) -> Differences:
    """Returns D [pairs, n] of every module at the policy as it is, by the loss that V was made with."""
    how = Extraction.of(v.meta)
    return pair_differences(loaded, adapter, sides, how.loss, how.max_new, token_budget)


def basis_again(d: Differences, old: VBasis) -> dict[str, Tensor]:
    """Returns V of D, of the ranks of the old one, on the CPU."""
    return {n: basis_of(rows, len(old.basis[n]))[0].to(old.basis[n]).cpu() for n, rows in d.items()}


class Refresher:
    """Extracts V every `refresh_every` steps from the pairs of the first V, with its rank, loss and control.

    BadInput, before anything is written, when the pairs are not those that V was made from.
    """

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        self.sides: list[PairSide] = []
        if config.refresh_every and session.v is not None:
            self.sides = sides_of(session.v, config.pairs, session.loaded, "--refresh-every needs the same pairs")

    def refresh_due(self, step: int) -> None:
        """Extracts V at the policy as it is and hands it to the session, if it is due before this step."""
        session, old = self.session, self.session.v
        if not self.sides or old is None or step == 0 or step % self.config.refresh_every:
            return

        def extracted() -> dict[str, Tensor]:
            d = differences_at(session.loaded, session.adapter, old, self.sides, self.config.token_budget)
            return basis_again(d, old)

        # One rank extracts it for all: two machines may round an SVD differently, and V has to be the same bits.
        basis = {n: v.to(old.basis[n]) for n, v in session.world.from_first(extracted).items()}
        session.use(dataclasses.replace(old, basis=basis))
        logger.info(f"V extracted again: overlap with the one before {overlap(basis, old.basis):.3f}")


# ---------------------------------------------------------------- at trained adapters


def measured(run: Path, cache: Path | None = None, vhack: Path | None = None) -> ReExtractions:
    """Measures every kept adapter of a finished run, the last one included. BadInput when its V cannot be extracted again,
    or when model, V or pairs are not the run's."""
    manifest = read_manifest(run)
    config = trained_with(run, manifest)
    if config.refresh_every:
        raise BadInput(f"{run}: --refresh-every {config.refresh_every} extracts V again by itself")
    theirs = manifest["vhack"]
    if (control := theirs.get("control")) not in REFRESHED:
        raise BadInput(
            f"{run}: its V is {control or 'not there'}; one of {' or '.join(REFRESHED)} can be extracted again"
        )
    config = dataclasses.replace(config, cache=cache or config.cache, vhack=vhack or config.vhack, device="auto")
    loaded, adapter = load_base(run, manifest, config)
    v = load_vhack(config.vhack, loaded, adapter, None, config.k_use, config.noise_floor)
    if (mine := v.meta["v_sha256"]) != theirs["v_sha256"]:
        raise BadInput(
            f"--vhack {config.vhack}: v_sha256 {mine}, but {run} used {theirs['v_sha256']}; name the V that it used"
        )
    sides = sides_of(v, config.pairs, loaded, "V again is of the same pairs")
    out = []
    for steps, path in trained_adapters(run, manifest["steps_done"]).items():
        adapter.load(path)
        d = differences_at(loaded, adapter, v, sides, config.token_budget)
        out.append(record(adapter, v, d, steps, config.gate))
        logger.info(f"after {steps} steps: overlap {out[-1].overlap:.4f} (unrelated: {out[-1].null:.4f})")
    return ReExtractions(mine, tuple(out))


def record(adapter: Adapter, v: VBasis, d: Differences, steps: int, gate: str) -> ReExtracted:
    """Returns what D [pairs, n] at the adapter as it is says of the V in use."""
    again = basis_again(d, v)
    modules = compared(again, v.basis)
    if not modules:
        raise BadInput("no module has directions in both V; nothing can be compared")
    cosines = [_hack_ward(again[m.name], v.basis[m.name].cpu(), d[m.name].mean(0), gate) for m in modules]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    return ReExtracted(
        steps, adapter.norm(), mean([m.overlap for m in modules]), mean([m.null for m in modules]),
        mean([before for before, _ in cosines]), mean([after for _, after in cosines]),
    )  # fmt: skip


def _hack_ward(again: Tensor, used: Tensor, g: Tensor, gate: str) -> tuple[float, float]:
    """Returns ||relu(V_again g)|| / ||g|| of one module, of g as it is and after `used` was removed from it."""
    norm = g.norm().clamp(min=1e-30)
    left = g - GATES[gate](used.to(g) @ g) @ used.to(g)
    before, after = ((again.to(g) @ x).relu().norm() / norm for x in (g, left))
    return float(before), float(after)
