"""Answers of the wrong kind, without end, too large, or still changing."""

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
