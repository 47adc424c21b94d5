"""A test read statement by statement: which of the grammar's forms each has, and the exchanges that come of it."""

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from loophole_grader.effects import imported_by
from loophole_grader.grammar.after import After
from loophole_grader.grammar.plan import ANSWER, GIVEN, IN_SANDBOX, JudgePlan
from loophole_grader.grammar.state import BUILTINS, Name
from loophole_grader.grammar.syntax import SIMPLE, binds_id, is_answer, last_name, read_names, text_of
from loophole_grader.literals import NOT_LITERAL, is_constant
from loophole_grader.names import (
    DEFINITIONS,
    callers_of,
    looked_up,
    names_bound,
    names_loaded,
    names_mentioned,
    names_of,
)

_OUT_OF_SIGHT = frozenset({"globals", "locals", "vars", "exec", "eval", "compile", "__builtins__", "__import__"})
_CLOCKS = frozenset(
    {"time", "time_ns", "perf_counter", "monotonic", "process_time", "now", "today", "utcnow", "urandom", "secrets", "uuid",
     "uuid1", "uuid4", "SystemRandom"}
)  # fmt: skip
_OUT_OF_SIGHT_WORDS = (":=", "global", "nonlocal", "*", *_OUT_OF_SIGHT, *_CLOCKS)


class Reader(After):
    """Reads one test."""

    def exchanges(self) -> list[JudgePlan]:
        """All exchanges of the test. Raises Refused."""
        setup = self.setup
        if any(word in self.test for word in _OUT_OF_SIGHT_WORDS):
            self._check_in_sight()
        self.has_calls = self.root in self.test
        if "id" in self.test:
            self.binds_id = any(binds_id(part) for statement in self.body for part in ast.walk(statement))
        for place, statement in enumerate(self.body):
            self.line = statement.lineno
            self.later = self.body[place + 1 :]
            if not self._is_plain(statement):
                self._read(statement, self.body[place + 1 :])
        if not any(isinstance(part, ast.Assert) for statement in reversed(self.body) for part in ast.walk(statement)):
            self._refuse("it asserts nothing; write assert CALL == VALUE")
        if self.pending or not self.found:
            self._exchange(())
        if self.prepared:
            self.found[0] = replace(self.found[0], prepare=text_of(self.prepare))
        if self.judged_here:
            return self.found
        of_setup, own = names_of(setup), names_of(self.test)
        if of_setup is not None and own is not None:
            self._check_known(of_setup | own | BUILTINS, callers_of(setup, self.root))
        plans = [replace(plan, expected=NOT_LITERAL) for plan in self.found]
        plans[-1] = replace(plans[-1], remainder=text_of(self.judge))
        return plans

    def _check_in_sight(self) -> None:
        for part in (part for statement in self.body for part in ast.walk(statement)):
            star = isinstance(part, ast.ImportFrom) and part.names[0].name == "*"
            if star or isinstance(part, (ast.Global, ast.Nonlocal, ast.NamedExpr)):
                self.line = part.lineno
                self._refuse(f"{ast.unparse(part)!r} binds names out of sight; bind them in a statement of their own")
            if isinstance(part, ast.Name) and part.id in _OUT_OF_SIGHT:
                self.line = part.lineno
                self._refuse(f"{part.id!r} reaches names out of sight; write the names themselves")
            if isinstance(part, (ast.Attribute, ast.alias)) and last_name(part) in _CLOCKS:
                self.line = part.lineno
                self._refuse(
                    f"{ast.unparse(part)!r} is a clock or random, another value each time; write a constant, or leave it out"
                )

    def _is_plain(self, statement: ast.stmt) -> bool:
        """`assert CALL == LITERAL` before any name is bound: read at once, because nearly all tests are such."""
        early = not self.names and not self.changed_at
        compared = statement.test if isinstance(statement, ast.Assert) and early else None
        if not isinstance(compared, ast.Compare) or [type(op) for op in compared.ops] != [ast.Eq]:
            return False
        call, other = compared.left, compared.comparators[0]
        if not self._is_call(call) or (expected := self._literal(other)) is NOT_LITERAL:
            return False
        if names_mentioned(call) != {self.root}:
            return False
        if (text := ast.unparse(call)).count(self.root) > 1:  # perhaps in an argument
            return False
        compared.left = self._answer(self._exchange((text,)))
        self.found[-1] = replace(self.found[-1], expected=self._checked(expected))
        self.judge.append(statement)
        return True

    def _read(self, statement: ast.stmt, later: Sequence[ast.stmt]) -> None:
        if self.root in (bound := names_bound(statement)):
            self._refuse(f"it binds {self.root}, the solution's own name")
        if taken := [name for name in bound if name.startswith((IN_SANDBOX, ANSWER, GIVEN))]:
            self._refuse(f"it binds {min(taken)!r}, a name that the grader uses; take another")
        if any(isinstance(part, ast.Match) for part in ast.walk(statement)):
            self._refuse("a match statement binds names by what it finds; write if and ==")
        self._check_binding(statement)
        self.mentions = Counter(part.id for part in ast.walk(statement) if isinstance(part, ast.Name))
        if any(self.effects.imported.get(name, ("",))[0] == "asyncio" for name in self.mentions):
            self._refuse("a coroutine is no answer, as it is no data; let the solution run it")
        if changed := self.effects.changed_outside(statement):
            self._refuse(
                f"{changed[:60]!r} changes what program and judge have one each of; pass it as an argument, and for random "
                "numbers take random.Random(42)"
            )
        if self.has_calls:
            self._check_identity(statement)
        if (made := self._instance(statement)) is not None:
            name, creation = made
            self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(self._with_arguments(creation))}")
            self._settle(later, {name})
            self.names[name] = Name("instance")
            self._forget({name})
        elif not self._calls(statement):
            self._trusted(statement)
        elif isinstance(statement, SIMPLE):
            self._simple(statement, later)
        else:
            kind = type(statement).__name__.removesuffix("Def").lower()
            self._refuse(f"a call of the solution inside a {kind} statement; write it as a statement of its own")

    def _check_binding(self, statement: ast.stmt) -> None:
        """A helper of the setup code goes on with the value that a name had there."""
        bound = {statement.name} if isinstance(statement, DEFINITIONS) else names_bound(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):  # what it means already is no other value
            known = self.effects.imported
            bound = {name for name, origin in imported_by(statement) if known.get(name) != origin}
        if both := bound & looked_up(self.setup):
            self._refuse(f"it binds {min(both)!r}, which a definition of the setup code reads; take another name")

    def _simple(self, statement: Any, later: Sequence[ast.stmt]) -> None:
        """A simple statement with CALLs in it."""
        if isinstance(statement, ast.Expr) and self._is_call(statement.value):
            self.pending.append(ast.unparse(self._with_arguments(statement.value)))
            self._settle(later)
            return
        name = self._bound_by_call(statement)
        if name is not None and self._known(name) == "instance":
            self._refuse(f"it binds {name!r}, an instance, to an answer; give the answer a name of its own")
        before = len(self.found)
        if name is None:
            rewritten = self._rewritten(statement)
        else:
            self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(self._with_arguments(statement.value))}")
            statement.value = self._answer(self._exchange((IN_SANDBOX + name,)))
            rewritten = statement
        read = self._expanded(read_names(rewritten))
        if both := self.passed & read:
            self._refuse_reading(min(both), read_names(rewritten))
        if both := {one for one in read & self.names.keys() if self.names[one].touched}:
            self._refuse(
                f"{min(both)!r} is the program's and read in the same statement as a call, which could change it; bind the "
                "answer of the call in a statement of its own"
            )
        self._check_apart(rewritten)
        self._check_as_data(rewritten)
        self.judge.append(rewritten)
        expected = self._expected(rewritten)
        if expected is NOT_LITERAL or len(self.found) != before + 1:
            self.judged_here = False
        else:
            self.found[-1] = replace(self.found[-1], expected=expected)
        self._settle(later, names_bound(rewritten))
        self._note(rewritten)
        if name is not None:
            self.names[name] = Name("answer", shared=True, apart=False, root=True)

    def _refuse_reading(self, name: str, read: set[str]) -> NoReturn:
        """An argument is read in the statement that passes it, by itself or by what keeps it."""
        keeper = min((one for one in read if name in self._expanded({one})), default=name)
        if name in read:
            self._refuse(
                f"{name!r} is passed to the call and read in the same statement; bind what is expected before, or "
                "look at the argument in a statement after it"
            )
        self._refuse(
            f"{name!r} is passed to the call, and {keeper!r} in the same statement may read it; pass a copy: "
            f"copy.deepcopy({name})"
        )

    def _bound_by_call(self, statement: Any) -> str | None:
        """NAME of `NAME = CALL`."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        plain = isinstance(statement, (ast.Assign, ast.AnnAssign)) and len(targets) == 1
        return targets[0].id if plain and isinstance(targets[0], ast.Name) and self._is_call(statement.value) else None

    def _expected(self, statement: ast.stmt) -> Any:
        """The literal of `assert ANSWER == LITERAL`, either way round."""
        compared = statement.test if isinstance(statement, ast.Assert) else None
        if not isinstance(compared, ast.Compare) or [type(op) for op in compared.ops] != [ast.Eq]:
            return NOT_LITERAL
        one, other = compared.left, compared.comparators[0]
        if not is_answer(one):
            one, other = other, one
        if not is_answer(one):
            return NOT_LITERAL
        known = self.names.get(other.id) if isinstance(other, ast.Name) else None
        return self._checked(self._literal(other) if known is None else known.value)

    def _trusted(self, statement: ast.stmt) -> None:
        """A statement that the judge alone executes."""
        if isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            return
        self.visit(statement)  # which refuses what it may not mention
        self._check_readable(statement)
        self._check_as_data(statement)
        self.judge.append(statement)
        bound = names_bound(statement)
        if (literals := self._literals(statement)) is not None:
            self.prepare.append(statement)
            self._forget(bound)
            self.names.update({name: Name("trusted", text=text, value=value) for name, text, value in literals})
            return
        self.judged_here = False
        mentioned = names_mentioned(statement)
        if isinstance(statement, DEFINITIONS):
            self._definition(statement, mentioned)
            return
        lazy = self._keeps(statement) or not mentioned.isdisjoint(self.closures)
        self.closures.update(dict.fromkeys(bound if lazy else (), mentioned - bound))
        trusted = self._kind(statement) == "trusted"
        if isinstance(statement, ast.Assert):
            self._check_apart(statement)
            self._note(statement)
        else:
            self._note(statement)
            self._check_apart(statement)
        if trusted:
            self.prepare.append(statement)

    def _definition(self, statement: Any, mentioned: set[str]) -> None:
        """A function or class of the test's own. What is evaluated now (defaults, a class body) may be held by it."""
        now = [statement] if isinstance(statement, ast.ClassDef) else [statement.args, *statement.decorator_list]
        held = set().union(*(names_mentioned(part) for part in now)) & self.names.keys()
        if touched := {name for name in self._expanded(held) & self.names.keys() if self.names[name].touched}:
            self._refuse(f"{statement.name!r} keeps {min(touched)!r}, which is the program's; pass it as an argument")
        self._unsettle(held)
        self.closures[statement.name] = mentioned
        self._forget({statement.name})
        self.effects.define(statement.name, statement, self._data())
        self.names[statement.name] = Name("trusted")
        self.prepare.append(statement)

    def _literals(self, statement: ast.stmt) -> list[tuple[str, ast.expr, Any]] | None:
        """(name, text, value) of an assignment of literals to names, for each; None for anything else, and where two names
        could be one object."""
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            sides: list[tuple[ast.expr, ast.expr]] = [(statement.target, statement.value)]
        elif isinstance(statement, ast.Assign):
            sides = [(target, statement.value) for target in statement.targets]
        else:
            return None
        found: list[tuple[str, ast.expr, Any]] = []
        while sides:
            target, value = sides.pop(0)
            rows = (ast.Tuple, ast.List)
            if isinstance(target, rows) and isinstance(value, rows) and len(target.elts) == len(value.elts):
                sides = [*zip(target.elts, value.elts, strict=True), *sides]
            elif isinstance(target, ast.Name) and (plain := self._literal(value)) is not NOT_LITERAL:
                if isinstance(statement, ast.Assign) and len(statement.targets) > 1 and not is_constant(plain):
                    return None
                found.append((target.id, value, plain))
            else:
                return None
        return found

    def _check_known(self, known: frozenset[str], callers: frozenset[str]) -> None:
        for statement in self.judge:
            if isinstance(statement, ast.stmt):
                self.line = statement.lineno
                loaded = {name for name in names_loaded(statement) if not name.startswith(ANSWER)}
                if loaded - known:
                    self._refuse(
                        f"{min(loaded - known)!r} is neither a builtin nor a name of the setup code or the test"
                    )
                if loaded & callers:
                    self._refuse(f"{min(loaded & callers)!r} of the setup code calls the solution; call it in the test")
