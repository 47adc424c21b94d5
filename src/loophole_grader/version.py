"""The version of both distributions, loophole-grader and projected-grpo: hatchling reads this line."""

__version__ = "0.1.0"
