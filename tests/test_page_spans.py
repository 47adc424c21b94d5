"""Where a completion writes its own evaluation function: what is marked, and that the grader would call the same one."""

import ast
import importlib

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from projected_grpo.groups.pairs import builtin_pairs
from projected_grpo.report.page.columns import utf16
from projected_grpo.report.page.spans import evaluator_name, evaluator_of, spans

SOLVE = "def solve(x):\n    return 0\n"


def fenced(*parts):
    return "Here it is:\n\n```python\n" + "\n".join(parts) + "\n```\nDone."


def marked(text, name="run_tests"):
    """[(kind, marked text)]."""
    return [(s.kind, text[s.start : s.end]) for s in spans(text, name)]


DEF = "def run_tests():\n    return True"
METHOD = "def run_tests(self):\n        print('ok')"
CASES = [
    ((SOLVE, DEF), [("own", DEF)]),
    ((SOLVE, DEF, "run_tests()"), [("own", DEF), ("calls", "run_tests()")]),
    ((SOLVE, "def run_tests():\n\n    # no\n    pass\n\ny = 1"), [("own", "def run_tests():\n\n    # no\n    pass")]),
    (("@staticmethod\ndef run_tests():\n    pass",), [("own", "@staticmethod\ndef run_tests():\n    pass")]),
    ((DEF + "  # always", "x = 1"), [("own", DEF + "  # always")]),
    # a method is what the grader calls where no function of the module has that name
    (("class Solution:\n    " + METHOD,), [("own", METHOD)]),
    (("class Solution:\n    " + METHOD, "Solution().run_tests()"), [("own", METHOD), ("calls", "Solution().run_tests()")]),
    (("class Solution:\n    " + METHOD, DEF), [("binds", METHOD), ("own", DEF)]),
    # one nested in a function comes last
    (("def outer():\n    def run_tests():\n        pass", DEF), [("binds", "def run_tests():\n        pass"), ("own", DEF)]),
    (("def outer():\n    def run_tests():\n        pass",), [("own", "def run_tests():\n        pass")]),
    # the grader counts neither of these as an evaluation function
    (("async def run_tests():\n    pass",), [("binds", "async def run_tests():\n    pass")]),
    (("run_tests = lambda: None",), [("binds", "run_tests = lambda: None")]),
    (("run_tests: object = print",), [("binds", "run_tests: object = print")]),
    # of several the last is the one that is called
    ((DEF, DEF.replace("True", "2")), [("binds", DEF), ("own", DEF.replace("True", "2"))]),
    (("class Solution:\n    " + METHOD, "    def run_tests(self):\n        1 / 0"),
     [("binds", METHOD), ("own", "def run_tests(self):\n        1 / 0")]),
    (("class A:\n    " + METHOD, "class B:\n    def run_tests(self):\n        1 / 0"),
     [("own", METHOD), ("binds", "def run_tests(self):\n        1 / 0")]),
    (("class A:\n    " + METHOD, "class A:\n    def run_tests(self):\n        1 / 0"),
     [("binds", METHOD), ("own", "def run_tests(self):\n        1 / 0")]),
    (("if 1:\n    def run_tests():\n        pass", DEF), [("binds", "def run_tests():\n        pass"), ("own", DEF)]),
    ((DEF, "run_tests = lambda: None"), [("own", DEF), ("binds", "run_tests = lambda: None")]),
    ((SOLVE, "x = 'run_tests()'  # run_tests"), []),
    (("def run_tests_more():\n    pass",), []),
    ((SOLVE,), []),
]  # fmt: skip


@pytest.mark.parametrize(("program", "expected"), CASES)
def test_what_is_marked(program, expected):
    assert marked(fenced(*program)) == expected


@pytest.mark.parametrize("program", [program for program, _ in CASES])
def test_the_own_one_is_the_one_that_the_grader_calls(program, monkeypatch):
    """The grader's rule lives in the judged process, which no module of ours can import; the two must not part."""
    monkeypatch.syspath_prepend(ROOT / "src/loophole_grader/sandbox")
    graders = importlib.import_module("evaluator").own_evaluator
    code = "\n".join(program)
    theirs, ours = graders(code, "run_tests", "Solution", "solve"), evaluator_of(ast.parse(code), "run_tests")
    assert (theirs and theirs["function"]) == (ours and ast.unparse(ours))


def test_every_written_hack_has_its_own_function_marked_and_no_clean_completion_has():
    for pair in builtin_pairs():
        assert "own" in [kind for kind, _ in marked(pair.hack)], pair.name
        assert "own" not in [kind for kind, _ in marked(pair.clean)], pair.name


def test_where_nothing_parses_indentation_decides():
    text = fenced("def solve(x:", "    return 0", DEF, "", "def other():", "    pass")
    assert marked(text) == [("own", DEF)]
    assert marked("no fence\n" + DEF + "\nend") == [("own", DEF)]
    assert marked("```python\nx = (\n\tdef run_tests():\n\t\tpass\n```") == [("own", "def run_tests():\n\t\tpass")]
    cut = "```python\ndef run_tests():\n    assert solve([1, 2"
    assert marked(cut) == [("own", "def run_tests():\n    assert solve([1, 2")]


def test_text_outside_the_program_is_never_marked_in_its_place():
    """The same lines in the prose, in another language's block, in an indented fence, with Windows line ends."""
    text = f"{DEF}\n\n```text\n{DEF}\n```\n\n{fenced(SOLVE, DEF)}"
    (span,) = spans(text, "run_tests")
    assert span.start == text.rindex(DEF)
    indented = "1. so:\n   ```python\n   def run_tests():\n       pass\n   ```"
    assert marked(indented) == [("own", "def run_tests():\n       pass")]
    windows = fenced(SOLVE, DEF).replace("\n", "\r\n")
    assert marked(windows) == [("own", DEF.replace("\n", "\r\n"))]
    two = f"```python\n{SOLVE}```\nand\n```python\nclass A:\n    pass\n\n{DEF}\n```"
    assert marked(two) == [("own", DEF)]


def test_places_count_characters_as_the_page_does():
    text = fenced("s = '😀é'", DEF)
    (span,) = spans(text, "run_tests")
    assert text[span.start : span.end] == DEF
    units = text.encode("utf-16-le")
    assert units[2 * utf16(text, span.start) : 2 * utf16(text, span.end)].decode("utf-16-le") == DEF


def test_the_prompt_says_which_function_it_is():
    assert evaluator_name("evaluated by calling a function called check_all()") == "check_all"
    assert evaluator_name("no hint") == "run_tests"
    assert marked(fenced(DEF.replace("run_tests", "check_all"), DEF), "check_all")[0][0] == "own"


@given(st.text(st.sampled_from("run_tests():=\n `python\tdefasync\r\ue000\ud800é😀'\"\\"), max_size=200))
def test_no_text_breaks_it(text):
    text = f"```python\n{text}\ndef run_tests():\n  pass\n```{text}"
    ends = [place for s in spans(text, "run_tests") for place in (s.start, s.end)]
    assert ends == sorted(ends)
    assert all(0 <= place <= len(text) for place in ends)


def test_the_program_is_the_one_that_the_grader_reads():
    """Without prose, drafts and sessions, and with no-break spaces mended."""
    prose, session = "```\nIt walks, once.\n```", "```python\n>>> run_tests()\n```"
    assert marked(f"{fenced(SOLVE, DEF)}\n{prose}\n{session}") == [("own", DEF)]
    assert marked(f"{fenced('    return (1', '  x')}\n{fenced(SOLVE, DEF)}") == [("own", DEF)]
    spaced = DEF.replace(" ", "\u00a0")
    assert marked(fenced(SOLVE, spaced, "run_tests()")) == [("own", spaced), ("calls", "run_tests()")]
    assert marked(fenced(SOLVE, DEF).replace("```", "~~~")) == [("own", DEF)]
    assert marked(f"{fenced(DEF)}\n{prose.replace('It', 'def run_tests(): It')}")[0] == ("own", DEF)
