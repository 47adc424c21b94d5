"""Hostile completions for the grader and, for each, an honest solution that uses the same feature innocently.

Every attack is a program that does not solve its problem. Two forms:

- a forgery returns or reports something false beside a wrong solution;
- a probe solves the problem honestly if, and only if, its `breach()` got at something it must not reach. So `gt_pass`
  of a probe is the breach itself.

Words in @capitals@ are replaced by what the test set up: canary files, ports, process ids. Each module is one family
of attacks."""

import pkgutil
from importlib import import_module

from attacks.forms import ATTACKS, Attack
from attacks.honest import CONTROLS
from attacks.problems import SOLVED, TASKS

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    if _module != "world":  # which is about them all
        import_module(f"attacks.{_module}")

__all__ = ["ATTACKS", "CONTROLS", "SOLVED", "TASKS", "Attack"]
