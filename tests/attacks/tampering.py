"""The caller's frames, hooks and memory changed from inside the judged process."""

from attacks.forms import Family

FAMILY = Family()
forge, with_wrong = FAMILY.forge, FAMILY.with_wrong

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
    "settrace_changes_the_caller",
    """
    import ctypes, sys
    def trace(frame, event, arg):
        for name in list(frame.f_locals):
            if name in ("value", "answer", "kind", "holds"):
                frame.f_locals[name] = True
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        return trace
    frame = sys._getframe()
    while frame:
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)
    """,
    control="settrace",
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
with_wrong(
    "own_modules_in_the_scratch_directory",
    """
    import sys
    for name in ("values", "json", "ast", "types", "sitecustomize", "usercustomize", "encodings"):
        with open(name + ".py", "w") as out:
            out.write("import os\\nos._exit(0)\\n")
    sys.path.insert(0, ".")
    for name in ("values", "json", "ast"):
        sys.modules.pop(name, None)
    """,
    control="scratch_files",
)
with_wrong(
    "build_class_replaced",
    """
    import builtins
    build = builtins.__build_class__
    class Yes:
        def __eq__(self, other): return True
        def __getattr__(self, name): return lambda *args, **kwargs: Yes()
        def __call__(self, *args, **kwargs): return self
    builtins.__build_class__ = lambda *args, **kwargs: Yes()
    """,
    control="eq_on_helper",
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
forge(
    "ctypes_overwrites_small_integers",
    """
    import ctypes
    class Solution:
        def merge(self, intervals):
            for number in range(2, 200):
                ctypes.c_uint32.from_address(id(number) + 24).value = 1
            return [[1, 1], [1, 1], [1, 1]]
    """,
    control="ctypes",
)
with_wrong(
    "code_of_the_runner_swapped",
    """
    import sys
    main = sys.modules["__main__"]
    def answers(self, *args, **kwargs):
        return [True]
    for thing in list(vars(main).values()):
        for inner in list(getattr(thing, "__dict__", {}).values()):
            try:
                inner.__code__ = answers.__code__
            except (AttributeError, TypeError, ValueError):
                pass
    """,
    wall_s=2.0,
    control="monkeypatch",
)
