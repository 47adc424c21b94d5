"""Where groups come from: problems, pairs, live sampling, a teacher's pool, files on disk."""
