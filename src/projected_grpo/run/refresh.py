"""V extracted anew during training: the frozen V describes the untrained model, and the policy moves away from it."""

import dataclasses
from collections.abc import Mapping

from loguru import logger
from torch import Tensor

from projected_grpo.config import TrainConfig
from projected_grpo.groups.pairs import resampled, split
from projected_grpo.run.session import Session
from projected_grpo.run.vhack_file import pairs_of
from projected_grpo.vhack import PairSide, VHack, basis_of, pair_differences, pair_sides


def overlap(new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> float:
    """Mean over modules of ||V_new V_old^T||_F^2 / k, k the smaller rank: 1 for the same subspace, k/r for unrelated
    ones. Modules without directions are left out; 0.0 when there is no other."""
    shares = [
        float((new[n] @ old[n].T).square().sum()) / min(len(new[n]), len(old[n]))
        for n in new
        if len(new[n]) and len(old[n])
    ]
    return sum(shares) / len(shares) if shares else 0.0


class Refresher:
    """Extracts V every `refresh_every` steps from the pairs of the first V, with its rank, loss and control.

    BadInput, before anything is written, when the pairs are not those that V was made from.
    """

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        self.sides: list[PairSide] = []
        if not config.refresh_every or session.v is None:
            return
        meta = session.v.meta
        pairs = pairs_of(meta, config.pairs, "--refresh-every needs the same pairs")
        train, _ = split(pairs)
        drawn = resampled(train, int(meta["pairs_draw"]))
        self.sides = pair_sides(drawn, session.loaded, meta["hint"], meta["prompt_setup"], meta["control"])

    def due(self, step: int) -> bool:
        """Whether V is to be extracted anew before this step."""
        return bool(self.sides) and step > 0 and step % self.config.refresh_every == 0

    def refresh(self) -> None:
        """Extract V at the policy as it is now and hand it to the session."""
        session, old = self.session, self.session.v
        if old is None:
            raise ValueError("no V to refresh")
        # One rank extracts it for all: two machines may round an SVD differently, and V has to be the same bits.
        found = session.world.from_first(lambda: self.extract(old))
        basis = {n: v.to(old.basis[n]) for n, v in found.items()}
        shared = overlap(basis, old.basis)
        session.refresh(dataclasses.replace(old, basis=basis), shared)
        logger.info(f"V extracted anew: overlap with the one before {shared:.3f}")

    def extract(self, old: VHack) -> dict[str, Tensor]:
        """V [k, n] of every module at the policy as it is now, of the ranks of the old one, on the CPU."""
        session = self.session
        d = pair_differences(
            session.loaded,
            session.adapter,
            self.sides,
            "grpo" if old.meta["loss"] == "grpo" else "nll",
            self.config.max_new,
            self.config.token_budget,
        )
        return {n: basis_of(rows, len(old.basis[n]))[0].to(old.basis[n]).cpu() for n, rows in d.items()}
