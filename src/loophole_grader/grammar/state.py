"""What is known while a test is read: of its names, of what was asked so far, and of what remains to be judged."""

import ast
import builtins
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from loophole_grader.effects import effects_of
from loophole_grader.grammar.plan import ANSWER, JudgePlan, Refused, root_of
from loophole_grader.literals import NOT_LITERAL, holds_nan, is_constant, literal

Kind = Literal["trusted", "instance", "answer", "argument"]
BUILTINS = frozenset(
    name for name, value in vars(builtins).items() if type(value).__module__ != "_sitebuiltins"
)  # `help`, `exit` and their like are not there in the sandbox


@dataclass(frozen=True)
class Name:
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


class State(ast.NodeTransformer):
    """A test that is being read."""

    def __init__(self, test: str, index: int, func_name: str, body: Sequence[ast.stmt], setup: str) -> None:
        self.test, self.index, self.body, self.setup = test, index, body, setup
        self.effects = effects_of(setup).copy()
        self.root, self.is_class = root_of(func_name)
        self.names: dict[str, Name] = {}
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

    def _refuse(self, reason: str) -> NoReturn:
        raise Refused(self.line, reason)

    def _refuse_setup(self, name: str) -> NoReturn:
        self._refuse(
            f"{name!r} of the setup code may change, and program and judge have one each; bind what is passed or changed "
            "in the test itself"
        )

    def _literal(self, node: ast.expr) -> Any:
        return literal(node, self.effects.fixed - self.names.keys() if self.names else self.effects.fixed)

    def _checked(self, expected: Any) -> Any:
        if holds_nan(expected):
            self._refuse("nan within a value is equal to the same object only; look at the parts, with math.isnan")
        return expected

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

    def _bound_so_far(self) -> set[str]:
        """Names whose meaning is the test's or the setup code's."""
        return self.names.keys() | self.effects.defined.keys() | self.effects.imported.keys()

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

    def _exchange(self, observed: tuple[str, ...]) -> int:
        """Ask the sandbox; the number of its answer."""
        self.found.append(JudgePlan(self.index, observed, "\n".join(self.pending), tuple(self.given)))
        self.pending, self.given = [], []
        return len(self.found) - 1

    def _answer(self, number: int) -> ast.expr:
        return ast.Subscript(ast.Name(f"{ANSWER}{number}", ast.Load()), ast.Constant(0), ast.Load())
