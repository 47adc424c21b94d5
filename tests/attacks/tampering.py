"""Names, modules and builtins replaced inside the judged process; the caller's frames and memory changed."""

from attacks.forms import forge, with_wrong

forge(
    "caller_found_on_the_stack_and_changed",
    """
    import sys
    class Solution:
        def merge(self, intervals):
            frame = sys._getframe()
            while frame:
                job = frame.f_locals.get("self")
                if hasattr(job, "encode"):
                    job.encode = lambda value: True
                    job.job = {**job.job, "calls": []}
                    job.job["calls"] = []
                    job.too_large = job.base = ()
                    job.send("value", 0, [True])
                    job.send("done")
                frame = frame.f_back
            return []
    """,
    control="frames",
)
with_wrong(
    "caller_found_by_gc_and_changed",
    """
    import gc
    for thing in gc.get_objects():
        if type(thing) is dict and "calls" in thing:
            thing["calls"].clear()
        if type(thing).__name__ == "Job":
            thing.encode = thing.eval = lambda *args: [[True]]
    """,
    control="gc_collect",
)
with_wrong(
    "sys_modules_poisoned",
    """
    import sys
    class Fake:
        def __getattr__(self, name): return lambda *args, **kwargs: True
    for name in list(sys.modules):
        if name != __name__:
            sys.modules[name] = Fake()
    """,
    control="lazy_import",
)
forge(
    "solution_is_not_a_class",
    """
    class Yes(type):
        def __call__(cls, *args, **kwargs): return cls
        def __getattr__(cls, name): return cls
        def __eq__(cls, other): return True
        __hash__ = None
    class Solution(metaclass=Yes): pass
    """,
    control="metaclass",
)
with_wrong(
    "ctypes_makes_every_list_equal",
    """
    import ctypes
    kind = ctypes.CFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)
    always = kind(lambda one, other, op: True)
    words = (ctypes.c_void_p * 40).from_address(id(list))
    real = list.__eq__
    probe = type("T", (), {"__eq__": lambda *a: True})
    words[25] = ctypes.cast(always, ctypes.c_void_p).value  # tp_richcompare
    """,
    control="ctypes",
)

_BUILTINS = """
import builtins
for name in ("all", "any", "sorted", "isinstance", "issubclass", "len", "type", "repr", "str", "list", "bool", "print"):
    setattr(builtins, name, lambda *args, **kwargs: True)
builtins.AssertionError = type("Never", (Exception,), {})
builtins.BaseException = builtins.Exception = builtins.AssertionError
"""
with_wrong("builtins_replaced", _BUILTINS, control="shadowed_names")
with_wrong(
    "json_dumps_patched",
    """
    import json, json.encoder
    def forged(*args, **kwargs):
        return '[true]'
    json.dumps = json.dump = json.encoder.c_make_encoder = json.encoder._make_iterencode = forged
    json.JSONEncoder.encode = json.JSONEncoder.iterencode = forged
    json.encoder.encode_basestring_ascii = json.encoder.encode_basestring = forged
    json._default_encoder = json.JSONEncoder
    """,
    control="json_dumps",
)
with_wrong(
    "runner_module_patched",
    """
    import sys
    def yes(*args, **kwargs):
        return [True]
    for place in ("__main__", "values", "child", "loophole_grader", "loophole_grader.sandbox.values", "runner"):
        module = sys.modules.get(place)
        for name, thing in list(vars(module).items()) if module else ():
            if isinstance(thing, type):
                for inner in [inner for inner in vars(thing) if not inner.startswith("__")]:
                    try:
                        setattr(thing, inner, yes)
                    except (AttributeError, TypeError):
                        pass
            elif callable(thing):
                setattr(module, name, yes)
    """,
    wall_s=2.0,
    control="monkeypatch",
)
