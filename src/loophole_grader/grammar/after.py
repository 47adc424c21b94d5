"""What a statement leaves behind: what its names hold, what the program may have changed, what the judge gets anew."""

import ast
from collections.abc import Collection, Sequence
from dataclasses import replace

from loophole_grader.grammar.calls import Calls
from loophole_grader.grammar.plan import ANSWER, IN_SANDBOX
from loophole_grader.grammar.state import Name
from loophole_grader.grammar.syntax import SIMPLE, has_answer, is_bound_whole, read_names
from loophole_grader.literals import NOT_LITERAL
from loophole_grader.names import names_bound, names_mentioned

_KEEPING = (ast.Lambda, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await)  # a value that reads names only later
_USING_UP = frozenset({"all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple"})
_PASSING_ON = frozenset({"enumerate", "filter", "map", "reversed", "zip"})


class After(Calls):
    """A test of which some statements were read."""

    def _note(self, statement: ast.stmt) -> None:
        """What the names of a statement hold after it."""
        kind, bound = self._kind(statement), names_bound(statement)
        mentioned = self._expanded(names_mentioned(statement)) & self.names.keys()
        roots, anything = self.effects.changes(statement, self._data())
        self._check_setup(statement, roots, anything)
        if self._keeps(statement) or not mentioned.isdisjoint(self.closures):  # what is changed may keep a function
            for name in (mentioned & self._data()) if anything else roots & self.names.keys():
                self.closures[name] = self.closures.get(name, set()) | (mentioned - {name})
        value = getattr(statement, "value", None) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        simple = is_bound_whole(statement)
        fixed, fresh = self._is_fixed(statement), simple and self.effects.is_fresh(value)
        if kind == "trusted":
            if not (isinstance(statement, ast.Assert) and not roots and not anything):
                self._unsettle(mentioned | bound)
        else:
            self._touch(statement, mentioned, roots, anything)
        if bound and not fixed:
            self._link(mentioned | bound)
        added = statement.target if isinstance(statement, ast.AugAssign) else None
        apart = kind == "trusted" or fresh
        if isinstance(added, ast.Name) and added.id in self.names:
            apart = self.names[added.id].apart
        doubtful = {name: self.doubtful[name] for name in bound & self.doubtful.keys() if added is not None}
        self._forget(bound)
        self.doubtful.update(doubtful)
        self.names.update({name: Name(kind, fixed=fixed, apart=apart) for name in bound})
        if isinstance(value, ast.Name) and self.effects.is_outside(value.id):
            self.effects.aliases |= bound
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            self.effects.bring(statement)
        elif simple and isinstance(value, ast.Lambda) and kind == "trusted":
            self.effects.define(min(bound), value, self._data())

    def _is_fixed(self, statement: ast.stmt) -> bool:
        """Whether a statement binds one name to what surely cannot change."""
        constants = {name for name, known in self.names.items() if known.constant}
        if isinstance(statement, ast.AugAssign):
            return names_mentioned(statement.target) <= constants and self.effects.is_constant(
                statement.value, constants
            )
        return is_bound_whole(statement) and self.effects.is_constant(getattr(statement, "value", None), constants)

    def _touch(self, statement: ast.stmt, mentioned: set[str], roots: set[str], anything: bool) -> None:
        """After a statement that has the program's values in hand. What it may change of these is another object here than
        in the program's own process, where several names may be one object."""
        touched = {name for name, known in self.names.items() if known.touched}
        parts = {name for name in roots & touched if not self.names[name].apart and not self.names[name].root}
        for name in mentioned & self._data():
            known = self.names[name]
            if known.kind == "trusted" and not known.constant:
                if anything or name in roots:
                    for one in self._group({name}):
                        if one in self.names and self.names[one].kind == "trusted" and not self.names[one].constant:
                            self.names[one] = replace(self.names[one], kind="answer", text=None, value=NOT_LITERAL)
                elif known.value is NOT_LITERAL:
                    self.spent.add(name)
        lost: set[str] = set()
        if parts or (anything and (mentioned & touched or has_answer(statement))):
            if not isinstance(statement, SIMPLE):
                self._refuse(
                    "it may change parts of what the program gave, which may be one object there; compare fresh copies: "
                    "[sorted(row) for row in r]"
                )
            lost = touched
            self.changed_at = statement.lineno
        for name in roots & touched:
            if not self.names[name].apart:
                lost |= touched - {name}
                self.changed_at = statement.lineno
        for name in lost:
            self.doubtful.setdefault(name, f"line {statement.lineno} may have changed it in the program's own process")

    def _check_readable(self, statement: ast.AST) -> None:
        """Whether the judge knows what the names hold that a statement reads."""
        if unknown := self._expanded(read_names(statement)) & self.doubtful.keys():
            name = min(unknown)
            self._refuse(
                f"{name!r} cannot be told here: {self.doubtful[name]}; read it before, or compare a fresh copy"
            )

    def _check_setup(self, statement: ast.AST, roots: set[str], anything: bool) -> None:
        """Objects of the setup code are there twice: in the sandbox and beside the judge."""
        names = (self.effects.stateful - self.names.keys()) & self._expanded(names_mentioned(statement))
        kept = bool(names_bound(statement)) and not self.effects.is_constant(getattr(statement, "value", None))
        if names and (kept or anything or names & roots):
            self._refuse_setup(min(names))

    def _settle(self, later: Sequence[ast.stmt], bound: Collection[str] = ()) -> None:
        """After a statement with CALLs: the judge gets anew what the program may have changed, if it is still read."""
        shared = {name for name, known in self.names.items() if known.touched and known.shared}
        for name, known in self.names.items():
            if known.touched and not known.shared and name not in self.passed and name not in bound:
                self.doubtful.setdefault(
                    name, f"the call of line {self.line} may have changed what the program knows of it"
                )
        read = sorted(((self.passed | shared) - set(bound)) & self._read_later(later))
        for name in self.passed:
            self.names[name] = Name("argument", shared=True, apart=False, root=True)
        self.passed.clear()
        self.gone.clear()
        if not read:
            return
        if self.pending:
            self._exchange(())
        last = self.found[-1]
        self.found[-1] = replace(last, observed=(*last.observed, *(IN_SANDBOX + name for name in read)))
        places = enumerate(read, len(last.observed))
        self.judge += [f"{name} = {ANSWER}{len(self.found) - 1}[{place}]" for place, name in places]
        self.judged_here = False

    def _read_later(self, later: Sequence[ast.stmt]) -> set[str]:
        """Names that statements read, beyond passing them to a CALL as they are."""

        def read(node: ast.AST) -> set[str]:
            if isinstance(node, ast.Name):
                return {node.id} if isinstance(node.ctx, ast.Load) else set()
            skipped = [one for one in node.args if isinstance(one, ast.Name)] if self._is_call(node) else []
            return {name for inner in ast.iter_child_nodes(node) if inner not in skipped for name in read(inner)}

        return self._expanded({name for statement in later for name in read(statement)})

    def _keeps(self, node: ast.AST) -> bool:
        """Whether what it computes may read names later: a function or a generator that is not used up within it."""
        if isinstance(node, _KEEPING):
            return True
        if isinstance(node, ast.Call) and self._is_builtin(node.func, _USING_UP) and len(node.args) == 1:
            keys = [one.value for one in node.keywords if one.arg == "key"]
            kept = [one.value for one in node.keywords if one.arg != "key"]
            return self._is_left(node.args[0]) or any(map(self._returns, keys)) or any(map(self._keeps, kept))
        return any(map(self._keeps, ast.iter_child_nodes(node)))

    def _is_left(self, node: ast.AST) -> bool:
        """The same of something whose members are taken out at once."""
        if isinstance(node, ast.GeneratorExp):
            return any(map(self._keeps, ast.iter_child_nodes(node)))
        if isinstance(node, ast.Call) and self._is_builtin(node.func, _PASSING_ON) and not node.keywords:
            called = node.args[:1] if self._is_builtin(node.func, ("map", "filter")) else []
            return any(map(self._returns, called)) or any(map(self._is_left, node.args[len(called) :]))
        return self._keeps(node)

    def _returns(self, node: ast.AST) -> bool:
        """The same of what a function returns that is called at once."""
        return self._keeps(node.body if isinstance(node, ast.Lambda) else node)

    def _is_builtin(self, node: ast.expr, which: Collection[str]) -> bool:
        return isinstance(node, ast.Name) and node.id in which and node.id not in self._bound_so_far()
