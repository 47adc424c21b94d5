"""The completion's own evaluation function: which definition a call reaches, and what of the program it needs.

Reads the text of a program, in the sandbox, before that program runs. Standard library only, no relative imports: its
neighbour `printer.py` is found by the file's folder.
"""

import ast
import builtins
import sys
from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import Any

from printer import Printer, first_line  # ty: ignore[import-not-found]  (found by the file's folder)

MAX_CHARS = 500_000  # of a completion's own tests that are also run against a stub and the canonical solution
RECURSION = 20_000  # while a program is read: its sums of a thousand terms
_OPTIMIZED = 1  # flag of a function's code; a class's has it not
# Who uses one of these may find or bind a name without writing it, so the whole program is taken along.
_BY_NAME = {"globals", "vars", "locals", "dir", "exec", "eval", "getattr", "setattr", "__import__", "__builtins__"}
_LOOKS = {"main", "loadTestsFromModule", "testmod"}  # of unittest and doctest: they find what the module has
_ENDS = {"exit", "_exit", "abort", "main"}  # sys.exit(), unittest.main(): they end a program, and no tests need them
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def own_evaluator(code: str, name: str, owner: str, method: str, program: CodeType | None = None) -> dict | None:
    """What the judge needs to know of the function `name` of a program; None if the program defines none. `program`: its
    code, by which the function is found where the text is too deep for a tree.

    A function at module level wins over a method, a method over a function nested in another one (which no call from
    outside can reach); among methods the class that comes first in ast.walk order. Of several definitions in one place
    the last counts: that is the one which a call reaches. `owner` and `method` name the solution.

    Keys: "parent" (the class that has it, or ""), "function" (its text; None: it cannot be compared), "main_block" (whether
    that holds one), "before" and "after" (the statements that it needs, by their place relative to the solution), "members"
    (what it needs of the solution's own class, itself included, indented by four), "written" (see `is_as_written`).
    """
    if name not in code:
        return None
    found: dict[str, Any] = {"parent": "", "function": None, "before": "", "members": "", "after": "", "written": {}}
    found["main_block"] = False
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION)
    try:
        tree = ast.parse(code)
        parent, function = reached(tree, name) or (None, None)
        if function is None:
            return None
        found["parent"] = parent.name if parent else ""
        printer = Printer(code)
        found["main_block"] = printer.has_main_block(function)
        texts = _Slice(tree.body, name, parent, (owner, method), printer).texts() | {"function": printer.of(function)}
    except Exception:  # noqa: BLE001  too deep to parse or to walk: judged all the same
        return _found_in(program, name, found)
    finally:
        sys.setrecursionlimit(usual)
    size = sum(len(texts[key]) for key in ("function", "before", "members", "after"))
    return found | texts if size <= MAX_CHARS else found


def _found_in(program: CodeType | None, name: str, found: dict[str, Any]) -> dict[str, Any] | None:
    """The function by the code of the program, which has no text then: one of the module before a method, before one in
    another function."""
    best: tuple[int, str] | None = None
    todo = [(program, 0, "")] if program is not None else []
    for code, rank, parent in todo:
        for inner in code.co_consts:
            if type(inner) is not CodeType:
                continue
            if inner.co_name == name and inner.co_flags & _OPTIMIZED and (best is None or rank < best[0]):
                best = rank, parent
            is_class = not inner.co_flags & _OPTIMIZED and rank < 2
            todo.append((inner, 1, inner.co_name) if is_class else (inner, 2, ""))
    return None if best is None else found | {"parent": best[1]}


def reached(tree: ast.Module, name: str) -> tuple[ast.ClassDef | None, ast.FunctionDef] | None:
    """(class that has it or None, definition) of the function that a call reaches; None if there is none. The report's
    page marks the same one: `evaluator_of` there is held equal by a test."""
    found: list[tuple[int, ast.ClassDef | None, ast.FunctionDef]] = []
    places: dict[ast.AST, tuple[int, ast.ClassDef | None]] = {tree: (0, None)}
    for node in ast.walk(tree):
        rank, parent = places.get(node, (0, None))
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef) and inner.name == name:
                found.append((rank, parent, inner))
            places[inner] = (rank, parent)
            if isinstance(inner, (*_FUNCTIONS, ast.Lambda)):
                places[inner] = (2, None)
            elif isinstance(inner, ast.ClassDef) and rank < 2:
                places[inner] = (1, inner)
    if not found:
        return None
    best = min(rank for rank, _, _ in found)
    equals = [(parent, function) for rank, parent, function in found if rank == best]
    first = equals[0][0]
    if best == 2:
        return equals[0]
    same = [item for item in equals if first is None or (item[0] is not None and item[0].name == first.name)]
    return max(same, key=lambda item: (item[1].lineno, item[1].col_offset))


class _Slice:
    """The statements of a program that a function needs: those that bind a name that it uses, those that do something to
    such a name when the program is loaded, and what these need in turn. Not the solution, which is replaced."""

    def __init__(
        self,
        body: list[ast.stmt],
        name: str,
        parent: ast.ClassDef | None,
        solution: tuple[str, str],
        printer: Printer,
    ) -> None:
        """`solution`: (class or "", method or function)."""
        self.printer = printer
        owner, self.method = solution
        self.name, self.replaced = name, owner or self.method
        # What the body of the solution's class does when it is loaded, it does to the module, too.
        self.body = body = [part for statement in body for part in (statement, *_done_in(statement, self.replaced))]
        self.own_class = parent if parent is not None and parent.name == owner else None
        self.binds = [_bound(statement) for statement in body]
        self.loads = [_used(statement) for statement in body]
        self.bound = set().union(*self.binds) - {self.replaced}
        self.imported = set().union(*(n for s, n in zip(body, self.binds, strict=True) if isinstance(s, _IMPORTS)))
        self.defined: dict[str, set[str]] = {}  # the program's functions and classes: the names that they use
        for statement, loads in zip(body, self.loads, strict=True):
            if isinstance(statement, _DEFINITIONS) and statement.name != self.replaced:
                self.defined.setdefault(statement.name, set()).update(loads)
        # Of what the program binds itself, and of names by which others are found.
        known = self.bound - self.imported | _BY_NAME
        self.mentions = [self.mentioned(loads) & known for loads in self.loads]
        self.taken: set[int] = set()
        self.needed = set() if self.own_class else {parent.name if parent else name}
        self.members = self.members_needed(self.own_class) if self.own_class else []
        while self.take_more():
            pass

    def mentioned(self, loads: set[str]) -> set[str]:
        """These names, and those that the functions and classes use which they may call."""
        found: set[str] = set()
        while loads:
            found |= loads
            loads = set().union(*(self.defined.get(name, ()) for name in loads)) - found
        return found

    def members_needed(self, own_class: ast.ClassDef) -> list[ast.stmt]:
        """What the function uses of its own class, by name or as an attribute, transitively; itself included."""
        wanted, taken = {self.name}, set()
        while True:
            more = {
                index
                for index, node in enumerate(own_class.body)
                if index not in taken and self.method not in _bound(node)
                if wanted & _bound(node)
                or (wanted & _BY_NAME and _bound(node))
                or (_acts(node) and wanted & _used(node))
            }
            if not more:
                return [own_class.body[index] for index in sorted(taken)]
            taken |= more
            for index in more:
                self.need(own_class.body[index])
                wanted |= _used(own_class.body[index]) | _attributes(own_class.body[index])

    def need(self, node: ast.stmt) -> None:
        """Need the names that this uses, and all that there are where it looks for them."""
        self.needed |= _used(node) | ({"globals"} if _LOOKS & _attributes(node) else set())

    def take_more(self) -> bool:
        """Take the statements that what is needed by now needs; whether there were any."""
        before = len(self.taken)
        for index in reversed(range(len(self.body))):  # what is needed is bound before, mostly
            names = self.binds[index]
            if index in self.taken or self.replaced in names:
                continue
            wanted = "*" in names or not names.isdisjoint(self.needed)
            if wanted or self.acts(index) or (not self.needed.isdisjoint(_BY_NAME) and self.harmless(index)):
                self.taken.add(index)
                self.need(self.body[index])
        return len(self.taken) > before

    def harmless(self, index: int) -> bool:
        """Whether it binds something, or does nothing with the solution."""
        return bool(self.binds[index]) or self.replaced not in self.loads[index]

    def acts(self, index: int) -> bool:
        """Whether a statement that is executed when the program is loaded may change something that is needed."""
        statement, loads = self.body[index], self.loads[index]
        if isinstance(statement, (*_DEFINITIONS, *_IMPORTS)):
            return False
        if self.replaced in loads:  # what it does with the solution is not the tests' business, but this is
            return self.own_class is not None and self.name in _attributes(statement)
        if not (self.mentions[index].isdisjoint(_BY_NAME) and self.mentions[index].isdisjoint(self.needed)):
            return True
        return bool(loads & self.imported & self.needed) and not _ENDS & _attributes(statement)

    def texts(self) -> dict[str, Any]:
        """The statements as text, by their place relative to the solution."""
        place = max((index for index, names in enumerate(self.binds) if self.replaced in names), default=-1)
        futures = {
            i for i, node in enumerate(self.body) if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        }
        before = sorted(index for index in self.taken - futures if index < place)
        after = sorted(self.taken - futures - set(before))
        return {
            "before": self.text(self.body[index] for index in [*sorted(futures), *before]),
            "after": self.text(self.body[index] for index in after),
            "members": self.text(self.members, "    "),
            "written": {
                "owner": self.replaced,
                "functions": self.lines_of(self.body[index] for index in sorted(self.taken)),
                "members": self.lines_of(self.members),
                # Any name may be one of those that a star brings.
                "others": [] if "*" in self.bound else sorted(self.needed - self.bound - {self.replaced}),
                "decorated": self.solution_is_made(),
            },
        }

    def text(self, nodes: Iterable[ast.stmt], indent: str = "") -> str:
        return "\n".join(self.printer.of(node, indent) for node in nodes)

    def solution_is_made(self) -> bool:
        """Whether a decorator or a metaclass of the solution's class has to do with what is needed: they are not taken
        along."""
        classes = [node for node in self.body if isinstance(node, ast.ClassDef) and node.name == self.replaced]
        makers = [
            maker for node in classes for maker in (*node.decorator_list, *(word.value for word in node.keywords))
        ]
        mentioned = set().union(*(self.mentioned(_used(maker)) for maker in makers))
        return bool(mentioned & (_BY_NAME | {self.name} | (self.needed & self.bound - self.imported)))

    def lines_of(self, nodes: Iterable[ast.stmt]) -> dict[str, list]:
        """Of each function that is needed: whether it is plainly one (not decorated, not assigned), and the [first, last]
        lines between which its code may stand."""
        nodes = list(nodes)
        anywhere = [[first_line(node), node.end_lineno] for node in nodes]
        found: dict[str, list] = {}
        for node in nodes:
            for name in _bound(node):
                plain = isinstance(node, ast.FunctionDef) and all(map(_is_plain, node.decorator_list))
                found.pop(name, None)  # by its last definition
                if plain or name == self.name:
                    found[name] = [plain, [[first_line(node), node.end_lineno]] if plain else anywhere]
        return found


def _done_in(statement: ast.stmt, solution: str) -> list[ast.stmt]:
    """What the body of the solution's class does, beside binding names of its own."""
    is_solution = isinstance(statement, ast.ClassDef) and statement.name == solution
    return [node for node in statement.body if _acts(node)] if is_solution else []


def _acts(node: ast.stmt) -> bool:
    """Whether a statement of a class is more than a definition, a constant or a docstring."""
    if isinstance(node, (*_DEFINITIONS, *_IMPORTS, ast.Pass)):
        return False
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return not _bound(node)
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_plain(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in ("staticmethod", "classmethod")


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds or deletes in the scope that it stands in."""
    found: set[str] = set()
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, (*_DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
    return found


def _used(node: ast.AST) -> set[str]:
    """Names that are read anywhere in it, changed in place or declared global."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            found.add(part.id)
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            found.add(part.target.id)
        elif isinstance(part, ast.Global):
            found |= set(part.names)
    return found


def _attributes(node: ast.AST) -> set[str]:
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


# ---------------------------------------------------------------- after the program was loaded

# The program may have replaced the builtins by now.
_all, _any, _issubclass, _type, _builtins = all, any, issubclass, type, vars(builtins)
_static, _classed = staticmethod, classmethod
_members_of = type.__dict__["__dict__"].__get__


def known_names(names: dict) -> dict:
    """What each name means before a program runs."""
    return {**_builtins, **names}


def is_as_written(written: dict, program: CodeType, names: dict, before: dict) -> bool:
    """Whether the functions that own tests need are those that the program's text defines under their names.

    `program` is its code, `names` its module by now, `before` the `known_names` before it ran. A program that binds
    `run_tests` by any other way than by writing it is found out here: the function's code is none of the text's.
    """
    if written["decorated"]:
        return False
    codes = _codes(program)
    owner = names.get(written["owner"])
    members = _members_of(owner) if _issubclass(_type(owner), _type) else {}
    return (
        _all([_stands_in(names.get(name), *place, codes) for name, place in written["functions"].items()])
        and _all([_stands_in(members.get(name), *place, codes) for name, place in written["members"].items()])
        and _all([names.get(name, _builtins.get(name)) is before.get(name) for name in written["others"]])
    )


def _codes(code: CodeType) -> list[CodeType]:
    """The code of a program, and of all functions in it."""
    found = [code]
    for one in found:
        found += [const for const in one.co_consts if _type(const) is CodeType]
    return found


def _stands_in(value: Any, plain: bool, lines: list[list[int]], codes: list[CodeType]) -> bool:
    """Whether a function's code is some that stands between these lines. One that is not plainly a function may be
    anything else: the statements that make it are taken along."""
    if _type(value) is _static or _type(value) is _classed:
        value = value.__func__
    if _type(value) is not FunctionType:
        return not plain
    code = value.__code__
    return _any([one is code and _any([a <= code.co_firstlineno <= b for a, b in lines]) for one in codes])
