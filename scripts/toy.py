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

    from projected_grpo.chains.here import run_chain
    from projected_grpo.chains.run_link import log_of
    from projected_grpo.ledger.console import bottom_line

    links = chain_of(config.planned("toy", config.out, config.model), config.study)
    if config.dry:
        for link in links:
            logger.info(f"{link.name:24} after {', '.join(link.needs) or '-'}: {link.command}")
        return 0
    code = run_chain(links, config.out, config.threads or cores())
    for name in ("uat", "results"):
        log = log_of(name, config.out)
        if log.exists():
            print(f"\n── {name} ──\n{log.read_text('utf-8').rpartition('$ python')[2].partition(chr(10))[2]}")
    bottom_line(config.out, "🟢" if code == 0 else "🔴", f"toy chain of {len(links)} links: exit code {code}")
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
