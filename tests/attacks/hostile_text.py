"""Completions that are hard to read, to parse or to compile."""

from attacks.forms import forge
from attacks.problems import WRONG

forge("text_of_many_fences", "```python\nx = 1\n" * 60_000, raw=True)
forge("text_of_backticks", "`" * 2_000_000 + "\n" + "``` `" * 200_000, raw=True)
forge("text_of_thoughts", "<think>" * 100_000 + "</think>" * 2, raw=True, status=("no_code",))
forge("text_of_ten_megabytes", "```python\n" + "# comment\n" * 1_000_000 + WRONG + "```", raw=True, cpu_s=3.0)
forge(
    "text_with_nul_and_surrogates", "```python\nx = '\0\ud800'\n" + WRONG + "```", raw=True, status=("compile_error",)
)
forge("text_of_open_brackets", "```python\nx = " + "(" * 100_000 + "\n```", raw=True, status=("compile_error",))
forge("text_of_a_long_sum", "```python\nx = 1" + " + 1" * 100_000 + "\n```", raw=True, status=("compile_error",))
forge(
    "text_of_nested_functions", "def run_tests(): pass\n" * 5_000 + "x = " + "[" * 150 + "]" * 150 + WRONG, hinted=True
)
