"""The two ways in which a run ends early, and the exit codes that a queue reads.

0 all well; 1 a verdict failed or the run broke; 2 bad input; 3 not evaluable.
"""

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_NOT_EVALUABLE = 0, 1, 2, 3


class BadInput(ValueError):  # noqa: N818 - the name is what the user reads
    """The user's input cannot be used. The message is one line: the value, the place and the mend. Exit code 2."""


class NonFinite(ArithmeticError):  # noqa: N818
    """A loss or gradient is NaN or infinite. The message names step, module and sample. Exit code 1."""
