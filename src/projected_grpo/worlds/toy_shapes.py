"""Shapes of the toy world's base models."""

from projected_grpo.ledger.errors import BadInput

SHAPES: dict[str, dict[str, int]] = {
    "toy": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    "toy-deep": {"hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 5,
                 "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32},
}  # fmt: skip


def check_toy_model(model: str) -> None:
    """BadInput for a name that no toy base model has."""
    if model not in SHAPES:
        raise BadInput(f"--model {model}: the toy world has {', '.join(SHAPES)}")
