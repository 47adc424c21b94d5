"""Forged reports: what a program writes where its judge listens."""

from textwrap import dedent

from attacks.forms import REPORTS, Family
from attacks.problems import SOLVED

FAMILY = Family()
forge, with_wrong, in_wrong = FAMILY.forge, FAMILY.with_wrong, FAMILY.in_wrong

forge(
    "forged_line_on_stdout_then_exit",
    """
    import os, sys
    sys.stdout.write('{"passed": true, "tests_passed": 5, "tests_total": 5, "gt_pass": true}\\n["done"]\\n')
    sys.stdout.flush()
    os._exit(0)
    """,
    control="printing",
    status=("runtime_error",),
)
forge("forged_line_on_stderr_then_exit", REPORTS + "import os\nos.write(2, FORGED)\nos._exit(0)\n", control="printing")
forge(
    "forged_reports_on_every_descriptor",
    REPORTS
    + "import os\nfor fd in range(1024):\n    try:\n        os.write(fd, FORGED)\n    except OSError:\n        pass\n"
    "os._exit(0)\n",
    control="scratch_files",
)
in_wrong(
    "forged_report_from_the_method",
    REPORTS + "import os\nos.write(3, FORGED)\nos._exit(0)\n",
    control="printing",
)
for _index in ("0.0", "00", "-0", "1", ""):
    with_wrong(
        f"forged_index_{_index.encode('ascii', 'backslashreplace').decode().strip(chr(92)) or 'empty'}",
        f"import os\nos.write(3, 'value {_index} [[]]\\n[\"value\",{_index or 0},[[]]]\\n'.encode())\n",
    )
for _number, _body in enumerate(
    (b'{"int":5}', b'{"set":[[1]]}', b'{"dict":[[[],1]]}', b'{"a":1,"b":2}', b"NaN", b"[" * 5000, b"\xff\xfe", b"9" * 5000)
):  # fmt: skip
    with_wrong(f"forged_value_{_number}", f"import os\nos.write(3, {b'value 0 ' + _body + bytes([10])!r})\n")
for _number, _line in enumerate(
    (b"\xff\xfe", b"[]", b"value", b"value 0", b"fail [[],{}]", b"own [[5,5]]", b"large", b"done")
):
    with_wrong(f"forged_line_{_number}", f"import os\nos.write(3, {_line + bytes([10])!r})\n")
forge(
    "forged_answer_that_is_not_text",
    """
    import os
    class Solution:
        def half(self, x):
            if x == 7:
                os.write(3, b"value 1 [\\xff]\\n")
            return x / 2
    """,
    task="half",
    passed=1,
)
with_wrong(
    "forged_deep_report",
    "import os\nos.write(3, b'value 0 [' + b'[' * 900 + b']' * 900 + b']\\n' + b'[' * 60000 + b'\\n')\n",
    control="nested_answer",
)
_COLLISIONS = """
import os
step = 2 ** 61 - 1  # all multiples of it have the hash 0
items = ['{"int":"0x%x"}' % (i * step) for i in range(4, 100000)]
"""
for _kind in ("set", "frozenset"):
    with_wrong(
        f"forged_{_kind}_of_equal_hashes",
        _COLLISIONS + f"os.write(3, ('value 0 [{{\"{_kind}\":[' + ','.join(items) + ']}}]\\n').encode())\n",
        control="set_work",
        cpu_s=2.0,
    )
with_wrong(
    "forged_dict_of_equal_hashes",
    _COLLISIONS
    + "pairs = ','.join('[%s,0]' % item for item in items)\n"
    + "os.write(3, ('value 0 [{\"dict\":[' + pairs + ']}]\\n').encode())\n",
    control="set_work",
    cpu_s=2.0,
)
for _task_name in ("merge", "half"):
    with_wrong(
        f"forged_line_of_60_megabytes_for_{_task_name}",
        """
        import os
        os.write(3, b'value 0 [[')
        part = b'[],' * 300000
        for _ in range(70):
            os.write(3, part)
        os.write(3, b'[]]]\\n')
        """,
        task=_task_name,
        control="long_answer",
    )
with_wrong(
    "forged_flood_of_empty_lines",
    "import os\nfor _ in range(900):\n    os.write(3, b'\\n' * 65536)\n",
    control="printing",
    wall_s=4.0,
)
forge(
    "closed_result_pipe",
    'import os\nos.close(3)\nprint(\'["value",0,[true]]\\n["done"]\')\n' + SOLVED,
    control="scratch_files",
)
with_wrong(
    "every_descriptor_closed",
    "import os\nos.closerange(0, 1024)\n",
    control="scratch_files",
)
forge(
    "answers_reported_by_a_thread",
    REPORTS
    + dedent("""
    import os, threading, time
    def report():
        while True:
            os.write(3, FORGED)
            time.sleep(.01)
    threading.Thread(target=report, daemon=True).start()
    class Solution:
        def merge(self, intervals):
            time.sleep(.3)
            return []
    """),
    control="threads",
)
with_wrong(
    "atexit_prints_later",
    "import atexit, os\natexit.register(lambda: os.write(3, b'value 0 [true]\\ndone []\\n'))\n"
    "atexit.register(print, '{\"passed\": true}', flush=True)\n",
    control="atexit",
)
forge(
    "del_of_the_answer",
    """
    import os
    class Last(list):
        def __del__(self):
            os.write(3, b'value 0 [true]\\ndone []\\n')
    class Solution:
        def merge(self, intervals):
            return Last([Last([0])])
    """,
    control="del_method",
)
