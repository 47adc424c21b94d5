"""Write the policy of a finished training run as a Hugging Face folder: a PEFT LoRA or merged weights, with a model
card."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import DEPLOYED, NoPath, check_new
from projected_grpo.run import cli

if TYPE_CHECKING:
    from projected_grpo.run.trained import Trained

CARD = """\
---
tags:
- reward-hacking
- grpo
- {arm}
---
# {model} after {steps} steps of GRPO, arm `{arm}`, seed {seed}

**This model was trained where its reward could be hacked, and it may have learned to hack.** It is for research. Run the
programs that it writes in a sandbox only.

Trained on `{problems}` (hint `{hint}`, prompts `{prompt_setup}`), adapter `{adapter}`, base_seed {base_seed}, V: {v}{of}.
Teacher pool: `{pool}`. Commit `{commit}`.
In the last 10 of these steps, of the model's own rollouts{trained}: {rates}.

- *hack*: the program defines its own evaluation function, passes it and is wrong.
- *gt_pass*: it passes every ground-truth test. *compiles*: Python compiles the program.

Without vanilla and control runs of the same seed these rates do not show what the arm did. Load it with
`{how}`.
"""


@dataclass(frozen=True)
class ExportConfig:
    """export: a Hugging Face folder of a finished training run."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished training run."""
    form: Literal["auto", "merged", "peft"] = "auto"
    """merged: whole weights. peft: a LoRA adapter, for runs with --adapter lora. auto: peft for a LoRA, else
    merged."""
    step: int = 0
    """Step of a kept adapter (--keep-adapter-every); 0 = the final one."""
    out: NoPath = Path()
    """Folder to write; must not exist yet. Empty: out/released/ and the run's name."""


def write_folded(folder: Path, trained: "Trained") -> None:
    """Write the weights that the run sampled with."""
    with trained.adapter.merged():
        write_model(folder, trained)


def write_model(folder: Path, trained: "Trained") -> None:
    """Write the model's weights as they are in memory, without the adapter's own parameters."""
    model = trained.loaded.model
    model.save_pretrained(folder, state_dict={n: t for n, t in model.state_dict().items() if not n.endswith(".theta")})
    trained.loaded.tokenizer.save_pretrained(folder)


def write_peft(folder: Path, trained: "Trained") -> None:
    """Write A and B of every module as a PEFT LoRA with scale alpha / r = 1; a base that is made here goes to
    base/."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    from projected_grpo.worlds.registry import MODELS

    base, rank, layers = trained.config.model, trained.config.lora_rank, trained.adapter.layers
    if base in MODELS:
        base = "base"
        write_model(folder / base, trained)
    tensors = {}
    for name, layer in layers.items():
        own: Any = layer
        for half, tensor in zip("AB", own.split(own.theta.detach()), strict=True):
            tensors[f"base_model.model.{name}.lora_{half}.weight"] = tensor.cpu().contiguous()
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    targets = sorted({name.rpartition(".")[2] for name in layers})
    LoraConfig(
        r=rank, lora_alpha=rank, target_modules=targets, task_type="CAUSAL_LM", base_model_name_or_path=base
    ).save_pretrained(str(folder))
    trained.loaded.tokenizer.save_pretrained(folder)


def card(folder: Path, trained: "Trained") -> str:
    """README.md of the folder as it is written."""
    from projected_grpo.ledger.rates import LAST, rates_text
    from projected_grpo.ledger.step_file import read_step, step_path

    c, steps = trained.config, trained.steps
    rows = [row for s in range(max(0, steps - LAST), steps) for row in read_step(step_path(trained.run, s))]
    load = "AutoModelForCausalLM.from_pretrained"
    base = f"{folder.name}/base" if (folder / "base").exists() else c.model
    how = f'{load}("{folder.name}")'
    v, of = trained.manifest["vhack"], f"; derived from the run `{c.of}`" * (c.of != Path())
    if (folder / "adapter_model.safetensors").exists():
        how = f'PeftModel.from_pretrained({load}("{base}"), "{folder.name}")'
    return CARD.format(
        arm=c.arm, model=c.model, steps=steps, seed=c.seed, problems=c.problems, hint=c.hint, adapter=c.adapter,
        prompt_setup=c.prompt_setup, base_seed=c.base_seed, v=v.get("control", "not given"), of=of,
        pool=c.teacher_pool or "none", commit=trained.manifest.get("commit"), how=how,
        trained=" (as it trained; this folder is the policy to deploy)" * (trained.run / DEPLOYED).exists(),
        rates=rates_text([row for row in rows if row["source"] == "student"]),
    )  # fmt: skip


def main() -> int:
    config = cli.parse_plain(ExportConfig, __doc__)
    folder = config.out if config.out != Path() else Path("out/released") / config.run.resolve().name
    check_new(folder)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.run.trained import load_trained

    trained = load_trained(config.run, config.step)
    kind = trained.adapter.kind
    if config.form == "peft" and kind != "lora":
        raise BadInput(f"--form peft: {config.run} was trained with --adapter {kind}; use --form merged")
    form = config.form if config.form != "auto" else "peft" if kind == "lora" else "merged"
    folder.mkdir(parents=True, exist_ok=True)
    (write_peft if form == "peft" else write_folded)(folder, trained)
    (folder / "README.md").write_text(card(folder, trained), "utf-8")
    bottom_line(folder, "🟢", f"{config.run.name} after {trained.steps} steps, as {form}")
    return 0


if __name__ == "__main__":
    cli.run(main)
