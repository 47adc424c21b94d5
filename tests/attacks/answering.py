"""Answers of the wrong kind, without end, too large or still changing; objects that say that they are the answer."""

from textwrap import dedent

from attacks.forms import forge

forge("bool_for_a_number", "class Solution:\n    def climb(self, n): return True\n", task="stairs", control="bool")
forge("text_for_a_number", "class Solution:\n    def climb(self, n): return str(n)\n", task="stairs", control="bool")
forge("one_guess", "class Solution:\n    def even(self, x): return True\n", task="even", control="bool", passed=1)
for _name, _expression in (
    ("text", "'[[1, 6], [8, 10], [15, 18]]'"),
    ("generator_without_end", "(x for x in iter(int, 1))"),
    ("cycle_without_end", "[__import__('itertools').repeat([1, 6])]"),
    ("map_of_the_answer", "map(list, [[1, 6], [8, 10], [15, 18]])"),
    ("range_without_end", "[range(10 ** 30)]"),
    ("lone_surrogates", "['\\ud800' * 100000, '\\udfff\\ud800', '\\0' * 1000]"),
    ("class_for_an_answer", "type('list', (list,), {'__eq__': lambda *a: True})"),
    ("module_for_an_answer", "__import__('json')"),
    ("ellipsis", "[[1, 6], ..., [15, 18]]"),
):
    forge(
        f"answer_{_name}",
        f"class Solution:\n    def merge(self, intervals):\n        return {_expression}\n",
        control="generator_to_list",
    )
for _name, _expression in (
    ("list_of_itself", "loop"),
    ("two_lists_of_each_other", "[left, right]"),
    ("deep_list", "deep"),
    ("huge_integer", "1 << 300_000_000"),
    ("huge_text", "'x' * 60_000_000"),
    ("long_list", "[0] * 5_000_000"),
    ("wide_sharing", "wide"),
):
    forge(
        f"answer_{_name}",
        dedent("""
        loop, left, right, deep, wide = [], [], [], [], []
        loop.append(loop); left.append(right); right.append(left)
        for _ in range(100000): deep = [deep]
        for _ in range(60): wide = [wide, wide]
        """)
        + f"class Solution:\n    def merge(self, intervals):\n        return {_expression}\n",
        control="nested_answer",
        status=("ok", "output_limit", "memory", "timeout", "runtime_error"),
        cpu_s=2.0,
    )
forge(
    "iterator_that_never_ends_inside_a_list",
    """
    class Endless(list):
        def __iter__(self):
            while True: yield 1
        def __len__(self): return 10 ** 18
    class Pairs(dict):
        def items(self):
            while True: yield 1, 1
        __iter__ = keys = values = items
    class Solution:
        def merge(self, intervals): return [Endless([1]), Pairs()]
    """,
    control="generator_to_list",
)
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
