"""Which expressions of a test are literals, and what they are worth. Trusted text alone comes here."""

import ast
from collections.abc import Collection
from typing import Any

NOT_LITERAL = object()


def literal(node: ast.expr, fixed: Collection[str] = ()) -> Any:
    """The value of an expression made of literals, or a marker if it is none. Beyond ast.literal_eval: arithmetic on
    numbers, and those of inf, nan and the builtin containers that are `fixed`: surely not bound to anything else."""
    try:
        value = ast.literal_eval(node)
        # It takes set() for the builtin's.
        return (
            value if "set" in fixed or not any(isinstance(part, ast.Call) for part in ast.walk(node)) else NOT_LITERAL
        )
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    if not all(isinstance(part, _LITERAL_NODES) for part in ast.walk(node)):
        return NOT_LITERAL
    try:
        return eval(
            compile(ast.Expression(node), "<literal>", "eval"),
            {"__builtins__": {}},
            {name: _LITERAL_NAMES[name] for name in fixed},
        )
    except Exception:  # noqa: BLE001  benchmark text that is no literal after all, such as an unknown name
        return NOT_LITERAL


_LITERAL_NODES = (
    ast.Constant, ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv,
    ast.Mod, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Name, ast.Load, ast.Call,
)  # fmt: skip
_LITERAL_NAMES = {
    "inf": float("inf"),
    "nan": float("nan"),
    "float": float,
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "tuple": tuple,
    "dict": dict,
}


def is_constant(value: Any) -> bool:
    """Whether a literal's value is one that no program can change."""
    if isinstance(value, tuple):
        return all(map(is_constant, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def holds_nan(value: Any) -> bool:
    """Whether a literal's value has nan within: whether that equals anything depends on which object it is."""
    if isinstance(value, dict):
        return any(map(_is_nan_or_holds, [*value.keys(), *value.values()]))
    return isinstance(value, (list, tuple, set, frozenset)) and any(map(_is_nan_or_holds, value))


def _is_nan_or_holds(value: Any) -> bool:
    return value != value or holds_nan(value)
