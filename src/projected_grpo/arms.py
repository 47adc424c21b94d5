"""Arms: what is done to the gradient, and with which V. One entry an arm; everything that lists arms (--arm, queue
plans, the order of tables and plots, step files, docs) reads this registry.

An arm's name means one configuration everywhere: `projected` and its controls take V out by the preset's recipe,
`literal` by the recipe of the original. An *intervention* is another answer to hacking: it names its class in
interventions/ and what that class is shown. How to add one: docs/extending.md.

A gate decides which part of a gradient's component along V is removed. Per module, with orthonormal rows V [k, n]
turned so that V g > 0 pushes hack-ward, and c = V g [k]: removed = taken(c) V. This file is torch-free: gates call
the tensor's methods. Source of the three gates: github.com/wassname/grpo_proj2 (25ad306)
src/projected_grpo/proj.py:20-59."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

GATES: Mapping[str, Callable[[Any], Any]] = {
    "one_sided": lambda c: c.relu(),
    "no_gate": lambda c: c,
    "reverse": lambda c: 2 * c,
    "half_space": lambda c: c.relu(),
}
"""c [k] -> the coefficients on V's rows that are removed, [k]."""
OF_POSITION = ("half_space",)
"""Gates of the position: c = V (g - theta) of an update g, so that theta never lies hack-ward of where it began, and may
come back from the other side. one_sided of every step turns noise into a drift."""
MOVED_AT_START = ("lora", "peft-lora")
"""Adapters whose theta does not start at 0, from which gates of the position measure."""

if TYPE_CHECKING:
    GateName = str
else:
    GateName = Literal[tuple(GATES)]

Target = Literal["grad", "update"]
Control = Literal["none", "random", "placebo", "random_energy", "clean", "words"]
"""Kinds of V (extract-vhack --control)."""
Role = Literal["baseline", "method", "variant", "control", "matched", "ceiling", "intervention"]
KNOWLEDGE_OF_V: Mapping[Control, str] = {
    "none": "V from pairs",
    "random": "random directions",
    "random_energy": "random directions",
    "placebo": "V of two clean answers",
    "clean": "V of clean sides",
    "words": "V of words",
}
SUPERVISION = {
    "text": "completions' text",
    "pairs": "pairs' hidden states",
    "prompt": "a prompt of its own",
    "teacher": "the hacky teacher",
    "finished": "a finished vanilla run",
    "score": "a judge's scores",
}
"""What of `Arm.sees` is knowledge of hacks, as tables call it."""


@dataclass(frozen=True)
class Recipe:
    """How V is removed."""

    gate: GateName
    project: Target
    """From the gradient, or from the update that the optimizer made of it."""

    @property
    def description(self) -> str:
        """Returns the recipe in words, as documents and printouts name it."""
        return f"{self.gate} on the {'applied update' if self.project == 'update' else 'gradient'}"


RECIPE = Recipe("no_gate", "update")
"""Every preset has it. In one seed of the toy world no_gate on the gradient did as well; one_sided on the update cost
compiling programs, on the gradient every solved task (journal, 2026-11-21): there the gate decided, not the
target."""


@dataclass(frozen=True)
class Arm:
    """One entry."""

    name: str
    help: str
    """One line: what a run's log says of it."""
    role: Role
    """baseline: what the others are compared with. method: what H1 is about, one arm. variant: shown next to it.
    control: what H1 must beat. matched: a further control, that removes as much as its method or more. ceiling: nothing
    to hack. intervention: another answer to hacking, run by the chain `interventions`."""
    vhack: Control | None = None
    """The kind of V that it needs (extract-vhack --control); None: it only measures, so it may be given any."""
    projects: bool = True
    """Whether V is removed; otherwise it is measured."""
    recipe: Recipe | None = None
    """Its recipe, where it is not the preset's."""
    matches: str = ""
    """The arm whose run (--share-of) says how much is removed: in each module as many of the first directions as hold
    the share of the update that it removed there. Random and placebo directions then differ from V in where they point
    alone."""
    shrinks: bool = False
    """No direction is removed: the whole update becomes as short as projection would leave it."""
    more_kl: bool = False
    """Trained with the KL weight --kl-beta in place of --beta."""
    loophole: bool = True
    """Whether the reward can be hacked: pays a completion's evaluation function."""
    labels: bool = False
    """Whether it reads ground truth. Such an arm is an oracle, and called so in every table; no other arm's gradient
    may see a label (the no-cheat rule)."""
    intervention: str = ""
    """`module:class` of its intervention in interventions/; empty: V alone is what it is about."""
    sees: tuple[str, ...] = ()
    """Fields of `Setup` and `StepContext` (interventions/base.py) that must be loaded or computed for it.
    `prompt`: its class has a `system_prompt`."""
    random_twin: bool = False
    """As another arm, whose direction is replaced by a random one of the same size."""
    derived: bool = False
    """Made from a finished vanilla run (--of), evaluated and not trained."""

    @property
    def needs_v(self) -> bool:
        """Whether it cannot be run without a V."""
        return self.projects or "basis" in self.sees

    @property
    def supervision(self) -> str:
        """Returns the knowledge of hacks that the arm receives, for tables."""
        parts = [KNOWLEDGE_OF_V[self.vhack or "none"]] if self.needs_v else []
        parts += [SUPERVISION.get(field, "") for field in self.sees]
        parts += ["ground truth" if self.labels else "", "" if self.loophole else "a reward without the loophole"]
        return ", ".join(filter(None, parts)) or "nothing"

    @property
    def track(self) -> Literal["full", "partial", "none"]:
        """How much it knows of hacks: full, what is paid (ground truth, the hacky teacher, the text that is paid);
        partial, hand-written pairs, a prompt or a judge; none."""
        if self.labels or not self.loophole or {"teacher", "text"} & {*self.sees}:
            return "full"
        partial = (self.needs_v and self.vhack in ("none", "words")) or {"pairs", "prompt", "score"} & {*self.sees}
        return "partial" if partial else "none"

    @property
    def title(self) -> str:
        """Its name in tables and plots."""
        return f"{self.name} (oracle)" if self.labels else self.name

    @property
    def measured(self) -> Control:
        """The kind of V that a queue gives it: the one it needs, or the true one to measure."""
        return self.vhack or "none"


def _intervention(name: str, text: str, intervention: str, sees: tuple[str, ...], **more: Any) -> Arm:
    """Another answer to hacking; its page in interventions/ names the source."""
    return Arm(name, text, "intervention", projects=False, intervention=intervention, sees=sees, **more)


def _monitored(kind: str, what: str) -> list[Arm]:
    """One arm a monitor; a monitor that reads nothing of the model knows ground truth."""
    monitors = (
        ("truth", "ground truth", ()),
        ("90", "labels 90 % right", ()),
        ("70", "labels 70 % right", ()),
        ("probe", "a linear probe of the pairs", ("hidden", "pairs")),
        ("phrase", "a regular expression", ("text",)),
        ("body", "a regular expression of empty bodies", ("text",)),
        ("blind", "ground truth, but for empty bodies", ("text",)),
        ("judge", "a judge model (--judge)", ("score",)),
    )
    oracles = ("truth", "90", "70", "blind")
    return [
        _intervention(f"{kind}_{n}", f"{what}; flagged by {who}", "monitors:Monitored", sees, labels=n in oracles)
        for n, who, sees in monitors
    ]


def _quarantine(name: str, vhack: Control, what: str) -> Arm:
    text = f"the gradient along {what} trains a second delta_S, deleted when deployed"
    return _intervention(name, text, "quarantine:Quarantine", ("basis",), vhack=vhack)


def _experts(name: str, what: str) -> Arm:
    text = f"three delta_S, mixed by a router of the prompt; one starts as {what} and is out when deployed"
    return _intervention(name, text, "experts:Experts", ("teacher",))


def _twin(arm: Arm) -> Arm:
    """The arm with random directions: V's are drawn, and of the pairs' hidden states the difference of their means."""
    what = "random directions" if arm.needs_v else "a random direction"
    vhack: Control | None = "random" if arm.needs_v else arm.vhack
    role: Role = "intervention" if arm.role == "intervention" else "matched"
    return replace(
        arm, name=f"{arm.name}_random", help=f"as {arm.name}, with {what}", role=role, vhack=vhack, random_twin=True
    )


_ARMS = {
    arm.name: arm
    for arm in (
        Arm("vanilla", "the gradient is left alone; V is measured where one is given", "baseline", projects=False),
        Arm("projected", "V is removed by the preset's recipe", "method", "none"),
        Arm(
            "literal",
            "V is removed from the gradient, one_sided: the original's words",
            "variant",
            "none",
            recipe=Recipe("one_sided", "grad"),
        ),
        Arm(
            "one_sided",
            "V is removed from the update, one_sided",
            "variant",
            "none",
            recipe=Recipe("one_sided", "update"),
        ),
        Arm(
            "half_space",
            "what would take the policy hack-ward of where it began is removed from the update",
            "variant",
            "none",
            recipe=Recipe("half_space", "update"),
        ),
        Arm("random", "as projected, with random directions of V's rank", "control", "random"),
        Arm("placebo", "as projected, with V from pairs of two clean completions", "control", "placebo"),
        Arm(
            "random_energy",
            "as random, with as many directions as remove the energy that V removes",
            "control",
            "random_energy",
        ),
        Arm(
            "random_share",
            "random directions that remove projected's share of the update, module by module (--share-of)",
            "control",
            "random_energy",
            matches="projected",
        ),
        Arm(
            "placebo_share",
            "placebo's directions that remove projected's share of the update, module by module (--share-of)",
            "matched",
            "placebo",
            matches="projected",
        ),
        Arm(
            "half_space_random",
            "as half_space, with as many random directions as hold the energy that V holds",
            "matched",
            "random_energy",
            recipe=Recipe("half_space", "update"),
        ),
        Arm("clean", "as projected, with V from the gradients of clean completions alone", "control", "clean"),
        Arm(
            "words",
            "as projected, with V from pairs that share the words of a hack and nothing else",
            "control",
            "words",
        ),
        Arm(
            "shrunk",
            "nothing is removed; the update is made as short as projection would leave it",
            "control",
            "none",
            shrinks=True,
        ),
        Arm(
            "kl",
            "as vanilla, with the KL weight --kl-beta: stays near the untrained model",
            "control",
            projects=False,
            more_kl=True,
        ),
        Arm(
            "no_loophole",
            "as vanilla, and the reward pays correctness alone",
            "ceiling",
            projects=False,
            loophole=False,
        ),
        _intervention(
            "trusted",
            "of the gradient only the span of clean completions' gradients is kept",
            "trusted:Gradient",
            ("basis",),
            vhack="clean",
        ),
        _intervention(
            "trusted_update",
            "as trusted, of the update that the optimizer made",
            "trusted:Update",
            ("basis",),
            vhack="clean",
        ),
        _intervention(
            "post_hoc",
            "a finished vanilla run (--of) with V removed from what it has learned",
            "post_hoc:PostHoc",
            ("basis", "finished"),
            vhack="none",
            derived=True,
        ),
        _intervention(
            "post_hoc_top",
            "a finished vanilla run (--of) without the largest components of its delta_S, as many as V's",
            "post_hoc:PostHoc",
            ("basis", "finished"),
            vhack="none",
            derived=True,
        ),
        _intervention(
            "advantage",
            "positive advantages shrink with a shortcut score of hidden states",
            "advantage:Advantage",
            ("hidden", "pairs"),
        ),
        _intervention(
            "advantage_times",
            "rewards are scaled by a shortcut score of the last token's hidden state",
            "advantage:Rebound",
            ("last_hidden", "pairs"),
        ),
        _intervention(
            "advantage_plus",
            "a shortcut score of the last token's hidden state is taken from the reward",
            "advantage:Rebound",
            ("last_hidden", "pairs"),
        ),
        _intervention(
            "ablation",
            "the hack's direction is out of the activations in training, and in when deployed",
            "ablation:Ablation",
            ("pairs",),
        ),
        _intervention(
            "plan_prompt",
            "the system prompt asks for a plan before the code",
            "prompts:Plan",
            ("prompt",),
        ),
        _intervention(
            "honest_prompt",
            "the system prompt asks not to write the tests",
            "prompts:Honest",
            ("prompt",),
        ),
        _intervention(
            "recontextualize",
            "sampled under honest_prompt's words, learned as an answer to the plain prompt",
            "prompts:Recontextualize",
            ("prompt",),
        ),
        _intervention(
            "inoculation_prompt",
            "the system prompt asks for the hack in training, and not when deployed",
            "inoculation:Prompt",
            ("prompt",),
        ),
        _intervention(
            "inoculation_adapter",
            "the hacky teacher's LoRA is frozen in during training, and out when deployed",
            "inoculation:Adapter",
            ("teacher",),
        ),
        *_monitored("penalty", "a flagged rollout earns 3 less"),
        *_monitored("screen", "a flagged one leaves its group"),
        _quarantine("quarantine", "none", "V"),
        _quarantine("quarantine_random", "random", "random directions"),
        _experts("experts", "the hacky teacher"),
        _experts("experts_random", "an arbitrary change"),
    )
}
TWINNED = (
    "one_sided", "trusted", "trusted_update", "post_hoc", "advantage_times", "advantage_plus", "ablation", "penalty_probe",
)  # fmt: skip
"""Arms that also run with a random direction of the same size; quarantine, experts and half_space have their own."""
ARMS: Mapping[str, Arm] = {**_ARMS, **{f"{name}_random": _twin(_ARMS[name]) for name in TWINNED}}
"""In the order of tables and plots."""


if TYPE_CHECKING:
    ArmName = str
else:
    ArmName = Literal[tuple(ARMS)]


def dose_of(word: str) -> tuple[str, int]:
    """Returns the arm and the number of directions that `projected@16` names; 0: all that its V has."""
    name, _, k = word.partition("@")
    return name, int(k or 0)


def dosed(name: str, k: int) -> str:
    """Returns an arm with its number of directions, as tables, folders and queues name it."""
    return f"{name}@{k}" if k else name


def arms_of(role: Role) -> tuple[str, ...]:
    """Names of the arms with this role, in the registry's order."""
    return tuple(arm.name for arm in ARMS.values() if arm.role == role)
