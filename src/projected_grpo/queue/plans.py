"""What the links of a chain are: which script with which arguments, into which folder, after what. Torch-free.

A back end (this terminal, pueue, slurm) decides where and when a link runs; what the links are does not depend on it.
"""

from pathlib import Path

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.rates import LAST
from projected_grpo.presets import presets
from projected_grpo.queue.links import Chain, Link
from projected_grpo.queue.settings import SMALLER, QueueConfig, Replicate
from projected_grpo.worlds.toy_tasks import SHAPES

IN_H1 = (*arms_of("baseline"), *arms_of("method"), *arms_of("control"))
RANK = 0.375
"""k as a share of a toy model's width."""
SELDOM_MORE = 300
"""Steps of a run that ends with its vanilla's onsets: its cap is seldom reached."""
Words = tuple[str, ...]
VERDICT = (0, 1, 3)
"""Exit codes of a report: PASS, FAIL, NOT_EVALUABLE."""


class Plan:
    """The links of one chain, in the order in which they are first asked for.

    Each method adds a link, with those that it needs, unless a link of that name is there. It returns the link's name.
    """

    def __init__(self, config: QueueConfig) -> None:
        self.config, self.preset = config, config.world
        self.links: Chain = {}
        self.teacher = False
        """Base models are built with their hacky teacher."""
        self.model = config.model or ("toy" if self.preset.name == "toy" else "")
        """The student, where the scripts need its name."""
        self.problem_flags: Words = ("--problems", config.problems) if config.problems else ()
        """Problems to train and to probe on, where they are not the preset's."""
        self.adapter, self.suffix, self.out = "antipasto", "", config.home
        """Of the links that follow: the adapter, the end of their names, their folder."""
        self.pool_problems = config.n_problems or self.preset.pool_problems
        self.workers = ("--grader-workers", "1") if self.preset.threads else ()
        every = presets(TrainConfig)[self.preset.name].eval_every or config.run_steps
        self.evaluated_plain = ("--eval-every", str(every), "--eval-plain")
        """Flags of a run that is evaluated without the loophole too."""

    def add(
        self, name: str, argv: Words, needs: Words, why: str, resolve: str, *,
        out: str = "", file: Path | None = None, shared: bool = False, steps: float = 0, **more,
    ) -> str:  # fmt: skip
        """Adds a link. out: where it writes, if not to its name. file: what a script without `--out` writes.
        shared: one for all adapters. steps: its work in training steps. more: fields of `Link`."""
        place = file or (self.config.home if shared else self.out) / (out or name)
        argv += () if file else ("--out", str(place))
        name += "" if shared else self.suffix
        label, minutes = f"why: {why}; resolve: {resolve}", 0.2 + steps * self.preset.step_s / 60
        self.links.setdefault(name, Link(name, argv, place, needs, label, self.preset.threads, minutes, **more))
        return name

    def report(self, name: str, argv: Words, needs: Words, why: str, resolve: str, **more) -> str:
        """Adds a link that only reads files."""
        return self.add(name, argv, needs, why, resolve, check=True, gpu=False, **more)

    def names(self, *kinds: str) -> Words:
        """Returns the names of the links of these kinds."""
        return tuple(name for name in self.links if name.startswith(kinds))

    def script(self, name: str, replicate: Replicate, model: str = "") -> Words:
        """Returns a script with the preset, the model where one is chosen, which build of it, the adapter, the card."""
        model = model or self.model
        named = ("--model", model) if model else ()
        base = ("--base-seed", str(replicate.base)) if replicate.base or name == "build_base" else ()
        adapter = ("--adapter", "lora", "--lora-seed", str(replicate.seed)) if self.adapter == "lora" else ()
        smaller, sampling = SMALLER[self.config.gpu_gb]
        memory = (*smaller, *(sampling if name in ("train", "probe_distill", "multi_turn") else ()))
        return (f"scripts/{name}.py", self.preset.name, *named, *base, *adapter, *memory)

    def base(self, replicate: Replicate) -> Words:
        """The replicate's base model, where the preset builds it. One thread: their number would change the model."""
        if not self.preset.builds_base:
            return ()
        only, also = ((), ", a teacher that does") if self.teacher else (("--base-only",), "")
        argv = (*self.script("build_base", replicate), *only, *self.workers)
        return (self.add(f"base_{replicate.base}", argv, (), f"a base that hardly hacks{also}",
                         "on a model that misses its bars no run means anything", shared=True,
                         steps=720 / self.preset.step_s),)  # fmt: skip

    def v_of(self, replicate: Replicate, made: str) -> Path:
        """Returns where a V of this replicate is."""
        return self.out / f"vhack_{made}{replicate.tag}" / "vhack.safetensors"

    def extract(self, replicate: Replicate, made: str, *flags: str) -> str:
        """A V under its name. Without flags the name is that of the control."""
        needs, flags = self.base(replicate), flags or ("--control", made)
        if made == "random_share":  # of the update, which is known once the run with V has ended
            needs += (self.train(replicate, "projected"),)
            flags += ("--share-of", str(self.out / f"train_projected_{replicate.seed}"))
        drawn: Words = ("--seed", str(replicate.seed)) if replicate.tag else ()
        if replicate.tag and "--pairs-draw" not in flags:
            drawn += ("--pairs-draw", str(replicate.seed))
        if self.model in SHAPES and "--k" not in flags:
            drawn += ("--k", str(round(RANK * SHAPES[self.model]["hidden_size"])))
        argv = (*self.script("extract_vhack_grad", replicate), *drawn, *flags)
        return self.add(f"extract_{made}{replicate.tag}", argv, needs, f"V: {made}", "verify judges it on held-out pairs",
                        out=f"vhack_{made}{replicate.tag}", steps=12)  # fmt: skip

    def verify(self, replicate: Replicate, made: str = "none", *flags: str) -> str:
        """A V judged on held-out pairs."""
        needs, v = (self.extract(replicate, made),), self.v_of(replicate, made)
        argv = (*self.script("verify_vhack", replicate), "--vhack", str(v), *flags)
        return self.add(f"verify_{made}{replicate.tag}", argv, needs, "is V hack-ward on pairs that it has never seen",
                        "FAIL ends the chain: mend the pairs", file=v.with_name("verify.txt"), steps=6,
                        check=True)  # fmt: skip

    def verified(self, replicate: Replicate, made: str) -> Words:
        """What a run with this V waits for: a true V that passed on held-out pairs, and the V that it uses."""
        true, own = self.verify(replicate), f"verify_{made}{replicate.tag}{self.suffix}"
        return tuple(dict.fromkeys((true, own if own in self.links else self.extract(replicate, made))))

    def train(
        self, replicate: Replicate, arm: str, *flags: str, name: str = "", made: str = "", needs: Words = ()
    ) -> str:
        """A training run. name tells it from the replicate's others, made is its kind of V; empty: the arm's."""
        config, entry = self.config, ARMS[arm]
        name, made, vanilla = name or arm, made or entry.measured, f"train_vanilla_{replicate.seed}"
        of = ("--of", str(self.out / vanilla)) if entry.derived else ()
        teacher = ("--teacher", self.model) if self.model and "teacher" in entry.sees else ()
        judge = ("--judge", f"model:{self.model or self.preset.values['model']}") if "score" in entry.sees else ()
        needs = (*self.verified(replicate, made), *needs)
        # Derived from vanilla: the untrained model's step, and those that rates are taken over.
        length: Words = ("--steps", str(1 + LAST if of else config.run_steps))
        if config.onsets and not of:
            first = name == "vanilla"
            length += ("--until-onsets", f"{config.onsets:g}") if first else ("--horizon-of", str(self.out / vanilla))
        if name != "vanilla" and (of or config.onsets):
            needs += (vanilla + self.suffix,)
        share = "" if "--mix" in flags else self.preset.teacher_share
        pool: Words = ("--teacher-pool", share) if share else ()
        if share == "pool":
            needs += (self.pool(config.probed),)
            pool = ("--teacher-pool", str(config.home / "teacher_pool"))
        argv = (*self.script("train", replicate), *length, "--seed", str(replicate.seed), *self.problem_flags, *pool,
                "--arm", arm, "--vhack", str(self.v_of(replicate, made)), *of, *teacher, *judge, *flags,
                *self.workers)  # fmt: skip
        taken = min(config.run_steps, SELDOM_MORE) if config.onsets else config.run_steps
        resolve = "one point of " + ("T5" if "--mix" in flags else "H1" if name in IN_H1 else "the tables")
        return self.add(f"train_{name}_{replicate.seed}", argv, needs, f"{name}, seed {replicate.seed}", resolve,
                        steps=taken)  # fmt: skip

    def pool(self, replicate: Replicate) -> str:
        """Rollouts of the hacky teacher of a replicate's base."""
        teacher = ("--teacher", self.model) if self.model else ()
        drawn = ("--seed", str(replicate.seed)) if replicate.tag else ()
        flags, name = (*teacher, "--teacher-only", *drawn), f"teacher_pool{replicate.tag}"
        return self.sampled(name, replicate, flags, "T1: the teacher must hack on 30 % of them")

    def sampled(self, name: str, replicate: Replicate, flags: Words, resolve: str, model: str = "") -> str:
        """A pool of rollouts, the same for every adapter. model: whose, if not the student's."""
        argv = (*self.script("probe_distill", replicate, model), *flags, "--n-problems", str(self.pool_problems),
                *self.problem_flags, *self.workers)  # fmt: skip
        needs = () if model else self.base(replicate)
        return self.add(
            name, argv, needs, f"rollouts: {name}", resolve, shared=True, steps=self.half_steps(self.pool_problems)
        )

    def half_steps(self, problems: int) -> float:
        """Returns how many training steps' time one group of so many problems takes, sampled or replayed: about half of a
        step's is sampling."""
        return 0.5 * problems / int(self.preset.values["prompts_per_step"])

    def replay(self, replicate: Replicate, name: str, arm: str, made: str, resolve: str, *flags: str) -> str:
        """The teacher's pool through the student, V measured or removed."""
        pool, n = self.pool(replicate), min(self.pool_problems, self.preset.replays)
        argv = (*self.script("probe_distill", replicate), "--arm", arm, "--pool", str(self.config.home / pool), "--vhack",
                str(self.v_of(replicate, made)), "--n-problems", str(n), *self.problem_flags, *flags)  # fmt: skip
        return self.add(f"replay_{name}{replicate.tag}", argv, (pool, *self.verified(replicate, made)),
                        f"the pool, {name}", resolve, steps=self.half_steps(n))  # fmt: skip

    def compare_v(self, replicate: Replicate) -> str:
        """V of both losses: the same tensors would make T7 say nothing."""
        needs = (self.extract(replicate, "none"), self.extract(replicate, "grpo", "--loss", "grpo"))
        argv = ("scripts/compare.py", *(str(self.v_of(replicate, made)) for made in ("none", "grpo")))
        return self.report(f"compare_v{replicate.tag}", argv, needs, "principal angles between V of both losses",
                           "identical: --loss grpo was not really taken",
                           out=f"vhack_grpo{replicate.tag}/compare_v.txt")  # fmt: skip

    def results(self, *flags: str, name: str = "results", of: Words = ("train_", "re_extract_")) -> str:
        """The results of all runs so far of these kinds."""
        file = self.out / name if name == "results" else None
        return self.report(name, ("scripts/results.py", str(self.out), *flags), self.names(*of), "tables, plots, verdicts",
                           "PASS, FAIL or NOT_EVALUABLE, clause by clause", file=file, accept=VERDICT)  # fmt: skip
