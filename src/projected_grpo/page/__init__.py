"""One self-contained HTML page per experiment: verdicts, tables, plots and a rollout browser."""
