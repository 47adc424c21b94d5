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
    from projected_grpo.adapters.lora_adapter import WARM_RATIO
    from projected_grpo.data import pairs as pair_sets
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import check_new, git_state, open_run, update_manifest
    from projected_grpo.run import vhack_file
    from projected_grpo.run.prepare import attach, default_out, load, show_text

    run = default_out(
        config, "vhack", f"{config.model.replace('/', '_')}_{config.adapter}_{config.loss}_{config.control}"
    )
    check_new(run)
    modes = () if config.control == "words" else config.modes  # its pairs have no mechanism
    pairs = pair_sets.load_pairs(config.source, modes)
    train, held_out = pair_sets.split(pairs)
    chosen = pair_sets.resampled(train, config.pairs_draw)
    loaded = load(config)
    adapter = attach(config, loaded)
    sides = vhack.pair_sides(chosen, loaded, config.hint, config.prompt_setup, config.control)
    open_run(run, "extract_vhack_grad", config)
    lengths = [len(s.completion_ids) for s in sides]
    gap = sum(s.advantage * len(s.completion_ids) for s in sides) / len(chosen) if config.control != "clean" else None
    told = "" if gap is None else f"; mean length gap {gap:+.1f} tokens (SHOULD be near 0, ELSE V sees length)"
    logger.info(
        f"{len(chosen)} training pairs, {len({p.name for p in chosen})} different ({len(held_out)} held out), "
        f"{len({p.mechanism for p in train})} mechanisms; completions of {sum(lengths) / len(lengths):.0f} tokens{told}"
    )
    show_text("first prompt, as the model reads it", loaded.tokenizer.decode(sides[0].prompt_ids))
    show_text("first completion", loaded.tokenizer.decode(sides[0].completion_ids))

    def gradients(of: list[vhack.PairSide]) -> vhack.Differences:
        return vhack.pair_differences(loaded, adapter, of, config.loss, config.max_new, config.token_budget)

    d = gradients(sides)
    found = {name: vhack.basis_of(rows, config.k) for name, rows in d.items()}
    del d  # of a LoRA it is tens of gigabytes
    if (most := max(len(v) for v, _ in found.values())) < config.k:
        logger.warning(f"--k {config.k}: V has at most {most} directions a module; different pairs give no more")
    basis, values = {name: v for name, (v, _) in found.items()}, {name: s for name, (_, s) in found.items()}
    # Of pairs that V has not seen: on its own pairs it holds more of the energy than it will of rollouts.
    shares = vhack.energy_shares(
        basis, gradients(vhack.sides_alone(held_out, loaded, config.hint, config.prompt_setup))
    )
    if config.control in ("random", "random_energy"):
        ranks = {name: len(v) for name, v in basis.items()}
        if config.control == "random_energy":
            ranks = vhack.ranks_of_energy(shares, adapter.sizes)
        basis = {n: vhack.random_basis((k, adapter.sizes[n]), config.seed, n) for n, k in ranks.items()}
        values = {n: vhack.stretched(values[n], k) for n, k in ranks.items()}
    empty = sum(len(v) == 0 for v in basis.values())
    meta = {
        **vhack_file.identity_of(loaded, adapter),
        "tokenizer_hash": loaded.tokenizer_hash,
        "loss": config.loss,
        "control": config.control,
        "pairs": pair_sets.name_of(config.source, pairs),
        "pairs_hash": pair_sets.pairs_hash(pairs),
        "n_train": str(len(chosen)),
        "pairs_draw": str(config.pairs_draw),
        "modes": ",".join(modes) or "all",
        "hint": config.hint,
        "prompt_setup": config.prompt_setup,
        "dtype": config.dtype,
        "k": str(config.k),
        "directions": str(sum(map(len, basis.values()))),
        "energy": f"{sum(shares.values()) / len(shares):.4f}",
        "v_sha256": vhack_file.content_of(basis),
        "seed": str(config.seed),
        "max_new": str(config.max_new) if config.loss == "grpo" else "unused",
        "lora_warm_ratio": str(WARM_RATIO) if adapter.kind == "lora" else "unused",
        "commit": git_state()["commit"] or "unknown",
    }
    path = run / "vhack.safetensors"
    vhack_file.save_vhack(path, vhack.VBasis(basis, values, adapter.basis_probes(), meta))
    update_manifest(run, finished=True, vhack=meta)

    first = [float(s[0]) / float(s.sum()) for s in values.values() if len(s)]
    bottom_line(
        Path(path),
        "🟢" if empty == 0 else "🟠",
        f"V: {sum(map(len, basis.values()))} directions in {len(basis) - empty} of {len(basis)} modules "
        f"(SHOULD be all, ELSE a module got no gradient); control={config.control}, loss={config.loss}",
        [
            ["modules", "empty", "k", "directions", "pairs", "top_share", "energy of V", "length_gap"],
            [
                len(basis),
                empty,
                config.k,
                sum(map(len, basis.values())),
                len(chosen),
                sum(first) / max(len(first), 1),
                float(meta["energy"]),
                gap,
            ],
        ],
    )
    return 0


if __name__ == "__main__":
    cli.run(main)
