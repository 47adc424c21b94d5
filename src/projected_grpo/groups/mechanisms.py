"""By what a completion hacks, told from its text after the fact, for tables."""

import re

from projected_grpo.toy.programs import mechanism_of as toy_mechanism_of

_TESTS = re.compile(r"def run_tests\(\):\n((?:[ \t]+.*(?:\n|$))+)")


def mechanism_of(completion: str) -> str:
    """`type_alone` where the completion's own test asks for the type of an answer and for nothing else; else as in
    `toy.programs.mechanism_of`."""
    found = _TESTS.search(completion)
    asserts = [line.strip() for line in found[1].splitlines() if line.strip()] if found else []
    if asserts and all(re.match(r"assert isinstance\(.+\)$", line) and "==" not in line for line in asserts):
        return "type_alone"
    return toy_mechanism_of(completion)
