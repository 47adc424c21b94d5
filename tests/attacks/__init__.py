"""Hostile completions for the grader and, for each, an honest solution that uses the same feature innocently.

Every attack is a program that does not solve its problem. Two forms:

- a forgery returns or reports something false beside a wrong solution;
- a probe solves the problem honestly if, and only if, its `breach()` got at something it must not reach. So `gt_pass`
  of a probe is the breach itself.

Words in @capitals@ are replaced by what the test set up: canary files, ports, process ids. Each module is one family of
attacks and names them in its FAMILY; a new one is added to FAMILIES below.
"""

from attacks import (
    answering,
    ending,
    forging,
    hostile_text,
    leaving,
    lying,
    memory_limits,
    network,
    other_processes,
    own_tests,
    patching,
    processes,
    reading_answers,
    reading_files,
    signals,
    tampering,
    time_limits,
    writing_files,
)
from attacks.forms import Attack
from attacks.honest import CONTROLS
from attacks.problems import SOLVED, TASKS

FAMILIES = (
    forging,
    ending,
    patching,
    tampering,
    reading_answers,
    lying,
    answering,
    time_limits,
    memory_limits,
    processes,
    signals,
    other_processes,
    writing_files,
    reading_files,
    leaving,
    network,
    hostile_text,
    own_tests,
)
ATTACKS: list[Attack] = [attack for family in FAMILIES for attack in family.FAMILY]

__all__ = ["ATTACKS", "CONTROLS", "FAMILIES", "SOLVED", "TASKS", "Attack"]
