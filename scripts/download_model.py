"""Fetch Qwen3-4B and the rh-s65 teacher into the hub cache. Everything else here only reads that cache."""

from dataclasses import dataclass

from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import QWEN
from projected_grpo.run import cli


@dataclass(frozen=True)
class DownloadConfig:
    """What to fetch."""

    repos: tuple[str, ...] = (QWEN["model"], QWEN["teacher"])
    """Hub repositories."""


def main() -> int:
    config = cli.parse_plain(DownloadConfig, __doc__)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from loguru import logger

    for repo in config.repos:
        try:
            folder = snapshot_download(repo)
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as e:
            raise BadInput(
                f"{repo}: the hub did not give it ({type(e).__name__}); check the name, the network and `hf auth login`"
            ) from e
        logger.info(f"🟢 {repo} in {folder}")
    return 0


if __name__ == "__main__":
    cli.run(main)
