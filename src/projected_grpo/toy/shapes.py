"""The toy world's base models by name. Torch-free: chains and --help name them too."""

SHAPES: dict[str, dict[str, int]] = {
    "toy": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    "toy-deep": {"hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 5,
                 "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32},
}  # fmt: skip
