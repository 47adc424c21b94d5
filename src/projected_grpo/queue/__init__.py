"""Chains of runs: what they are (plans), a link (links, run_link), and where they run (a terminal, pueue, slurm)."""
