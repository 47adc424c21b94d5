"""Chains of runs: what they are (plans), one link of them (link, link), and where they run (here, pueue, slurm)."""
