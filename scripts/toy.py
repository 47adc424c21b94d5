"""The whole science on a laptop: build the toy world, then every arm and control, then the results.

Can be stopped at any point and started again: what is finished is skipped, what was cut is resumed.
"""

import sys

from projected_grpo.chains.settings import ToyConfig
from projected_grpo.chains.studies import chain_of
from projected_grpo.parallel import cores
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(ToyConfig, __doc__)
    config.validate()
    from loguru import logger

    from projected_grpo.chains.here import run_chain, show_ends
    from projected_grpo.ledger.console import bottom_line

    links = chain_of(config.planned("toy", config.out, config.model), config.study)
    if config.dry:
        for link in links:
            logger.info(f"{link.name:24} after {', '.join(link.needs) or '-'}: {link.command}")
        return 0
    code = run_chain(links, config.out, config.threads or cores())
    show_ends(config.out)
    bottom_line(config.out, "🟢" if code == 0 else "🔴", f"toy chain of {len(links)} links: exit code {code}")
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
