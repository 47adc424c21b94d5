"""A finished training run as a Hugging Face folder: PEFT LoRA, folded weights or delta_S, with a model card."""

import shutil

from projected_grpo.release.settings import ExportConfig
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(ExportConfig, __doc__)
    config.validate()
    from pathlib import Path

    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.release.card import Released, card, read_beside
    from projected_grpo.release.folder import base_of, form_of, write_form
    from projected_grpo.run.trained import load_trained

    runs = read_beside(config.run, config.beside)
    trained = load_trained(config.run, config.step, config.cache if config.cache != Path() else None)
    form, folder = form_of(config, trained), config.folder
    told = Released(folder, form, base_of(trained), trained.steps, trained.sha256, trained.deployed)
    unfinished = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        write_form(unfinished, form, trained)
        (unfinished / "README.md").write_text(card(told, runs, trained.manifest), "utf-8")
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 2**20
    bottom_line(folder, "🟢", f"{config.run.name} after {trained.steps} steps, as {form}, {size:.1f} MiB")
    return 0


if __name__ == "__main__":
    cli.run(main)
