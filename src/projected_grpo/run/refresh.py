"""V extracted again from its own pairs: in training (--refresh-every), or at the trained adapters of a finished run.

V is written in the coordinates of the untrained model. A LoRA's move: dL/dB = (dL/dW) A^T and dL/dA = B^T (dL/dW), so
once A and B have changed, the same row of V is another direction of the weights. The singular basis stays; there only
the policy moves. Both are measured alike, on the run's pairs: D at the trained adapter, its V, and how much of the
pairs' mean gradient lies along that V before and after the V in use is removed."""

import dataclasses
from pathlib import Path
from statistics import fmean

from loguru import logger
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import GateName
from projected_grpo.config import REFRESHED, TrainConfig, due
from projected_grpo.data.vhack_meta import pairs_of, vhack_meta
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.re_extracted import ReExtracted
from projected_grpo.projection import Projection, compared, norm_of, overlap, profile
from projected_grpo.run.extraction import vhack_of
from projected_grpo.run.policy import Policy
from projected_grpo.run.trained import load_base, trained_adapters, trained_with
from projected_grpo.vhack import Differences, Extraction, Sides, VBasis, basis_of, load_vhack


def basis_again(d: Differences, old: VBasis) -> dict[str, Tensor]:
    """Returns V of D, of the ranks of the old one, on the CPU."""
    return {n: basis_of(rows, len(old.basis[n]))[0].to(old.basis[n]).cpu() for n, rows in d.items()}


class Refresher:
    """Extracts V every `refresh_every` steps from the pairs of the first V, with its rank, loss and control.

    BadInput, before anything is written, when the pairs are not those that V was made from.
    """

    def __init__(self, config: TrainConfig, policy: Policy) -> None:
        self.config, self.policy = config, policy
        self.sides: list[Sides] = []
        if config.refresh_every and policy.v is not None:
            pairs = pairs_of(policy.v.meta, config.pairs, "--refresh-every needs the same pairs")
            self.sides = Extraction.of(policy.v.meta).sides(pairs, policy.loaded)

    def refresh_if_due(self, step: int) -> None:
        """Extracts V at the policy as it is and hands it to the policy, if it is due before this step."""
        policy, old = self.policy, self.policy.v
        if not self.sides or old is None or step == 0 or not due(step, self.config.refresh_every):
            return

        def extracted() -> dict[str, Tensor]:
            how, budget = Extraction.of(old.meta), self.config.token_budget
            return basis_again(how.differences(policy.loaded, policy.adapter, self.sides, budget), old)

        # One rank extracts it for all: two machines may round an SVD differently, and V has to be the same bits.
        basis = {n: v.to(old.basis[n]) for n, v in policy.ranks.on_rank0(extracted).items()}
        policy.use(basis)
        logger.info(f"V extracted again: overlap with the one before {overlap(basis, old.basis):.3f}")


# ---------------------------------------------------------------- at trained adapters


def measured(run: Path, vhack: Path = Path()) -> list[ReExtracted]:
    """Measures every kept adapter of a finished run, the last one included. vhack: where its V is by now; Path(): in
    its place. BadInput when V cannot be extracted again, or when model, V or pairs are not the run's."""
    manifest, config = trained_with(run)
    if config.refresh_every:
        raise BadInput(f"{run}: --refresh-every {config.refresh_every} extracts V again by itself")
    theirs = manifest["vhack"]
    if (control := theirs.get("control")) not in REFRESHED:
        raise BadInput(f"{run}: its V is {control or 'not there'}; {' or '.join(REFRESHED)} can be extracted again")
    config = dataclasses.replace(config, device="auto", vhack=vhack if vhack != Path() else config.vhack)
    loaded, adapter = load_base(run, manifest, config)
    path = vhack_of(config, loaded, adapter)
    pairs = pairs_of(vhack_meta(path), config.pairs, "V again is of the same pairs")
    v = load_vhack(path, loaded, adapter, None, config.k_use, config.noise_floor)
    if (mine := v.meta["v_sha256"]) != theirs["v_sha256"]:
        raise BadInput(f"--vhack {path}: v_sha256 {mine}, {run} used {theirs['v_sha256']}; name that V")
    how, out = Extraction.of(v.meta), []
    sides = how.sides(pairs, loaded)
    for steps, path in trained_adapters(run, manifest["steps_done"]).items():
        adapter.load(path)
        d = how.differences(loaded, adapter, sides, config.token_budget)
        out.append(record(adapter, v, d, steps, config.gate))
        logger.info(f"after {steps} steps: overlap {out[-1].overlap:.4f} (unrelated: {out[-1].null:.4f})")
    return out


def record(adapter: Adapter, v: VBasis, d: Differences, steps: int, gate: GateName) -> ReExtracted:
    """Returns what D [pairs, n] at the adapter as it is says of the V in use."""
    again = basis_again(d, v)
    modules = compared(again, v.basis)
    g = {m.name: d[m.name].mean(0) for m in modules}
    in_use = Projection({name: v.basis[name].to(own) for name, own in g.items()}, "grad", gate)
    before, after = profile(g, again), profile(in_use.apply(g)[0], again)
    norms = {name: max(m.norm, 1e-30) for name, m in before.items()}
    return ReExtracted(
        steps, norm_of(adapter.values()), fmean(m.overlap for m in modules), fmean(m.null for m in modules),
        fmean(before[n].hackward / norm for n, norm in norms.items()),
        fmean(after[n].hackward / norm for n, norm in norms.items()),
    )  # fmt: skip
