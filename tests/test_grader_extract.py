"""From completion to program: fences, labels, thinking."""

import pytest

from loophole_grader import extract_code

F = "```"


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        (f"{F}python\nx = 1\n{F}", "x = 1"),
        (f"{F}py\nx = 1\n{F}", "x = 1"),
        (f"{F}\nx = 1\n{F}", "x = 1"),
        (f"{F}PyThOn\nx = 1\n{F}", "x = 1"),
        (f"{F} python\nx = 1\n{F}", "x = 1"),
        (f"{F}python   \nx = 1\n{F}  ", "x = 1"),
        (f"{F}python3\nx = 1\n{F}", "x = 1"),
        (f'{F}python title="a.py"\nx = 1\n{F}', "x = 1"),
        (f"{F}python\nx = 1", "x = 1"),
        (f"{F}python\nx = 1\n{F}\ntext\n{F}python\ny = 2\n{F}", "x = 1\n\ny = 2"),
        (f"{F}python\nx = 1\n{F}\n{F}python\ny = 2", "x = 1\n\ny = 2"),
        (f"Here: {F}python\nx = 1\n{F} done", "x = 1"),
        (f"{F}python\nx = 1{F}", "x = 1"),
        (f"{F}python\r\nx = 1\r\ny = 2\r\n{F}\r\n", "x = 1\ny = 2"),
        (f"- item\n  {F}python\n  if x:\n      y\n  {F}", "if x:\n    y"),
        (f"````python\ns = '''\n{F}\n'''\n````", f"s = '''\n{F}\n'''"),
        (f"{F}python\ns = '{F}'\n{F}", f"s = '{F}'"),
        (f"{F}python\nx = 1\n{F}python\ny = 2\n{F}", "x = 1\n\ny = 2"),
        (
            f"{F}python\ndef f():\n    '''\n    {F}\n    a\n    {F}\n    '''\n{F}",
            f"def f():\n    '''\n    {F}\n    a\n    {F}\n    '''",
        ),
        (f"{F}python\nx = 1\n{F} and then\n{F}\ny = 2\n{F}", "x = 1\n\ny = 2"),
        (f"{F}python\nx = 1\n{F}text\nout\n{F}", "x = 1"),
        (f"{F}python\nx = '\x0c\u2028'\n{F}", "x = '\x0c\u2028'"),
        (f"{F}text\nhello\n{F}\n{F}python\nx = 1\n{F}", "x = 1"),
        (f"{F}python\nx = 1\n{F}\nOutput:\n{F}json\n{{}}\n{F}\nprose", "x = 1"),
        (f"<think>{F}python\nbad\n{F}</think>{F}python\nx = 1\n{F}", "x = 1"),
        (f"<think>a</think>{F}python\nx = '</think>'\n{F}", "x = '</think>'"),
    ],
)
def test_program_of_completion(completion, program):
    assert extract_code(completion) == program


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "no code at all",
        "x = 1",
        f"{F}python\n\n{F}",
        f"{F}text\nx = 1\n{F}",
        f"{F}bash\nls\n{F}",
        f"{F}json\n1\n{F}",
        f"{F}pythonic\nx = 1\n{F}",
        f"{F}c++ code\nx = 1\n{F}",
        "~~~python\nx = 1\n~~~",
        f"call {F}run_tests(){F} now",
        f"<think>{F}python\nx = 1\n{F}",
    ],
)
def test_no_program(completion):
    assert extract_code(completion) is None


def test_text_between_blocks_is_not_code():
    assert extract_code(f"{F}python\nx = 1\n{F}\nthe closing fence opens nothing\n") == "x = 1"


@pytest.mark.slow
def test_ten_megabytes_are_extracted():
    body = "x = 1\n" * 1_700_000
    assert extract_code(f"{F}python\n{body}{F}") == body.strip()
