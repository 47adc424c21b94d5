"""What a statement of trusted text may change, read off its syntax. What cannot be told counts as a change of all that it
mentions."""

import ast
import builtins
import importlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from loophole_grader.literals import NOT_LITERAL, is_constant, literal
from loophole_grader.names import DEFINITIONS, STARRED, names_bound, names_mentioned, names_of, parameters_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _words(
    "abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float format frozenset hash hex int "
    "isinstance issubclass len list map max min oct ord pow range repr reversed round set slice sorted str sum tuple type "
    "zip print"
) | {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}
_MODULES = _words(
    "math cmath copy collections itertools statistics string fractions decimal typing dataclasses enum json re "
    "datetime __future__"
)
_FUNCTIONS = {
    "operator": _words(
        "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not itemgetter "
        "le length_hint lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor"
    ),
    "functools": frozenset({"reduce", "cmp_to_key"}),
    "bisect": frozenset({"bisect", "bisect_left", "bisect_right"}),
    "heapq": frozenset({"merge", "nlargest", "nsmallest"}),
}
_READING = _words(
    "as_integer_ratio bit_count bit_length conjugate copy count difference elements encode decode endswith find format get "
    "hex index intersection is_integer isalnum isalpha isdecimal isdigit isdisjoint islower isnumeric isspace issubset "
    "issuperset istitle isupper items join keys ljust lower lstrip most_common partition replace rfind rindex rjust "
    "rpartition rsplit rstrip split splitlines startswith strip swapcase symmetric_difference title union upper values "
    "zfill __name__ __class__ __doc__"
)
CHANGING = _words(
    "add append appendleft clear difference_update discard extend extendleft insert intersection_update move_to_end pop "
    "popitem popleft remove reverse rotate setdefault sort subtract symmetric_difference_update update"
)
_CONSTANT = _words(
    "abs all any ascii bin bool bytes chr complex float format hash hex int isinstance len oct ord repr str"
)
_SETTING = _words(
    "chdir getcontext patch putenv seed setcontext setlocale setprofile setrecursionlimit setstate settrace"
)
_NUMBERS = frozenset({"random", "randint", "randrange", "uniform", "getrandbits"})
_FRESH = _words("list dict set sorted deque Counter OrderedDict")
_UNSEEN = (ast.Yield, ast.YieldFrom, ast.Await, ast.With, ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef)


@dataclass
class Effects:
    """What is known of the names of a setup code, and of the functions that a test defines."""

    imported: dict[str, tuple[str, str]] = field(default_factory=dict)  # (module, name in it; "": the module itself)
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    reading: set[str] = field(default_factory=set)  # of `defined`: functions and classes that change nothing
    filling: set[str] = field(default_factory=set)  # functions that change nothing but what they are given
    stateful: set[str] = field(default_factory=set)  # names of the setup code that hold, or use, what may change
    fixed: set[str] = field(default_factory=set)  # names that `literals.py` may read by their usual meaning
    fields: set[str] = field(default_factory=set)  # of the setup code's named tuples
    aliases: set[str] = field(default_factory=set)  # names of the test for what is imported or the setup code's
    own: set[str] = field(default_factory=set)  # functions and modules that the test itself has bound

    def copy(self) -> "Effects":
        """For one test, which adds to it."""
        own = dict(self.imported), dict(self.defined), set(self.reading), set(self.filling)
        return Effects(*own, self.stateful, self.fixed, self.fields)

    def forget(self, name: str) -> None:
        """A test binds the name."""
        self.imported.pop(name, None)
        self.defined.pop(name, None)
        self.reading.discard(name)
        self.filling.discard(name)
        self.own.discard(name)
        self.aliases.discard(name)

    def bring(self, statement: ast.Import | ast.ImportFrom) -> None:
        """A test imports."""
        found = dict(imported_by(statement))
        self.imported.update(found)
        self.own |= found.keys()

    def changes(self, node: ast.AST, data: Collection[str]) -> tuple[set[str], bool]:
        """(names whose own object it may change, whether it may change anything at all that it mentions). `data`: names that
        the test has bound to what is no function of its own."""
        roots: set[str] = set()
        inner = _inner(node)
        called = {id(part.func): part for part in ast.walk(node) if isinstance(part, ast.Call)}
        modules = {id(part.value) for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        for part in ast.walk(node):
            if isinstance(part, _UNSEEN):
                return roots, True
            if isinstance(part, ast.Call) and not isinstance(part.func, (ast.Name, ast.Attribute, ast.Lambda)):
                return roots, True
            changed: ast.expr | None = None
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                known = part.id in data or part.id in inner
                if part.id in self.filling and not known and _is_given_literals(called.get(id(part))):
                    continue
                if (known and id(part) in called) or not (known or self._is_reading(part.id, id(part) in modules)):
                    return roots, True
            elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
                if self._is_module(part.value, data):
                    if not self._reads(self.imported[part.value.id][0], part.attr):  # ty: ignore[missing-attribute]
                        return roots, True
                elif part.attr in CHANGING:
                    changed = part.value
                elif (id(part) in called or part.attr.startswith("__")) and (
                    part.attr not in _READING or part.attr in self.methods()
                ):
                    return roots, True
            elif isinstance(part, (ast.Attribute, ast.Subscript)) and not isinstance(part.ctx, ast.Load):
                changed = part.value
            elif isinstance(part, ast.AugAssign):
                changed = part.target if isinstance(part.target, ast.Name) else None
            if changed is not None:
                if not isinstance(changed, ast.Name) or changed.id in inner:
                    return roots, True
                if changed.id not in data and (changed.id in self.imported or changed.id in vars(builtins)):
                    return roots, True  # `list.append(r, 1)`
                roots.add(changed.id)
        return roots, False

    def changed_outside(self, node: ast.AST) -> str:
        """What a statement changes of modules, or of what the setup code has defined: of that program and judge have one
        each. "" if it changes nothing of the kind."""
        setting = [part for part in ast.walk(node) if self._is_setting(part, node)]
        found = setting or [part for part, base in self._changed(node) if self._is_outside(base, node)]
        return ast.unparse(found[0]) if found else ""

    def _is_setting(self, part: ast.AST, node: ast.AST) -> bool:
        """Whether it names a function that is known to change a module's state."""
        if isinstance(part, ast.ImportFrom):
            return any(alias.name in _SETTING for alias in part.names)
        if isinstance(part, ast.Attribute):
            return part.attr in _SETTING and self._is_outside(_base_of(part), node)
        return (
            isinstance(part, ast.Name)
            and self.imported.get(part.id, ("", ""))[1] in _SETTING
            and self._is_outside(part.id, node)
        )

    def _is_outside(self, name: str, node: ast.AST) -> bool:
        return self.is_outside(name) and name not in names_bound(node) | _inner(node)

    def is_outside(self, name: str) -> bool:
        """Whether a name is that of something imported or defined by the setup code; "type": the class of something."""
        known = self.imported.keys() | self.aliases | {"type"} | (self.defined.keys() - self.own)
        return name in known

    def _changed(self, node: ast.AST) -> Iterable[tuple[ast.AST, str]]:
        """(the part that changes something, the name where the way to it begins)."""
        for part in ast.walk(node):
            changed: ast.AST | None = None
            if (isinstance(part, (ast.Attribute, ast.Subscript)) and not isinstance(part.ctx, ast.Load)) or (
                isinstance(part, ast.Attribute) and part.attr in CHANGING and not self._is_module(part.value, ())
            ):
                changed = part.value
            elif (
                isinstance(part, ast.Call)
                and isinstance(part.func, ast.Name)
                and part.func.id in ("setattr", "delattr")
            ):
                changed = part.args[0] if part.args else None
            if changed is not None:
                yield part, _base_of(changed)

    def keeps_something(self, node: ast.stmt) -> bool:
        """Whether a definition has a state of its own: a decorator, a default or an attribute that may change, a global,
        or one that it changes."""
        if isinstance(node, ast.ClassDef):
            plain = (ast.FunctionDef, ast.Pass, ast.Expr)
            return any(
                self.keeps_something(one)
                if isinstance(one, ast.FunctionDef)
                else not isinstance(one, plain)
                and not is_constant(literal(getattr(one, "value", None) or ast.Constant(0)))
                for one in node.body
            ) or bool([one for one in node.decorator_list if "dataclass" not in ast.unparse(one)])
        if not isinstance(node, ast.FunctionDef):
            return True
        defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
        keeps = any(isinstance(part, (ast.Global, ast.Nonlocal)) for part in ast.walk(node))
        keeps = keeps or bool(node.decorator_list) or not all(is_constant(literal(one)) for one in defaults)
        own = set().union(*(names_bound(one) for one in node.body)) | _inner(node)
        return keeps or any(base not in {"", *own} for _, base in self._changed(node))

    def define(self, name: str, node: ast.AST, data: Collection[str]) -> None:
        """Take note of a function that the test defines."""
        self.own.add(name)
        self.defined[name] = ast.Pass()
        if isinstance(node, ast.FunctionDef):
            self.reading.add(name)  # it may call itself
            if self._function(node, data):
                return
            self.reading.discard(name)
        elif isinstance(node, ast.Lambda) and self.changes(node.body, {*data, *parameters_of(node)}) == (set(), False):
            self.reading.add(name)

    def is_constant(self, node: ast.expr | None, constants: Collection[str] = ()) -> bool:
        """Whether a value is surely one that nothing can change. `constants`: names of such."""
        if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr)):
            return True
        if isinstance(node, ast.Name):
            return node.id in constants
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not) or self.is_constant(node.operand, constants)
        if isinstance(node, ast.BinOp):
            return self.is_constant(node.left, constants) and self.is_constant(node.right, constants)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self.imported.get(node.value.id) in (("math", ""), ("string", ""))
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            module = self.imported.get(called.value.id, ("", "-"))
            return module == ("math", "") or (module == ("random", "") and called.attr in _NUMBERS)
        if isinstance(called, ast.Name) and called.id not in self.defined:
            return called.id in _CONSTANT and self.imported.get(called.id, ("math", ""))[0] in ("math", "operator")
        return False

    def is_unchanging(self, node: ast.expr) -> bool:
        """The same of what setup code binds to a name: a literal, too, and a class of named tuples."""
        value = literal(node, _FLOATING)
        if value is not NOT_LITERAL:
            return is_constant(value)
        called = node.func if isinstance(node, ast.Call) else node
        named = isinstance(called, ast.Name) and self.imported.get(called.id) == ("collections", "namedtuple")
        return named or self.is_constant(node)

    def is_fresh(self, node: ast.expr | None) -> bool:
        """Whether a value is surely a container that this expression has made."""
        displays = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
        return isinstance(node, displays) or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _FRESH - set(self.defined)
        )

    # ---- names

    def _is_module(self, node: ast.expr, data: Collection[str]) -> bool:
        return isinstance(node, ast.Name) and node.id not in data and self.imported.get(node.id, ("", "-"))[1] == ""

    def _is_reading(self, name: str, owns: bool) -> bool:
        """Whether a name that the test has not bound is data, or a function that changes nothing."""
        if name in self.imported:
            module, attribute = self.imported[name]
            return owns if not attribute else self._reads(module, attribute)
        if name in self.defined:
            return name in self.reading
        return name in _BUILTINS or name not in vars(builtins)

    def _reads(self, module: str, attribute: str) -> bool:
        return module in _MODULES or attribute in _FUNCTIONS.get(module, ())

    def methods(self) -> set[str]:
        """Of the classes that setup code and test define."""
        return {
            inner.name
            for node in self.defined.values()
            if isinstance(node, ast.ClassDef)
            for inner in node.body
            if isinstance(inner, ast.FunctionDef)
        }

    # ---- definitions

    def changes_nothing(self, node: ast.stmt, data: Collection[str] = ()) -> bool:
        if isinstance(node, ast.ClassDef):
            return all(
                self._function(inner, data, inner.name == "__init__")
                for inner in node.body
                if isinstance(inner, ast.FunctionDef)
            )
        return isinstance(node, ast.FunctionDef) and self._function(node, data)

    def fills(self, node: ast.stmt) -> bool:
        """Whether a definition is a function that changes nothing but what it has made or been given."""
        return isinstance(node, ast.FunctionDef) and self._function(node, (), fills=True)

    def _function(self, node: ast.FunctionDef, data: Collection[str], makes: bool = False, fills: bool = False) -> bool:
        """Whether a function changes only what it has made itself; `makes`: and the object that it is given first; `fills`:
        and all that it is given."""
        if node.decorator_list or any(isinstance(part, (ast.Global, ast.Nonlocal)) for part in ast.walk(node)):
            return False
        given = parameters_of(node)
        own = set().union(*(names_bound(one) for one in node.body)) if node.body else set()
        made = self._made(node, own - given) | {one.arg for one in node.args.args[:1] if makes}
        for statement in node.body:
            roots, anything = self.changes(statement, {*data, *given, *own})
            if anything or not roots <= (own | given if fills else made | self._rebound(statement, own)):
                return False
        return True

    def _rebound(self, statement: ast.stmt, own: set[str]) -> set[str]:
        """Local numbers that only `+=` changes: `i += 1`."""
        counted = [part for part in ast.walk(statement) if isinstance(part, ast.AugAssign)]
        names = {
            part.target.id for part in counted if isinstance(part.target, ast.Name) and self.is_constant(part.value)
        }
        return names & own

    def _made(self, node: ast.FunctionDef, own: set[str]) -> set[str]:
        """Local names that hold nothing but what the function has made."""
        values: dict[str, list[ast.expr]] = {name: [] for name in own}
        stored = Counter(
            part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        )
        for part in ast.walk(node):
            if isinstance(part, ast.Assign):
                for target in part.targets:
                    if isinstance(target, ast.Name) and target.id in own:
                        values[target.id].append(part.value)
        found = {name for name in own if len(values[name]) == stored[name]}
        while lost := {name for name in found if not all(self._is_made(value, found) for value in values[name])}:
            found -= lost
        return found

    def _is_made(self, value: ast.expr, made: set[str]) -> bool:
        if isinstance(value, ast.Name):
            return value.id in made
        known = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        made_here = known and isinstance(self.defined.get(value.func.id), ast.ClassDef)
        return self.is_fresh(value) or self.is_constant(value) or made_here


def _is_given_literals(call: ast.Call | None) -> bool:
    return call is not None and not any(map(names_mentioned, (*call.args, *call.keywords)))


def _inner(node: ast.AST) -> set[str]:
    """Names that parts of a statement bind for themselves: what they hold is part of something else."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, (ast.comprehension, ast.For, ast.AsyncFor)):
            found |= names_mentioned(part.target)
        elif isinstance(part, (ast.Lambda, ast.FunctionDef)):
            found |= parameters_of(part)
    return found


def _fields_of(statement: ast.stmt) -> Iterable[str]:
    """What a class of named tuples calls its items, as far as its text says."""
    for part in ast.walk(statement):
        if isinstance(part, ast.Call) and len(part.args) == 2 and ast.unparse(part.func).endswith("namedtuple"):
            names = literal(part.args[1])
            names = names.replace(",", " ").split() if isinstance(names, str) else names
            yield from map(str, names) if isinstance(names, (list, tuple)) else ()
        elif isinstance(part, ast.ClassDef) and any(ast.unparse(base).endswith("NamedTuple") for base in part.bases):
            yield from (
                one.target.id
                for one in part.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )


@lru_cache(maxsize=64)
def effects_of(setup: str) -> Effects:
    """What is known of the names of a setup code."""
    found = Effects()
    try:
        body = ast.parse(setup).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found  # running it says what is wrong with it
    found.fields = {name for statement in body for name in _fields_of(statement)}
    values: dict[str, list[ast.expr | None]] = {}
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            found.imported.update(imported_by(statement))
        elif isinstance(statement, (*DEFINITIONS, ast.AsyncFunctionDef)):
            found.defined[statement.name] = statement
        else:
            value = getattr(statement, "value", None) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
            for name in names_bound(statement):
                values.setdefault(name, []).append(value)
    found.fixed = _fixed(found, values) if names_of(setup) is not None else set()
    for name, assigned in values.items():
        if not all(value is not None and found.is_unchanging(value) for value in assigned):
            found.stateful.add(name)
    found.stateful |= {name for name, node in found.defined.items() if found.keeps_something(node)}
    while more := {
        name
        for name, node in found.defined.items()
        if name not in found.stateful and names_mentioned(node) & found.stateful
    }:
        found.stateful |= more
    found.reading = set(found.defined)
    while wrong := {name for name in found.reading if not found.changes_nothing(found.defined[name])}:
        found.reading -= wrong
    found.filling = {name for name in found.defined.keys() - found.stateful if found.fills(found.defined[name])}
    return found


_FLOATING = frozenset({"float"})
_USUAL = ("inf", "nan", "float", "set", "frozenset", "list", "tuple", "dict")


def imported_by(statement: ast.Import | ast.ImportFrom) -> Iterable[tuple[str, tuple[str, str]]]:
    """(name, (module, name in it)) for each name that it binds, as far as that can be told."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield (
                alias.asname or alias.name.partition(".")[0],
                (alias.name if alias.asname else alias.name.partition(".")[0], ""),
            )
        elif alias.name != "*":
            yield alias.asname or alias.name, (statement.module or "", alias.name)
        elif statement.module in STARRED:
            module = importlib.import_module(statement.module)
            public = getattr(module, "__all__", None) or [name for name in vars(module) if name[:1] != "_"]
            yield from ((name, (statement.module, name)) for name in public)


def _fixed(found: Effects, values: dict[str, list[ast.expr | None]]) -> set[str]:
    """Names of `literals.py` that surely have their usual meaning."""
    usual = set()
    for name in _USUAL:
        module = found.imported.get(name, (None, name))
        spelled = [value is not None and ast.unparse(value) == f"float('{name}')" for value in values.get(name, ())]
        if name in ("inf", "nan"):
            bound = module[0] in ("math", "cmath") and module[1] == name
            fine = all(spelled) and (bound or (module[0] is None and bool(spelled)))
        else:
            fine = module[0] is None and not spelled
        if fine and name not in found.defined:
            usual.add(name)
    return usual


def _base_of(node: ast.AST) -> str:
    """The name where the way to an attribute or an item begins; "type" for the class of something, "" for anything else."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and node.attr == "__class__":
            return "type"
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return "type"
    return node.id if isinstance(node, ast.Name) else ""
