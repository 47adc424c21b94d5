"""A program with a stub that returns 0 in the place of its solution, everything else as it is.

The text of own tests beside a stub (own_tests.py) is not all that a program does with them: by an alias it can empty what
they look at. So the whole program is executed, one statement after the other, and as soon as its solution is there it is
replaced *in place*: the method on the class itself, the code in the function itself. Whatever the program makes (an
instance, an alias, a bound method, a closure, a cache) meets the stub, and what it computes by its solution while it is
loaded is the stub's, too. The stub has the docstring of what it replaces: the examples in it are tests, which meet the stub.

Standard library only, no relative imports: it runs inside the judged process.
"""

import ast
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

RECURSION = 20_000  # while a program is read: a tree is as deep as a sum has terms
MOST_WRAPPED = 100  # functions around a solution, one in the other


def zero(*_: Any, **__: Any) -> int:
    """The stub."""
    return 0


class _Method(property):
    """The stub as a method. It has precedence over an attribute of that name in an instance."""

    def __init__(self, doc: str | None, module: str) -> None:
        """`doc`, `module`: of the method that it replaces; by these, and as a property, doctest finds its examples."""
        super().__init__()
        self.__doc__, self.__module__ = doc, module

    def __get__(self, thing: Any, owner: Any = None) -> Any:
        return zero

    def __set__(self, thing: Any, value: Any) -> None:
        pass


_CODE = zero.__code__
_compile, _exec, _type, _issubclass, _getattr = compile, exec, type, issubclass, getattr
_static, _classed, _property, _error = staticmethod, classmethod, property, Exception
_members_of, _bases = (type.__dict__[name].__get__ for name in ("__dict__", "__mro__"))
_set_member = type.__setattr__


def execute(source: str, flags: int, names: dict[str, Any], owner: str, method: str) -> None:
    """Execute a program in `names`, its solution replaced. Raises NameError if it has none, and whatever it raises.

    `owner`: the solution's class, or "" where `method` is a function. `flags`: __future__ imports that hold for it.
    """
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION)
    try:
        parts = [ast.Module([statement], []) for statement in ast.parse(source).body]
        programs = [_compile(part, "<program>", "exec", flags, dont_inherit=True) for part in parts]
    finally:
        sys.setrecursionlimit(usual)
    before = names.get(owner or method)  # the setup code's or none: not this program's solution
    replaced = False
    for program in programs:
        _exec(program, names)
        there = names.get(owner or method)
        if there is not None and there is not before:
            replaced = True
            _replace(names, there, owner, method)
    if not replaced:
        raise NameError(f"no solution {owner or method}")


def _replace(names: dict[str, Any], there: Any, owner: str, method: str) -> None:
    if not owner:
        if _type(there) is not FunctionType or there.__code__ is not _CODE:
            stub = FunctionType(_CODE, names, method)
            stub.__doc__ = _examples(there)
            _empty(there, names)
            names[method] = stub
    elif _issubclass(_type(there), _type):
        members = [_members_of(base) for base in _bases(there)]
        if _type(members[0].get(method)) is _Method:
            return
        replaced = next((inherited[method] for inherited in members if method in inherited), None)
        _empty(replaced, names)
        _set_member(there, method, _Method(_examples(replaced), names["__name__"]))
    else:  # a function that makes the object, or whatever else is called in the class's place
        names[owner] = _type(owner, (), {method: _Method(None, "")})


def _examples(value: Any) -> str | None:
    """The docstring of a solution."""
    return next((function.__doc__ for function in _functions(value)), None)


def _empty(value: Any, names: dict[str, Any]) -> None:
    """Give the functions that a solution is made of the stub's code, so that other names for them meet it. Only this
    program's own: a library's function is used for more than that."""
    for function in _functions(value):
        if function.__globals__ is names:
            function.__code__ = _CODE.replace(co_freevars=function.__code__.co_freevars)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The function itself, and those that it wraps, as far as functools and the builtin decorators say so."""
    for _ in range(MOST_WRAPPED):
        if _type(value) is FunctionType:
            yield value
        name = "__func__" if _type(value) in (_static, _classed) else "fget" if _type(value) is _property else ""
        try:
            value = _getattr(value, name or ("func" if _type(value).__name__[:7] == "partial" else "__wrapped__"))
        except _error:
            return
