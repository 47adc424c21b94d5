"""The closed grammar of a problem's tests: what the program computes, and what only trusted text computes.

A test is a sequence of statements. CALL is a call on the solution: `Solution(ARGS).method(ARGS)`, `Solution.method(ARGS)`,
`NAME.method(ARGS)` on an instance that the test has made, or `f(ARGS)` where the solution is a function. Each statement is

- an instance: `NAME = Solution(ARGS)`;
- a simple statement with CALLs in it: `CALL`, `NAME = CALL`, `assert EXPRESSION` or an assignment;
- trusted: it mentions neither the solution nor an instance of it.

The sandbox gets one CALL at a time, with its arguments: text over literals, builtins and names of the setup code as it is
written; what a test's own statements have computed as plain data; and by name its own former answers and arguments. All else
(expected values, comparisons, methods of an answer, helpers, loops) is evaluated by the judge, with plain data in the place
of each CALL. A name that was passed to a CALL has afterwards the value that the program left in it, and only that name:
other trusted values are out of the program's reach. Such a value is judged only against what the program has no part in
(`r == sorted(nums)` after `r = CALL(nums)` is refused: a program could empty `nums`).

What is accepted is judged as one process with setup code, program and test in it would judge it, but that nothing can be
forged. So the judge looks again, after each CALL, at what the program may have changed; what it cannot tell (two names of
one object, a part changed on one side only) is refused, as the tables of docs/grader.md say. `effects.py` knows what a
statement may change, `sandbox/judging.py` which objects an argument shares.

What is not of this form is refused when the problem is loaded, with its line and the reason.
"""

import ast
import builtins
import collections
import datetime
import fractions
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeGuard

from loophole_grader.effects import CHANGING, effects_of, imported_by
from loophole_grader.literals import NOT_LITERAL, holds_nan, is_constant, literal
from loophole_grader.names import (
    DEFINITIONS,
    callers_of,
    looked_up,
    names_bound,
    names_loaded,
    names_mentioned,
    names_of,
)

IN_SANDBOX, ANSWER, GIVEN = "_test_", "_answer", "_given"
Kind = Literal["trusted", "instance", "answer", "argument"]
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LAZY = (ast.Lambda, *_COMPREHENSIONS, ast.Yield, ast.YieldFrom, ast.Await)
_KEEPING = (ast.Lambda, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await)  # a value that reads names only later
_USING_UP = frozenset({"all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple"})
_PASSING_ON = frozenset({"enumerate", "filter", "map", "reversed", "zip"})
_SIMPLE = (ast.Assert, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)
_TOGETHER = (ast.BoolOp, ast.Compare, ast.Tuple, ast.List, ast.Subscript, ast.Starred, ast.Slice)  # looked at by part
_BUILTINS = frozenset(
    name for name, value in vars(builtins).items() if type(value).__module__ != "_sitebuiltins"
)  # `help`, `exit` and their like are not there in the sandbox
_PLAIN_TYPES = (
    str, bytes, int, float, complex, list, tuple, dict, set, collections.deque, collections.Counter,
    collections.OrderedDict, datetime.datetime, datetime.timedelta, fractions.Fraction,
)  # fmt: skip
_OF_ANSWERS = frozenset(
    {"val", "next", "left", "right", "tolist", "quantize", "normalize", "is_nan", "__name__"}
).union(*map(dir, _PLAIN_TYPES))  # what plain data has; of an answer nothing else is there
_RETURNING = frozenset({"pop", "popitem", "popleft", "setdefault"})  # of the methods that change their object
_OUT_OF_SIGHT = frozenset({"globals", "locals", "vars", "exec", "eval", "compile", "__builtins__", "__import__"})
_CLOCKS = frozenset(
    {"time", "time_ns", "perf_counter", "monotonic", "process_time", "now", "today", "utcnow", "urandom", "secrets", "uuid",
     "uuid1", "uuid4", "SystemRandom"}
)  # fmt: skip
_OUT_OF_SIGHT_WORDS = (":=", "global", "nonlocal", "*", *_OUT_OF_SIGHT, *_CLOCKS)


class Refused(ValueError):  # noqa: N818  it names what happened to the test
    """A test outside the grammar: its line, and why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True)
class JudgePlan:
    """One exchange with the sandbox, and how its answer is judged."""

    test: int  # which test it belongs to
    observed: tuple[str, ...]  # expressions that the sandbox evaluates and ships
    prelude: str = ""  # statements that the sandbox runs before them
    given: tuple[tuple[str, int], ...] = ()  # names that the sandbox has first, and which prepared value each gets
    expected: Any = NOT_LITERAL  # compare the one observed value with this, in this process
    longest: int = 0  # bytes of JSON beyond which an answer cannot equal what is expected (oracle.py)
    remainder: str = ""  # on the last exchange of a test: trusted statements over _answer0, _answer1, ... (lists)
    prepare: str = ""  # on the first one: trusted statements that fill the list _given


def root_of(func_name: str) -> tuple[str, bool]:
    """The name that a test calls, and whether it is a class: it is written with a method or with parentheses, or begins
    with a capital letter (PEP 8)."""
    name = func_name.partition("(")[0].partition(".")[0].strip() or "Solution"
    return name, "." in func_name or "(" in func_name or name[:1].isupper()


def exchanges_of(test: str, index: int, func_name: str, setup: str) -> list[JudgePlan]:
    """The exchanges of one test, in order. Raises Refused."""
    try:
        body = ast.parse(test).body
    except SyntaxError as error:
        raise Refused(error.lineno or 1, f"it does not parse ({error.msg}): {test:.80}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(1, f"it does not parse ({error}): {test:.80}") from None
    try:
        return _Reader(test, index, func_name, _split(body), setup).exchanges()
    except RecursionError:
        raise Refused(1, "it is nested too deeply") from None
    except Refused:
        raise
    except ValueError as error:  # Python does not write out an integer of more than 4300 digits
        raise Refused(1, f"it holds a number that is too long ({error}); compute it, such as pow(2, 20000)") from None


@dataclass(frozen=True)
class _Name:
    """What is known of a name that a test binds."""

    kind: Kind  # "answer": from the program; "argument": passed to a CALL, or computed from what was
    shared: bool = False  # the sandbox has it, too, by the name with IN_SANDBOX before it
    text: ast.expr | None = None  # of its value, where that is a literal
    value: Any = NOT_LITERAL
    fixed: bool = False  # its value is surely one that nothing can change
    apart: bool = True  # its own object was made by the judge: no other name of the program's can be the same object
    root: bool = False  # it has been observed by itself

    @property
    def given(self) -> bool:
        """Whether it is bound to an answer."""
        return self.kind == "answer" and self.root

    @property
    def constant(self) -> bool:
        return self.fixed or is_constant(self.value)

    @property
    def touched(self) -> bool:
        """Whether the program may change it, or knows it by another name."""
        return self.kind in ("answer", "argument") and not self.constant


# ---------------------------------------------------------------- reading a test


class _Reader(ast.NodeTransformer):
    """Reads one test, statement by statement. As a transformer it puts answers in the place of CALLs."""

    def __init__(self, test: str, index: int, func_name: str, body: Sequence[ast.stmt], setup: str) -> None:
        self.test, self.index, self.body, self.setup = test, index, body, setup
        self.effects = effects_of(setup).copy()
        self.root, self.is_class = root_of(func_name)
        self.names: dict[str, _Name] = {}
        self.closures: dict[str, set[str]] = {}  # what a helper mentions is mentioned with it
        self.found: list[JudgePlan] = []
        self.pending: list[str] = []  # statements for the sandbox whose value nobody looks at
        self.given: list[tuple[str, int]] = []
        self.prepared = 0
        self.judge: list[ast.stmt | str] = []
        self.prepare: list[ast.stmt | str] = []
        self.judged_here = True  # without the second process
        self.has_calls = self.binds_id = False
        self.line = 1
        self.passed: set[str] = set()  # names of arguments of the current statement, without constants
        self.gone: set[str] = set()  # those of its CALLs so far
        self.doubtful: dict[str, str] = {}  # names whose value the judge cannot tell any more, and why
        self.spent: set[str] = set()  # names that a statement with answers may have used up, as it would an iterator
        self.linked: dict[str, set[str]] = {}  # names that may share objects
        self.later: Sequence[ast.stmt] = ()
        self.mentions: Counter[str] = Counter()  # of the current statement
        self.asserted: ast.expr | None = None  # what the current statement asserts
        self.changed_at = 0  # the line that may have changed what the program holds, where it does not see that
        self.held: list[str] = []  # answers that are looked at together, after the last of them
        self.to_hold = 0  # how many are

    def exchanges(self) -> list[JudgePlan]:
        """All exchanges of the test. Raises Refused."""
        setup = self.setup
        if any(word in self.test for word in _OUT_OF_SIGHT_WORDS):
            self._check_in_sight()
        self.has_calls = self.root in self.test
        if "id" in self.test:
            self.binds_id = any(_binds_id(part) for statement in self.body for part in ast.walk(statement))
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
            self.found[0] = replace(self.found[0], prepare=_text(self.prepare))
        if self.judged_here:
            return self.found
        of_setup, own = names_of(setup), names_of(self.test)
        if of_setup is not None and own is not None:
            self._check_known(of_setup | own | _BUILTINS, callers_of(setup, self.root))
        plans = [replace(plan, expected=NOT_LITERAL) for plan in self.found]
        plans[-1] = replace(plans[-1], remainder=_text(self.judge))
        return plans

    def _refuse(self, reason: str) -> NoReturn:
        raise Refused(self.line, reason)

    def _check_in_sight(self) -> None:
        for part in (part for statement in self.body for part in ast.walk(statement)):
            star = isinstance(part, ast.ImportFrom) and part.names[0].name == "*"
            if star or isinstance(part, (ast.Global, ast.Nonlocal, ast.NamedExpr)):
                self.line = part.lineno
                self._refuse(f"{ast.unparse(part)!r} binds names out of sight; bind them in a statement of their own")
            if isinstance(part, ast.Name) and part.id in _OUT_OF_SIGHT:
                self.line = part.lineno
                self._refuse(f"{part.id!r} reaches names out of sight; write the names themselves")
            if isinstance(part, (ast.Attribute, ast.alias)) and _last_name(part) in _CLOCKS:
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

    def _literal(self, node: ast.expr) -> Any:
        return literal(node, self.effects.fixed - self.names.keys() if self.names else self.effects.fixed)

    def _checked(self, expected: Any) -> Any:
        if holds_nan(expected):
            self._refuse("nan within a value is equal to the same object only; look at the parts, with math.isnan")
        return expected

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
            self.names[name] = _Name("instance")
            self._forget({name})
        elif not self._calls(statement):
            self._trusted(statement)
        elif isinstance(statement, _SIMPLE):
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

    # ---- statements

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
        read = self._expanded(_read_names(rewritten))
        if both := self.passed & read:
            self._refuse_reading(min(both), _read_names(rewritten))
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
            self.names[name] = _Name("answer", shared=True, apart=False, root=True)

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
        if not _is_answer(one):
            one, other = other, one
        if not _is_answer(one):
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
            self.names.update({name: _Name("trusted", text=text, value=value) for name, text, value in literals})
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
        self.names[statement.name] = _Name("trusted")
        self.prepare.append(statement)

    # ---- what a statement leaves behind

    def _data(self) -> set[str]:
        """Names of the test that hold data, or what is not known to be a function or module."""
        return {name for name in self.names if name not in self.effects.own}

    def _forget(self, names: Collection[str]) -> None:
        """What was known of names that are bound anew."""
        for name in names:
            self.doubtful.pop(name, None)
            self.spent.discard(name)
            self.effects.forget(name)

    def _unsettle(self, names: Collection[str]) -> None:
        """The values of trusted names are no longer those that were written down, nor of those that share with them."""
        for name in self._group(names):
            known = self.names.get(name)
            if known is not None and known.kind == "trusted" and not known.constant:
                self.names[name] = replace(known, text=None, value=NOT_LITERAL)

    def _group(self, names: Collection[str]) -> set[str]:
        return set(names).union(*(self.linked.get(name, ()) for name in names))

    def _link(self, names: Collection[str]) -> None:
        group = self._group(names)
        self.linked.update(dict.fromkeys(group, group))

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
        simple = _is_bound_whole(statement)
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
        self.names.update({name: _Name(kind, fixed=fixed, apart=apart) for name in bound})
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
        return _is_bound_whole(statement) and self.effects.is_constant(getattr(statement, "value", None), constants)

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
        if parts or (anything and (mentioned & touched or _has_answer(statement))):
            if not isinstance(statement, _SIMPLE):
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
        if unknown := self._expanded(_read_names(statement)) & self.doubtful.keys():
            name = min(unknown)
            self._refuse(
                f"{name!r} cannot be told here: {self.doubtful[name]}; read it before, or compare a fresh copy"
            )

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
            elif isinstance(part, (ast.Attribute, ast.alias)) and _last_name(part) in ("is_", "is_not"):
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

    def _check_setup(self, statement: ast.AST, roots: set[str], anything: bool) -> None:
        """Objects of the setup code are there twice: in the sandbox and beside the judge."""
        names = (self.effects.stateful - self.names.keys()) & self._expanded(names_mentioned(statement))
        kept = bool(names_bound(statement)) and not self.effects.is_constant(getattr(statement, "value", None))
        if names and (kept or anything or names & roots):
            self._refuse_setup(min(names))

    def _refuse_setup(self, name: str) -> NoReturn:
        self._refuse(
            f"{name!r} of the setup code may change, and program and judge have one each; bind what is passed or changed "
            "in the test itself"
        )

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
            self.names[name] = _Name("argument", shared=True, apart=False, root=True)
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

    def _read_later(self, later: Sequence[ast.stmt]) -> set[str]:
        """Names that statements read, beyond passing them to a CALL as they are."""

        def read(node: ast.AST) -> set[str]:
            if isinstance(node, ast.Name):
                return {node.id} if isinstance(node.ctx, ast.Load) else set()
            skipped = [one for one in node.args if isinstance(one, ast.Name)] if self._is_call(node) else []
            return {name for inner in ast.iter_child_nodes(node) if inner not in skipped for name in read(inner)}

        return self._expanded({name for statement in later for name in read(statement)})

    def _bound_so_far(self) -> set[str]:
        """Names whose meaning is the test's or the setup code's."""
        return self.names.keys() | self.effects.defined.keys() | self.effects.imported.keys()

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

    # ---- calls on the solution

    def _instance(self, statement: ast.stmt) -> tuple[str, ast.Call] | None:
        """(NAME, the call) of `NAME = Solution(ARGS)`, or the same with Solution as its annotation."""
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if value is None or not _is_bound_whole(statement) or not self._creates(value):
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
        if unknown := names_loaded(node) - own - of_setup - _BUILTINS - self.names.keys() - {self.root}:
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

    def _exchange(self, observed: tuple[str, ...]) -> int:
        """Ask the sandbox; the number of its answer."""
        self.found.append(JudgePlan(self.index, observed, "\n".join(self.pending), tuple(self.given)))
        self.pending, self.given = [], []
        return len(self.found) - 1

    def _answer(self, number: int) -> ast.expr:
        return ast.Subscript(ast.Name(f"{ANSWER}{number}", ast.Load()), ast.Constant(0), ast.Load())

    def visit(self, node: ast.AST) -> Any:
        """Put answers in the place of CALLs. Raises Refused for other uses of the solution."""
        if self._is_call(node):
            text = ast.unparse(self._with_arguments(node))
            return self._hold(text) if self.to_hold else self._answer(self._exchange((text,)))
        unsure = [node] if isinstance(node, _LAZY) else []
        if isinstance(node, _COMPREHENSIONS) and len(self._calls(node)) == len(self._calls(node.generators[0].iter)):
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

    # ---- what may be judged against what

    def _known(self, name: str) -> Kind | None:
        if name.startswith(ANSWER):
            return "answer"
        return self.names[name].kind if name in self.names else None

    def _expanded(self, mentioned: set[str]) -> set[str]:
        """With everything that mentioned helpers mention."""
        found, todo = set(mentioned), list(mentioned)
        while todo:
            more = self.closures.get(todo.pop(), set()) - found
            found |= more
            todo += more
        return found

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
                compound = isinstance(part, (ast.stmt, ast.comprehension)) and not isinstance(part, _SIMPLE)
                whole = compound or (isinstance(part, ast.expr) and not isinstance(part, _TOGETHER))
                negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
                kinds = self._kinds(part) if whole and not negated else set()
                mixed = {"answer", "argument"} <= kinds or ("argument" in kinds and _is_vacuous_where_empty(part))
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


def _is_answer(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id.startswith(ANSWER)


def _split(body: Iterable[ast.stmt]) -> list[ast.stmt]:
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


def _read_names(node: ast.AST) -> set[str]:
    """Names whose values it reads, those of `NAME += VALUE` included."""
    return names_loaded(node) | {
        part.target.id
        for part in ast.walk(node)
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name)
    }


def _binds_id(node: ast.AST) -> bool:
    """Whether a test means something else by this name."""
    stored = isinstance(node, ast.Name) and node.id == "id" and not isinstance(node.ctx, ast.Load)
    return stored or (isinstance(node, ast.arg) and node.arg == "id")


def _has_answer(node: ast.AST) -> bool:
    return any(name.startswith(ANSWER) for name in names_mentioned(node))


def _is_bound_whole(statement: ast.stmt) -> bool:
    """Whether it is `NAME = VALUE`."""
    if isinstance(statement, ast.Assign):
        return len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def _is_vacuous_where_empty(node: ast.AST) -> bool:
    """Whether it looks at each member of something: of an emptied argument, none is wrong."""
    if isinstance(node, (ast.For, ast.While)):
        return any(isinstance(part, (ast.Assert, ast.Raise)) for part in ast.walk(node))
    if isinstance(node, _COMPREHENSIONS):
        judging = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)
        return any(isinstance(part, judging) for part in ast.walk(node) if part not in _sources(node))
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("all", "any", "map", "filter")


def _sources(node: Any) -> list[ast.AST]:
    return [part for one in node.generators for part in ast.walk(one.iter)]


def _last_name(node: ast.Attribute | ast.alias) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.name.rpartition(".")[2]


def _text(statements: Iterable[ast.stmt | str]) -> str:
    return "\n".join(one if isinstance(one, str) else ast.unparse(ast.fix_missing_locations(one)) for one in statements)
