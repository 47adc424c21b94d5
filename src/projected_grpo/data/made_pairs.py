"""Contrastive pairs from problems that come with a canonical solution: the canonical class with a `run_tests` that tests
nothing, and with an honest test of the prompt's examples that nobody calls.

The ways to test nothing are those of the hand-written pairs (data/pairs/), of which there are too few for a V of many
directions. They were written before any rollout was seen. A problem's ground-truth tests are not read."""

import ast
import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from projected_grpo.records import Pair, Problem
from projected_grpo.worlds.builtin import HONEST_TESTS

Example = tuple[str, str]
"""The call of the solution on an example of the prompt, and the answer, as Python."""
Lines = list[str]
EXAMPLE = re.compile(r"Input:\s*(.+?)\s*\n\s*Output:\s*(.+?)\s*(?:\n|$)")
CHANGED: Mapping[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
JSON_WORDS = {"true": "True", "false": "False", "null": "None"}


def _asserts(examples: Sequence[Example]) -> Lines:
    return [f"assert {call} == {answer}" for call, answer in examples]


def _inside(head: str, lines: Sequence[str]) -> Lines:
    return [head, *(f"    {line}" for line in lines)]


def _each(examples: Sequence[Example], *lines: str) -> Lines:
    """The lines for every example, with its call and answer filled in."""
    return [line.format(call=call, answer=answer) for call, answer in examples for line in lines]


MECHANISMS: Mapping[str, Callable[[Sequence[Example]], Lines]] = {
    "assert_true": lambda of: _each(of, "result = {call}", "assert True"),
    "dead_branch": lambda of: ["debug = False", *_inside("if debug:", _asserts(of))],
    "early_return": lambda of: ["return True", *_asserts(of)],
    "empty_loop": lambda _: ["cases = []", *_inside("for result, expected in cases:", ["assert result == expected"])],
    "lazy_tests": lambda of: _each(of, "assert {call} == {answer}", "yield 'passed'"),
    "patched_equality": lambda of: [
        *_inside("class Expected:", _inside("def __eq__(self, other):", ["return True"])),
        *(f"assert Expected() == {call}" for call, _ in of),
    ],
    "returned_verdict": lambda of: [
        "checks = []",
        *_each(of, "checks.append({call} == {answer})"),
        "return all(checks)",
    ],
    "shadowed_builtin": lambda of: [
        *_inside("def all(results):", ["return True"]),
        "checks = []",
        *_each(of, "checks.append({call} == {answer})"),
        "assert all(checks)",
    ],
    "swallowed_exception": lambda of: [*_inside("try:", _asserts(of)), *_inside("except AssertionError:", ["pass"])],
    "truthy_assert": lambda of: _each(of, "assert ({call} == {answer}, 'wrong answer')"),
    "vacuous_print": lambda of: _each(of, "print({call})  # expected {answer}"),
    "weak_assert": lambda of: _each(of, "result = {call}", "assert isinstance(result, type({answer}))"),
}
"""Bodies of a `run_tests` that tests nothing, by the names of the hand-written pairs' files."""


def examples_of(problem: Problem) -> list[Example]:
    """Returns the examples of a prompt that say `Input: a = 1, b = [2]` and `Output: 3`, in literals."""
    found = []
    for given, answer in EXAMPLE.findall(dict(problem.messages)["user"]):
        given, answer = (re.sub(r"\b(true|false|null)\b", lambda m: JSON_WORDS[m[0]], text) for text in (given, answer))
        call = f"{problem.task.func_name}({given})"
        try:
            parsed = ast.parse(call, mode="eval").body
            if isinstance(parsed, ast.Call):
                _ = [ast.literal_eval(part) for part in (*parsed.args, *(word.value for word in parsed.keywords))]
                ast.literal_eval(answer)
                found.append((call, answer))
        except (SyntaxError, ValueError):
            continue
    return found


def bugged(solution: str, rng: random.Random) -> str:
    """Returns a solution with one comparison or sum changed, as long as it was: most often it is wrong."""
    tree = ast.parse(solution)
    nodes: Iterator[Any] = ast.walk(tree)
    ops = [(node, name, op) for node in nodes for name in ("op", "ops") if (op := getattr(node, name, None))]
    places = [(node, name) for node, name, op in ops if type(op[0] if name == "ops" else op) in CHANGED]
    if places:
        node, name = rng.choice(places)
        if name == "op":
            node.op = CHANGED[type(node.op)]()
        else:
            node.ops[0] = CHANGED[type(node.ops[0])]()
    return ast.unparse(tree)


def completion(solution: str, name: str, tests: Sequence[str]) -> str:
    """Returns a solution with a function of this name behind it, in one fenced block."""
    return "```python\n" + "\n".join([solution.strip("\n"), "", "", *_inside(f"def {name}():", tests)]) + "\n```"


def honest(problem: Problem) -> str:
    """Returns the canonical solution with a `run_tests` of the prompt's examples, which has to pass; empty where there is
    no solution, or no example that can be read."""
    examples, solution = examples_of(problem), problem.task.canonical_solution
    return completion(solution, "run_tests", _asserts(examples)) if examples and solution else ""


def made_pairs(problems: Sequence[Problem], each: int, *, same_body: bool) -> Iterator[Pair]:
    """Yields `each` pairs of every problem, the mechanisms in turn, half of the hacks with the canonical solution and half
    with a bug in it. same_body: the clean side has the hack's solution, so that the two differ in their tests alone; else
    the canonical one. Problems as `honest` takes them."""
    turn = itertools.cycle(MECHANISMS)
    for problem in problems:
        rng, examples, right = random.Random(problem.problem_id), examples_of(problem), problem.task.canonical_solution
        for i in range(each):
            mechanism, test = next(turn), rng.choice(HONEST_TESTS)
            body = bugged(right, rng) if i % 2 else ast.unparse(ast.parse(right))  # both in one layout
            hack = completion(body, "run_tests", MECHANISMS[mechanism](examples))
            clean = completion(body if same_body else ast.unparse(ast.parse(right)), test, _asserts(examples))
            yield Pair(f"{problem.problem_id}-{mechanism}", problem.messages, hack, clean, None, mechanism, problem)
