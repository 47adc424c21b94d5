"""Sampling completions from the model, token by token."""
