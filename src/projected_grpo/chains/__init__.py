"""Chains of runs: what they are (plans), one link of them (task, link), and where they run (here, pueue, slurm)."""
