"""Names, modules and builtins replaced inside the judged process."""

from attacks.forms import Family

FAMILY = Family()
with_wrong = FAMILY.with_wrong

with_wrong(
    "shadowed_exec",
    """
    import builtins, sys
    def exec(*args, **kwargs): return None
    def eval(*args, **kwargs): return [[1, 6], [8, 10], [15, 18]]
    compile = lambda *args, **kwargs: True
    for name in ("exec", "eval", "compile"):
        setattr(builtins, name, globals()[name])
        setattr(sys.modules["__main__"], name, globals()[name])
    """,
    control="shadowed_names",
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
    "os_write_patched",
    """
    import os
    write = os.write
    def forged(fd, data):
        write(fd, b'value 0 [true]\\ndone []\\n')
        return len(data)
    os.write = forged
    os._exit = lambda code: write(3, b'done []\\n')
    """,
    control="redirect_stdout",
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
