"""Write the policy of a finished training run as a Hugging Face folder: its weights, as it sampled, and a model card."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.folder import NoPath, check_new
from projected_grpo.ledger.rates import LAST, rates_text
from projected_grpo.ledger.step_file import read_step, step_path
from projected_grpo.run import cli
from projected_grpo.run.trained import Trained, load_trained

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

Trained on `{problems}` (hint `{hint}`), adapter `{adapter}`. Teacher pool: `{pool}`. Commit `{commit}`.
In the last 10 of these steps, of the model's own rollouts: {rates}.

- *hack*: the program defines its own evaluation function, passes it and is wrong.
- *gt_pass*: it passes every ground-truth test. *compiles*: Python compiles the program.

Without vanilla and control runs of the same seed these rates do not show what the arm did. Load it with
`AutoModelForCausalLM.from_pretrained("{folder}")`.
"""


@dataclass(frozen=True)
class ExportConfig:
    """export: a Hugging Face folder of a finished training run."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished training run."""
    step: int = 0
    """Step of a kept adapter (--keep-adapter-every); 0 = the final one."""
    out: NoPath = Path()
    """Folder to write; must not exist yet. Empty: out/released/ and the run's name."""


def write_weights(folder: Path, trained: Trained) -> None:
    """Write the model with the adapter folded into its weights, and the tokenizer."""
    model = trained.loaded.model
    with trained.adapter.folded():
        weights = {name: t for name, t in model.state_dict().items() if not name.endswith(".theta")}
        model.save_pretrained(folder, state_dict=weights)
    trained.loaded.tokenizer.save_pretrained(folder)


def card(folder: Path, trained: Trained) -> str:
    """README.md of the folder."""
    c, steps = trained.config, trained.steps
    rows = [row for s in range(max(0, steps - LAST), steps) for row in read_step(step_path(trained.run, s))]
    return CARD.format(
        arm=c.arm, model=c.model, steps=steps, seed=c.seed, problems=c.problems, hint=c.hint, adapter=c.adapter,
        pool=c.teacher_pool or "none", commit=trained.manifest.get("commit"), folder=folder.name,
        rates=rates_text([row for row in rows if row["source"] == "student"]),
    )  # fmt: skip


def main() -> None:
    config = cli.parse_plain(ExportConfig, __doc__)
    folder = config.out if config.out != Path() else Path("out/released") / config.run.resolve().name
    check_new(folder)
    trained = load_trained(config.run, config.step)
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, trained)
    (folder / "README.md").write_text(card(folder, trained), "utf-8")
    bottom_line(folder, "🟢", f"{config.run.name} after {trained.steps} steps")


if __name__ == "__main__":
    cli.run(main)
