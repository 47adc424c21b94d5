"""A run from its first line to its last: prepare, sources of groups, steps, checkpoints, evaluation."""
