"""Whether a step of decoding could be recorded as a CUDA graph, found on a CPU: nothing in it may wait for the device."""

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from projected_grpo.fits.counter import LiveStorage
from projected_grpo.fits.fake import mode_of, no_memory
from projected_grpo.model.attention import packed_queries
from projected_grpo.model.load import LoadedModel
from projected_grpo.rollout.decoding import FixedDecoder, FixedLayer


class ReadsOnHost(RuntimeError):  # noqa: N818 - the name is what the user reads
    """The host asks for a number, or for a size that hangs on numbers, which the device has still to compute."""


def decoding_step(loaded: LoadedModel, prompts: Sequence[Sequence[int]], group: int) -> int:
    """Operators of one step of a FixedDecoder of a fake model, in which everything that a GPU would hold is fake: the token,
    its place and the mask too. ReadsOnHost names the operator that would break the recording."""
    mode = mode_of(loaded.model)
    with no_memory(), torch.no_grad(), packed_queries(loaded.model), LiveStorage() as counter:
        decoder = FixedDecoder(loaded, prompts, group)
        token = torch.ones(len(prompts) * group, dtype=torch.long)
        decoder.step(token)  # makes the room that the next steps write into
        for name in ("token", "place", "seen", "where", "position"):
            setattr(decoder, name, mode.from_tensor(getattr(decoder, name)))
        for layer in decoder.cache.layers:
            assert isinstance(layer, FixedLayer)
            layer.where = decoder.where
        before = counter.operators
        try:
            with mode:  # what is made inside would be the device's as well
                decoder.step(mode.from_tensor(token))
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise ReadsOnHost(
                f"the decoding step asks the device for {e.func} and waits: no CUDA graph can record it"
            ) from e
        return counter.operators - before
