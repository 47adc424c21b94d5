"""Tests drawn at random, and what plain Python makes of them: setup code, program and test in one process."""

import contextlib
import random

SETUP = """K = 3
S = [4, 1]
inf = float("inf")
def mk(x): return [x, 2]
def same(): return S
def plus(x): return x + [1]
def push(x):
    x.append(9)
    return x
def total(x): return sum(total(y) if isinstance(y, list) else y for y in x) if isinstance(x, list) else x
"""
HEAD = """class Solution:
    kept = []
    def __init__(self): self.mine = []
    def f(self, *args):
        x = args[0]
"""
NUMBER = "        t = lambda v: sum(map(t, v)) if isinstance(v, list) else v\n"
BODIES = (
    NUMBER + "        return sum(map(t, args))",
    "        return sorted(x, key=str) if isinstance(x, list) else [x]",
    "        if isinstance(x, list): x.sort(key=str)",
    "        return x",
    "        return x[0] if isinstance(x, list) and x else x",
    "        if isinstance(x, list): x.clear()\n        return []",
    "        self.kept.append(len(args))\n        return self.kept",
    "        self.mine.append(7)\n        return self.mine",
    "        for one in self.kept: one.append(5)\n        if isinstance(x, list): self.kept.append(x)\n        return [1]",
    "        if isinstance(x, list): x.append(x[0] if x else 0)\n        return x",
    "        return [x, x]",
    "        self.mine.append(x)\n        return self.mine",
    "        if isinstance(x, list): x.append(self.mine)\n        self.mine.append(1)\n        return list(args)",
    "        self.kept.append([1])\n        return self.kept[0]",
    "        if isinstance(x, list) and x and isinstance(x[0], list): x[0].append(1)\n        return 1",
    "        return 1",
)
PROGRAMS = tuple(HEAD + body + "\n" for body in BODIES)


def _forms(text: str) -> list[str]:
    return text.split(" | ")


LISTS, NUMBERS = "abc", "nm"
VALUES = ("[2, 1]", "[[1], [2]]", "[5]", "[]", "[3, [1]]")
STATEMENTS = _forms(
    "{a} = [3, 1, 2] | {a} = [[1], [2]] | {a} = [] | {n} = 2 | {a} = {b} = [1] | {a}, {b} = [1], [2, 0] | "
    "{a}, {a} = [1], [2] | {a} = {b} | {a} = [{b}, {b}] | {a} = [{b}, {c}] | {a} = list({b}) | {a} = {b}[:] | "
    "{a} = {b}[0] | {a} = {b} + [{n}] | {a} = sorted({b}, key=str) | {n} = len({a}) | {n} = {a}[0] | "
    "{a} = [i + 1 for i in range(3)] | {a} = [{b}] * 2 | {a} = S | {a} = mk({n}) | {a} = same() | {a} = plus({b}) | "
    "{a} = push({b}) | {n} = total({a}) | {n} = K | {a} = [K] | {a}.append({n}) | {a}.append({b}) | {a}[0] = {n} | "
    "{a} += [1] | {a}.sort(key=str) | {a}.pop() | {n} += 1 | {a}.reverse() | del {a}[0] | {a}.extend({b}) | "
    "push({a}) | S.append(1) | {a}[0].append({n}) | {a} += {b} | {a}.insert(0, {b}) | "
    "for i in range(2): {a}.append(i) | for row in {a}: row.append(1) | if {n} > 2: {a} = {b} | inf = {n} | "
    "{n} = inf | try: {n} = {a}.pop()\nexcept IndexError: {n} = 0 | it = iter({a}) | {n} = next(it) | "
    "{a} = list(it) | fs = [] | fs.append(p) | fs.append(l) | t = ({a}, {b}) | {a} = t[0] | d = {{'k': {a}}} | "
    "{a} = d['k'] | d['k'].append({n}) | d['m'] = {a} | "
    "{a} = [*{b}] | def g(v): return [v, {n}] | def h(v=[]):\n    v.append(1)\n    return v | "
    "def p(): return {a} | l = lambda v: v + {a} | {a} = g({b}) | {a} = h() | {a} = p() | {a} = l({b}) | "
    "class C:\n    k = {a} | {a} = C.k | fs = [push] | fs[0]({a})"
)
CALLS = _forms(
    "{r} = Solution().f({x}) | Solution().f({x}) | s = Solution() | {r} = s.f({x}) | s.f({x}) | {r} = s.f({x}, {y}) | "
    "{a} = s.f({x}) | {r} = [s.f({x}), s.f({y})] | {a}.append(s.f({n})) | {r} = Solution().f(s.f({x})) | "
    "{n} = s.f({x})"
)
ARGUMENTS = _forms(
    "{a} | {a} | {b} | {n} | [{a}] | [{a}, {b}] | {a}[0] | {n} + 1 | [{n}] | S | mk({n}) | [1, 2] | [[2], [1]] | "
    "{r} | {a} + {b} | list({a}) | same() | push({a}) | K | len({a}) | p() | "
    "{a}.pop() | C.k | *{a} | inf | t | d | d['k'] | {a}[:] | {r}"
)
LOOKED_AT = _forms(
    "t | d | fs[0]() | fs[0]([1]) | d['k'] | [*{r}, 1] | {a} | {b} | {c} | "
    "{r} | {q} | {n} | len({a}) | sorted({r}, key=str) | total({r}) | plus({a}) | {a}[0] | {r}[0] | "
    "[{a}, {r}] | S | s.f({x}) | Solution().f({x}) | s.f({x}) == s.f({y}) | [s.f({x}), s.f({y})] | {r} == {q} | "
    "{a} == {b} | {r} == {a} | push({a}) | {a}.pop() | {r} is {a} | [v for v in {a}] | [v + 1 for v in {r}] | "
    "same() | next(it) | list(it) | s.f({x}) == {r} | h() | p() | inf | sorted(s.f({x}), key=str) | "
    "s.f({x}) == 1 and s.f({y}) == 2 | s.f({x})[0] == s.f({y})[0]"
)


def drawn(rng: random.Random, program: str, most: int = 9) -> str:
    """A test that this program passes in plain Python. Most tests of this kind are neither sensible nor short of traps."""
    lines = [f"{name} = {rng.choice(VALUES)}" for name in LISTS] + ["n = 4", "m = 1", "s = Solution()"]
    lines = [line for line in lines if rng.random() < 0.8]
    share = rng.choice((0.2, 0.45))
    for _ in range(rng.randrange(3, most)):
        kind = rng.random()
        if kind < share:
            lines = _longer(lines, _filled(rng, rng.choice(STATEMENTS)), program)
        elif kind < 0.75:
            lines = _longer(lines, _filled(rng, rng.choice(CALLS)), program)
        else:
            lines = _asserted(lines, _filled(rng, rng.choice(LOOKED_AT)), program)
    for _ in range(2):
        lines = _asserted(lines, _filled(rng, rng.choice(LOOKED_AT)), program)
    return "\n".join(lines)


def _filled(rng: random.Random, form: str) -> str:
    """A form with names in its places."""
    names = {
        "r": rng.choice("rq"),
        "q": rng.choice("rq"),
        "n": rng.choice(NUMBERS),
        **{k: rng.choice(LISTS) for k in "abc"},
    }
    arguments = {key: rng.choice(ARGUMENTS).format(**names) for key in "xy"}
    filled = form.format(**names, **arguments)
    kept = "S" in filled.replace("Solution", "") or "same()" in filled  # refused, mostly: only now and then
    return "pass" if kept and rng.random() < 0.9 else filled


def _longer(lines: list[str], line: str, program: str) -> list[str]:
    return [*lines, line] if passes([*lines, line], program) else lines


def _asserted(lines: list[str], expression: str, program: str) -> list[str]:
    """One assertion more, of the value that the expression has."""
    found: dict = {}
    if expression == "pass":
        return lines
    if not passes([*lines, f"_found = repr({expression})"], program, found):
        return lines
    if len(found["_found"]) > 60 or "<" in found["_found"] or "..." in found["_found"]:
        return lines
    value = found["_found"]
    line = f"assert {expression}" if value == "True" else f"assert ({expression}) == {value}"
    return _longer(lines, line, program)


def passes(lines: list[str], program: str, names: dict | None = None, setup: str = SETUP) -> bool:
    """Whether the test ends without an error in plain Python."""
    names = {} if names is None else names
    exec(setup + program, names)
    with contextlib.suppress(Exception):
        exec("\n".join(lines), names)
        return True
    return False
