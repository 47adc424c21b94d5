"""What fits my GPU: peak memory, FLOPs and a time bound of sampling, extraction, training and evaluation, for any preset and
model, on a CPU, in seconds to minutes: the project's own code runs on fake tensors of the real shapes.

Exit code 1 when nothing of what was asked for fits, and with --measure where a stage took more or less than a tenth of what
was predicted (docs/fits.md).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from projected_grpo.fits.settings import FitsConfig, fits_presets
from projected_grpo.run import cli

if TYPE_CHECKING:
    from projected_grpo.fits.estimate import Job


def main() -> int:
    config = cli.parse(fits_presets(), __doc__)
    config.validate()
    from loguru import logger

    from projected_grpo.fits.cards import cards_of

    cards = cards_of(config.gpu)
    logger.info(
        f"{config.model}: every stage once on fake tensors of its shapes; seconds for a tiny model, two minutes for "
        "preset small, longer for more layers"
    )
    from projected_grpo.fits.estimate import jobs_of, stages_of
    from projected_grpo.fits.fake import fake_loaded
    from projected_grpo.fits.graph import decoding_step
    from projected_grpo.fits.lengths import lengths_of
    from projected_grpo.fits.told import remarks, table, verdict
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
    from projected_grpo.run.shapes import chat_of, shape_of

    shape, tokenizer = shape_of(config.model)
    lengths = lengths_of(config, tokenizer, tokenizer or chat_of(), shape.max_position_embeddings, config.prompt_tokens)
    jobs = jobs_of(config, lengths)
    if config.measure:
        return measured(config, shape, jobs)
    card = config.device != "cpu"
    stages = stages_of(config, shape, jobs, card=card)
    print(table(stages, cards))
    if card:
        loaded = fake_loaded(shape, config.dtype, card=True)
        operators = decoding_step(loaded, [(1,) * lengths.prompt], min(2, config.group_size))
        print(
            f"a decoding step: {operators:,} operators, none of which the host waits for (a CUDA graph can record it)"
        )
    for line in remarks(config, lengths, tokenizer is not None):
        print(line)
    verdicts = [verdict(card, stages) for card in cards]
    for line in verdicts:
        print(line.told)
    fitting = [v.card.name for v in verdicts if v.fits]
    peak = max(s.peak for s in stages) / 2**30
    told = f"fits {', '.join(fitting)}" if fitting else f"does not fit {', '.join(c.name for c in cards)}"
    bottom_line(None, "🟢" if fitting else "🔴", f"{config.model}: peak {peak:.2f} GiB and margins: {told}")
    return EXIT_OK if fitting else EXIT_FAILED


def measured(config: FitsConfig, shape: Any, jobs: Sequence["Job"]) -> int:
    """Every stage here, for real, beside what is predicted for this kind of device."""
    from projected_grpo.fits.estimate import stages_of
    from projected_grpo.fits.measured import TOLERANCE, measure, told
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
    from projected_grpo.model.load import pick_device

    device = pick_device(config.device)
    found = measure(config, shape, jobs, stages_of(config, shape, jobs, card=device.type == "cuda"), device)
    print(told(found))
    close = sum(m.close for m in found)
    verdict = f"{close} of {len(found)} stages within {TOLERANCE:.0%} of what was predicted"
    mark, code = ("🟢", EXIT_OK) if close == len(found) else ("🔴", EXIT_FAILED)
    bottom_line(None, mark, f"{config.model}, random weights, on {device}: {verdict}")
    return code


if __name__ == "__main__":
    cli.run(main)
