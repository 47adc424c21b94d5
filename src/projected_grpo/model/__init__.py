"""The frozen model: loading it, and log-probabilities of completions."""
