"""The closed grammar of a problem's tests: what the program computes, and what only trusted text computes.

A test is a sequence of statements. CALL is a call on the solution: `Solution(ARGS).method(ARGS)`, `Solution.method(ARGS)`,
`NAME.method(ARGS)` on an instance that the test has made, or `f(ARGS)` where the solution is a function. Each statement is

- an instance: `NAME = Solution(ARGS)`;
- a simple statement with CALLs in it: `CALL`, `NAME = CALL`, `assert EXPRESSION` or an assignment;
- trusted: it mentions neither the solution nor an instance of it.

The sandbox gets one CALL at a time, with its arguments: text over literals, builtins and names of the setup code as it is
written; what a test's own statements have computed as plain data; and by name its own former answers and arguments. All else
(expected values, comparisons, methods of an answer, helpers, loops) is evaluated by the judge, with plain data in the place
of each CALL. A name that was passed to a CALL has afterwards the value that the program left in it, and only that name:
other trusted values are out of the program's reach. Such a value is judged only against what the program has no part in
(`r == sorted(nums)` after `r = CALL(nums)` is refused: a program could empty `nums`).

What is accepted is judged as one process with setup code, program and test in it would judge it, but that nothing can be
forged. So the judge looks again, after each CALL, at what the program may have changed; what it cannot tell (two names of
one object, a part changed on one side only) is refused, as the tables of docs/grader.md say. `effects.py` knows what a
statement may change, `sandbox/judging.py` which objects an argument shares.

What is not of this form is refused when the problem is loaded, with its line and the reason.
"""

import ast

from loophole_grader.grammar.plan import JudgePlan, Refused, root_of
from loophole_grader.grammar.reader import Reader
from loophole_grader.grammar.syntax import split

__all__ = ["JudgePlan", "Refused", "exchanges_of", "root_of"]


def exchanges_of(test: str, index: int, func_name: str, setup: str) -> list[JudgePlan]:
    """The exchanges of one test, in order. Raises Refused."""
    try:
        body = ast.parse(test).body
    except SyntaxError as error:
        raise Refused(error.lineno or 1, f"it does not parse ({error.msg}): {test:.80}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(1, f"it does not parse ({error}): {test:.80}") from None
    try:
        return Reader(test, index, func_name, split(body), setup).exchanges()
    except RecursionError:
        raise Refused(1, "it is nested too deeply") from None
    except Refused:
        raise
    except ValueError as error:  # Python does not write out an integer of more than 4300 digits
        raise Refused(1, f"it holds a number that is too long ({error}); compute it, such as pow(2, 20000)") from None
