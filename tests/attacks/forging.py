"""Forged reports: what a program writes where its judge listens."""

from textwrap import dedent

from attacks.forms import REPORTS, forge, in_wrong, with_wrong
from attacks.problems import SOLVED

forge(
    "forged_reports_on_every_descriptor",
    REPORTS
    + "import os\nfor fd in range(1024):\n    try:\n        os.write(fd, FORGED)\n    except OSError:\n        pass\n"
    "os._exit(0)\n",
    control="scratch_files",
)
in_wrong("forged_report_from_the_method", REPORTS + "import os\nos.write(3, FORGED)\nos._exit(0)\n", control="printing")
LINES = [b"value 0.0 []", b"value -0 []", b"value 1 []", b"value  []", b"value 0", b"\xff\xfe", b"[]", b"fail [[],{}]"]
LINES += [b"own [[5,5]]", b"large", b"done", b'value 0 {"int":5}', b'value 0 {"set":[[1]]}', b'value 0 {"a":1,"b":2}']
LINES += [b"value 0 NaN", b"value 0 " + b"[" * 5000, b"value 0 " + b"9" * 5000, b"value 0 [" + b"[" * 900 + b"]" * 901]
for _number, _line in enumerate(LINES):
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
_COLLISIONS = """
import os
step = 2 ** 61 - 1  # all multiples of it have the hash 0
items = ['{"int":"0x%x"}' % (i * step) for i in range(4, 100000)]
"""
with_wrong(
    "forged_set_of_equal_hashes",
    _COLLISIONS + "os.write(3, ('value 0 [{\"set\":[' + ','.join(items) + ']}]\\n').encode())\n",
    control="set_work",
    cpu_s=2.0,
)
with_wrong(
    "forged_line_of_60_megabytes",
    """
    import os
    os.write(3, b'value 0 [[')
    part = b'[],' * 300000
    for _ in range(70):
        os.write(3, part)
    os.write(3, b'[]]]\\n')
    """,
    control="long_answer",
)
with_wrong(
    "forged_flood_of_empty_lines",
    "import os\nfor _ in range(900):\n    os.write(3, b'\\n' * 65536)\n",
    control="printing",
)
forge(
    "closed_result_pipe",
    'import os\nos.close(3)\nprint(\'["value",0,[true]]\\n["done"]\')\n' + SOLVED,
    control="scratch_files",
)
with_wrong("every_descriptor_closed", "import os\nos.closerange(0, 1024)\n", control="scratch_files")
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
    "atexit_reports_later",
    "import atexit, os\natexit.register(lambda: os.write(3, b'value 0 [true]\\ndone []\\n'))\n",
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
