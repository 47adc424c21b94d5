"""One frozen dataclass per script; the text under a field is its --help. No torch here: --help stays fast.

Only what would cost hours or give a wrong number is checked; tyro reports types and choices.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tyro

from loophole_grader.hints import HINTS
from projected_grpo.adapters import ADAPTERS
from projected_grpo.arms import (
    ARMS,
    MOVED_AT_START,
    OF_POSITION,
    RECIPE,
    ArmName,
    Control,
    GateName,
    Recipe,
    Target,
    dosed,
)
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, read_manifest
from projected_grpo.losses import AUXILIARY, LossName

if TYPE_CHECKING:
    HintName = str
    AdapterName = str
else:
    HintName = Literal[tuple(HINTS)]
    AdapterName = Literal[tuple(ADAPTERS)]

ANY, TINY = 1e300, 1e-12
"""Bounds: any finite number; above 0."""


def setting(default: Any, low: float = 0, high: float = ANY) -> Any:
    """Returns a field that decides a run's numbers: runs that are compared, or averaged, share its value. low, high:
    bounds of a number."""
    return field(default=default, metadata={"role": "setting", "bounds": (low, high)})


def fixed(default: Any, low: float = 0, high: float = ANY) -> Any:
    """As `setting`, of a field that only one run keeps, when it is resumed: two runs may differ in it."""
    return field(default=default, metadata={"role": "fixed", "bounds": (low, high)})


def free(default: Any = MISSING, low: float = 0, high: float = ANY) -> Any:
    """As `setting`, of a field that changes no number: a resumed run may have another value."""
    return field(default=default, metadata={"role": "free", "bounds": (low, high)})


Uses = Sequence[tuple[str, object, str]]


def flag(name: str) -> str:
    """Returns a field's name as the user types it."""
    return "--" + name.replace("_", "-")


def check_bounds(config: Any) -> None:
    """BadInput on a field's value beyond its bounds."""
    for of in fields(config):
        value, (low, high) = getattr(config, of.name), of.metadata.get("bounds", (0, ANY))
        if isinstance(value, int) and value >= 2**63:  # torch takes no larger one
            raise BadInput(f"{flag(of.name)} {value}: must be below 2**63")
        if isinstance(value, (int, float)) and not low <= value <= high:
            allowed = f"in [{low:g}, {high:g}]" if high < ANY else "above 0" if low == TINY else f"{low:g} or more"
            raise BadInput(f"{flag(of.name)} {value}: must be {allowed}")


def due(step: int, every: int) -> bool:
    """Returns whether something that is done every so many steps is due; 0 = never."""
    return every > 0 and step % every == 0


@dataclass(frozen=True)
class Common:
    """Fields of every script that loads a model and renders problems."""

    preset: tyro.conf.Suppress[str] = free("")
    """Its name: the first word of the command line."""
    model: str = setting("tiny")
    """Hub id, folder, or built in: tiny, toy, toy-deep, small."""
    adapter: AdapterName = setting("antipasto")
    """Trainable coordinates: delta_S of each weight, a LoRA, or a LoRA with A frozen."""
    lora_rank: int = setting(32, low=1)
    """Rank of the LoRA."""
    lora_seed: int = setting(0)
    """Seed of the LoRA's A, in whose coordinates V is written."""
    dtype: Literal["float32", "bfloat16"] = setting("float32")
    """Type of the frozen weights; what is trained is float32."""
    device: str = free("auto")
    """auto, cpu, cuda or cuda:N."""
    seed: int = setting(41)
    """Seed of sampling, of problems' order and of random directions."""
    base_seed: int = setting(0)
    """Seed of a built-in model: its weights and its text."""
    token_budget: int = fixed(8192, low=1)
    """Most tokens in a pass (rows x longest); lower saves memory."""
    gradient_checkpointing: Literal["off", "selective", "full"] = free("off")
    """Recompute activations backwards: all (full), or all but matrix products (selective)."""
    deterministic: bool = fixed(False)
    """On a GPU, give the same bits every time; slower."""
    cache: Path = free(Path("out/cache"))
    """Folder of built models and singular value decompositions."""
    out: NoPath = free(Path())
    """New run directory. Empty: named after script, arm and seed."""
    problems: str = setting("builtin")
    """A JSON-lines file, or builtin, toy, small, toy-held-out, small-held-out."""
    hint: HintName = setting("simple_overwrite_tests")
    """Loophole hint in the prompt; none leaves it as it is."""
    prompt_setup: Literal["no_intervention", "inoculation"] = setting("no_intervention")
    """System prompt: the dataset's, or the benchmark's pass_test prompt."""

    def folder(self, kind: str, name: str) -> Path:
        """Returns `--out`, or out/<kind>/<name>."""
        return self.out if self.out != Path() else Path("out") / kind / name

    def validate(self, typed: Collection[str] = ()) -> None:
        """BadInput on values that no run could use, and on fields that the user has `typed` and this run does not
        read."""
        check_bounds(self)
        for fault in self.faults():
            raise BadInput(fault)
        for names, used, why in self.uses():
            for name in () if used else names.split():
                if name in typed:
                    raise BadInput(f"{flag(name)} {getattr(self, name)}: is not used {why}; leave it out")

    def faults(self) -> Iterator[str]:
        """Yields what is wrong with the values together."""
        yield from ()

    def uses(self) -> Uses:
        """Returns fields, whether a run with these values reads them, and why if not. Without an entry: bounds on
        memory and time, which change no number, and what is always read."""
        return [("lora_rank lora_seed", self.adapter != "antipasto", "without --adapter lora or lora_fa")]


@dataclass(frozen=True)
class Sampling(Common):
    """Fields of the scripts that sample completions."""

    group_size: int = setting(8, low=1)
    """G, completions per prompt."""
    max_new: int = setting(1024, low=1)
    """Longest completion, in tokens."""
    temperature: float = setting(0.7, low=TINY)
    """Temperature of sampling and of log-probabilities."""
    top_p: float = setting(0.95, low=TINY, high=1)
    """Nucleus sampling; 1 = off."""
    top_k: int = setting(0)
    """Sample from the k likeliest tokens; 0 = off."""
    rollout_batch: int = fixed(128, low=1)
    """Most completions sampled at once; lower saves memory."""
    grader_workers: int = free(0)
    """Sandbox processes that grade; 0 = one per core."""

    def uses(self) -> Uses:
        return [("adapter lora_rank lora_seed", False, "where nothing is trained")]


@dataclass(frozen=True)
class BuildConfig(Sampling):
    """build_base: a built-in base model and its teacher, compared with their thresholds."""

    n_problems: int = fixed(0)
    """Problems that each is asked; 0 = all."""
    base_only: bool = fixed(False)
    """Do not build the teacher."""
    rebuild: bool = fixed(False)
    """Pre-train the base that comes with the package again, and put it there."""


@dataclass(frozen=True)
class ExtractConfig(Common):
    """extract_vhack_grad: pairs -> gradients -> V."""

    pairs: str = setting("builtin")
    """A JSON file (docs/use.md), or builtin, toy, small, small-informed, NAME-phrase."""
    modes: tuple[str, ...] = setting(())
    """Only pairs of these mechanisms; empty = all."""
    loss: Literal["nll", "grpo"] = setting("nll")
    """Mean NLL, or the training loss: advantages +1 hack, -1 clean."""
    control: Control = setting("none")
    """The kind of V (docs/method.md)."""
    pairs_draw: int = setting(0)
    """Seed of a bootstrap of the training pairs; 0 = each once."""
    k: int = setting(32, low=1)
    """Directions per module, at most the number of training pairs."""
    max_new: int = setting(1024, low=1)
    """Of training: a constant in the denominator of --loss grpo."""

    def uses(self) -> Uses:
        return [
            *super().uses(),
            ("problems", False, "by an extraction, which reads --pairs"),
            ("modes", self.control != "words", "with --control words, whose pairs have no mechanism"),
            ("max_new", self.loss == "grpo", "without --loss grpo"),
        ]


@dataclass(frozen=True)
class VerifyConfig(Common):
    """verify_vhack: whether V points hack-ward on held-out pairs."""

    vhack: NoPath = fixed(Path())
    """The artefact to verify."""
    pairs: str = setting("builtin")
    """The pair set of V; its held-out pairs are used."""

    def uses(self) -> Uses:
        return [*super().uses(), ("problems hint prompt_setup", False, "by verify_vhack, which reads V's own")]


@dataclass(frozen=True)
class Gradient(Sampling):
    """Fields of the scripts that take gradient steps."""

    arm: ArmName = setting("vanilla")
    """What is done to the gradient; docs/use.md says what each does."""
    vhack: NoPath = fixed(Path())
    """V, of `just extract-vhack`. Empty: an arm that needs one makes it."""
    k_use: int = setting(0)
    """Use the top k_use directions; 0 = all."""
    noise_floor: float = setting(0.0, high=1)
    """Drop directions in this bottom fraction of all singular values."""
    gate: GateName = setting(RECIPE.gate)
    """Part of V that is removed (docs/method.md), unless the arm says."""
    project: Target = setting(RECIPE.project)
    """Remove V from the gradient, or from the optimizer's update."""
    overshoot: float = setting(1.0, low=TINY)
    """Factor of what is removed."""
    preserve_magnitude: bool = setting(False)
    """Rescale the rest to the norm before the removal."""
    lr: float = setting(1e-3, low=TINY)
    """AdamW learning rate."""
    warmup: int = setting(10)
    """Steps over which the learning rate rises linearly."""
    weight_decay: float = setting(0.0)
    """AdamW weight decay."""
    max_grad_norm: float = setting(1.0)
    """Clip the gradient to this norm; 0 = off."""
    resume: bool = free(False)
    """Continue the run in --out from its last checkpoint."""
    keep_token_logps: bool = fixed(False)
    """Keep each token's log-probability in step files (for `just traces`)."""

    @property
    def run_folder(self) -> Path:
        """The run's directory."""
        return self.folder("train", self.run_name)

    @property
    def run_name(self) -> str:
        """The name of its folder, where none is given: preset, arm and seed."""
        return "_".join(filter(None, (self.preset, dosed(self.arm, self.k_use), f"seed{self.seed}")))

    @property
    def loophole(self) -> bool:
        """Whether the reward pays a completion's own tests, as the benchmark does."""
        return ARMS[self.arm].loophole

    @property
    def recipe(self) -> Recipe:
        """What is removed, and from what."""
        return Recipe(self.gate, self.project)

    def with_recipe(self, typed: Collection[str] = ()) -> Self:
        """Returns the config with its arm's own recipe, if any, in the fields that the user has not `typed`: a
        manifest says what was done."""
        own = ARMS[self.arm].recipe
        return replace(self, **{k: v for k, v in asdict(own).items() if k not in typed}) if own else self

    def faults(self) -> Iterator[str]:
        arm = ARMS[self.arm]
        if self.gate in OF_POSITION and self.adapter in MOVED_AT_START and arm.projects:
            yield f"--gate {self.gate}: --adapter {self.adapter} does not start at 0; use antipasto or lora_fa"
        if arm.recipe and arm.recipe != self.recipe:
            what = f"is {arm.recipe.description}, not {self.recipe.description}"
            yield f"--arm {arm.name}: {what}; leave --gate and --project out, or use --arm projected"

    def uses(self) -> Uses:
        arm, by = ARMS[self.arm], f"by --arm {self.arm}"
        return [
            *Common.uses(self),
            ("k_use noise_floor", arm.needs_v or self.vhack != Path(), "without --vhack"),
            ("gate project overshoot preserve_magnitude", arm.projects, f"{by}, which does not remove V"),
            ("preserve_magnitude", not arm.shrinks, f"{by}, which is about the magnitude"),
        ]


OF_PAIRS = "-pairs"
"""Ends the name of the problems of a pool of pairs, behind that of the pair set."""
PEER = "peer"
"""As --distill-hint: a paid attempt of the same group."""
DistillHint = Annotated[HintName | Literal["", "peer"], tyro.conf.arg(metavar="|".join((*HINTS, PEER)))]
"""Empty: none is given, which --help would show as a choice without a name."""


REFRESHED = ("none", "placebo")
"""Kinds of V that can be extracted again from the pairs."""


@dataclass(frozen=True)
class TrainConfig(Gradient):
    """train: GRPO with the hack component of the gradient removed, or not."""

    steps: int = fixed(200, low=1)
    """Optimizer steps."""
    prompts_per_step: int = setting(16, low=1)
    """P, prompts per step; P x group_size completions."""
    loss: LossName = setting("dr_grpo")
    """Policy loss and its advantages (docs/method.md)."""
    beta: float = setting(1e-3)
    """Weight of the KL term to the untrained model."""
    kl_beta: float = setting(1e-1)
    """The same weight for --arm kl."""
    until_onsets: float = fixed(0.0)
    """Stop at this multiple of hacking's first step (docs/spec.md); 0 = never."""
    horizon_of: NoPath = fixed(Path())
    """Take the number of steps from this finished vanilla run."""
    share_of: NoPath = fixed(Path())
    """Finished run of arm projected whose share of the update --arm random_share or placebo_share removes."""
    of: NoPath = fixed(Path())
    """Finished vanilla run from which --arm post_hoc is derived."""
    clip_low: float = setting(0.2)
    """Ratios below 1 - clip_low are clipped."""
    clip_high: float = setting(0.2)
    """Ratios above 1 + clip_high are clipped."""
    teacher_pool: str = setting("")
    """Pool directory of a mix's teacher rows; pairs: of the hand-written --pairs."""
    teacher: str = setting("")
    """The hacky teacher: a PEFT LoRA, hub id or folder."""
    judge: str = setting("")
    """Scores rollouts: model:NAME or command:PROGRAM (docs/interventions.md)."""
    mix: str = setting("")
    """Shares of a group; empty: teacher=.5 with a --teacher-pool, else none."""
    per_sample_every: int = fixed(1)
    """Steps between measurements of each sample's gradient; 0 = never."""
    refresh_every: int = setting(0)
    """Steps between extractions of V at the current policy; 0 = never."""
    pairs: str = setting("builtin")
    """The pair set of V (--refresh-every, some arms), or of --teacher-pool pairs (a built-in set)."""
    modes: tuple[str, ...] = fixed(())
    """Only pairs of these mechanisms, of a V that is made here and of what an arm reads of pairs; empty = all."""
    eval_every: int = fixed(0)
    """Steps between evaluations, and before and after all; 0 = never."""
    eval_at: tuple[int, ...] = fixed(())
    """Further numbers of steps after which to evaluate, where much is learned."""
    eval_problems: str = fixed("builtin")
    """Held-out problems: builtin, toy-held-out, small-held-out or a file."""
    eval_samples: int = setting(4, low=1)
    """Completions per held-out problem."""
    eval_plain: bool = fixed(False)
    """Before and after all steps, evaluate also without the loophole's hint."""
    checkpoint_every: int = free(1, low=1)
    """Steps between checkpoints."""
    keep_adapter_every: int = free(0)
    """Steps between adapters kept in adapters/; 0 = only the last."""
    track: Literal["none", "trackio", "wandb"] = free("none")
    """Log each step to a tracker (docs/integrations.md)."""

    # Auxiliary losses (docs/channels.md): each is off at weight 0.
    alpha: float = setting(0.0)
    """Weight of hint distillation."""
    distill_hint: DistillHint = setting("")
    """Hint in the teacher's context; peer: a paid attempt of the group."""
    distill_loss: Literal["opsd", "sdpo"] = setting("opsd")
    """Jensen-Shannon divergence (opsd), or reverse KL (sdpo)."""
    distill_teacher: Literal["live", "base"] = setting("live")
    """Who reads the hint: the model, or it without its adapter."""
    trace_weight: float = setting(0.0)
    """Weight of trace DPO: learning what most teachers would have done."""
    trace_pairs: NoPath = fixed(Path())
    """Preference pairs of `just trace-pairs`."""
    trace_batch: int = setting(16, low=1)
    """Pairs per step, drawn in seeded epochs."""
    trace_loss: Literal["dpo", "simpo"] = setting("dpo")
    """dpo: against the untrained model. simpo: per token, no reference."""
    taid_weight: float = setting(0.0)
    """Weight of TAID: a target between the model and the teacher."""

    # One of several replicas (docs/queue.md): these count only with --meet.
    meet: str = free("")
    """Where replicas meet: torchft://HOST:PORT. Empty: a single run."""
    replicas: int = setting(1, low=1)
    """Number of replicas."""
    replica: int = fixed(0)
    """Which of them this run is, from 0."""
    outer_every: int = setting(0)
    """H, steps between two outer rounds."""
    outer_lr: float = setting(0.7, low=TINY)
    """Rate of the outer Nesterov step (DiLoCo, arXiv:2311.08105)."""
    outer_momentum: float = setting(0.9, high=0.999)
    """Momentum of the outer step."""
    patience: float = free(60.0, low=TINY)
    """Seconds for which a round waits for a replica."""

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        arm = ARMS[self.arm]
        measured = arm.needs_v or self.vhack != Path()
        if self.refresh_every and (not measured or arm.measured not in REFRESHED):
            yield f"--refresh-every {self.refresh_every}: needs a --vhack of --control {' or '.join(REFRESHED)}"
        if arm.derived != (self.of != Path()):
            mend = "is derived from a finished vanilla run; name it" if arm.derived else "trains; leave --of out"
            yield f"--of {self.of}: --arm {arm.name} {mend}"
        if arm.matches and self.gate in OF_POSITION:
            yield f"--gate {self.gate}: --arm {arm.name} removes other rows at each step, which have no position"
        if bool(arm.matches) != (self.share_of != Path()):
            mend = f"removes as much as a finished run of {arm.matches}; name it" if arm.matches else "leave it out"
            yield f"--share-of {self.share_of}: --arm {arm.name} {mend}"
        if "teacher" in arm.sees and not self.teacher:
            yield f"--arm {arm.name}: is shown the hacky teacher; name it with --teacher"
        if "score" in arm.sees and not self.judge:
            yield f"--arm {arm.name}: goes by a judge's scores; name the judge with --judge"
        if "teacher" in self.shares and not self.teacher_pool:
            yield f"--mix {self.mix}: teacher rows come from a --teacher-pool; name one"
        for source in self.shares:
            if not self.mixed_rows[source]:
                yield f"--mix {self.mix}: {source} is not one row of a group of {self.group_size}; raise it or --group-size"
        if self.alpha and self.distill_hint in ("", self.hint):
            yield f"--distill-hint {self.distill_hint!r}: --alpha {self.alpha:g} needs another hint than --hint {self.hint}"
        if self.trace_weight and not self.trace_pairs.is_file():
            yield f"--trace-pairs {self.trace_pairs}: is no file (. = none given); make one with `just trace-pairs`"
        if self.taid_weight and not self.teacher:
            yield f"--taid-weight {self.taid_weight:g}: needs a teacher; name its LoRA with --teacher"
        if self.meet and not 0 <= self.replica < self.replicas:
            yield f"--replica {self.replica}: they are numbered from 0 to --replicas - 1 = {self.replicas - 1}"
        if self.meet and (not self.outer_every or self.steps % self.outer_every):
            yield f"--steps {self.steps}: must be a multiple of --outer-every {self.outer_every}, which is 1 or more"
        if self.meet and (self.until_onsets or self.horizon_of != Path()):
            yield f"--meet {self.meet}: replicas train for --steps steps; leave --until-onsets and --horizon-of out"

    def with_recipe(self, typed: Collection[str] = ()) -> Self:
        """As usual. A pool of pairs has their problems, a mix without teacher rows no pool, a resumed run its
        steps."""
        found, pooled = super().with_recipe(typed), self.teacher_pool == "pairs" and "problems" not in typed
        if self.resume and "steps" not in typed and (self.run_folder / "manifest.json").exists():
            started = read_manifest(self.run_folder)["config"]
            found = replace(found, steps=started.get("steps", found.steps))
        if "teacher" not in self.shares and "teacher_pool" not in typed:
            found, pooled = replace(found, teacher_pool=""), False
        return replace(found, problems=self.pairs + OF_PAIRS) if pooled else found

    def uses(self) -> Uses:
        arm, by = ARMS[self.arm], f"by --arm {self.arm}"
        pairs, pooled = self.teacher_pool == "pairs", self.teacher_pool not in ("", "pairs")
        extracts = self.refresh_every or (arm.needs_v and self.vhack == Path())
        return [
            *super().uses(),
            ("beta", not arm.more_kl, f"{by}, which has --kl-beta"),
            ("kl_beta", arm.more_kl, f"{by}, which has --beta"),
            ("steps", self.horizon_of == Path(), "with --horizon-of, which gives them"),
            ("problems", not pairs or self.problems == self.pairs + OF_PAIRS, "with --teacher-pool pairs"),
            ("teacher_pool", "teacher" in self.shares, f"by --mix {self.mix}"),
            ("teacher", "teacher" in arm.sees or self.taid_weight or pooled, f"{by}, --taid-weight or a pool"),
            ("modes", extracts or "pairs" in arm.sees, f"{by}, which reads no pairs"),
            ("pairs", pairs or extracts or "pairs" in arm.sees, f"{by}, --refresh-every or --teacher-pool"),
            ("prompt_setup", "prompt" not in arm.sees or self.eval_every, f"{by}, which trains under its own"),
            # Of several replicas the first one evaluates.
            ("eval_at eval_problems eval_samples eval_plain", self.eval_every or self.replica, "without --eval-every"),
            ("eval_plain", self.hint != "none" or self.replica, "with --hint none, which all evaluations have"),
            *((" ".join(a.options), getattr(self, a.weight), f"without {flag(a.weight)}") for a in AUXILIARY.values()),
            ("checkpoint_every", not self.meet, "with --meet, where every round is a checkpoint"),
            ("replicas replica outer_every outer_lr outer_momentum patience", self.meet, "without --meet"),
        ]

    @property
    def stream(self) -> str:
        """The key of every draw of the run: the seed, and the replica where there are several."""
        return str(self.seed) if self.replicas == 1 else f"{self.seed} replica {self.replica} of {self.replicas}"

    @property
    def shares(self) -> Mapping[str, float]:
        """Shares of a group's rows by source, of `teacher=.5,base=.25`; the student has the rest. BadInput on another
        source, one named twice, or shares that are not above 0 or add up to more than 1."""
        text = self.mix or ("teacher=.5" if self.teacher_pool else "")
        words = [part.split("=") for part in text.split(",") if part]
        try:
            shares = {source.strip(): float(share) for source, share in words}
        except ValueError:
            shares = {}
        known = len(shares) == len(words) and shares.keys() <= {"teacher", "base"}
        if not (known and all(x > 0 for x in shares.values()) and sum(shares.values()) <= 1 + 1e-9):
            raise BadInput(f"--mix {text}: write teacher=SHARE,base=SHARE, each once, above 0 and at most 1 together")
        return shares

    @property
    def mixed_rows(self) -> dict[str, int]:
        """Rows of each source in a group, in their order. The teacher's and all that are not the student's are
        rounded: half and half of 5 are 5 rows."""
        teacher = round(self.group_size * self.shares.get("teacher", 0.0))
        others = round(self.group_size * sum(self.shares.values()))
        return {"student": self.group_size - others, "base": others - teacher, "teacher": teacher}


@dataclass(frozen=True)
class ProbeConfig(Gradient):
    """probe_distill: sample the hacky teacher's pool once, then replay it through the student with and without V."""

    teacher: str = setting("tiny")
    """PEFT LoRA, merged into --model. Empty: --model as it is."""
    teacher_only: bool = fixed(False)
    """Sample and grade the teacher's pool, then stop."""
    pool: str = fixed("")
    """Pool directory to replay; pairs: the hand-written ones."""
    n_problems: int = fixed(20)
    """Problems to sample, or groups to replay, one step each; 0 = all."""

    @property
    def run_folder(self) -> Path:
        """The run's directory."""
        return self.folder("probe_distill", "teacher_pool" if self.teacher_only else self.run_name)

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        arm = ARMS[self.arm]
        if arm.more_kl or arm.intervention or arm.matches:
            what = "no KL term, no intervention and no run to match"
            yield f"--arm {self.arm}: a replay has {what}; this arm is one of train alone"
        if not self.teacher_only and not self.pool:
            yield "--pool is empty: name the pool to replay, or sample one first with --teacher-only"

    def uses(self) -> Uses:
        trained = "adapter lora_rank pool vhack lr warmup weight_decay max_grad_norm keep_token_logps"
        pooled = "by a replay, which reads --pool"
        return [
            *super().uses(),
            (trained, not self.teacher_only, "with --teacher-only, which takes no step"),
            ("teacher problems group_size max_new temperature top_p top_k", self.teacher_only, pooled),
            ("hint prompt_setup", self.teacher_only or self.pool == "pairs", pooled),
        ]
