"""Questions about a test's syntax that need nothing but the syntax."""

import ast
from collections.abc import Iterable
from typing import Any

from loophole_grader.grammar.plan import ANSWER
from loophole_grader.names import names_loaded, names_mentioned

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SIMPLE = (ast.Assert, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)


def is_answer(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id.startswith(ANSWER)


def split(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The statements of a test, `assert A and B` as two, without messages."""
    found: list[ast.stmt] = []
    for one in body:
        parts = _conjuncts(one.test) if isinstance(one, ast.Assert) else []
        found += [ast.copy_location(ast.Assert(part), part) for part in parts] or [one]
    return found


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    """The parts of an assertion of which each has to hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for value in node.values for part in _conjuncts(value)]
    return [node]


def read_names(node: ast.AST) -> set[str]:
    """Names whose values it reads, those of `NAME += VALUE` included."""
    return names_loaded(node) | {
        part.target.id
        for part in ast.walk(node)
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name)
    }


def binds_id(node: ast.AST) -> bool:
    """Whether a test means something else by this name."""
    stored = isinstance(node, ast.Name) and node.id == "id" and not isinstance(node.ctx, ast.Load)
    return stored or (isinstance(node, ast.arg) and node.arg == "id")


def has_answer(node: ast.AST) -> bool:
    return any(name.startswith(ANSWER) for name in names_mentioned(node))


def is_bound_whole(statement: ast.stmt) -> bool:
    """Whether it is `NAME = VALUE`."""
    if isinstance(statement, ast.Assign):
        return len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def is_vacuous_where_empty(node: ast.AST) -> bool:
    """Whether it looks at each member of something: of an emptied argument, none is wrong."""
    if isinstance(node, (ast.For, ast.While)):
        return any(isinstance(part, (ast.Assert, ast.Raise)) for part in ast.walk(node))
    if isinstance(node, COMPREHENSIONS):
        judging = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)
        return any(isinstance(part, judging) for part in ast.walk(node) if part not in _sources(node))
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("all", "any", "map", "filter")


def _sources(node: Any) -> list[ast.AST]:
    return [part for one in node.generators for part in ast.walk(one.iter)]


def last_name(node: ast.Attribute | ast.alias) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.name.rpartition(".")[2]


def text_of(statements: Iterable[ast.stmt | str]) -> str:
    return "\n".join(one if isinstance(one, str) else ast.unparse(ast.fix_missing_locations(one)) for one in statements)
