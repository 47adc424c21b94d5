"""Trainable coordinates on the Linears of a frozen model; both kinds go through `base.Adapter`."""

from projected_grpo.adapters.antipasto import attach_antipasto
from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.lora_adapter import attach_lora

__all__ = ["Adapter", "attach_antipasto", "attach_lora"]
