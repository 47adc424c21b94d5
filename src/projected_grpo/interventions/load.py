"""From an arm's entry to its page. The one place that imports a page, by the name in the entry: an arm that is not asked for
costs nothing, and another package's page is found like one of ours."""

import hashlib
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from projected_grpo.arms import Arm
from projected_grpo.interventions.base import Intervention, View
from projected_grpo.ledger.errors import BadInput


def declared(arm: Arm) -> dict[str, Any]:
    """For the manifest: what the arm's page is and what it says that it sees, as it is now. Runs of an arm that was edited
    in between are not continued, and not averaged. Empty for an arm without a page."""
    if not arm.page:
        return {}
    source = Path(inspect.getfile(page_class(arm))).read_bytes()
    seen = {"name": arm.page, "sees": list(arm.sees), "labels": arm.labels, "told": arm.told}
    return {"page": {**seen, "sha256": hashlib.sha256(source).hexdigest()}}


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
    own = [name for name in ("deployed", "training") if getattr(page, name) is not getattr(Intervention, name)]
    if own and not page.apart:
        raise BadInput(
            f"--arm {arm.name}: its page {arm.page} has a {own[0]}() of its own and not apart = True, so that what it "
            "deploys would not be kept; set apart"
        )
    return page
