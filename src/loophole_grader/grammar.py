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

What is not of this form is refused when the problem is loaded, with its line and the reason.
"""

import ast
import builtins
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeGuard

from loophole_grader.literals import NOT_LITERAL, is_constant, literal
from loophole_grader.names import DEFINITIONS, callers_of, names_bound, names_loaded, names_mentioned, names_of

IN_SANDBOX, ANSWER, GIVEN = "_test_", "_answer", "_given"
Kind = Literal["trusted", "instance", "answer", "argument"]
_LAZY = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await)
_SIMPLE = (ast.Assert, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)
_TOGETHER = (ast.BoolOp, ast.Compare, ast.Tuple, ast.List, ast.Subscript, ast.Starred, ast.Slice)  # looked at by part
_BUILTINS = frozenset(dir(builtins))


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
        return _Reader(test, index, func_name, body).exchanges(setup)
    except RecursionError:
        raise Refused(1, "it is nested too deeply") from None


@dataclass(frozen=True)
class _Name:
    """What is known of a name that a test binds."""

    kind: Kind  # "answer": from the program; "argument": passed to a CALL, or computed from what was
    shared: bool = False  # the sandbox has it, too, by the name with IN_SANDBOX before it
    text: ast.expr | None = None  # of its value, where that is a literal
    value: Any = NOT_LITERAL

    @property
    def constant(self) -> bool:
        return is_constant(self.value)


# ---------------------------------------------------------------- reading a test


class _Reader(ast.NodeTransformer):
    """Reads one test, statement by statement. As a transformer it puts answers in the place of CALLs."""

    def __init__(self, test: str, index: int, func_name: str, body: Sequence[ast.stmt]) -> None:
        self.test, self.index, self.body = test, index, body
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
        self.line = 1
        self.passed: set[str] = set()  # names of arguments of the current statement, without constants

    def exchanges(self, setup: str) -> list[JudgePlan]:
        """All exchanges of the test. Raises Refused."""
        if any(word in self.test for word in (":=", "global", "nonlocal", "*")):
            self._check_in_sight()
        for place, statement in enumerate(self.body):
            self.line = statement.lineno
            if isinstance(statement, ast.Assert):
                statement.msg = None
            if not self._is_plain(statement):
                self._read(statement, self.body[place + 1 :])
        if not any(isinstance(part, ast.Assert) for statement in reversed(self.body) for part in ast.walk(statement)):
            self._refuse("it asserts nothing; write assert CALL == VALUE")
        if self.pending or not self.found:
            self._exchange(())
        if self.judged_here:
            return self.found
        of_setup, own = names_of(setup), names_of(self.test)
        if of_setup is not None and own is not None:
            self._check_known(of_setup | own | _BUILTINS, callers_of(setup, self.root))
        plans = [replace(plan, expected=NOT_LITERAL) for plan in self.found]
        plans[-1] = replace(plans[-1], remainder=_text(self.judge))
        if self.prepared:
            plans[0] = replace(plans[0], prepare=_text(self.prepare))
        return plans

    def _refuse(self, reason: str) -> NoReturn:
        raise Refused(self.line, reason)

    def _check_in_sight(self) -> None:
        for part in (part for statement in self.body for part in ast.walk(statement)):
            star = isinstance(part, ast.ImportFrom) and part.names[0].name == "*"
            if star or isinstance(part, (ast.Global, ast.Nonlocal, ast.NamedExpr)):
                self.line = part.lineno
                self._refuse(f"{ast.unparse(part)!r} binds names out of sight; bind them in a statement of their own")

    def _is_plain(self, statement: ast.stmt) -> bool:
        """`assert CALL == LITERAL` before any name is bound: read at once, because nearly all tests are such."""
        compared = statement.test if isinstance(statement, ast.Assert) and not self.names else None
        if not isinstance(compared, ast.Compare) or [type(op) for op in compared.ops] != [ast.Eq]:
            return False
        call, other = compared.left, compared.comparators[0]
        if not self._is_call(call) or (expected := literal(other)) is NOT_LITERAL:
            return False
        if (text := ast.unparse(call)).count(self.root) > 1:  # perhaps in an argument
            return False
        compared.left = self._answer(self._exchange((text,)))
        self.found[-1] = replace(self.found[-1], expected=expected)
        self.judge.append(statement)
        return True

    def _read(self, statement: ast.stmt, later: Sequence[ast.stmt]) -> None:
        if self.root in names_bound(statement):
            self._refuse(f"it binds {self.root}, the solution's own name")
        if (made := self._instance(statement)) is not None:
            name, creation = made
            self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(self._with_arguments(creation))}")
            self._settle_passed(later)
            self.names[name] = _Name("instance")
        elif not self._calls(statement):
            self._trusted(statement)
        elif isinstance(statement, _SIMPLE):
            self._simple(statement, later)
        else:
            kind = type(statement).__name__.removesuffix("Def").lower()
            self._refuse(f"a call of the solution inside a {kind} statement; write it as a statement of its own")

    # ---- statements

    def _simple(self, statement: Any, later: Sequence[ast.stmt]) -> None:
        """A simple statement with CALLs in it."""
        if isinstance(statement, ast.Expr) and self._is_call(statement.value):
            self.pending.append(ast.unparse(self._with_arguments(statement.value)))
            self._settle_passed(later)
            return
        name = self._bound_by_call(statement)
        before = len(self.found)
        if name is None:
            rewritten = self.visit(statement)
        else:
            self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(self._with_arguments(statement.value))}")
            statement.value = self._answer(self._exchange((IN_SANDBOX + name,)))
            rewritten = statement
        if read := self.passed & self._expanded(names_loaded(rewritten)):
            self._refuse(
                f"{min(read)!r} is passed to the call and read in the same statement; bind what is expected before, or "
                "look at the argument in a statement after it"
            )
        self._check_apart(rewritten)
        self.judge.append(rewritten)
        expected = self._expected(rewritten)
        if expected is NOT_LITERAL or len(self.found) != before + 1:
            self.judged_here = False
        else:
            self.found[-1] = replace(self.found[-1], expected=expected)
        self._settle_passed(later, names_bound(rewritten))
        self._note(rewritten)
        if name is not None:
            self.names[name] = _Name("answer", shared=True)

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
        return literal(other) if known is None else known.value

    def _trusted(self, statement: ast.stmt) -> None:
        """A statement that the judge alone executes."""
        if isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            return
        self.visit(statement)  # which refuses what it may not mention
        self.judge.append(statement)
        bound = names_bound(statement)
        if (literals := _literals(statement)) is not None:
            self.prepare.append(statement)
            self.names.update({name: _Name("trusted", text=text, value=value) for name, text, value in literals})
            return
        self.judged_here = False
        mentioned = names_mentioned(statement)
        if isinstance(statement, DEFINITIONS):
            self.closures[statement.name] = mentioned
            self.names[statement.name] = _Name("trusted")
            self.prepare.append(statement)
            return
        lazy = any(isinstance(part, _LAZY) for part in ast.walk(statement)) or not mentioned.isdisjoint(self.closures)
        self.closures.update(dict.fromkeys(bound if lazy else (), mentioned - bound))
        if isinstance(statement, ast.Assert):
            self._check_apart(statement)
            return
        self._note(statement)
        self._check_apart(statement)
        if self._kind(statement) == "trusted":
            self.prepare.append(statement)

    def _note(self, statement: ast.stmt) -> None:
        """What the names of a statement hold after it. Whatever it mentions it may have changed, an assertion apart."""
        if isinstance(statement, ast.Assert):
            return
        kind = self._kind(statement)
        for name in self._expanded(names_mentioned(statement)) & set(self.names):
            if not self.names[name].constant:
                self.names[name] = _Name(kind)
        self.names.update({name: _Name(kind) for name in names_bound(statement)})

    def _settle_passed(self, later: Sequence[ast.stmt], bound: Collection[str] = ()) -> None:
        """After a statement that passed arguments: the judge gets the values of those that are still read."""
        read = sorted((self.passed - set(bound)) & self._read_later(later))
        for name in self.passed:
            self.names[name] = _Name("argument", shared=True)
        self.passed.clear()
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

    # ---- calls on the solution

    def _instance(self, statement: ast.stmt) -> tuple[str, ast.Call] | None:
        """(NAME, the call) of `NAME = Solution(ARGS)`."""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and self._creates(statement.value):
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Name) and isinstance(value, ast.Call):
                return target.id, value
        return None

    def _creates(self, node: ast.expr) -> bool:
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
        func = call.func
        if isinstance(func, ast.Attribute):
            owner = func.value
            if isinstance(owner, ast.Call):
                owner = self._with_arguments(owner)
            elif isinstance(owner, ast.Name) and owner.id != self.root:
                owner = ast.Name(IN_SANDBOX + owner.id, ast.Load())
            func = ast.Attribute(owner, func.attr, ast.Load())
        arguments = [self._argument(one) for one in call.args]
        return ast.Call(func, arguments, [ast.keyword(one.arg, self._argument(one.value)) for one in call.keywords])

    def _argument(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Starred):
            return ast.Starred(self._argument(node.value), ast.Load())
        if self._is_call(node):
            return self._with_arguments(node)
        mentioned = self._expanded(names_mentioned(node))
        kinds = {self._known(name) for name in mentioned}
        if self.root in mentioned or "instance" in kinds:
            self._refuse(f"argument {ast.unparse(node)!r} is more than a call of the solution; pass plain values")
        if isinstance(node, ast.Name) and node.id in self.names:
            return self._named_argument(node.id)
        if kinds & {"answer", "argument"}:
            self._refuse(
                f"argument {ast.unparse(node)!r} is computed from what the program had in hand; pass plain values"
            )
        return self._prepared(f"{IN_SANDBOX}{self.prepared}", node) if kinds & {"trusted"} else node

    def _named_argument(self, name: str) -> ast.expr:
        known = self.names[name]
        if not known.shared:
            if known.kind != "trusted":
                self._refuse(f"argument {name!r} is computed from what the program had in hand; pass plain values")
            if known.text is None:
                self._prepared(IN_SANDBOX + name, ast.Name(name, ast.Load()))
            else:
                self.pending.append(f"{IN_SANDBOX}{name} = {ast.unparse(known.text)}")
            self.names[name] = replace(known, shared=True)
        if not known.constant:
            self.passed.add(name)
        return ast.Name(IN_SANDBOX + name, ast.Load())

    def _prepared(self, name: str, value: ast.expr) -> ast.expr:
        """A value that trusted text computes, and that the sandbox gets as data by this name."""
        self.given.append((name, self.prepared))
        self.prepared += 1
        self.prepare.append(f"{GIVEN}.append({ast.unparse(value)})")
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
            return self._answer(self._exchange((text,)))
        unsure = [node] if isinstance(node, _LAZY) else []
        if isinstance(node, ast.IfExp):
            unsure = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            unsure = node.values[1:]
        if any(self._calls(part) for part in unsure):
            self._refuse(
                f"whether {ast.unparse(node)[:60]!r} calls the solution is known only while it runs; call it before"
            )
        if isinstance(node, ast.Name) and (node.id == self.root or self._is_instance(node)):
            self._refuse(f"it uses {node.id!r} itself, which only the program could judge; call a method of it")
        return self.generic_visit(node)

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
                mixed = whole and not negated and {"answer", "argument"} <= self._kinds(part)
            if mixed:
                self._refuse(
                    f"{ast.unparse(part)[:60]!r} judges the program by an argument that it could change; keep what is "
                    "expected under a name of its own before the call"
                )

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


def _literals(statement: ast.stmt) -> list[tuple[str, ast.expr, Any]] | None:
    """(name, text, value) of an assignment of literals to names, for each; None for anything else."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        sides: list[tuple[ast.expr, ast.expr]] = [(statement.target, statement.value)]
    elif isinstance(statement, ast.Assign):
        sides = [(target, statement.value) for target in statement.targets]
    else:
        return None
    found: list[tuple[str, ast.expr, Any]] = []
    while sides:
        target, value = sides.pop()
        rows = (ast.Tuple, ast.List)
        if isinstance(target, rows) and isinstance(value, rows) and len(target.elts) == len(value.elts):
            sides += zip(target.elts, value.elts, strict=True)
        elif isinstance(target, ast.Name) and (plain := literal(value)) is not NOT_LITERAL:
            found.append((target.id, value, plain))
        else:
            return None
    return found


def _text(statements: Iterable[ast.stmt | str]) -> str:
    return "\n".join(one if isinstance(one, str) else ast.unparse(ast.fix_missing_locations(one)) for one in statements)
