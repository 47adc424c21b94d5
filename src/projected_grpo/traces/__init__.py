"""Traces: rollouts as (state, action, reward), of one turn or several, on disk and in other projects' formats."""
