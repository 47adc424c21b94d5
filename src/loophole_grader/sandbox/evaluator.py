"""The completion's evaluation function: which definition a call reaches, and the program with another solution.

`execute` runs a whole program, one statement after the other, and as soon as its solution is there it is replaced *in
place*: the method on the class itself, the function in the module. Whatever the program makes (an instance, an alias,
a bound method, a cache) meets the other solution, and so does what it computes while it is loaded.

Standard library only, no relative imports: it runs inside the judged process.
"""

import ast
import contextlib
import sys
from collections.abc import Callable, Generator
from types import CodeType, FunctionType
from typing import Any

RECURSION = 20_000  # while a program is read: a tree is as deep as a sum has terms
MOST_WRAPPED = 100  # functions around a solution, one in the other
Names = dict[str, Any]


def own_evaluator(code: str, names: str) -> list:
    """[how a call of the first of the `names` that the program defines is written, whether that function is compared on
    other solutions], which one with a `__main__` block is not; empty if it defines none. names: with "|" between."""
    tree = parsed(code)
    found = next((one for name in names.split("|") if name in code and (one := reached(tree, name))), None)
    if found is None:
        return []
    parent, function = found
    name = function.name
    compared = True
    for node in ast.walk(function):
        match node:
            case ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")])):
                compared = False
    return [f"{parent.name}().{name}()" if parent else f"{name}()", compared]


@contextlib.contextmanager
def _deep() -> Generator[None, None, None]:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def parsed(code: str) -> ast.Module:
    with _deep():
        return ast.parse(code)


def reached(tree: ast.Module, name: str) -> tuple[ast.ClassDef | None, ast.FunctionDef] | None:
    """(class that has it or None, definition) of the function that a call reaches; None if there is none.

    A function at module level wins over a method, a method over a function nested in another one, which no call from
    outside can reach. Among methods the class that comes first in ast.walk order wins. Of several definitions in one
    place the last counts."""
    found: list[tuple[int, ast.ClassDef | None, ast.FunctionDef]] = []
    places: dict[ast.AST, tuple[int, ast.ClassDef | None]] = {tree: (0, None)}
    for node in ast.walk(tree):
        rank, parent = places.get(node, (0, None))
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef) and inner.name == name:
                found.append((rank, parent, inner))
            places[inner] = (rank, parent)
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                places[inner] = (2, None)
            elif isinstance(inner, ast.ClassDef) and rank < 2:
                places[inner] = (1, inner)
    if not found:
        return None
    best, first, nested = min(found, key=lambda one: one[0])
    if best == 2:
        return first, nested
    same = [one for one in found if one[0] == best and (one[1] and one[1].name) == (first and first.name)]
    return max(same, key=lambda one: (one[2].lineno, one[2].col_offset))[1:]


def zero(*_: Any, **__: Any) -> int:
    """The stub."""
    return 0


_ZERO = zero.__code__
_compile, _exec, _type, _issubclass, _getattr = compile, exec, type, issubclass, getattr
_static, _classed, _property, _error, _any_error = staticmethod, classmethod, property, Exception, BaseException
_members_of, _bases = (type.__dict__[name].__get__ for name in ("__dict__", "__mro__"))
_set_member, _suppress = type.__setattr__, contextlib.suppress


class _Method(_property):
    """A method that replaces another one. It has precedence over an attribute of that name in an instance. doctest
    reads the text of the replaced one from a property."""

    def __init__(self, answer: Callable, replaced: object) -> None:
        bare = _type(replaced) in (_static, _classed)
        function = _getattr(replaced, "__func__", None) if bare else replaced
        _property.__init__(self, function if _type(function) is FunctionType else None)
        self.answer, self.bare, self.__module__ = answer, bare, _getattr(function, "__module__", "")

    def __get__(self, thing: Any, owner: Any = None) -> Any:
        answer = self.answer
        return (lambda _self, *a, **k: answer(*a, **k)) if thing is None and not self.bare else answer

    def __set__(self, thing: Any, value: Any) -> None:
        pass


def statements(source: str, flags: int) -> list[CodeType]:
    """The code of each statement of a program. `flags`: __future__ imports that hold for it."""
    parts = [ast.Module([statement], []) for statement in parsed(source).body]
    with _deep():
        return [_compile(part, "<program>", "exec", flags, dont_inherit=True) for part in parts]


def execute(
    program: list[CodeType], names: Names, others: Names, owner: str, method: str, solution: str | None
) -> None:
    """Execute a program in `names` with another solution: that of the text `solution`, which gets the names `others`,
    or (None) a stub that returns 0.

    A statement that raises is passed over: it may have used the replaced solution. `owner`: the solution's class, or
    "" where `method` is a function."""
    answer = zero if solution is None else _answer(solution, others, owner, method)
    names[owner or method] = _type(owner, (), {}) if owner else zero
    _replace(names, answer, owner, method)
    for statement in program:
        with _suppress(_any_error):
            _exec(statement, names)
        _replace(names, answer, owner, method)


def _answer(solution: str, names: Names, owner: str, method: str) -> Callable:
    _exec(_compile(solution, "<solution>", "exec", dont_inherit=True), names)
    whole = names[owner or method]
    return (lambda *args, **kwargs: _getattr(whole(), method)(*args, **kwargs)) if owner else whole


def _replace(names: Names, answer: Callable, owner: str, method: str) -> None:
    """Replace the solution that the names hold, if that is not done."""
    there = names.get(owner or method)
    if not owner:
        if there is not None and there is not answer:
            names[method] = answer
            _empty(there, answer, names)
    elif _issubclass(_type(there), _type):
        members = [_members_of(base) for base in _bases(there)]
        if _type(members[0].get(method)) is not _Method:
            replaced = next((inherited[method] for inherited in members if method in inherited), None)
            _set_member(there, method, _Method(answer, replaced))
            _empty(replaced, answer, names)
    elif there is not None:  # a function that makes the object, or whatever else is called in the class's place
        names[owner] = _type(owner, (), {method: _Method(answer, None)})


def _empty(value: Any, answer: Callable, names: Names) -> None:
    """Give the functions that a solution is made of the stub's code, so that other names for them meet it: the
    function itself, and those that it wraps, as far as functools and the builtin decorators say so. Only those of
    this program: a library's function is used for more than that."""
    for _ in range(MOST_WRAPPED if answer is zero else 0):
        if _type(value) is FunctionType and value.__globals__ is names:
            value.__code__ = _ZERO.replace(co_freevars=value.__code__.co_freevars)
        name = "__func__" if _type(value) in (_static, _classed) else "fget" if _type(value) is _property else ""
        try:
            value = _getattr(value, name or ("func" if _type(value).__name__[:7] == "partial" else "__wrapped__"))
        except _error:
            return
