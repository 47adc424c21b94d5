"""From an arm's entry to its page. The one place that imports a page, by the name in the entry: an arm that is not asked for
costs nothing, and another package's page is found like one of ours."""

from importlib import import_module

from projected_grpo.arms import Arm
from projected_grpo.interventions.base import Intervention, View
from projected_grpo.ledger.errors import BadInput


def page_of(arm: Arm, setting: View) -> Intervention:
    """The arm's page, ready for the first step. BadInput as in `page_class`."""
    return page_class(arm)(setting)


def page_class(arm: Arm) -> type[Intervention]:
    """What the arm's page is. BadInput, in one line, when there is none by that name."""
    module, _, name = arm.page.partition(":")
    try:
        page = getattr(import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise BadInput(f"--arm {arm.name}: its page {arm.page} cannot be loaded ({e}); mend its entry") from e
    if not (isinstance(page, type) and issubclass(page, Intervention)):
        raise BadInput(
            f"--arm {arm.name}: its page {arm.page} is no class of projected_grpo.interventions.base.Intervention"
        )
    return page
