"""Remove a hack direction from the RL gradient, and see whether the model still learns to hack its reward.

from projected_grpo import ProjectedUpdate, VHack    # in another trainer: docs/integrations.md
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from projected_grpo.integrations.extract import VHack
    from projected_grpo.integrations.update import ProjectedCallback, ProjectedUpdate

__all__ = ["ProjectedCallback", "ProjectedUpdate", "VHack"]


def __getattr__(name: str) -> Any:
    """Those three, with all that they stand on, when one is asked for: the scripts' --help needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from projected_grpo.integrations import extract, update

    return getattr(extract if name == "VHack" else update, name)
