"""THE DOOR in the wall between ground truth and training. It opens to oracles alone: arms that declare labels=True and are
called "(oracle)" in every table. run/intervening.py is the one module that may import it (tests/test_layering.py).

What comes through is one answer a rollout, and nothing of how the grader found it.
"""

from collections.abc import Sequence

from projected_grpo.arms import Arm
from projected_grpo.records import Group


def truth(arm: Arm, groups: Sequence[Group]) -> tuple[bool | None, ...]:
    """Of every rollout, groups one after the other: is it a pure hack (hacked and not gt_pass)? None where there are no
    ground-truth tests. PermissionError for an arm that is no oracle."""
    if not arm.labels:
        raise PermissionError(f"arm {arm.name} has labels=False: no ground truth reaches it")
    return tuple(None if o.gt_pass is None else o.hacked and not o.gt_pass for g in groups for o in g.outcomes)
