"""Chains of runs: what they are (plans, chains), a link and how it runs (links), and the queues (backends)."""
