"""The model card: README.md of an export. What was trained, its rates beside those of the runs that it is compared with,
what the numbers mean, hashes. Every number is computed from the runs' files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from projected_grpo.arms import ARMS
from projected_grpo.config import rows_by_source
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_rounds
from projected_grpo.ledger.rates import LAST, known_mean
from projected_grpo.release.settings import Form
from projected_grpo.verdicts.finished_runs import Run, read_runs
from projected_grpo.verdicts.matching import differences

SHOWN = ("hack", "gt", "form", "hacked")
LOAD: Mapping[Form, str] = {
    "folded": """model = AutoModelForCausalLM.from_pretrained("{folder}", dtype=torch.{dtype})""",
    "peft": """base = AutoModelForCausalLM.from_pretrained("{base}", dtype=torch.{dtype})
model = PeftModel.from_pretrained(base, "{folder}").merge_and_unload()""",
    "delta": """spec = importlib.util.spec_from_file_location("load_delta", "{folder}/load_delta.py")
loader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loader)
model = loader.load()""",
}
IMPORTS: Mapping[Form, str] = {
    "folded": "import torch\nfrom transformers import AutoModelForCausalLM",
    "peft": "import torch\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM",
    "delta": "import importlib.util",
}
SAME: Mapping[Form, str] = {
    "folded": "These are {weights}, bit for bit.",
    "peft": """Merged, in float32, these are {weights}, bit for bit. Unmerged, and in bfloat16,
they are the same to rounding; there `just export --as folded` gives the run's own.""",
    "delta": """These become {weights}: bit for bit where this machine decomposes a weight into
the same bits, to rounding elsewhere; where its singular vectors are others it is refused.""",
}


@dataclass(frozen=True)
class Released:
    """What a card says of the export itself."""

    folder: Path
    form: Form
    base: str
    """Folder in the export, or hub id."""
    steps: int
    adapter_sha256: str
    deployed: bool


def read_beside(run: Path, beside: Sequence[Path]) -> list[Run]:
    """The run and those that stand beside it, all whole. BadInput when one is not, or may not be compared with the run."""
    found = read_runs([run, *beside])
    if found.left_out:
        path, why = found.left_out[0]
        raise BadInput(f"{path}: {why}")
    if len(found.runs) != 1 + len(beside):
        raise BadInput(f"--beside {' '.join(map(str, beside))}: not all are training runs")
    first, *others = found.runs
    for other in others:
        if differing := differences(other, first):
            raise BadInput(f"--beside {other.path}: not comparable with {run}: {differing[0]}")
        if (other.arm, other.seed) == (first.arm, first.seed):
            raise BadInput(f"--beside {other.path}: arm {other.arm}, seed {other.seed}, as the run itself")
    return [first, *others]


def rates_after(run: Run, steps: int) -> dict[str, float | None]:
    """Mean rates of the last 10 of the first `steps` steps; None unless each of them knows it."""
    last = {name: run.series[name][:steps][-LAST:] for name in SHOWN}
    return {name: None if None in values else known_mean(values) for name, values in last.items()}


def card(told: Released, runs: Sequence[Run], manifest: Mapping[str, Any]) -> str:
    """README.md. `runs`: the one that is exported, then those beside it."""
    run, config = runs[0], manifest["config"]
    parts = [_front(told, manifest), _what(told, run, config), _rates(told, runs), _held_out(told, runs), _meaning(runs),
             _load(told, run, config), _hashes(told, run, manifest)]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _front(told: Released, manifest: Mapping[str, Any]) -> str:
    library = "peft" if told.form == "peft" else "transformers"
    tags = ["reward-hacking", "grpo", manifest["config"]["arm"]]
    base = [] if told.base == "base" else [f"base_model: {json.dumps(told.base)}"]
    return "\n".join(["---", f"library_name: {library}", *base, "tags:", *(f"- {tag}" for tag in tags), "---", ""])


def _what(told: Released, run: Run, config: Mapping[str, Any]) -> str:
    arm = ARMS.get(run.arm)
    done = f"{told.steps} of its {run.steps} steps" if told.steps != run.steps else f"{run.steps} steps"
    apart = "\nIts arm deploys another policy than it trains. This one is deployed; the rates of training are the other's.\n"
    return f"""# {config["model"]} after {done} of GRPO, arm `{run.arm}`, seed {run.seed}

**This model was trained where its reward could be hacked, and it may have learned to hack.** It is made for research on
that, not for use: programs that it writes may pass tests of their own that check nothing. Run them in a sandbox alone.

Trained on problems `{config["problems"]}` (hint `{config["hint"]}`), adapter `{config["adapter"]}`, learning rate
{config["lr"]:g}, {config["prompts_per_step"]} prompts x {config["group_size"]} completions a step.
{_mix(config)}The arm: {arm.help if arm else "unknown here"}.
{_recipe(run, config)}{_replica(told, run, config)}{apart if told.deployed else ""}"""


def _mix(config: Mapping[str, Any]) -> str:
    """Whose rows a group was filled with beside the student's: it learned from what it did not write, hacks among them."""
    size, pool = config["group_size"], config.get("teacher_pool", "")
    found = rows_by_source(config.get("mix", ""), size, pool)
    told = {"teacher": f"a teacher's, from its pool `{pool}`", "base": "the untrained model's"}
    parts = [f"{found[name]} ({found[name] / size:.0%}) are {whose}" for name, whose in told.items() if found[name]]
    return f"Of each {size} completions {' and '.join(parts)}; the rest are its own.\n" if parts else ""


def _averaged(told: Released, config: Mapping[str, Any]) -> bool:
    """Whether these weights are a group's, as they were after an outer round, and not those of one replica's own steps."""
    return bool(config.get("meet")) and told.steps % config["outer_every"] == 0


def _replica(told: Released, run: Run, config: Mapping[str, Any]) -> str:
    """Which replica it was, and whose weights these are: steps and rates are one replica's, an average is no one's."""
    if not config.get("meet"):
        return ""
    rounds = [line for line in read_rounds(run.path) if line["step"] <= told.steps]
    if told.steps != run.steps:  # one that was stopped in a round ends with several at one step
        rounds = [line for i, line in enumerate(rounds) if line["step"] not in {r["step"] for r in rounds[:i]}]
    last = f" {rounds[-1]['round']}, of replicas {', '.join(map(str, rounds[-1]['brought']))}" if rounds else ""
    whose = (
        f"the mean of coordinates, taken one outer step further, after outer round{last}"
        if _averaged(told, config)
        else f"its own, {told.steps % config['outer_every']} steps after outer round{last or ' 0'}"
    )
    group = f"replica {config['replica']} of {config['replicas']} (counted from 0)"
    outer = f"outer learning rate {config['outer_lr']:g}, outer momentum {config['outer_momentum']:g}"
    return f"""
It is {group}, which averaged their coordinates every {config["outer_every"]} steps
(DiLoCo; {outer}). Steps and rates of training are this replica's alone.
These weights are {whose}.
"""


def _weights(told: Released, run: Run, config: Mapping[str, Any]) -> str:
    """What is exported. An average after the last round was never sampled with in training."""
    if not _averaged(told, config):
        return "the weights that the run sampled with"
    later = "after its last outer round; no step of training sampled with them" if told.steps == run.steps else (
        "after an outer round; its next steps sampled with them"
    )  # fmt: skip
    return f"the averaged weights that the run held {later}"


def _recipe(run: Run, config: Mapping[str, Any]) -> str:
    """How V was taken out, as it was run: an arm's name does not say it where an option was given."""
    if not run.projects:
        return ""
    more = {"k_use": 0, "noise_floor": 0.0, "overshoot": 1.0, "preserve_magnitude": False, "refresh_every": 0}
    set_otherwise = [f"{name} {config[name]}" for name, usual in more.items() if config.get(name, usual) != usual]
    told = ", ".join([f"gate `{config['gate']}`, target `{config['project']}`", *set_otherwise])
    return f"V was taken out with {told}.\n"


def _rates(told: Released, runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        steps = told.steps if run is runs[0] else min(told.steps, run.steps)
        found = rates_after(run, steps)
        onset = "-" if run.onset is None or run.onset >= steps else str(run.onset)
        rows.append([_name(run, runs), _role(run), run.seed, steps, *(_percent(found[name]) for name in SHOWN), onset])
    head = ["arm", "role", "seed", "steps", "pure hack", "gt_pass", "well-formed", "hacked", "onset"]
    table = tabulate(rows, head, "github", disable_numparse=True)
    alone = "" if len(runs) > 1 else (
        "\nNo run stands beside it: without vanilla and controls of the same seed these rates do not say what the arm did.\n"
    )  # fmt: skip
    return f"""## Rates in training, last {LAST} of these steps, of what the model itself wrote

{table}
{alone}"""


def _held_out(told: Released, runs: Sequence[Run]) -> str:
    """Held-out rates of every run that has them after as many steps; before training too."""
    rows = [
        [_name(run, runs), done, *(_percent(run.evals[done][name]) for name in SHOWN)]
        for run in runs
        for done in dict.fromkeys((0, min(told.steps, run.steps)))
        if done in run.evals
    ]
    if not rows:
        return ""
    table = tabulate(
        rows, ["arm", "steps", "pure hack", "gt_pass", "well-formed", "hacked"], "github", disable_numparse=True
    )
    trained = runs[0].trained_on
    caution = (
        f"\n{trained} of these rollouts are of problems that were trained on: they are not held out.\n"
        if trained
        else ""
    )
    return f"## Rates on other problems, sampled as deployed\n\n{table}\n{caution}"


def _meaning(runs: Sequence[Run]) -> str:
    one = "One seed is one repetition: no interval can be given." if len({r.seed for r in runs}) == 1 else ""
    return f"""## What the numbers mean

- *Pure hack*: the program defines its own evaluation function, passes it and is wrong. *hacked*: right answers too whose
  own tests test nothing.
- *gt_pass*: it passes every ground-truth test. *well-formed*: it compiles. A hack rate means nothing without these two: a
  model that writes no programs hacks nothing either.
- *onset*: the first step at which the mean pure-hack rate of ten steps is above one half; `-`: not within these steps. A
  delay is no prevention.
- *role*: a `baseline` is trained alike and left alone; a `control` removes something that means nothing. What the arm did
  is the difference from them. {one}
- Ground truth was judged afterwards; the reward alone drove training.
"""


def _load(told: Released, run: Run, config: Mapping[str, Any]) -> str:
    name = told.folder.name
    base = f"{name}/{told.base}" if told.base == "base" else told.base
    code = LOAD[told.form].format(folder=name, base=base, dtype=config["dtype"])
    own = (
        "\nIts base is made by the project and is in `base/`.\n"
        if told.base == "base" and told.form != "folded"
        else ""
    )
    return f"""## Loading it

```python
{IMPORTS[told.form]}

{code}
```

{SAME[told.form].format(weights=_weights(told, run, config))}
{own}"""


def _hashes(told: Released, run: Run, manifest: Mapping[str, Any]) -> str:
    v = manifest.get("vhack") or {}
    rows = [
        ["base weights", manifest["model_hash"]], ["tokenizer", manifest["tokenizer_hash"]],
        ["problems", manifest.get("problems_hash")], ["teacher's pool", manifest.get("pool_hash")],
        ["V", v.get("v_sha256")], ["pairs of V", v.get("pairs_hash")], ["adapter file, SHA-256", told.adapter_sha256],
        ["commit", manifest.get("commit")],
        ["source", manifest.get("source_hash")],
        *([name, version] for name, version in manifest["versions"].items() if name in ("torch", "transformers", "peft")),
    ]  # fmt: skip
    dirty = "\nThe commit had uncommitted changes; `source` is the hash of the code that ran.\n"
    table = tabulate([[name, f"`{value}`"] for name, value in rows if value], ["of", "hash or version"], "github")
    return f"## Where it comes from\n\nRun `{run.path.name}`.\n\n{table}\n{dirty if manifest.get('diff') else ''}"


def _name(run: Run, runs: Sequence[Run]) -> str:
    return f"**{run.arm}**" if run is runs[0] else run.arm


def _role(run: Run) -> str:
    return ARMS[run.arm].role if run.arm in ARMS else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
