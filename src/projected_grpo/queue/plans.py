"""What the links of a chain are: which script with which arguments, into which folder, after what. Torch-free.

A back end (this terminal, pueue, slurm) decides where and when a link runs; what the links are does not depend on it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from projected_grpo.arms import ARMS, arms_of, dose_of, dosed
from projected_grpo.config import TrainConfig, check_bounds, flag
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import LAST
from projected_grpo.presets import PRESETS, presets
from projected_grpo.queue.links import Chain, Link
from projected_grpo.queue.settings import QueueConfig
from projected_grpo.worlds.registry import MODELS, world_of_preset

Words = tuple[str, ...]
STUDIED_IN = {"unknown": "toy", "variants": "toy", "dose": "toy", "small": "small"}
"""The preset of a study that has only one."""
LEADING = ("vanilla", "projected")
"""Run first: the first answer needs them alone."""
CORE = ("random_energy", "random_share", "placebo")
CONTROLS: Mapping[str, Words] = {
    "none": (),
    "core": CORE,
    "all": tuple(dict.fromkeys((*CORE, "no_loophole", *arms_of("control"), *arms_of("variant")))),
}
"""What `controls` adds to vanilla and projected, in the order of what it decides."""
DOSES = (
    "vanilla", "no_loophole", "projected@4", "projected@16", "projected@32", "projected", "random_share@16",
    "random_share@32", "placebo_share@16", "placebo_share@32", "half_space@16", "half_space",
    "half_space_random",
)  # fmt: skip
"""Arms of the chain dose."""
SMALLER: Mapping[int, tuple[Words, Words]] = {
    80: ((), ()),
    48: (("--gradient-checkpointing", "full"), ("--rollout-batch", "128")),
    24: (("--gradient-checkpointing", "full", "--token-budget", "2048"), ("--rollout-batch", "16")),
}  # fmt: skip
"""By GiB of a GPU: flags of every script that loads the model, and of those that sample (docs/use.md)."""
GRPO_STEPS = 20
RANK = 0.375
"""k as a share of a built model's width, where a chain's --model has one."""
SELDOM_MORE = 300
"""Steps of a run that ends with its vanilla's onsets: its cap is seldom reached."""
REASONS: Mapping[str, str] = {
    "base": "a base that hardly hacks; resolve: its bars",
    "extract": "V or a control; resolve: verify, and the runs with it",
    "verify": "is V hack-ward on unseen pairs; resolve: FAIL ends the chain",
    "compare_v": "T7 compares two V; resolve: identical, --loss grpo was not taken",
    "teacher": "the teacher's rollouts; resolve: T1, 30 % hack",
    "replay": "the pool through the student; resolve: T2, T3, T4, T7",
    "uat": "verdicts on the replays; resolve: all that are required PASS",
    "train": "one run of an arm; resolve: a point of H1, T5 or a table",
    "re_extract": "V at the trained adapter; resolve: T6's drift",
    "compare": "both adapters; resolve: T6",
    "student": "what trace DPO learns from; resolve: pairs",
    "voter": "a teacher's vote; resolve: pairs",
    "traces": "traces of several turns; resolve: states to ask about",
    "answers": "what better models do there; resolve: pairs where they agree",
    "trace_pairs": "preference pairs; resolve: none without a majority",
    "": "tables and plots of the runs so far; resolve: PASS, FAIL or NOT_EVALUABLE",
}
"""Why a link is run, and what it decides, by how its name begins: its label in a queue."""
VERDICT = (0, 1, 3)
"""Exit codes of a report: PASS, FAIL, NOT_EVALUABLE."""


@dataclass(frozen=True)
class Replicate:
    """One independent replicate. Its seed draws the pairs of its V, its control bases and its rollouts."""

    seed: int
    base: int = 0
    """Which build of a built-in base model."""
    tag: str = ""
    """Ends the names of its links. Empty: the probe's, whose V is of all pairs."""


class Plan:
    """The links of one chain, in the order in which they are first asked for.

    Each method adds a link, with those that it needs, unless a link of that name is there. It returns the link's
    name."""

    def __init__(self, config: QueueConfig) -> None:
        """Raises BadInput as in `check`."""
        self.config, self.preset, self.usual = config, PRESETS[config.preset], presets(TrainConfig)[config.preset]
        if not config.bases:
            raise BadInput("--bases: give at least one, as in bases=0")
        # One of the real small model takes hours.
        seeds = config.seeds or ((41, 42) if config.chain == "small" else (41, 42, 43))
        self.replicates = tuple(
            Replicate(seed, config.bases[i % len(config.bases)], f"_{seed}")
            for i, seed in enumerate(seeds[:1] if config.quick else seeds)
        )
        self.probed = replace(self.replicates[0], tag="")
        """The probe's: the first base, V of all pairs."""
        fixed = GRPO_STEPS if config.chain == "grpo" else config.steps or config.quick * self.preset.quick_steps
        self.onsets = 0.0 if fixed else self.preset.onsets
        """How many times its vanilla's onset a replicate's runs last; 0: `steps`."""
        self.steps = fixed or (self.preset.cap if self.onsets else self.usual.steps)
        """Optimizer steps of every run; with `onsets` the most that vanilla may take."""
        controls = CONTROLS["all" if config.chain == "toy" else config.controls]
        of_chain: Mapping[str, Words] = {"interventions": tuple(ARMS), "dose": DOSES}
        wanted = of_chain.get(config.chain, (*LEADING, *controls))
        self.arms = config.arms or tuple(name for name in wanted if self.fits(name))
        """Those that are asked for, else the chain's, in the order of what they decide."""
        self.links: Chain = {}
        self.teacher = False
        """Base models are built with their hacky teacher."""
        self.model = config.model
        """The student; empty: the preset's."""
        self.problem_flags: Words = ("--problems", config.problems) if config.problems else ()
        """Problems to train and to probe on, where they are not the preset's."""
        self.adapter, self.suffix, self.out = "antipasto", "", config.home
        """Of the links that follow: the adapter, the end of their names, their folder."""
        self.pool_problems = config.n_problems or self.preset.pool_problems
        self.workers = ("--grader-workers", "1") if self.preset.threads else ()
        self.evaluated_plain = ("--eval-every", str(self.usual.eval_every or self.steps), "--eval-plain")
        """Flags of a run that is evaluated without the loophole too."""
        self.check()

    def fits(self, name: str) -> bool:
        """Returns whether an arm can be run under the preset and means something there."""
        arm, preset = ARMS[dose_of(name)[0]], self.preset
        return not (
            (not arm.loophole and preset.teacher_share == "pool")  # the teacher's pool pays the loophole
            or ("prompt" in arm.sees and preset.teacher_share == "pool")  # which has another prompt
            or ("prompt" in arm.sees and not preset.instructed)  # its model reads no instructions
            or ("score" in arm.sees and not preset.judges)  # a judge's question does not fit its model's context
        )

    def check(self) -> None:
        """Raises BadInput on what no run of this chain or preset could use, or would ignore."""
        config, arms = self.config, f"--arms {' '.join(self.config.arms)}"
        check_bounds(config)
        for replicate in self.replicates:
            check_bounds(replicate)
        if config.preset != (preset := STUDIED_IN.get(config.chain, config.preset)):
            raise BadInput(
                f"--chain {config.chain}: is a study of preset {preset}, not {config.preset}; use preset={preset}"
            )
        if config.model and config.model not in (models := world_of_preset(config.preset).models):
            known = ", ".join(models) or "none, so leave --model out"
            raise BadInput(f"--model {config.model}: is not built for preset {config.preset}; built for it: {known}")
        if any(config.bases) and self.usual.model not in MODELS:
            raise BadInput(f"--bases: --model {self.usual.model} is one model, which is not built here; leave it out")
        if unknown := [word for word in config.arms if not re.fullmatch(rf"({'|'.join(ARMS)})(@[1-9][0-9]*)?", word)]:
            raise BadInput(f"--arms {unknown[0]}: no arm, or no number of directions behind @; arms: {', '.join(ARMS)}")
        if unfit := [name for name in config.arms if not self.fits(name)]:
            raise BadInput(f"--arms {unfit[0]}: means nothing under preset {config.preset}; leave this arm out")
        if config.arms and config.chain not in ("full", "toy", "interventions", "dose"):
            raise BadInput(f"{arms}: the chain {config.chain} chooses its arms; leave --arms out")
        unread = {
            "controls": config.chain != "full" or config.arms,
            "steps": config.chain in ("probe", "grpo"),
            "seeds": config.chain == "probe",
            "quick": config.chain == "probe",
            "port": config.chain != "trace",
            "slurm": config.backend != "slurm",
        }
        if given := [n for n, odd in unread.items() if odd and getattr(config, n) != getattr(QueueConfig, n)]:
            why = f"--chain {config.chain}, --backend {config.backend}{' and --arms' * bool(config.arms)}"
            raise BadInput(f"{flag(given[0])}: is not used with {why}; leave it out")
        if "vanilla" not in self.arms and (self.onsets or any(ARMS[dose_of(name)[0]].derived for name in self.arms)):
            raise BadInput(f"{arms}: runs are made from the replicate's vanilla, or as long as it needs; add vanilla")

    def add(
        self, name: str, argv: Words, needs: Words, *,
        out: str = "", file: Path | None = None, shared: bool = False, steps: float = 0, gpu: bool = True, **more,
    ) -> str:  # fmt: skip
        """Adds a link. out: where it writes, if not to its name. file: what a script without `--out` writes.
        shared: one for all adapters. steps: its work in training steps. more: fields of `Link`."""
        path = file or (self.config.home if shared else self.out) / (out or name)
        argv += () if file else ("--out", str(path))
        name += "" if shared else self.suffix
        gpu, minutes = gpu and not self.preset.threads, 0.2 + steps * self.preset.step_s / 60
        label = f"why: {name}, {next(text for start, text in REASONS.items() if name.startswith(start))}"
        link = Link(name, argv, path, needs, label, self.preset.threads, minutes, gpu=gpu, **more)
        self.links.setdefault(name, link)
        return name

    def report(self, name: str, argv: Words, needs: Words, **more) -> str:
        """Adds a link that only reads files."""
        return self.add(name, argv, needs, check=True, gpu=False, **more)

    def names(self, *kinds: str) -> Words:
        """Returns the names of the links of these kinds."""
        return tuple(name for name in self.links if name.startswith(kinds))

    def script(self, name: str, replicate: Replicate, model: str = "") -> Words:
        """Returns a script with the preset, the model where one is chosen, which build of it, the adapter, the
        card."""
        model = model or self.model
        named = ("--model", model) if model else ()
        base = ("--base-seed", str(replicate.base)) if replicate.base or name == "build_base" else ()
        adapter = ("--adapter", self.adapter, "--lora-seed", str(replicate.seed)) if self.adapter != "antipasto" else ()
        smaller, sampling = SMALLER[self.config.gpu_gb]
        memory = (*smaller, *(sampling if name in ("train", "probe_distill", "multi_turn") else ()))
        return (f"scripts/{name}.py", self.preset.name, *named, *base, *adapter, *memory)

    def base(self, replicate: Replicate) -> Words:
        """The replicate's base model, where the preset builds it. One thread: their number would change the model."""
        if not self.preset.builds_base:
            return ()
        only = () if self.teacher else ("--base-only",)
        argv, steps = (*self.script("build_base", replicate), *only, *self.workers), 720 / self.preset.step_s
        return (self.add(f"base_{replicate.base}", argv, (), shared=True, steps=steps),)

    def v_of(self, replicate: Replicate, made: str) -> str:
        """Returns where a V of this replicate is."""
        return str(self.out / f"vhack_{made}{replicate.tag}" / "vhack.safetensors")

    def extract(self, replicate: Replicate, made: str, *flags: str) -> str:
        """A V under its name. Without flags the name is that of the control."""
        needs, flags = self.base(replicate), flags or ("--control", made)
        drawn: Words = ("--seed", str(replicate.seed)) if replicate.tag else ()
        if replicate.tag and "--pairs-draw" not in flags:
            drawn += ("--pairs-draw", str(replicate.seed))
        if self.model and (width := MODELS[self.model].width) and "--k" not in flags:
            drawn += ("--k", str(round(RANK * width)))
        argv = (*self.script("extract_vhack_grad", replicate), *drawn, *flags)
        name = f"{made}{replicate.tag}"
        return self.add(f"extract_{name}", argv, needs, out=f"vhack_{name}", steps=12)

    def verify(self, replicate: Replicate, made: str = "none", *flags: str) -> str:
        """A V judged on held-out pairs."""
        needs, v = (self.extract(replicate, made),), self.v_of(replicate, made)
        argv = (*self.script("verify_vhack", replicate), "--vhack", v, *flags)
        return self.add(f"verify_{made}{replicate.tag}", argv, needs,
                        file=Path(v).with_name("verify.txt"), steps=6, check=True)  # fmt: skip

    def verified(self, replicate: Replicate, made: str) -> Words:
        """What a run with this V waits for: a true V that passed on held-out pairs, and the V that it uses."""
        true, own = self.verify(replicate), f"verify_{made}{replicate.tag}{self.suffix}"
        return tuple(dict.fromkeys((true, own if own in self.links else self.extract(replicate, made))))

    def train(
        self, replicate: Replicate, arm: str, *flags: str, name: str = "", made: str = "", needs: Words = ()
    ) -> str:
        """A training run of an arm, or of `arm@k`. name tells it from the replicate's others, made is its kind of V;
        empty: the arm's."""
        word, (arm, k) = arm, dose_of(arm)
        entry, vanilla = ARMS[arm], f"train_vanilla_{replicate.seed}"
        name, made = name or word, made or entry.measured
        dose = ("--k-use", str(k)) if k and not entry.matches else ()
        if entry.matches:  # how much is removed is known once that run has ended
            needs += (matched := self.train(replicate, dosed(entry.matches, k), *flags),)
            dose = ("--share-of", str(self.links[matched].out))
        of = ("--of", str(self.out / vanilla)) if entry.derived else ()
        teacher = ("--teacher", self.model) if self.model and "teacher" in entry.sees else ()
        judge = ("--judge", f"model:{self.model or self.usual.model}") if "score" in entry.sees else ()
        needs = (*self.verified(replicate, made), *needs)
        # Derived from vanilla: the untrained model's step, and those that rates are taken over.
        length: Words = ("--steps", str(1 + LAST if of else self.steps))
        if self.onsets and not of:
            until = (*length, "--until-onsets", f"{self.onsets:g}")
            length = until if name == "vanilla" else ("--horizon-of", str(self.out / vanilla))
        if name != "vanilla" and (of or self.onsets):
            needs += (vanilla + self.suffix,)
        share = "" if "--mix" in flags else self.preset.teacher_share
        pool: Words = ("--teacher-pool", share) if share else self.problem_flags
        if share == "pairs" and self.config.problems:
            raise BadInput(f"--problems {self.config.problems}: the preset trains on its pairs' own; leave it out")
        if share == "pool":
            needs += (self.pool(self.probed),)
            pool = ("--teacher-pool", str(self.config.home / "teacher_pool"), *self.problem_flags)
        argv = (*self.script("train", replicate), *length, "--seed", str(replicate.seed), *pool,
                "--arm", arm, "--vhack", self.v_of(replicate, made), *dose, *of, *teacher, *judge, *flags,
                *self.workers)  # fmt: skip
        steps = min(self.steps, SELDOM_MORE) if self.onsets else self.steps
        return self.add(f"train_{name}_{replicate.seed}", argv, needs, steps=steps)

    def pool(self, replicate: Replicate) -> str:
        """Rollouts of the hacky teacher of a replicate's base, which must hack on 30 % of them (T1)."""
        teacher = ("--teacher", self.model) if self.model else ()
        drawn = ("--seed", str(replicate.seed)) if replicate.tag else ()
        return self.sampled(f"teacher_pool{replicate.tag}", replicate, (*teacher, "--teacher-only", *drawn))

    def sampled(self, name: str, replicate: Replicate, flags: Words, model: str = "") -> str:
        """A pool of rollouts, the same for every adapter. model: whose, if not the student's."""
        argv = (*self.script("probe_distill", replicate, model), *flags, "--n-problems", str(self.pool_problems),
                *self.problem_flags, *self.workers)  # fmt: skip
        needs, steps = () if model else self.base(replicate), self.half_steps(self.pool_problems)
        return self.add(name, argv, needs, shared=True, steps=steps)

    def half_steps(self, problems: int) -> float:
        """Returns how many training steps' time one group of so many problems takes, sampled or replayed: about half
        of a step's is sampling."""
        return 0.5 * problems / self.usual.prompts_per_step

    def results(self, *flags: str, name: str = "results") -> str:
        """The results of all runs so far: PASS, FAIL or NOT_EVALUABLE, clause by clause."""
        argv, needs = ("scripts/results.py", str(self.out), *flags), self.names("train_", "re_extract_")
        file = self.out / name if name == "results" else None
        return self.report(name, argv, needs, file=file, accept=VERDICT)
