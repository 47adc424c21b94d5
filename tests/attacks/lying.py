"""Objects that say of themselves that they are the answer."""

from attacks.forms import forge

forge(
    "eq_of_an_object",
    """
    class Yes:
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        __hash__ = lambda self: 0
        __bool__ = lambda self: True
    class Solution:
        def merge(self, intervals): return Yes()
    """,
    control="eq_on_helper",
)
_LIES = """
class Yes({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __repr__(self): return "{truth}"
    __str__ = __repr__
    def __reduce__(self): return (eval, ("{truth}",))
    def __reduce_ex__(self, version): return (eval, ("{truth}",))
    def __getnewargs__(self): return ({truth},)
    def __copy__(self): return {truth}
    def __deepcopy__(self, memo): return {truth}
    def __iter__(self): return iter([[1, 6], [8, 10], [15, 18]])
    def __len__(self): return 3
    def __getitem__(self, key): return [[1, 6], [8, 10], [15, 18]][key]
    def __index__(self): return 2
    def __int__(self): return 2
    def __float__(self): return 2.5
    def __abs__(self): return 0
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __pos__ = __neg__ = __sub__
    def __format__(self, spec): return "{truth}"
    def __sizeof__(self): return 0
    def __class_getitem__(cls, key): return cls
    def items(self): return [("a", 2), ("b", 1)]
    def keys(self): return ["a", "b"]
    def bit_length(self): return 0
    def encode(self, *args): return b"{truth}"
    @property
    def __class__(self): return {plain}
"""
for _base, _task_name, _func, _truth, _false in (
    ("list", "merge", "merge", "[[1, 6], [8, 10], [15, 18]]", "[[0]]"),
    ("int", "stairs", "climb", "2", "7"),
    ("str", "words", "flip", "'blue is sky the'", "'no'"),
    ("float", "half", "half", "2.5", "0.25"),
    ("dict", "count", "count", "{'a': 2, 'b': 1}", "{'x': 1}"),
    ("set", "merge", "merge", "[[1, 6], [8, 10], [15, 18]]", "{1}"),
):
    forge(
        f"lying_{_base}_for_{_task_name}",
        _LIES.format(base=_base, truth=_truth, plain=_base)
        + f"\nclass Solution:\n    def {_func}(self, *args, **kwargs):\n        return Yes({_false})\n",
        task=_task_name,
        control="subclasses",
    )
forge(
    "pickling_trick",
    """
    import copyreg
    class Trick:
        def __reduce__(self):
            return (exec, ("open('@DIR@/written', 'w').write('unpickled')",))
        __getstate__ = __reduce__
        def __json__(self): return [[1, 6]]
        toJSON = _asdict = to_dict = __json__
    class Solution:
        def merge(self, intervals): return [Trick(), [Trick()]]
    """,
    control="pickle",
)
