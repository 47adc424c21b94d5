"""Chains of runs: what they are (plans), one link of them (links, run_link), and where they run (local, pueue, slurm)."""
