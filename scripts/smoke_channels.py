"""The composition smoke: five steps on the tiny model with every channel on; each loss must fall. Exit code 1 if one does
not."""

from dataclasses import dataclass
from pathlib import Path

from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
from projected_grpo.run import cli


@dataclass(frozen=True)
class SmokeConfig:
    """Where built models are kept."""

    cache: Path = Path("out/cache")
    """As in every script."""


def main() -> int:
    config = cli.parse_plain(SmokeConfig, __doc__)
    from tabulate import tabulate

    from projected_grpo.adapters import attach_antipasto
    from projected_grpo.run.composition import SEED, composed, not_falling, rows_of
    from projected_grpo.worlds.models import load_model

    loaded, teacher = (load_model("tiny", "float32", "cpu", SEED, config.cache, name) for name in (None, "tiny"))
    adapter = attach_antipasto(loaded.model, config.cache / "svd")
    told = composed(loaded, adapter, rows_of(loaded, teacher))
    names = list(told[0])
    print(
        tabulate(
            [[step, *(of[name]["loss"] for name in names)] for step, of in enumerate(told)], ["steps done", *names]
        )
    )
    if still := not_falling(told):
        print(f"🔴 FAIL: the loss of {', '.join(still)} does not fall: its gradient does not reach the optimizer")
        return EXIT_FAILED
    print(f"🟢 PASS: each of {len(names)} losses fell in {len(told) - 1} steps")
    return EXIT_OK


if __name__ == "__main__":
    cli.run(main)
