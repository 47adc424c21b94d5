"""Speed and memory of every part as ratios to a named baseline measured in the same run; writes docs/bench.md.

Exit code 1 when a bar is missed, or when the two sides of a ratio did not do the same work.
"""

from projected_grpo.bench.settings import SEED, WARMUP, BenchConfig
from projected_grpo.ledger.errors import EXIT_FAILED
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(BenchConfig, __doc__)
    config.validate()
    import dataclasses
    from pathlib import Path

    import torch
    from loguru import logger

    from projected_grpo.bench import document
    from projected_grpo.bench.grading import SOURCE
    from projected_grpo.bench.measure import UnequalWork
    from projected_grpo.bench.parts import measure
    from projected_grpo.bench.setup import build_bench
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.folder import versions
    from projected_grpo.model.load import pick_device

    place = pick_device(config.device)
    gpu = torch.cuda.get_device_name(place) if place.type == "cuda" else None
    facts = document.machine(versions(("torch", "transformers", "trl")), torch.get_num_threads(), gpu)
    bench, figures = build_bench(config), []
    try:
        for part in config.parts:
            logger.info(f"measuring {part}")
            for figure in measure(bench, part):
                logger.info(f"  {figure.what}: {document.figure_text(figure)} {figure.verdict}")
                figures.append(figure)
    except UnequalWork as e:
        cli.fail(str(e), EXIT_FAILED)
    prompts = bench.prompt_lengths
    settings = {
        **dataclasses.asdict(bench.sizes), "grading_problems": f"{bench.sizes.grading_problems} of {Path(SOURCE).name}",
        "prompt_tokens": f"{min(prompts)} to {max(prompts)}", "repeats": bench.repeats, "warmup": WARMUP,
        "seed": SEED, "parameters": f"{sum(p.numel() for p in bench.loaded.model.parameters()):,}",
    }  # fmt: skip
    document.write(config.document, figures, bench.notes, facts, settings)
    print(document.table(figures, "simple"))
    for note in bench.notes:
        logger.warning(note)
    missed = [f.what for f in figures if f.verdict == "MISS"]
    judged = sum(f.bar is not None for f in figures)
    told = f"{judged - len(missed)} of {judged} bars reached" + (f"; missed: {'; '.join(missed)}" if missed else "")
    bottom_line(config.document, "FAIL" if missed else "PASS", told)
    return EXIT_FAILED if missed else 0


if __name__ == "__main__":
    cli.run(main)
