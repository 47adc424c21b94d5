"""Where groups of samples come from: problems, pairs, live sampling, a pool, files."""
