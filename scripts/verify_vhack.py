"""Does V point hack-ward on pairs that it has never seen? PASS 0, FAIL 1, too few held-out pairs 3."""

from pathlib import Path

from projected_grpo.config import VerifyConfig
from projected_grpo.data.vhack_meta import check_meta, pairs_of, vhack_meta
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse(presets(VerifyConfig), __doc__)
    if config.vhack == Path():
        raise BadInput("--vhack is empty: name the artefact to verify; make one with `just extract-vhack`")
    meta = vhack_meta(config.vhack)
    check_meta(config.vhack, meta, {"model": config.model, "adapter": config.adapter}, None)
    pairs = pairs_of(meta, config.pairs, "held-out pairs are only known to be unseen in the same set")
    from loguru import logger

    from projected_grpo import vhack
    from projected_grpo.data.pairs import unseen_pairs
    from projected_grpo.ledger.console import bottom_line, log_to
    from projected_grpo.run.prepare import attach, load
    from projected_grpo.verdicts.held_out import vhack_verdict
    from projected_grpo.verdicts.registry import exit_code

    loaded = load(config)
    adapter = attach(config, loaded)
    v = vhack.load_vhack(config.vhack, loaded, adapter, None)
    how = vhack.Extraction.of(meta)
    held_out = unseen_pairs(pairs)
    sides = vhack.pair_sides(held_out, loaded, how.hint, how.prompt_setup)
    # The same loss as V was made with: nll and grpo weigh long completions differently.
    d = how.differences(loaded, adapter, sides, config.token_budget)
    seen = vhack.held_out_numbers(v.basis, d, config.seed)
    log_to(config.vhack.with_name("verify.txt"))
    verdict = vhack_verdict(seen, [p.mechanism for p in held_out])

    logger.info("held-out pair                 mechanism             energy    null   cosine")
    for pair, e, z, c in zip(held_out, seen.energy, seen.null, seen.cosine, strict=True):
        logger.info(f"{pair.name:28}  {pair.mechanism:20}  {e:6.4f}  {z:6.4f}  {c:+7.4f}")
    if meta["control"] != "none":
        logger.info(f"this V is the {meta['control']} control: a FAIL here is what a null SHOULD show")
    everything = vhack.pair_sides(pairs, loaded, how.hint, how.prompt_setup)
    left, chance = vhack.separability(how.differences(loaded, adapter, everything, config.token_budget), how.k)
    logger.info(
        f"hack against clean of a third of the pairs: AUROC {left[0]:.3f}; with V of the others removed once, twice, ...: "
        f"{', '.join(f'{auroc:.3f}' for auroc in left[1:])} (by chance .5 ± {chance:.2f}; "
        "above it V is one reading of several)"
    )
    zero = sum(bool((rows.norm(dim=1) == 0).any()) for rows in d.values())
    logger.info(f"{len(v.basis)} modules, in {zero} of which a held-out pair has no gradient (SHOULD be 0)")
    bottom_line(config.vhack, verdict.status, f"verify {verdict.status}: {verdict.why}")
    return exit_code([verdict], ["verify"])


if __name__ == "__main__":
    cli.run(main)
