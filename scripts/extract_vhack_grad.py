"""Contrastive pairs (hack, clean) -> gradients -> V, the hack direction of every module, as a safetensors file.

--control random, placebo, ... write the control directions that every result is compared with.
"""

import functools
from pathlib import Path

from projected_grpo.config import ExtractConfig
from projected_grpo.data.pairs import load_pairs
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import check_new, finished_manifest
from projected_grpo.presets import presets
from projected_grpo.run import cli


def share_removed(run: Path) -> float:
    """Returns the share of the update's energy that a run of arm projected removed, its mean over steps. Raises BadInput."""
    from projected_grpo.ledger.rates import known_mean
    from projected_grpo.ledger.step_file import iter_run
    from projected_grpo.run.trained import trained_with

    _, config = trained_with(run)
    share = known_mean(rows[0]["update_removed"] for rows in iter_run(run))
    if config.arm != "projected" or not share:
        raise BadInput(f"--share-of {run}: not a run of --arm projected that removed some of the update")
    return share


def main() -> None:
    config = cli.parse(presets(ExtractConfig), __doc__)
    run = config.folder("vhack", f"{config.model.replace('/', '_')}_{config.adapter}_{config.loss}_{config.control}")
    check_new(run)
    modes = () if config.control == "words" else config.modes  # its pairs have no mechanism
    source = f"{config.pairs}-phrase" if config.control == "words" else config.pairs
    pairs = load_pairs(source, modes)
    if config.share_of != Path():
        finished_manifest(config.share_of, ("train",), "--share-of")
    from loguru import logger

    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import open_run, update_manifest
    from projected_grpo.run.prepare import attach, load, show_text
    from projected_grpo.vhack import Extraction, facts_of, save_vhack

    how = Extraction(
        config.loss, config.control, config.k, config.max_new, config.pairs_draw, config.hint, config.prompt_setup,
        config.seed, share=share_removed(config.share_of) if config.control == "random_share" else 0.0,
    )  # fmt: skip
    loaded = load(config)
    adapter = attach(config, loaded)
    sides, single = how.sides(pairs, loaded), how.single_sides(pairs, loaded)
    open_run(run, "extract_vhack_grad", config)
    n = len(sides)
    logger.info(f"{n} training pairs ({len(single) // 2} held out), mechanisms: {', '.join(modes) or 'all'}")
    if config.control != "clean":
        gap = sum(s.advantage * len(s.completion_ids) for row in sides for s in row) / n
        logger.info(f"mean length gap {gap:+.1f} tokens (SHOULD be near 0, ELSE V sees length)")
    show_text("first prompt, as the model reads it", loaded.tokenizer.decode(sides[0][0].prompt_ids))
    show_text("first completion", loaded.tokenizer.decode(sides[0][0].completion_ids))

    facts = facts_of(loaded, adapter.metadata(), pairs, source, modes)
    gradients = functools.partial(how.differences, loaded, adapter, token_budget=config.token_budget)
    v = how.basis(gradients, sides, single, adapter.basis_probes(), facts)
    path = run / "vhack.safetensors"
    save_vhack(path, v)
    update_manifest(run, finished=True, vhack=v.meta)

    empty = sum(len(rows) == 0 for rows in v.basis.values())
    bottom_line(
        path,
        "🟢" if empty == 0 else "🟠",
        f"V: {v.directions} directions in {len(v.basis) - empty} of {len(v.basis)} modules (SHOULD be all, ELSE a module "
        f"got no gradient); energy {v.meta['energy']}, control={config.control}, loss={config.loss}",
    )


if __name__ == "__main__":
    cli.run(main)
