"""What scripts/fits.py asks for: a training run's own fields, and the card. No torch here: --help stays fast."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from projected_grpo.arms import ARMS
from projected_grpo.config import ExtractConfig, Sampling, TrainConfig, at_least, check_mix, flag
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets


@dataclass(frozen=True)
class FitsConfig(TrainConfig):
    """fits: would this run fit a GPU? Takes the options of train."""

    gpu: int = 0
    """Memory of the card as it is sold, in GB: 24, 40, 80 or 141. 0 = a line for every card."""
    k: int = 32
    """Directions of V per module."""
    modes: tuple[str, ...] = ()
    """Mechanisms of the pairs that V is made of; empty = all."""
    prompt_tokens: int = 0
    """Longest prompt, in tokens; 0 = that of --problems, cut by the model's own tokenizer where it is at hand, else
    estimated from characters."""
    measure: bool = False
    """Run every stage on --device, twice, with random weights of these shapes, and hold what it takes to a tenth of what is
    predicted."""

    def validate(self) -> None:
        """BadInput on values that no run could use. Files that only the run itself needs (--vhack) need not be here."""
        Sampling.validate(self)
        for name in ("k", "prompts_per_step", "eval_samples"):
            at_least(self, name, 1)
        for name in ("gpu", "prompt_tokens", "per_sample_every"):
            at_least(self, name, 0)
        check_mix(self)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise BadInput(f"{flag('device')} {self.device}: auto, cpu, cuda or cuda:N")
        if self.model.startswith("toy") and self.dtype == "bfloat16":
            raise BadInput(f"{flag('dtype')} bfloat16: the toy models are float32; leave it out")

    @property
    def left_out(self) -> tuple[str, ...]:
        """Options whose memory is not in the estimate."""
        judged = ("judge",) if self.judge.startswith("model:") else ()
        anew = ("refresh_every",) if self.refresh_every else ()
        arm = (f"{flag('arm')} {self.arm}'s own",) if ARMS[self.arm].page else ()
        return (*(flag(name) for name in (*self.channels_on, *judged, *anew)), *arm)


def fits_presets() -> Mapping[str, FitsConfig]:
    """Every preset of train, with the rank of the V that its chain extracts."""
    ranks = presets(ExtractConfig)
    return {
        name: FitsConfig(
            **{f.name: getattr(config, f.name) for f in fields(config)}, k=ranks[name].k, modes=ranks[name].modes
        )
        for name, config in presets(TrainConfig).items()
    }
