"""The names that trusted text (a test, setup code) loads, mentions and binds, read off its syntax."""

import ast
import importlib
import symtable
from functools import lru_cache

DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
STARRED = (
    "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "itertools", "json", "math", "operator", "os", "random", "re", "statistics", "string", "sys", "time", "typing",
)  # modules that are imported here to see which names `from MODULE import *` brings  # fmt: skip


def names_loaded(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def names_mentioned(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def parameters_of(node: ast.Lambda | ast.FunctionDef) -> set[str]:
    return {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}


def names_bound(node: ast.AST) -> set[str]:
    """Names that a statement binds, those of comprehensions and of parameters left out."""
    parts = list(ast.walk(node))
    inner = {id(name) for part in parts if isinstance(part, ast.comprehension) for name in ast.walk(part.target)}
    found = set()
    for part in parts:
        if isinstance(part, ast.Name):
            if not isinstance(part.ctx, ast.Load) and id(part) not in inner:
                found.add(part.id)
        elif isinstance(part, ast.alias):
            found.add(part.asname or part.name.partition(".")[0])
        elif isinstance(part, (*DEFINITIONS, ast.AsyncFunctionDef)) or (
            isinstance(part, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and part.name
        ):
            found.add(str(part.name))
    return found


@lru_cache(maxsize=64)
def names_of(text: str) -> frozenset[str] | None:
    """Names that trusted text may bind, those of `from MODULE import *` included; None where they cannot be told."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # running it says what is wrong with it
    found = names_bound(tree)
    for part in ast.walk(tree):
        if isinstance(part, (ast.arg, ast.Name)) and not isinstance(getattr(part, "ctx", None), ast.Load):
            found.add(part.arg if isinstance(part, ast.arg) else part.id)
        if isinstance(part, ast.ImportFrom) and any(alias.name == "*" for alias in part.names):
            if part.module not in STARRED:
                return None
            found |= set(vars(importlib.import_module(part.module)))
    return frozenset(found)


@lru_cache(maxsize=64)
def callers_of(setup: str, root: str) -> frozenset[str]:
    """Names of a setup code whose definitions use the solution: the judge, which has no solution, cannot run them."""
    body = [statement for statement in ast.parse(setup).body if isinstance(statement, DEFINITIONS)]
    found = {root}
    while more := {one.name for one in body if one.name not in found and names_mentioned(one) & found}:
        found |= more
    return frozenset(found - {root})


@lru_cache(maxsize=64)
def looked_up(setup: str) -> frozenset[str]:
    """Names that functions, classes and lambdas of a setup code find outside themselves: globals and builtins."""
    try:
        inner = symtable.symtable(setup, "<setup>", "exec").get_children()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()  # running it says what is wrong with it
    found: set[str] = set()
    while inner:
        one = inner.pop()
        found |= {symbol.get_name() for symbol in one.get_symbols() if symbol.is_global()}
        inner += one.get_children()
    return frozenset(found)
