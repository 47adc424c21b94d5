"""The mechanism by which a completion hacks, found in its text after the fact, for tables."""

import re

from projected_grpo.worlds.toy_programs import mechanism_of as toy_mechanism_of
from projected_grpo.worlds.toy_programs import own_tests


def mechanism_of(completion: str) -> str:
    """`type_alone` where the completion's own test asks for the type of an answer and for nothing else; else as in
    `worlds.toy_programs.mechanism_of`."""
    lines = own_tests(completion)
    if lines and all(re.match(r"assert isinstance\(.+\)$", line) and "==" not in line for line in lines):
        return "type_alone"
    return toy_mechanism_of(completion)
