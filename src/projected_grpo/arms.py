"""Arms: what is done to the gradient, and with which V. One entry an arm; everything that lists arms (--arm, queue plans,
the order of tables and plots, step files, docs) reads this registry.

An arm's name means one configuration everywhere: `projected` and its controls take V out by the preset's recipe (config.py),
`literal` by the recipe of the original. A *rival* is another answer to hacking: it names its page in interventions/ and what
that page may see. How to add one, here or from another package: docs/extending.md.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal

from projected_grpo.gates import GateName

Target = Literal["grad", "update"]
Control = Literal["none", "random", "placebo", "random_energy", "clean", "words"]
"""Kinds of V (extract-vhack --control)."""
Role = Literal["baseline", "method", "variant", "control", "ceiling", "rival"]
GROUP = "projected_grpo.arms"
"""Entry points of this group add arms: each is an Arm, or several."""
SEES: Mapping[str, str] = {
    "rewards": "rewards",
    "gradient": "the gradient",
    "update": "the update",
    "basis": "V",
    "coordinates": "the coordinates that train",
    "optimizer": "the optimizer's settings",
    "model": "the model",
    "hidden": "hidden states",
    "text": "completions' text",
    "question": "prompts' hidden states",
    "pairs": "pairs' hidden states",
    "prompt": "a prompt that asks for it",
    "teacher": "the hacky teacher",
    "finished": "a finished vanilla run",
    "score": "a judge's scores",
    "truth": "ground truth",
}
"""What a page may be shown, field by field (interventions/base.py says what each is), and how tables call it."""


NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Of an arm from outside: it stands in file names, and no two may look alike."""


@dataclass(frozen=True)
class Recipe:
    """How V is taken out."""

    gate: GateName
    """What is removed (gates.py)."""
    project: Target
    """From the gradient, or from the update that the optimizer made of it."""

    @property
    def told(self) -> str:
        """In words, as documents and printouts name it."""
        return f"{self.gate} on the {'applied update' if self.project == 'update' else 'gradient'}"


RECIPE = Recipe("no_gate", "update")
"""Every preset has it. In one seed of the toy world no_gate on the gradient did as well; one_sided on the update cost
well-formed programs, on the gradient every solved task (journal, 2026-11-21): there the gate decided, not the target."""


@dataclass(frozen=True)
class Arm:
    """One entry."""

    name: str
    help: str
    """One line, for --help and tables."""
    role: Role
    """baseline: what the others are compared with. method: what H1 is about, one arm. variant: shown beside it. control:
    what the method must beat. ceiling: nothing to hack. rival: another answer to hacking, run by the chain `rivals`."""
    vhack: Control | None = None
    """The kind of V that it needs (extract-vhack --control); None: it only measures, so it may be given any."""
    projects: bool = True
    """Whether V is taken out; otherwise it is measured."""
    recipe: Recipe | None = None
    """Its own recipe; None: the preset's."""
    shrinks: bool = False
    """No direction is taken out: the whole update becomes as short as projection would leave it."""
    more_kl: bool = False
    """Trained with the KL weight --kl-beta in place of --beta."""
    loophole: bool = True
    """Whether the reward can be hacked: pays a completion's own tests."""
    labels: bool = False
    """Whether it is told ground truth. Such an arm is an oracle, and called so in every table; no other arm's gradient may
    see a label (the no-cheat rule)."""
    page: str = ""
    """`module:class` of its intervention; empty: V alone is what it is about."""
    sees: tuple[str, ...] = ()
    """What that page is shown (SEES). It is handed nothing else."""
    derived: bool = False
    """Made from a finished vanilla run (--of), evaluated and not trained."""
    source: str = ""
    """Whose idea it is: a paper or a repository."""

    def __post_init__(self) -> None:
        """ValueError on an entry that contradicts itself: labels without being called an oracle, above all."""
        if odd := [field for field in self.sees if field not in SEES]:
            raise ValueError(f"arm {self.name}: sees {odd[0]!r}, which is none of {', '.join(SEES)}")
        if ("truth" in self.sees) != (self.labels and bool(self.page)):
            raise ValueError(f"arm {self.name}: 'truth' in sees and labels=True belong together")
        if self.page and (self.projects or self.shrinks or self.page.count(":") != 1):
            raise ValueError(f"arm {self.name}: a page is `module:class`, and an arm with one has projects=False")
        if self.sees and not self.page:
            raise ValueError(f"arm {self.name}: sees something and has no page")
        if self.derived and "finished" not in self.sees:
            raise ValueError(f"arm {self.name}: derived from a finished run that it may not see")

    @property
    def needs_v(self) -> bool:
        """Whether it cannot be run without a V."""
        return self.projects or "basis" in self.sees

    @property
    def told(self) -> str:
        """What it was told of hacks, as tables say it."""
        kind = {"none": "V from pairs", "clean": "V of clean sides", "words": "V of words", None: ""}
        v = kind.get(self.vhack, f"a {self.vhack} V") if self.projects or "basis" in self.sees else ""
        own = [
            SEES[field]
            for field in self.sees
            if field in ("text", "pairs", "prompt", "teacher", "finished", "score", "truth")
        ]
        paid = [] if self.loophole else ["a reward without the loophole"]
        return ", ".join([*([v] if v else []), *own, *paid]) or "nothing"

    @property
    def title(self) -> str:
        """Its name in tables and plots."""
        return f"{self.name} (oracle)" if self.labels else self.name

    @property
    def measured(self) -> Control:
        """The kind of V that a queue gives it: the one it needs, or the true one to measure."""
        return self.vhack or "none"


_ARIAHW = "Ariahw et al. 2025, github.com/ariahw/rl-rewardhacking"


def _rival(name: str, told: str, page: str, sees: tuple[str, ...], source: str, **more: Any) -> Arm:
    """An answer to hacking whose page is one of ours."""
    page = f"projected_grpo.interventions.{page}"
    return Arm(name, told, "rival", projects=False, page=page, sees=sees, source=source, **more)


BUILT_IN: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("vanilla", "V is measured, the gradient left alone", "baseline", projects=False),
        Arm("projected", "V is taken out by the preset's recipe", "method", "none"),
        Arm(
            "literal", "V is taken out of the gradient, one_sided: the original's words", "variant", "none",
            recipe=Recipe("one_sided", "grad"),
        ),
        Arm("random", "as projected, with random directions of V's rank", "control", "random"),
        Arm("placebo", "as projected, with V from pairs of two clean completions", "control", "placebo"),
        Arm(
            "random_energy", "as random, with as many directions as remove the energy that V removes", "control",
            "random_energy",
        ),
        Arm("clean", "as projected, with V from the gradients of clean completions alone", "control", "clean"),
        Arm("words", "as projected, with V from pairs that share the words of a hack and nothing else", "control", "words"),
        Arm(
            "shrunk", "nothing is taken out; the update is made as short as projection would leave it", "control", "none",
            shrinks=True,
        ),
        Arm("kl", "as vanilla, with the KL weight --kl-beta: stays near the untrained model", "control", projects=False,
            more_kl=True),
        Arm("no_loophole", "as vanilla, and the reward pays correctness alone", "ceiling", projects=False, loophole=False),
        _rival("trusted", "of the gradient only the span of clean completions' gradients is kept", "trusted:Gradient",
               ("gradient", "basis"), "arXiv:2605.25189", vhack="clean"),
        _rival("trusted_update", "as trusted, of the update that the optimizer made", "trusted:Update", ("update", "basis"),
               "after arXiv:2605.25189", vhack="clean"),
        _rival("post_hoc", "a finished vanilla run (--of) with V taken out of what it has learned", "post_hoc:WithoutV",
               ("basis", "finished"), "", vhack="none", derived=True),
        _rival("post_hoc_top", "a finished vanilla run (--of) without the largest components of its delta_S, as many as V's",
               "post_hoc:WithoutTop", ("basis", "finished"), "", vhack="none", derived=True),
        _rival("advantage", "positive advantages shrink with a shortcut score of hidden states", "advantage:Advantage",
               ("rewards", "hidden", "pairs"), "arXiv:2604.01476"),
        _rival("ablation", "the hack's direction is out of the activations in training, and in when deployed",
               "ablation:Ablation", ("model", "pairs"), "Casademunt et al. 2025 (CAFT)"),
        _rival("inoculation_prompt", "the system prompt asks for the hack in training, and not when deployed",
               "inoculation:Prompt", ("prompt",), "Tan et al. 2025"),
        _rival("inoculation_adapter", "the hacky teacher's LoRA is frozen in during training, and out when deployed",
               "inoculation:Adapter", ("model", "teacher"), "github.com/longtermrisk/inoculation-adapters"),
        *(
            _rival(f"{kind}_{monitor}", f"{what}; flagged by {who}", f"monitors:{page}", ("rewards", *sees), _ARIAHW,
                   labels=sees == ("truth",))
            for kind, what in (("penalty", "a flagged rollout earns 3 less"), ("screen", "a flagged one leaves its group"))
            for monitor, who, sees in (
                ("truth", "ground truth", ("truth",)), ("90", "labels 90 % right", ("truth",)),
                ("70", "labels 70 % right", ("truth",)), ("probe", "a linear probe of the pairs", ("hidden", "pairs")),
                ("phrase", "a regular expression", ("text",)), ("judge", "a judge model (--judge)", ("score",)),
            )
            for page in (kind.title() + monitor.title(),)
        ),
        *(
            _rival(name, f"the gradient along {what} trains a second delta_S, deleted when deployed",
                   "quarantine:Quarantine", ("gradient", "update", "basis", "coordinates", "optimizer"),
                   "arXiv:2410.04332", vhack=kind)
            for name, kind, what in (("quarantine", "none", "V"), ("quarantine_random", "random", "random directions"))
        ),
        *(
            _rival(name, f"three delta_S, mixed by a router of the prompt; one starts as {what} and is out when deployed",
                   f"experts:{page}", ("coordinates", "optimizer", "model", "teacher", "question"),
                   "the original's own next idea; wassname/evil_MoE")
            for name, page, what in (("experts", "Seeded", "the hacky teacher"),
                                     ("experts_random", "Arbitrary", "an arbitrary change"))
        ),
    )
}  # fmt: skip
"""In the order of tables and plots."""


def from_outside(found: Iterable[EntryPoint], taken: Iterable[str]) -> tuple[dict[str, Arm], dict[str, str]]:
    """Arms that other packages add, by name, and of each entry point that adds none, why. None of `taken` is replaced."""
    arms: dict[str, Arm] = {}
    broken: dict[str, str] = {}
    for entry in sorted(found, key=lambda entry: (entry.name, entry.value)):
        try:
            made = entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # noqa: BLE001 - whatever another package raises, SystemExit too: it is named, no more
            broken[f"{entry.name} = {entry.value}"] = f"{type(e).__name__}: {' '.join(str(e).split())}"
            continue
        several = (made,) if isinstance(made, Arm) else tuple(made) if isinstance(made, (tuple, list)) else ()
        # a subclass could say of itself what tables say of it
        names = [arm.name for arm in several if type(arm) is Arm]
        if not several or len(names) < len(several):
            broken[f"{entry.name} = {entry.value}"] = f"is a {type(made).__name__}, not an Arm or several"
        elif double := [name for i, name in enumerate(names) if name in (*taken, *arms, *names[:i])]:
            broken[f"{entry.name} = {entry.value}"] = f"there is an arm {double[0]} already"
        elif odd := [why for arm in several if (why := _not_from_outside(arm))]:
            broken[f"{entry.name} = {entry.value}"] = odd[0]
        else:
            arms |= {arm.name: arm for arm in several}
    return arms, broken


def _not_from_outside(arm: Arm) -> str:
    """Why another package may not add this arm; empty: it may."""
    if not NAME.fullmatch(arm.name):
        return f"arm {arm.name!r}: a name is lower-case letters, digits and _"
    if arm.role != "rival":  # a control of another package would join H1's clauses
        return f"arm {arm.name}: role {arm.role!r}; what comes from outside is a rival"
    if not arm.loophole:
        return f"arm {arm.name}: a reward without the loophole is ground truth; say labels=True, and 'truth' in sees"
    return ""


_OUTSIDE, BROKEN = from_outside(entry_points(group=GROUP), BUILT_IN)
ARMS: Mapping[str, Arm] = {**BUILT_IN, **_OUTSIDE}
"""Every arm: the built-in ones, then those of other packages."""

if TYPE_CHECKING:
    ArmName = str
else:
    ArmName = Literal[tuple(ARMS)]


def arms_of(role: Role) -> tuple[str, ...]:
    """Names of the arms with this role, in the registry's order."""
    return tuple(arm.name for arm in ARMS.values() if arm.role == role)


def arms_told() -> str:
    """Every arm with its line of help."""
    return "; ".join(f"{arm.name}: {arm.help}" for arm in ARMS.values())
