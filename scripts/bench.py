"""Speed and memory of every part as ratios to a named baseline measured in the same run; writes docs/bench.md.

Exit code 1 when a bar is missed, or when the two sides of a ratio did not do the same work.
"""

from projected_grpo.bench.settings import BenchConfig, sizes_for
from projected_grpo.ledger.errors import EXIT_FAILED
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(BenchConfig, __doc__)
    config.validate()
    import dataclasses

    import torch
    from loguru import logger

    from projected_grpo.bench import document
    from projected_grpo.bench.measure import UnequalWork
    from projected_grpo.bench.parts import Bench
    from projected_grpo.bench.world import build_world
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import versions
    from projected_grpo.model.load import pick_device

    if config.threads:
        torch.set_num_threads(config.threads)
    place = pick_device(config.device)
    gpu = torch.cuda.get_device_name(place) if place.type == "cuda" else None
    facts = document.machine(versions(("torch", "transformers", "trl")), torch.get_num_threads(), gpu)
    sizes = sizes_for(place.type, quick=config.quick)
    bench = Bench(config, build_world(sizes, config.device, config.seed))
    try:
        for part in config.parts:
            logger.info(f"measuring {part}")
            for figure in bench.measure(part):
                logger.info(f"  {figure.what}: {document.ratio_text(figure)} {figure.verdict}")
    except UnequalWork as e:
        cli.fail(str(e), EXIT_FAILED)
    prompts = [len(p.ids) for p in bench.world.prompts]
    settings = {
        **dataclasses.asdict(sizes), "prompt_tokens": f"{min(prompts)} to {max(prompts)}", "repeats": bench.repeats,
        "warmup": config.warmup, "seed": config.seed,
        "parameters": f"{sum(p.numel() for p in bench.world.loaded.model.parameters()):,}",
    }  # fmt: skip
    document.write(config.document, bench.figures, bench.notes, facts, settings)
    print(document.table(bench.figures, "simple"))
    for note in bench.notes:
        logger.warning(note)
    missed = [f.what for f in bench.figures if f.verdict == "MISS"]
    judged = sum(f.bar is not None for f in bench.figures)
    bottom_line(
        config.document, "FAIL" if missed else "PASS",
        f"{judged - len(missed)} of {judged} bars reached" + (f"; missed: {'; '.join(missed)}" if missed else ""),
    )  # fmt: skip
    return EXIT_FAILED if missed else 0


if __name__ == "__main__":
    cli.run(main)
