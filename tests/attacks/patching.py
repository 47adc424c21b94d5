"""Names, modules and builtins replaced inside the judged process."""

from attacks.forms import with_wrong

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
