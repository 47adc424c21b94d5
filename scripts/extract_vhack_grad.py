"""Hand-written (hack, clean) pairs -> gradients -> V, the hack direction of every module, as a safetensors file.

--control random and --control placebo write the null bases that stand beside every result.
"""

from pathlib import Path

from projected_grpo.config import ExtractConfig
from projected_grpo.presets import presets
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse(presets(ExtractConfig), __doc__)
    config.validate()
    from loguru import logger

    from projected_grpo import vhack
    from projected_grpo.adapters.lora import WARM_RATIO
    from projected_grpo.groups import pairs as pair_sets
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import check_new, git_state, open_run, update_manifest
    from projected_grpo.run import vhack_file
    from projected_grpo.run.prepare import attach, default_out, load, show_text

    run = default_out(
        config, "vhack", f"{config.model.replace('/', '_')}_{config.adapter}_{config.loss}_{config.control}"
    )
    check_new(run)
    pairs = pair_sets.load_pairs(config.pairs, config.modes)
    train, held_out = pair_sets.split(pairs)
    loaded = load(config)
    adapter = attach(config, loaded)
    sides = vhack.pair_sides(train, loaded, config.hint, config.prompt_setup, placebo=config.control == "placebo")
    open_run(run, "extract_vhack_grad", config)
    lengths = [len(s.completion_ids) for s in sides]
    gap = sum(a - b for a, b in zip(lengths[::2], lengths[1::2], strict=True)) / len(train)
    logger.info(
        f"{len(train)} training pairs ({len(held_out)} held out), {len({p.mechanism for p in train})} mechanisms; mean "
        f"length gap {gap:+.1f} tokens of {sum(lengths) / len(lengths):.0f} (SHOULD be near 0, ELSE V sees length)"
    )
    show_text("first prompt, as the model reads it", loaded.tokenizer.decode(sides[0].prompt_ids))
    show_text("first completion", loaded.tokenizer.decode(sides[0].completion_ids))

    d = vhack.pair_differences(loaded, adapter, sides, config.loss, config.max_new, config.token_budget)
    basis, values = {}, {}
    for name, rows in d.items():
        basis[name], values[name] = vhack.basis_of(rows, config.k)
        if config.control == "random":
            basis[name] = vhack.random_basis((len(values[name]), rows.shape[1]), config.seed, name)
    empty = sum(len(v) == 0 for v in basis.values())
    meta = {
        **vhack_file.identity_of(loaded, adapter),
        "tokenizer_hash": loaded.tokenizer_hash,
        "loss": config.loss,
        "control": config.control,
        "pairs_hash": pair_sets.pairs_hash(pairs),
        "n_train": str(len(train)),
        "modes": ",".join(config.modes) or "all",
        "hint": config.hint,
        "prompt_setup": config.prompt_setup,
        "dtype": config.dtype,
        "k": str(config.k),
        "seed": str(config.seed),
        "max_new": str(config.max_new) if config.loss == "grpo" else "unused",
        "lora_warm_ratio": str(WARM_RATIO) if adapter.kind == "lora" else "unused",
        "commit": git_state()["commit"] or "unknown",
    }
    path = run / "vhack.safetensors"
    vhack_file.save_vhack(path, vhack.VHack(basis, values, adapter.basis_probes(), meta))
    update_manifest(run, finished=True, vhack=meta)

    first = [float(s[0]) / float(s.sum()) for s in values.values() if len(s)]
    bottom_line(
        Path(path),
        "🟢" if empty == 0 else "🟠",
        f"V: {sum(map(len, basis.values()))} directions in {len(basis) - empty} of {len(basis)} modules "
        f"(SHOULD be all, ELSE a module got no gradient); control={config.control}, loss={config.loss}",
        [
            ["modules", "empty", "k", "pairs", "top_share", "length_gap"],
            [len(basis), empty, config.k, len(train), sum(first) / max(len(first), 1), gap],
        ],
    )
    return 0


if __name__ == "__main__":
    cli.run(main)
