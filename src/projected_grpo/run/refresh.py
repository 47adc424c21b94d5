"""V extracted anew during training: the frozen V describes the untrained model, and the policy moves away from it."""

import dataclasses
from collections.abc import Sequence

from loguru import logger
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.config import TrainConfig
from projected_grpo.data.pairs import resampled, split
from projected_grpo.model.load import LoadedModel
from projected_grpo.projection import overlap
from projected_grpo.run.session import Session
from projected_grpo.run.vhack_file import held_out_of, pairs_of
from projected_grpo.vhack import Differences, PairSide, VBasis, basis_of, pair_differences, pair_sides


def sides_again(v: VBasis, source: str, loaded: LoadedModel, why: str) -> list[PairSide]:
    """The completions that V was made from, loaded again from `source`. BadInput, saying `why` it matters, when they
    differ."""
    train, _ = split(pairs_of(v.meta, source, why), held_out_of(v.meta))
    drawn = resampled(train, int(v.meta["pairs_draw"]))
    return pair_sides(drawn, loaded, v.meta["hint"], v.meta["prompt_setup"], v.meta["control"])


def differences_again(
    loaded: LoadedModel, adapter: Adapter, old: VBasis, sides: Sequence[PairSide], max_new: int, token_budget: int
) -> Differences:
    """D [pairs, n] of every module at the policy as it is now, by the loss that V was made with."""
    loss = "grpo" if old.meta["loss"] == "grpo" else "nll"
    return pair_differences(loaded, adapter, sides, loss, max_new, token_budget)


def basis_again(d: Differences, old: VBasis) -> dict[str, Tensor]:
    """V of D, of the ranks of the old one, on the CPU."""
    return {n: basis_of(rows, len(old.basis[n]))[0].to(old.basis[n]).cpu() for n, rows in d.items()}


class Refresher:
    """Extracts V every `refresh_every` steps from the pairs of the first V, with its rank, loss and control.

    BadInput, before anything is written, when the pairs are not those that V was made from.
    """

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        self.sides: list[PairSide] = []
        if not config.refresh_every or session.v is None:
            return
        self.sides = sides_again(session.v, config.pairs, session.loaded, "--refresh-every needs the same pairs")

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
        session.use(dataclasses.replace(old, basis=basis))
        logger.info(f"V extracted anew: overlap with the one before {shared:.3f}")

    def extract(self, old: VBasis) -> dict[str, Tensor]:
        """V [k, n] of every module at the policy as it is now, of the ranks of the old one, on the CPU."""
        session, config = self.session, self.config
        d = differences_again(session.loaded, session.adapter, old, self.sides, config.max_new, config.token_budget)
        return basis_again(d, old)
