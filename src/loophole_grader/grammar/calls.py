"""The CALLs of a test: which they are, what the sandbox gets with each, and the answer that is put in its place."""

import ast
from collections import Counter
from dataclasses import replace
from typing import Any, TypeGuard

from loophole_grader.grammar.kinds import Kinds
from loophole_grader.grammar.plan import GIVEN, IN_SANDBOX
from loophole_grader.grammar.state import BUILTINS
from loophole_grader.grammar.syntax import COMPREHENSIONS, is_bound_whole
from loophole_grader.names import names_bound, names_loaded, names_mentioned, names_of

_LAZY = (ast.Lambda, *COMPREHENSIONS, ast.Yield, ast.YieldFrom, ast.Await)


class Calls(Kinds):
    """A test whose CALLs are found. As a transformer it puts answers in their place."""

    def _instance(self, statement: ast.stmt) -> tuple[str, ast.Call] | None:
        """(NAME, the call) of `NAME = Solution(ARGS)`, or the same with Solution as its annotation."""
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if value is None or not is_bound_whole(statement) or not self._creates(value):
            return None
        if isinstance(statement, ast.AnnAssign) and not self._is_root(statement.annotation):
            return None
        return min(names_bound(statement)), value

    def _creates(self, node: ast.expr) -> TypeGuard[ast.Call]:
        return self.is_class and isinstance(node, ast.Call) and self._is_root(node.func)

    def _is_root(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.root

    def _is_call(self, node: ast.AST) -> TypeGuard[ast.Call]:
        """Whether it is a CALL: its value is what the program returns, nothing computed from it."""
        if not isinstance(node, ast.Call):
            return False
        if not self.is_class:
            return self._is_root(node.func)
        if not isinstance(node.func, ast.Attribute):
            return False
        owner = node.func.value
        return self._is_root(owner) or self._creates(owner) or self._is_instance(owner)

    def _is_instance(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self._known(node.id) == "instance"

    def _calls(self, node: ast.AST) -> list[ast.AST]:
        """The outermost CALLs in it."""
        if self._is_call(node):
            return [node]
        return [call for inner in ast.iter_child_nodes(node) for call in self._calls(inner)]

    def _with_arguments(self, call: ast.Call) -> ast.Call:
        """A CALL, or the making of an instance, as the sandbox evaluates it."""
        if self.changed_at:
            self._refuse(
                f"a call after line {self.changed_at}, which may have changed what the program holds; change a fresh copy "
                "(r = sorted(r)), or make a test of its own of it"
            )
        func = call.func
        if isinstance(func, ast.Attribute):
            owner = func.value
            if isinstance(owner, ast.Call):
                owner = self._with_arguments(owner)
            elif isinstance(owner, ast.Name) and owner.id != self.root:
                owner = ast.Name(IN_SANDBOX + owner.id, ast.Load())
            func = ast.Attribute(owner, func.attr, ast.Load())
        arguments = [self._argument(one) for one in call.args]
        keywords = [ast.keyword(one.arg, self._argument(one.value)) for one in call.keywords]
        self.gone |= self.passed
        return ast.Call(func, arguments, keywords)

    def _argument(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Starred):
            return ast.Starred(self._argument(node.value), ast.Load())
        if self._is_call(node):
            return self._with_arguments(node)
        self._check_there(node)
        mentioned = self._expanded(names_mentioned(node))
        kinds = {self._known(name) for name in mentioned}
        if names := (self.effects.stateful - self.names.keys()) & mentioned:
            self._refuse_setup(min(names))
        if self.root in mentioned or "instance" in kinds:
            self._refuse(f"argument {ast.unparse(node)!r} is more than a call of the solution; pass plain values")
        if isinstance(node, ast.Name) and node.id in self.names:
            return self._named_argument(node.id)
        if kinds & {"answer", "argument"} or mentioned & self.gone:
            self._refuse(
                f"argument {ast.unparse(node)!r} is computed from what the program had in hand; pass plain values"
            )
        roots, anything = self.effects.changes(node, self._data())
        drawn = any(self.effects.imported.get(name, ("",))[0] == "random" for name in mentioned)
        if not kinds & {"trusted"} and not (anything and drawn):
            return node
        self._check_unspent(mentioned, ast.unparse(node))
        if roots or anything:  # it changes what the test has, for the judge, too
            self._unsettle(mentioned & self.names.keys())
            self.judge.append(ast.unparse(node))
            self.judged_here = False
        return self._prepared(node, "")

    def _check_there(self, node: ast.expr) -> None:
        """Whether every name of an argument has a value here."""
        of_setup = names_of(self.setup)
        if of_setup is None:
            return
        own = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        own |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        if unknown := names_loaded(node) - own - of_setup - BUILTINS - self.names.keys() - {self.root}:
            self._refuse(f"{min(unknown)!r} is neither a builtin nor a name of the setup code or of the test so far")

    def _check_unspent(self, mentioned: set[str], text: str) -> None:
        if used := mentioned & self.spent:
            self._refuse(
                f"argument {text!r}: {min(used)!r} stood in a statement with answers, which may have used it up; write its "
                "value as a literal, or bind another name"
            )

    def _named_argument(self, name: str) -> ast.expr:
        known = self.names[name]
        if not known.shared:
            self._check_unspent({name}, name)
            if known.kind != "trusted":
                self._refuse(f"argument {name!r} is computed from what the program had in hand; pass plain values")
            if known.text is None:
                value = self._prepared(ast.Name(name, ast.Load()), name)
                self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(value)}")
            else:
                self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(known.text)}")
            self.names[name] = replace(known, shared=True)
        if not known.constant:
            self.passed.add(name)
        return ast.Name(IN_SANDBOX + name, ast.Load())

    def _prepared(self, value: ast.expr, own: str) -> ast.expr:
        """A value that trusted text computes, and that the sandbox gets as data. `own`: the name that has it, if one has."""
        name = f"{IN_SANDBOX}{self.prepared}"
        self.given.append((name, self.prepared))
        self.prepared += 1
        rest = self.mentions - Counter(part.id for part in ast.walk(value) if isinstance(part, ast.Name))
        later = set().union(*(names_mentioned(statement) for statement in self.later))
        live = self._expanded({*rest, *later, own})
        dead = sorted(self.names.keys() - live)
        self.prepare.append(f"{GIVEN}.take({ast.unparse(value)}, {own!r}, {dead!r})")
        return ast.Name(name, ast.Load())

    def visit(self, node: ast.AST) -> Any:
        """Put answers in the place of CALLs. Raises Refused for other uses of the solution."""
        if self._is_call(node):
            text = ast.unparse(self._with_arguments(node))
            return self._hold(text) if self.to_hold else self._answer(self._exchange((text,)))
        unsure = [node] if isinstance(node, _LAZY) else []
        if isinstance(node, COMPREHENSIONS) and len(self._calls(node)) == len(self._calls(node.generators[0].iter)):
            unsure = []  # what the first `for` goes through is computed at once, and once
        if isinstance(node, ast.IfExp):
            unsure = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            unsure = node.values[1:]
        elif isinstance(node, ast.Compare) and node is not self.asserted:
            unsure = node.comparators[1:]
        if any(self._calls(part) for part in unsure):
            self._refuse(
                f"whether {ast.unparse(node)[:60]!r} calls the solution is known only while it runs; call it before"
            )
        if isinstance(node, ast.Name) and (node.id == self.root or self._is_instance(node)):
            self._refuse(f"it uses {node.id!r} itself, which only the program could judge; call a method of it")
        return self.generic_visit(node)

    def _rewritten(self, statement: Any) -> Any:
        """A simple statement with answers in the place of its CALLs."""
        self.asserted = statement.test if isinstance(statement, ast.Assert) else None
        self._plan_holding(statement)
        return self.visit(statement)

    def _plan_holding(self, node: ast.AST) -> None:
        """Answers of which Python makes use together are looked at together: the second call may change the first answer."""
        self.held, self.to_hold = [], 0
        users = self._users(node, node)
        if len(users) < 2:
            return
        one = users[0]
        chained = isinstance(one, ast.Compare) and any(self._calls(other) for other in one.comparators[1:])
        if all(user is one for user in users) and not chained:
            self.to_hold = len(users)
        elif not all(
            isinstance(user, ast.expr) and self.effects.is_constant(user) and len(self._calls(user)) == 1
            for user in users
        ):
            self._refuse(
                f"{ast.unparse(node)[:60]!r} makes use of one answer before the next call, which could change it; bind each "
                "answer in a statement of its own"
            )

    def _users(self, node: ast.AST, user: ast.AST) -> list[ast.AST]:
        """For each CALL in it, what makes use of its value."""
        if self._is_call(node):
            return [user]
        passes_on = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.keyword, ast.Attribute, ast.Expr)
        inner = user if isinstance(node, passes_on) else node
        return [found for part in ast.iter_child_nodes(node) for found in self._users(part, inner)]

    def _hold(self, text: str) -> ast.expr:
        name = f"{IN_SANDBOX}held{len(self.held)}"
        self.pending.append(f"{name} = {text}")
        self.held.append(name)
        place, left = len(self.held) - 1, self.to_hold - len(self.held)
        number = self._exchange(() if left else tuple(self.held)) + left
        answer = self._answer(number)
        return ast.Subscript(answer.value, ast.Constant(place), ast.Load())  # ty: ignore[missing-attribute]
