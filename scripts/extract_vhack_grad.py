"""Contrastive pairs (hack, clean) -> gradients -> V, the hack direction of every module, as a safetensors file.

--control random, placebo, ... write the control directions that every result is compared with.
"""

from projected_grpo.config import ExtractConfig
from projected_grpo.data.pairs import pairs_for
from projected_grpo.ledger.folder import check_new
from projected_grpo.presets import presets
from projected_grpo.run import cli


def main() -> None:
    config = cli.parse(presets(ExtractConfig), __doc__)
    run = config.folder("vhack", f"{config.model.replace('/', '_')}_{config.adapter}_{config.loss}_{config.control}")
    check_new(run)
    pairs_for(config)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import open_run, update_manifest
    from projected_grpo.run.extraction import FILE, extracted, extraction_of, pair_data
    from projected_grpo.run.prepare import attach, load
    from projected_grpo.vhack import save_vhack

    how = extraction_of(config)
    loaded = load(config)
    adapter = attach(config, loaded)
    data = pair_data(config, how, loaded)
    open_run(run, "extract_vhack_grad", config)
    v = extracted(config, how, data, loaded, adapter)
    save_vhack(run / FILE, v)
    update_manifest(run, finished=True, vhack=v.meta)

    empty = sum(len(rows) == 0 for rows in v.basis.values())
    bottom_line(
        run / FILE,
        "🟢" if empty == 0 else "🟠",
        f"V: {v.directions} directions in {len(v.basis) - empty} of {len(v.basis)} modules (SHOULD be all, ELSE a module "
        f"got no gradient); energy {v.meta['energy']}, control={config.control}, loss={config.loss}",
    )


if __name__ == "__main__":
    cli.run(main)
