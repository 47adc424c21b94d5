"""Trainable coordinates on the Linears of a frozen model. Every kind goes through `base.Adapter`."""

from collections.abc import Mapping

ADAPTERS: Mapping[str, str] = {
    "antipasto": "antipasto:for_config",
    "lora": "lora_adapter:for_config",
    "lora_fa": "lora_adapter:frozen_a_for_config",
}
"""--adapter -> "module:function" in this folder, of (model, config): puts the adapter onto the model and returns it.
The name is the `kind` of its layers."""
