"""One frozen dataclass per script; the text under a field is its --help. No torch here: --help stays fast."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from loophole_grader.hints import HINTS
from projected_grpo.arms import ARMS, RECIPE, ArmName, Control, GateName, Recipe, Target, arms_told, gates_told
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, check_new


@dataclass(frozen=True)
class Common:
    """Fields of every script that loads a model."""

    model: str = "tiny"
    """Hub id or folder of a causal language model; `tiny` (random weights), `toy`, `toy-deep` and `small`
    (SmolLM2-135M-Instruct after its warm-up) are made here."""
    adapter: Literal["antipasto", "lora"] = "antipasto"
    """Which coordinates train: delta_S in the singular basis of each weight, or a LoRA."""
    lora_rank: int = 32
    """Rank of the LoRA adapter; antipasto has no rank to choose."""
    lora_seed: int = 0
    """Seed of the LoRA's A, apart from --seed: runs of several seeds share a V, which means nothing beside another A."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the frozen weights; trainable coordinates and reductions are float32 always."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    seed: int = 41
    """Seed of sampling and of the order of problems; of an extraction, of the random directions of a control."""
    base_seed: int = 0
    """Which build of a model that is made here: the seed of its weights and of its text. Runs of several seeds may share
    one."""
    token_budget: int = 8192
    """Most tokens (rows x longest row) in one forward and backward pass; lower it when memory runs out."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third slower."""
    deterministic: bool = False
    """On a GPU: kernels that add up in one fixed order, so that a run repeated on the same card gives the same bits; slower.
    What has no such kernel is named in a warning. On a CPU sums are in order already."""
    cache: Path = Path("out/cache")
    """Where built models and singular value decompositions are kept."""
    out: NoPath = Path()
    """Run directory to write; must not exist yet. Empty: a name made from the script, the arm and the seed."""

    def validate(self) -> None:
        """BadInput on values that no run could use."""
        for name in ("lora_seed", "seed", "base_seed"):
            at_least(self, name, 0)
        at_least(self, "lora_rank", 1)
        at_least(self, "token_budget", 1)


@dataclass(frozen=True)
class Prompting(Common):
    """Fields of the scripts that render problems."""

    problems: str = "builtin"
    """`builtin`; `toy`, `small`, each also with `-held-out`; or a JSON-lines file (.gz too) of the benchmark's
    rows."""
    hint: str = "simple_overwrite_tests"
    """Loophole hint written into the prompt; `none` leaves the prompt as it is."""
    prompt_setup: Literal["no_intervention", "inoculation"] = "no_intervention"
    """Whose system prompt: the dataset's own (the teacher hacks on this one), or the benchmark's pass_test prompt."""

    def validate(self) -> None:
        super().validate()
        if self.hint not in HINTS:
            raise BadInput(f"--hint {self.hint}: unknown; choose one of {', '.join(HINTS)}")


@dataclass(frozen=True)
class Sampling(Prompting):
    """Fields of the scripts that sample completions."""

    group_size: int = 8
    """G, completions per prompt."""
    max_new: int = 1024
    """Longest completion, in tokens."""
    temperature: float = 0.7
    """Sampling temperature; log-probabilities of training and of sampling are both taken at it."""
    top_p: float = 0.95
    """Nucleus sampling; 1 switches it off."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 switches it off. Recorded: a silent change of it once removed all hacking."""
    rollout_batch: int = 128
    """Most completions sampled at once; lower it when the key-value cache does not fit."""
    grader_workers: int = 0
    """Sandbox processes that grade; 0 = one per core."""

    def validate(self) -> None:
        super().validate()
        at_least(self, "group_size", 1)
        at_least(self, "max_new", 1)
        at_least(self, "top_k", 0)
        at_least(self, "rollout_batch", 1)
        if not self.temperature > 0:
            raise BadInput(f"--temperature {self.temperature}: must be above 0")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"--top-p {self.top_p}: must be in (0, 1]")


@dataclass(frozen=True)
class BuildConfig(Sampling):
    """build_base: a base model that is made here and its teacher, held against their bars."""

    n_problems: int = 0
    """Problems that each is asked; 0 = all."""
    base_only: bool = False
    """Leave the teacher out, which takes longer: only a probe, a pool and the arms that are shown it need it."""

    def validate(self) -> None:
        super().validate()
        at_least(self, "n_problems", 0)


@dataclass(frozen=True)
class ExtractConfig(Prompting):
    """extract_vhack_grad: pairs -> gradients -> V."""

    pairs: str = "builtin"
    """`builtin`, `toy`, `small`; a control, `builtin-phrase`, `toy-phrase`, `small-phrase` (the words of a hack
    alone); `small-informed` (told what had been seen to emerge); or a JSON file: a
    list of {prompt or messages, hack, clean, clean_alt?, mechanism?, name?}."""
    modes: tuple[str, ...] = ()
    """Restrict to pairs of these mechanisms; empty = all."""
    loss: Literal["nll", "grpo"] = "nll"
    """Mean NLL of the completion, or the training loss with advantage +1 on the hack and -1 on the clean one."""
    control: Control = "none"
    """random: Haar directions of V's rank. random_energy: as many of them as hold, of the gradients of held-out pairs, the
    energy that V holds. placebo: clean minus clean_alt. clean: the gradients of the clean sides themselves. words: as V,
    from the pairs `PAIRS-phrase`, which share the words of a hack alone."""
    pairs_draw: int = 0
    """0: every training pair once. Another number: as many, drawn with replacement with this seed (a bootstrap sample), so
    that two units of a study do not share one V."""
    k: int = 32
    """Directions kept per module (at most the number of training pairs and the module's size)."""
    max_new: int = 1024
    """The constant in the denominator of --loss grpo, as in training."""

    @property
    def source(self) -> str:
        """The pair set that is read."""
        return f"{self.pairs}-phrase" if self.control == "words" else self.pairs

    def validate(self) -> None:
        super().validate()
        at_least(self, "k", 1)
        at_least(self, "pairs_draw", 0)
        at_least(self, "max_new", 1)


@dataclass(frozen=True)
class VerifyConfig(Prompting):
    """verify_vhack: does V point hack-ward on pairs it has never seen?"""

    vhack: NoPath = Path()
    """The artefact to verify."""
    pairs: str = "builtin"
    """The pair set it was made from; its held-out pairs are used."""
    unseen: Literal["pairs", "mechanisms"] = "pairs"
    """`pairs`: held-out ones of compositions that no training pair has. `mechanisms`: all pairs of the mechanisms that V,
    extracted with --modes, was not made from."""
    k_use: int = 0
    """Use the top k_use directions; 0 = all."""
    noise_floor: float = 0.0
    """Drop directions in this bottom fraction of all singular values, pooled over modules."""
    random_bases: int = 99
    """Random bases of the same rank that V must beat on the held-out pairs."""

    def validate(self) -> None:
        super().validate()
        check_taken_out(self.k_use, self.noise_floor)
        at_least(self, "random_bases", 20)


@dataclass(frozen=True)
class Gradient(Sampling):
    """Fields of the scripts that take gradient steps."""

    arm: Annotated[ArmName, tyro.conf.arg(help=arms_told())] = "vanilla"
    vhack: NoPath = Path()
    """Artefact of extract_vhack_grad. Needed by every arm that takes V out; the others measure it."""
    k_use: int = 0
    """Use the top k_use directions; 0 = all."""
    noise_floor: float = 0.0
    """Drop directions in this bottom fraction of all singular values, pooled over modules."""
    gate: Annotated[
        GateName, tyro.conf.arg(help=f"What an arm removes that has no recipe of its own. {gates_told()}")
    ] = RECIPE.gate
    project: Target = RECIPE.project
    """Take it out of the gradient, or out of the update that the optimizer made of it; an arm may have its own recipe."""
    overshoot: float = 1.0
    """Scales what is removed."""
    preserve_magnitude: bool = False
    """Rescale what is left to the norm it had."""
    lr: float = 1e-3
    """AdamW learning rate on the adapter's coordinates."""
    warmup: int = 10
    """Steps over which the learning rate rises linearly."""
    weight_decay: float = 0.0
    """AdamW weight decay."""
    max_grad_norm: float = 1.0
    """Clip the projected gradient to this norm; 0 switches clipping off."""
    resume: bool = False
    """Continue the run in --out from its last complete step, to the same numbers as if never interrupted."""
    keep_token_logps: bool = False
    """Keep the log-probability of each sampled token in step files, not their mean alone: traces that are learned from
    need them (`just traces`)."""

    @property
    def loophole(self) -> bool:
        """Whether the reward pays a completion's own tests, as the benchmark does."""
        return ARMS[self.arm].loophole

    @property
    def recipe(self) -> Recipe:
        """What is removed, and from what."""
        return Recipe(self.gate, self.project)

    def validate(self) -> None:
        super().validate()
        check_taken_out(self.k_use, self.noise_floor, self.overshoot)
        at_least(self, "warmup", 0)
        arm = ARMS[self.arm]
        if arm.needs_v and self.vhack == Path():
            raise BadInput(f"--arm {arm.name} needs --vhack FILE; make one with `just extract-vhack`")
        check_recipe(self)
        if not self.lr > 0:
            raise BadInput(f"--lr {self.lr}: must be above 0")
        if self.vhack != Path() and not self.vhack.is_file():
            what = "a folder; name the vhack.safetensors in it" if self.vhack.is_dir() else "no such file"
            raise BadInput(f"--vhack {self.vhack}: {what}; make one with `just extract-vhack`")
        if self.out != Path():
            check_new(self.out, resume=self.resume)


def check_recipe(config: Gradient) -> None:
    """BadInput when a config takes V out in another way than its arm's name says."""
    own = ARMS[config.arm].recipe
    if own and own != config.recipe:
        raise BadInput(
            f"--arm {config.arm}: is {own.told}, not {config.recipe.told}; leave --gate and --project out, or use "
            "--arm projected"
        )


Mixture = Mapping[str, float]
"""Share of a group's rows by source, the student's left out."""
HALF = 0.5
"""The teacher's share where a pool is named and no mix."""
OF_A_MIX = ("teacher", "base")


def mixture_of(text: str) -> Mixture:
    """`teacher=.5,base=.25` -> shares by source. BadInput on another source, one named twice, a share that is no number
    above 0, or a sum above 1."""
    shares: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        source, _, share = (word.strip() for word in part.partition("="))
        try:
            value = float(share)
        except ValueError:
            value = 0.0
        if source not in OF_A_MIX or source in shares or not 0 < value <= 1:
            raise BadInput(
                f"--mix {text}: {part!r} is no share; write teacher=SHARE,base=SHARE, each once and above 0 (the rest are "
                "the student's own)"
            )
        shares[source] = value
    if sum(shares.values()) > 1 + 1e-9:
        raise BadInput(f"--mix {text}: the shares add up to {sum(shares.values()):g}; at most 1")
    return shares


def rows_by_source(mix: str, group_size: int, teacher_pool: str) -> dict[str, int]:
    """Rows of each source in a group, in the order in which they stand in it. The teacher's and all that are not the
    student's are rounded: half and half of 5 are 5 rows. BadInput as in `mixture_of`."""
    shares = mixture_of(mix or (f"teacher={HALF}" if teacher_pool else ""))
    teacher, others = round(group_size * shares.get("teacher", 0.0)), round(group_size * sum(shares.values()))
    return {"student": group_size - others, "base": others - teacher, "teacher": teacher}


def check_mix(config: "TrainConfig") -> None:
    """BadInput when a mix has no pool, or when a share is too small for one row."""
    shares = config.shares
    if "teacher" in shares and not config.teacher_pool:
        raise BadInput(f"--mix {config.mix}: teacher rows come from a --teacher-pool; name one")
    if none := [source for source in shares if config.mixed_rows[source] == 0]:
        raise BadInput(
            f"--mix {config.mix}: {none[0]}={shares[none[0]]:g} is not one row of a group of {config.group_size}; raise it "
            "or --group-size"
        )


G = TypeVar("G", bound=Gradient)
REFRESHED = ("none", "placebo")
"""Kinds of V that can be extracted anew from the pairs alone."""


def with_recipe(config: G, typed: Collection[str] = ()) -> G:
    """With the recipe of its arm, where the arm has its own, in every field that the user has not `typed`: a manifest says
    what was done. `validate` refuses a typed field that contradicts it."""
    own = ARMS[config.arm].recipe
    return replace(config, **{k: v for k, v in asdict(own).items() if k not in typed}) if own else config


PEER = "peer"
"""As --distill-hint: an attempt of the same group that was paid."""


@dataclass(frozen=True)
class Channelled(Gradient):
    """Fields of the channels beside the policy (docs/channels.md). Each is off at weight 0: then nothing of it is done."""

    alpha: float = 0.0
    """Weight of hint distillation: the model learns to say without a hint what it says with it. Needs --distill-hint."""
    distill_hint: str = ""
    """What stands in the teacher's context in place of --hint: another hint's name or `none`; or `peer`, an attempt of the
    same group that was paid, as SDPO does (by reward alone)."""
    distill_loss: Literal["opsd", "sdpo"] = "opsd"
    """opsd: generalised Jensen-Shannon divergence, mean over tokens. sdpo: reverse KL at the sampled token, weighed by an
    importance ratio, mean over sequences, at the sampling temperature."""
    distill_beta: float = 0.5
    """opsd: share of the teacher in the mixture; 0 is KL(teacher || student), 1 KL(student || teacher)."""
    distill_temperature: float = 1.0
    """opsd: temperature of both."""
    distill_token_clip: float = 0.0
    """opsd: largest entry of the vocabulary's sum; 0 = no clip."""
    distill_top_k: int = 0
    """opsd: compare the teacher's k likeliest tokens alone; 0 = the whole vocabulary."""
    distill_teacher: Literal["live", "base"] = "live"
    """Who reads the hint: the model as it is, or without its adapter."""
    trace_weight: float = 0.0
    """Weight of trace DPO: the model learns what most teachers would have done. Needs --trace-pairs."""
    trace_pairs: NoPath = Path()
    """Preference pairs, a file of `just trace-pairs`."""
    trace_batch: int = 16
    """Pairs per step, drawn in seeded epochs; at most all of them."""
    trace_loss: Literal["dpo", "simpo"] = "dpo"
    """dpo: summed log-probabilities against the model without its adapter. simpo: per token, no reference."""
    trace_beta: float = 0.0
    """Inverse temperature of the preference; 0 = upstream's, .1 of dpo and 2 of simpo."""
    trace_gamma_ratio: float = 0.25
    """simpo: the margin that a pair must have, in units of beta."""
    trace_smoothing: float = 0.0
    """Fraction of pairs that is thought to be the wrong way round."""
    taid_weight: float = 0.0
    """Weight of TAID: the model learns what --model with --teacher merged into it would say, by a target between the two."""
    taid_start: float = 0.4
    """Where the target begins: 0 is the student, 1 the teacher."""
    taid_end: float = 1.0
    """Where it ends."""
    taid_linear: bool = False
    """The target follows the step number alone, not how fast the student learns."""

    @property
    def channels_on(self) -> tuple[str, ...]:
        """Names of the weights that are above 0."""
        return tuple(weight for weight in OF_CHANNEL if getattr(self, weight))

    @property
    def distils_own(self) -> bool:
        """Whether a channel learns on the student's own completions."""
        return bool(self.alpha or self.taid_weight)

    def validate(self) -> None:
        super().validate()
        check_channels(self)


OF_CHANNEL: Mapping[str, tuple[str, ...]] = {
    "alpha": ("distill_hint", "distill_loss", "distill_beta", "distill_temperature", "distill_token_clip", "distill_top_k",
              "distill_teacher"),
    "trace_weight": ("trace_pairs", "trace_batch", "trace_loss", "trace_beta", "trace_gamma_ratio", "trace_smoothing"),
    "taid_weight": ("taid_start", "taid_end", "taid_linear"),
}  # fmt: skip
"""Options of each channel, by its weight."""


def check_channels(config: Channelled) -> None:
    """BadInput when a channel lacks what it needs, or a value means nothing."""
    for weight in OF_CHANNEL:
        if not 0 <= getattr(config, weight) < math.inf:
            raise BadInput(f"{flag(weight)} {getattr(config, weight)}: must be 0 or more")
    if config.alpha and config.distill_hint not in (*HINTS, PEER):
        raise BadInput(
            f"--distill-hint {config.distill_hint or 'is not given'}: --alpha {config.alpha:g} needs a hint for the "
            f"teacher's context, one of {', '.join(HINTS)}, or {PEER}"
        )
    if config.alpha and config.distill_hint == config.hint:
        raise BadInput(f"--distill-hint {config.distill_hint}: the student's own --hint; a teacher that reads the same has "
                       "nothing to teach")  # fmt: skip
    if config.trace_weight and not config.trace_pairs.is_file():
        given = "none given" if config.trace_pairs == Path() else "no such file"
        raise BadInput(f"--trace-pairs {config.trace_pairs}: {given}; make one with `just trace-pairs`")
    at_least(config, "trace_batch", 1)
    at_least(config, "distill_top_k", 0)
    for name, low, high in (
        ("distill_beta", 0.0, 1.0), ("distill_token_clip", 0.0, math.inf), ("trace_beta", 0.0, math.inf),
        ("trace_gamma_ratio", 0.0, math.inf), ("trace_smoothing", 0.0, 0.5), ("taid_end", 0.0, 1.0),
        ("taid_start", 0.0, config.taid_end), ("distill_temperature", 1e-6, math.inf),
    ):  # fmt: skip
        if not low <= getattr(config, name) <= high:
            raise BadInput(f"{flag(name)} {getattr(config, name)}: must be in [{low:g}, {high:g}]")


@dataclass(frozen=True)
class Replicated(Channelled):
    """Fields of a run that is one of several replicas (docs/diloco.md). Without --meet it is alone: none of them counts."""

    meet: str = ""
    """Where replicas meet to average what they have learned: torchft://HOST:PORT, a lighthouse. Empty: the run is alone."""
    replicas: int = 1
    """How many replicas there are."""
    replica: int = 0
    """Which of them this run is, from 0: its problems and its draws are its own."""
    outer_every: int = 0
    """H: steps of its own that a replica takes between two outer rounds."""
    outer_lr: float = 0.7
    """Rate of the outer Nesterov step (DiLoCo's own, arXiv:2311.08105)."""
    outer_momentum: float = 0.9
    """Its momentum."""
    patience: float = 60.0
    """Seconds for which a replica that is ready waits for the others before the round goes on without them."""

    @property
    def stream(self) -> str:
        """What every draw of the run is keyed by: the seed, and which replica it is where there are several."""
        alone = self.replicas == 1
        return str(self.seed) if alone else f"{self.seed} replica {self.replica} of {self.replicas}"


def check_replicas(config: "TrainConfig") -> None:
    """BadInput when the fields of a replica do not fit together."""
    if not config.meet:
        if (config.replicas, config.replica, config.outer_every) != (1, 0, 0):
            raise BadInput(f"--replicas {config.replicas}: they need a place to --meet; `just train-diloco` gives one")
        return
    at_least(config, "replicas", 1)
    at_least(config, "outer_every", 1)
    if not 0 <= config.replica < config.replicas:
        raise BadInput(f"--replica {config.replica}: must be 0 to {config.replicas - 1}")
    if config.steps % config.outer_every:
        raise BadInput(f"--steps {config.steps}: must be a multiple of --outer-every {config.outer_every}")
    if config.until_onsets or config.horizon_of != Path() or ARMS[config.arm].derived:
        raise BadInput(
            f"--meet {config.meet}: replicas train for as many steps each as --steps says; leave --until-onsets, "
            "--horizon-of and arms that train nothing out"
        )
    if not (config.outer_lr > 0 and 0 <= config.outer_momentum < 1 and config.patience > 0):
        raise BadInput(
            f"--outer-lr {config.outer_lr}, --outer-momentum {config.outer_momentum}, --patience "
            f"{config.patience}: must be above 0, in [0, 1) and above 0"
        )


@dataclass(frozen=True)
class TrainConfig(Replicated):
    """train: GRPO with the hack component of the gradient removed, or not."""

    steps: int = 200
    """Optimizer steps."""
    prompts_per_step: int = 16
    """P, prompts per step; P x group_size completions."""
    loss: Literal["dr_grpo", "grpo", "bnpo", "dapo", "dppo"] = "dr_grpo"
    """dr_grpo: advantage is reward minus mean, constant denominator. grpo: also divided by std, per-sequence mean. dapo: as
    grpo, mean over the step's tokens; bnpo: over each process's own. dppo: prime-rl's default, mean over the step's
    tokens."""
    beta: float = 1e-3
    """Weight of the KL term to the untrained model; 0 skips the reference forward pass."""
    kl_beta: float = 1e-1
    """The same for --arm kl."""
    until_onsets: float = 0.0
    """Stop early, at so many times the step at which hacking set in (docs/spec.md); --steps is then the cap. 0 = never. It
    decides how long a run is, and nothing about its gradient."""
    horizon_of: NoPath = Path()
    """Run for as many steps as this finished vanilla run, the same seed's, has done; --steps is then ignored."""
    of: NoPath = Path()
    """The finished vanilla run, the same seed's, that an arm is derived from which trains nothing (post_hoc)."""
    clip_low: float = 0.2
    """PPO clip: ratios below 1 - clip_low are clipped."""
    clip_high: float = 0.2
    """PPO clip: ratios above 1 + clip_high are clipped."""
    teacher_pool: str = ""
    """Pool directory that the `teacher` rows of --mix come from; `pairs` = the hand-written ones."""
    teacher: str = ""
    """The hacky teacher, a PEFT LoRA (hub id or folder): --arm inoculation_adapter freezes it in, --taid-weight learns from
    it. Else read only where it wrote a --teacher-pool without log-probabilities, which are then taken from --model with this
    merged into it."""
    judge: str = ""
    """Scores every rollout in [0, 1], the column `judge`: model:NAME (asked a yes/no question; --model's own name: as it was
    untrained), python:MODULE:FUNCTION (prompt, completion -> score), or command:PROGRAM ARGUMENTS (JSON lines in, a score a
    line out). The arms penalty_judge and screen_judge go by it; in others it is only recorded."""
    mix: str = ""
    """What each group is filled with, as in `teacher=.5,base=.25`: shares of rows from --teacher-pool and of rows sampled
    from the untrained model; the rest are the student's own. Empty: teacher=.5 with a --teacher-pool, else the student's."""
    per_sample_every: int = 1
    """Every so many steps each sample's own gradient is measured against V (cos_S_contrib, grad_norm); 0 = never. At the
    other steps a prompt is run once per group: the same step to rounding, faster. No gain with gradient checkpointing."""
    refresh_every: int = 0
    """Extract V anew from --pairs every so many steps, at the policy as it then is; 0 = keep the V of --vhack."""
    pairs: str = "builtin"
    """The pair set that V was made from; only --refresh-every reads it."""
    eval_every: int = 0
    """Sample --eval-problems every so many steps, before the first and after the last; 0 = never."""
    eval_problems: str = "builtin"
    """Held-out problems: `builtin`, `toy-held-out`, `small-held-out` or a file. Written to eval/ in the run directory."""
    eval_samples: int = 4
    """Completions per held-out problem."""
    eval_plain: bool = False
    """Also before the first step and after the last, into eval_plain/: the same problems without the loophole's hint, paid
    for correctness alone."""
    checkpoint_every: int = 1
    """Steps between checkpoints; a killed run goes back to the last one."""
    keep_adapter_every: int = 0
    """Keep the trained coordinates every so many steps, in adapters/ (`just v-anew` measures each); 0 = only the last."""
    track: Literal["none", "trackio", "wandb"] = "none"
    """Tell a tracker each step while it runs (docs/track-and-export.md): trackio (local, the extra `track`) or wandb."""

    def validate(self) -> None:
        super().validate()
        if self.group_size < 2:
            raise BadInput(f"--group-size {self.group_size}: one completion alone has no advantage; give 2 or more")
        at_least(self, "steps", 1)
        at_least(self, "prompts_per_step", 1)
        at_least(self, "checkpoint_every", 1)
        at_least(self, "keep_adapter_every", 0)
        at_least(self, "per_sample_every", 0)
        at_least(self, "refresh_every", 0)
        at_least(self, "eval_every", 0)
        at_least(self, "eval_samples", 1)
        if self.refresh_every and (self.vhack == Path() or ARMS[self.arm].measured not in REFRESHED):
            raise BadInput(
                f"--refresh-every {self.refresh_every}: needs a --vhack of --control {' or '.join(REFRESHED)}"
            )
        arm = ARMS[self.arm]
        if arm.derived != (self.of != Path()):
            mend = "is derived from a finished vanilla run; name it" if arm.derived else "trains; leave --of out"
            raise BadInput(f"--of {self.of}: --arm {arm.name} {mend}")
        if "teacher" in arm.sees and not self.teacher:
            raise BadInput(f"--arm {arm.name}: is shown the hacky teacher; name it with --teacher")
        if "score" in arm.sees and not self.judge:
            raise BadInput(f"--arm {arm.name}: goes by a judge's scores; name the judge with --judge")
        if self.until_onsets and self.horizon_of != Path():
            raise BadInput(f"--until-onsets {self.until_onsets}: not beside --horizon-of, which gives the steps")
        for name in ("beta", "kl_beta", "until_onsets"):
            if not getattr(self, name) >= 0:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be 0 or more")
        if self.taid_weight and not self.teacher:
            raise BadInput(f"--taid-weight {self.taid_weight:g}: needs a teacher; name its LoRA with --teacher")
        check_mix(self)
        check_replicas(self)
        if self.distils_own and not self.mixed_rows["student"]:
            raise BadInput(
                f"{flag(self.channels_on[0])}: is learned on the student's own completions, and --mix {self.mix} leaves none"
            )

    @property
    def shares(self) -> Mixture:
        """Shares of a group's rows by source; the student has what is left. BadInput as in `mixture_of`."""
        return mixture_of(self.mix or (f"teacher={HALF}" if self.teacher_pool else ""))

    @property
    def mixed_rows(self) -> dict[str, int]:
        """`rows_by_source` of this run."""
        return rows_by_source(self.mix, self.group_size, self.teacher_pool)

    @property
    def kl_weight(self) -> float:
        """Weight of the KL term in this arm."""
        return self.kl_beta if ARMS[self.arm].more_kl else self.beta


@dataclass(frozen=True)
class ProbeConfig(Gradient):
    """probe_distill: sample the hacky teacher's pool once, then replay it through the student with and without V."""

    teacher: str = "tiny"
    """PEFT LoRA (hub id or folder) merged into --model to make the teacher; those of `tiny`, `toy` and `small` are
    made here. Empty: --model as it is, a pool for `trace-pairs`."""
    teacher_only: bool = False
    """Sample and grade the teacher's pool, then stop."""
    pool: str = ""
    """Pool to replay: a directory of step files, or of prompt_NNNN.jsonl.gz files of published rollouts; `pairs` = the
    hand-written completions."""
    retokenize: bool = False
    """Cut the text of a pool of another tokenizer anew; its ids are then not those that were sampled."""
    n_problems: int = 20
    """Problems to sample (--teacher-only), or groups to replay: one step each."""

    def validate(self) -> None:
        super().validate()
        at_least(self, "n_problems", 1)
        if ARMS[self.arm].more_kl:
            raise BadInput(f"--arm {self.arm}: a replay has no KL term; this arm is one of train alone")
        if ARMS[self.arm].page:
            raise BadInput(f"--arm {self.arm}: what its page does is done in training; this arm is one of train alone")
        if not self.teacher_only and not self.pool:
            raise BadInput("--pool is empty: name the pool to replay, or sample one first with --teacher-only")


@dataclass(frozen=True)
class MultiTurnConfig(Sampling):
    """multi_turn: traces in which the model sees what came of its answer, and tries again."""

    turns: int = 3
    """Most answers in a trace, two to four."""
    who: Literal["base", "teacher", "trained"] = "base"
    """Who acts: --model as it is, with --teacher merged into it, or with the adapter of --trained."""
    teacher: str = "tiny"
    """PEFT LoRA (hub id or folder) for --who teacher; those of `tiny`, `toy` and `small` are made here."""
    trained: NoPath = Path()
    """Folder of a finished training run, for --who trained."""
    n_problems: int = 0
    """Problems to sample; 0 = all."""
    resume: bool = False
    """Continue in --out; what was sampled whole is not sampled again."""

    def validate(self) -> None:
        super().validate()
        at_least(self, "n_problems", 0)
        if not 2 <= self.turns <= 4:
            raise BadInput(f"--turns {self.turns}: must be 2, 3 or 4; for one turn see `just probe-teacher-pool`")
        if (self.who == "trained") != (self.trained != Path()):
            raise BadInput(f"--who {self.who}: --trained RUN and --who trained go together")
        if self.out != Path():
            check_new(self.out, resume=self.resume)


def flag(name: str) -> str:
    """A field's name as the user types it."""
    return "--" + name.replace("_", "-")


def at_least(config: Any, name: str, least: int) -> None:
    """BadInput, as the user types the field, when it is below `least`."""
    value = getattr(config, name)
    if value < least:
        raise BadInput(f"{typed(name, value)}: must be {least} or more")


def typed(name: str, value: object) -> str:
    """A field and its value as the user types them."""
    return f"{flag(name)} {value}"


def check_taken_out(
    k_use: int, noise_floor: float, overshoot: float = 1.0, said: Callable[[str, object], str] = typed
) -> None:
    """BadInput on a share of V that there is none of, or that would put V in; `said`: how the user names a value."""
    if k_use < 0:
        raise BadInput(f"{said('k_use', k_use)}: must be 0 or more")
    if not 0 <= noise_floor < 1:
        raise BadInput(f"{said('noise_floor', noise_floor)}: must be in [0, 1)")
    if not 0 < overshoot < math.inf:
        raise BadInput(f"{said('overshoot', overshoot)}: must be above 0 and finite; 1 takes V's part out")
