"""What may be judged against what: answers and arguments are the program's, all else is the judge's."""

import ast
import builtins
import collections
import datetime
import fractions
from itertools import pairwise
from typing import NoReturn

from loophole_grader.effects import CHANGING
from loophole_grader.grammar.plan import ANSWER
from loophole_grader.grammar.state import Kind, State
from loophole_grader.grammar.syntax import SIMPLE, is_vacuous_where_empty, last_name
from loophole_grader.names import names_loaded, names_mentioned

_TOGETHER = (ast.BoolOp, ast.Compare, ast.Tuple, ast.List, ast.Subscript, ast.Starred, ast.Slice)  # looked at by part
_PLAIN_TYPES = (
    str, bytes, int, float, complex, list, tuple, dict, set, collections.deque, collections.Counter,
    collections.OrderedDict, datetime.datetime, datetime.timedelta, fractions.Fraction,
)  # fmt: skip
_OF_ANSWERS = frozenset(
    {"val", "next", "left", "right", "tolist", "quantize", "normalize", "is_nan", "__name__"}
).union(*map(dir, _PLAIN_TYPES))  # what plain data has; of an answer nothing else is there
_RETURNING = frozenset({"pop", "popitem", "popleft", "setdefault"})  # of the methods that change their object


class Kinds(State):
    """A test of whose expressions it is known what they are computed from."""

    def _kinds(self, node: ast.AST) -> set[Kind]:
        """Of what an expression is computed, as far as the program had it in hand."""
        if isinstance(node, ast.Name):
            kinds = {self._known(name) for name in self._expanded({node.id})}
            return {kind for kind in kinds if kind in ("answer", "argument")}
        if isinstance(node, ast.Subscript) and "argument" in (kinds := self._kinds(node.value)):
            return kinds  # an index only chooses
        return {kind for inner in ast.iter_child_nodes(node) for kind in self._kinds(inner)}

    def _kind(self, statement: ast.stmt) -> Kind:
        added_to = names_mentioned(statement.target) if isinstance(statement, ast.AugAssign) else set()
        kinds = {self._known(name) for name in self._expanded(names_loaded(statement) | added_to)}
        return "argument" if "argument" in kinds else "answer" if "answer" in kinds else "trusted"

    def _check_apart(self, statement: ast.stmt) -> None:
        """What a call may have left in an argument is judged only against what the program has no part in."""
        if all(known.kind != "argument" for known in self.names.values()):
            return
        for part in ast.walk(statement):
            if isinstance(part, ast.Compare):
                sides = [self._kinds(side) for side in (part.left, *part.comparators)]
                mixed = any(one and other and "argument" in one | other for one, other in pairwise(sides))
            else:
                compound = isinstance(part, (ast.stmt, ast.comprehension)) and not isinstance(part, SIMPLE)
                whole = compound or (isinstance(part, ast.expr) and not isinstance(part, _TOGETHER))
                negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
                kinds = self._kinds(part) if whole and not negated else set()
                mixed = {"answer", "argument"} <= kinds or ("argument" in kinds and is_vacuous_where_empty(part))
            if mixed:
                self._refuse(
                    f"{ast.unparse(part)[:60]!r} judges the program by an argument that it could change; keep what is "
                    "expected under a name of its own before the call"
                )

    def _check_as_data(self, statement: ast.stmt) -> None:
        """An answer comes as plain data: what else an object has, no program's answer has."""
        known = _OF_ANSWERS | self.effects.methods() | self.effects.fields
        for part in ast.walk(statement):
            if isinstance(part, ast.Call) and not isinstance(part.func, ast.Attribute) and self._is_given(part.func):
                self._refuse("it calls an answer, which is data; let the solution do it")
            if not isinstance(part, ast.Attribute) or not self._is_given(part.value):
                continue
            if part.attr not in known:
                self._refuse(f"{part.attr!r} of an answer: answers are plain data, and that has none; compare values")
            maker = part.value.func if isinstance(part.value, ast.Call) else None
            if isinstance(maker, ast.Attribute) and maker.attr in CHANGING - _RETURNING - self.effects.methods():
                self._refuse(f"{part.attr!r} of what {maker.attr!r} returns: that is None, as answers are plain data")

    def _is_given(self, node: ast.AST) -> bool:
        """Whether it is an answer, or surely comes out of one."""
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self._is_given(node.value)
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Attribute) and self._is_given(node.func)
        if isinstance(node, ast.Compare):
            return any(map(self._is_given, (node.left, *node.comparators)))
        if not isinstance(node, ast.Name):
            return False
        return node.id.startswith(ANSWER) or (node.id in self.names and self.names[node.id].given)

    def _check_identity(self, statement: ast.AST) -> None:
        """Which object something is cannot be told from data. Every statement is looked at: it may keep what asks."""
        for part in ast.walk(statement):
            if isinstance(part, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in part.ops):
                sides = [part.left, *part.comparators]
                alike = all(isinstance(op, ast.Is) for op in part.ops) and any(map(self._is_single, sides))
                if not alike and not all(any(map(self._is_single, pair)) for pair in pairwise(sides)):
                    self._refuse_identity(part)
            elif isinstance(part, ast.Name) and part.id == "id" and not self.binds_id:
                self._refuse("'id' asks which object it is; compare values")
            elif isinstance(part, (ast.Attribute, ast.alias)) and last_name(part) in ("is_", "is_not"):
                self._refuse_identity(part)

    def _refuse_identity(self, part: ast.AST) -> NoReturn:
        self._refuse(f"{ast.unparse(part)[:60]!r} asks whether two are one object; compare them by ==")

    def _is_single(self, node: ast.expr) -> bool:
        """Whether equal values of this are one object: None, truths, small integers, classes."""
        if isinstance(node, ast.Constant):
            return node.value is None or node.value is ... or (isinstance(node.value, int) and 0 <= node.value <= 256)
        named = node.func if isinstance(node, ast.Call) else node
        usual = isinstance(named, ast.Name) and named.id not in self._bound_so_far()
        if isinstance(node, ast.Call):
            return usual and named.id == "type" and len(node.args) == 1
        return usual and isinstance(getattr(builtins, named.id, None), type)
