"""What a ground-truth test asks and what it expects: `assert CALL == VALUE`.

CALL calls the solution by the name that the problem gives, with positional or keyword arguments. Arguments and VALUE are
literals, in which `inf` may stand for infinity. This process compares the answer to CALL with VALUE, so VALUE never enters
the sandbox. Every other form of a test is refused when problems are loaded.
"""

import ast
import functools
import json
from dataclasses import dataclass
from typing import Any

from loophole_grader.sandbox import values


@dataclass(frozen=True)
class Check:
    """One test."""

    call: str
    expected: Any

    @functools.cached_property
    def longest(self) -> int:
        """Bytes of the longest answer that can be right. A list of "false" is three times as long as one of 0, which is
        equal to it; an integer as large as a float has 260 digits."""
        return 400 + 8 * len(json.dumps(values.encode(self.expected)))


def read_test(test: str, func_name: str) -> Check:
    """The call and the value of one assert statement. Raises ValueError that says which form is wanted."""
    try:
        match ast.parse(test).body:
            case [ast.Assert(ast.Compare(ast.Call() as call, [ast.Eq()], [right]), None)]:
                names = [word.arg for word in call.keywords]
                if ast.unparse(call.func) == func_name and all(names) and len({*names}) == len(names):
                    for argument in (*call.args, *(word.value for word in call.keywords)):
                        _value_of(argument)
                    return Check(ast.unparse(call), _value_of(right))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"{test.strip()!r:.80}; write assert {func_name or 'FUNCTION'}(ARGUMENTS) == VALUE in literals")


class _Infinite(ast.NodeTransformer):
    """Puts the number in the place of the name `inf`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float("inf")) if node.id == "inf" else node


def _value_of(node: ast.expr) -> Any:
    """The value of a literal. Raises ValueError and TypeError for anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.literal_eval(_Infinite().visit(node))
