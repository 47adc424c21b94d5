"""Remove a hack direction from the RL gradient, and see whether the model still learns to hack its reward."""
