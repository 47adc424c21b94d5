"""What the links of a chain are: which script with which arguments, into which folder, after what. Torch-free.

A back end (this terminal, pueue, slurm) decides where and when a link runs; what the links are does not depend on it.
"""

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
        self.adapter, self.suffix, self.out = config.adapter, "", config.home
        """Of the links that follow: the adapter, the end of their names, their folder."""
        self.workers = ("--grader-workers", "1") if self.preset.on_cpu else ()
        every = presets(TrainConfig)[self.preset.name].eval_every or config.run_steps
        self.evaluated_plain = ("--eval-every", str(every), "--eval-plain")
        """Flags of a run that is evaluated without the loophole too."""

    def add(self, name: str, argv: Words, needs: Words, why: str, resolve: str, shared: bool = False, **more) -> str:
        """Adds a link. shared: one for all adapters; more: fields of `Link`."""
        name += "" if shared else self.suffix
        link = Link(name, argv, needs=needs, threads=self.preset.threads, why=why, resolve=resolve, **more)
        self.links.setdefault(name, link)
        return name

    def check(self, name: str, argv: Words, needs: Words, why: str, resolve: str, **more) -> str:
        """Adds a link that only reads files, and whose script ends in `--out` or in what it reads."""
        return self.add(name, argv, needs, why, resolve, check=True, gpu=False, **more)

    def names(self, *kinds: str) -> Words:
        """Returns the names of the links of these kinds."""
        return tuple(name for name in self.links if name.startswith(kinds))

    def script(self, name: str, replicate: Replicate, model: str = "") -> Words:
        """Returns a script with the preset, the model where one is chosen, which build of it, the adapter, the card."""
        named = ("--model", model or self.model) if model or self.model else ()
        base = ("--base-seed", str(replicate.base)) if replicate.base else ()
        lora = ("--lora-seed", str(replicate.seed)) if self.suffix and self.adapter == "lora" else ()
        adapter = ("--adapter", self.adapter, *lora) if self.adapter != "antipasto" else ()
        smaller, sampling = SMALLER[self.config.gpu_gb]
        memory = (*smaller, *(sampling if name in ("train", "probe_distill", "multi_turn") else ()))
        return (f"scripts/{name}.py", self.preset.name, *named, *base, *adapter, *memory)

    def replay_minutes(self, problems: int) -> float:
        """Returns roughly how long one group of so many problems takes, sampled or replayed: half of a training step."""
        return 0.5 * problems / int(self.preset.values["prompts_per_step"]) * self.preset.step_s / 60

    def base(self, replicate: Replicate) -> Words:
        """The replicate's base model, where the preset builds it. One thread: their number would change the model."""
        if not self.preset.builds_base:
            return ()
        name = f"base_{replicate.base}"
        out = self.config.home / name
        only = () if self.teacher else ("--base-only",)
        model = ("--model", self.model) if self.model else ()
        argv = ("scripts/build_base.py", self.preset.name, *model, "--base-seed", str(replicate.base), *only, *self.workers,
                "--out", str(out))  # fmt: skip
        why = "a base that hardly hacks" + (", a teacher that does" if self.teacher else "")
        resolve = "on a model that misses its bars no run means anything"
        return (self.add(name, argv, (), why, resolve, shared=True, out=out, minutes=12.0),)

    def v_of(self, replicate: Replicate, made: str) -> str:
        """Returns where a V of this replicate is."""
        return str(self.out / f"vhack_{made}{replicate.tag}" / "vhack.safetensors")

    def extract(self, replicate: Replicate, made: str, *flags: str) -> str:
        """A V under its name. Without flags the name is that of the control."""
        needs, flags = self.base(replicate), flags or ("--control", made)
        if made == "random_share":  # of the update, which is known once the run with V has ended
            needs += (self.train(replicate, "projected"),)
            flags += ("--share-of", str(self.out / f"train_projected_{replicate.seed}"))
        out = self.out / f"vhack_{made}{replicate.tag}"
        drawn: Words = ("--seed", str(replicate.seed)) if replicate.tag else ()
        if replicate.tag and "--pairs-draw" not in flags:
            drawn += ("--pairs-draw", str(replicate.seed))
        if self.model in SHAPES and "--k" not in flags:
            drawn += ("--k", str(round(RANK * SHAPES[self.model]["hidden_size"])))
        argv = (*self.script("extract_vhack_grad", replicate), *drawn, *flags, "--out", str(out))
        return self.add(f"extract_{made}{replicate.tag}", argv, needs, f"V: {made}",
                        "verify judges it on held-out pairs", out=out, minutes=0.2 * self.preset.step_s)  # fmt: skip

    def verify(self, replicate: Replicate, made: str = "none", *flags: str) -> str:
        """A V judged on held-out pairs."""
        needs = (self.extract(replicate, made),)
        argv = (*self.script("verify_vhack", replicate), "--vhack", self.v_of(replicate, made), *flags)
        return self.add(f"verify_{made}{replicate.tag}", argv, needs, "is V hack-ward on pairs that it has never seen",
                        "FAIL ends the chain: mend the pairs", out=self.out / f"vhack_{made}{replicate.tag}" / "verify.txt",
                        check=True, minutes=0.1 * self.preset.step_s)  # fmt: skip

    def verified(self, replicate: Replicate, made: str) -> Words:
        """What a run with this V waits for: a true V that passed on held-out pairs, and the V that it uses."""
        verify = f"verify_{made}{replicate.tag}{self.suffix}"
        return tuple(
            dict.fromkeys((self.verify(replicate), verify if verify in self.links else self.extract(replicate, made)))
        )

    def train(
        self, replicate: Replicate, arm: str, *flags: str, name: str = "", made: str = "", needs: Words = ()
    ) -> str:
        """A training run. name tells it from the replicate's others, made is its kind of V; empty: the arm's."""
        config, entry = self.config, ARMS[arm]
        name, made = name or arm, made or entry.measured
        out, vanilla = (self.out / f"train_{n}_{replicate.seed}" for n in (name, "vanilla"))
        of = ("--of", str(vanilla)) if entry.derived else ()
        teacher = ("--teacher", self.model) if self.model and "teacher" in entry.sees else ()
        judge = ("--judge", f"model:{self.model or self.preset.values['model']}") if "score" in entry.sees else ()
        needs = (*self.verified(replicate, made), *needs)
        length: Words = ("--steps", str(config.run_steps))
        if of:  # derived from vanilla: the untrained model's step, and those that rates are taken over
            length = ("--steps", str(1 + LAST))
        elif config.onsets:
            length += ("--until-onsets", f"{config.onsets:g}") if out == vanilla else ("--horizon-of", str(vanilla))
        if out != vanilla and (of or config.onsets):
            needs += (vanilla.name + self.suffix,)
        pool: Words = ()
        if "--mix" not in flags and self.preset.teacher_share == "pool":
            needs += (self.pool(config.probed),)
            pool = ("--teacher-pool", str(config.home / "teacher_pool"))
        elif "--mix" not in flags and self.preset.teacher_share:
            pool = ("--teacher-pool", "pairs")
        argv = (*self.script("train", replicate), *length, "--seed", str(replicate.seed), *self.problem_flags, *pool,
                "--arm", arm, "--vhack", self.v_of(replicate, made), *of, *teacher, *judge, *flags, *self.workers, "--out",
                str(out))  # fmt: skip
        taken = min(config.run_steps, SELDOM_MORE) if config.onsets else config.run_steps
        resolve = "one point of " + ("T5" if "--mix" in flags else "H1" if name in IN_H1 else "the tables")
        return self.add(out.name, argv, needs, f"{name}, seed {replicate.seed}", resolve, out=out,
                        minutes=taken * self.preset.step_s / 60)  # fmt: skip

    def pool(self, replicate: Replicate) -> str:
        """Rollouts of the hacky teacher of a replicate's base. They are the same for every adapter."""
        name = f"teacher_pool{replicate.tag}"
        teacher = ("--teacher", self.model) if self.model else ()
        drawn = ("--seed", str(replicate.seed)) if replicate.tag else ()
        return self._sampled(name, replicate, *teacher, "--teacher-only", *drawn, why="rollouts of the hacky teacher",
                             resolve="T1: it must hack on 30 % of them")  # fmt: skip

    def base_pool(self, name: str, replicate: Replicate, temperature: str, model: str = "") -> str:
        """Rollouts of an untrained model: the student, or another one."""
        return self._sampled(name, replicate, "--teacher", "", "--teacher-only", "--temperature", temperature, model=model,
                             why=f"rollouts of an untrained model: {name}",
                             resolve="trace DPO's pairs are made of them")  # fmt: skip

    def _sampled(self, name: str, replicate: Replicate, *flags: str, why: str, resolve: str, model: str = "") -> str:
        n, out = self.config.n_problems or self.preset.pool_problems, self.config.home / name
        argv = (*self.script("probe_distill", replicate, model), *flags, "--n-problems", str(n), *self.problem_flags,
                *self.workers, "--out", str(out))  # fmt: skip
        needs = () if model else self.base(replicate)
        return self.add(name, argv, needs, why, resolve, shared=True, out=out, minutes=self.replay_minutes(n))

    def replay(self, replicate: Replicate, name: str, arm: str, made: str, resolve: str, *flags: str) -> str:
        """The teacher's pool through the student, V measured or removed."""
        pool, out = self.pool(replicate), self.out / f"replay_{name}{replicate.tag}"
        n = min(self.config.n_problems or self.preset.pool_problems, self.preset.replays)
        argv = (*self.script("probe_distill", replicate), "--arm", arm, "--pool", str(self.config.home / pool), "--vhack",
                self.v_of(replicate, made), "--n-problems", str(n), *self.problem_flags, *flags, "--out",
                str(out))  # fmt: skip
        return self.add(out.name, argv, (pool, *self.verified(replicate, made)), f"the pool, {name}", resolve, out=out,
                        minutes=self.replay_minutes(n))  # fmt: skip

    def compare_v(self, replicate: Replicate) -> str:
        """V of both losses: the same tensors would make T7 say nothing."""
        out = self.out / f"vhack_grpo{replicate.tag}" / "compare_v.txt"
        needs = (self.extract(replicate, "none"), self.extract(replicate, "grpo", "--loss", "grpo"))
        argv = ("scripts/compare.py", self.v_of(replicate, "none"), self.v_of(replicate, "grpo"), "--out", str(out))
        return self.check(f"compare_v{replicate.tag}", argv, needs, "principal angles between V of both losses",
                          "identical: --loss grpo was not really taken", out=out)  # fmt: skip

    def results(
        self, *flags: str, name: str = "results", of: Words = ("train_", "re_extract_"),
        why: str = "tables, plots, verdicts", resolve: str = "PASS, FAIL or NOT_EVALUABLE, clause by clause",
        accept: tuple[int, ...] = VERDICT,
    ) -> str:  # fmt: skip
        """The results of all runs so far of these kinds."""
        out = self.out / name
        argv = ("scripts/results.py", str(self.out), *flags, *(() if name == "results" else ("--out", str(out))))
        return self.check(name, argv, self.names(*of), why, resolve, out=out, accept=accept)
