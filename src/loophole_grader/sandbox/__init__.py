"""Where model-written code runs: warm workers behind layers of isolation; the trainer sees `pool` alone."""
