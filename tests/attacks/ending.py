"""Programs that end, or end their process, before they have answered."""

from attacks.forms import forge, in_wrong

in_wrong("sys_exit_0_in_the_method", "import sys\nsys.exit(0)\n", control="catches_exit", status=("runtime_error",))
forge("os_exit_0", "import os\nos._exit(0)\n", control="catches_exit", status=("runtime_error",))
in_wrong("keyboard_interrupt", "raise KeyboardInterrupt\n", control="catches_exit", status=("runtime_error",))
forge(
    "exception_that_lies",
    """
    class Fine(BaseException):
        def __str__(self):
            raise Fine
        __repr__ = __str__
        __eq__ = lambda self, other: True
        __class__ = property(lambda self: 1 / 0)
        def __getattribute__(self, name):
            raise Fine
    class Solution:
        def merge(self, intervals):
            raise Fine
    """,
    control="own_exception",
)
forge(
    "exec_of_another_program",
    """
    import os
    os.set_inheritable(3, True)
    script = 'for fd in 1 2 3; do echo "value 0 [true]" >&$fd; echo "done []" >&$fd; done; exit 0'
    os.execv("/bin/sh", ["/bin/sh", "-c", script])
    """,
    control="exec_builtin",
)
in_wrong("segmentation_fault", "import ctypes\nctypes.string_at(0)\n", control="ctypes", status=("killed",))
