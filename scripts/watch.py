"""A live terminal page of one run, or of every link of a queue's folder: hack, gt, form and cosines as sparklines, time
left, the end of the log. It reads files alone. A finished run, or no terminal, is one plain page."""

import time

from projected_grpo.run import cli
from projected_grpo.watch.settings import WatchConfig

PLAIN = 120
"""Columns of a page that nobody watches."""


def main() -> int:
    config = cli.parse_plain(WatchConfig, __doc__)
    config.validate()
    from rich.console import Console
    from rich.live import Live

    from projected_grpo.watch.page import Watched

    watched = Watched(config.run, config.lines)
    watched.look()
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN
    if console.is_terminal and not config.once and not watched.finished:
        try:
            with Live(watched.page(time.time()), console=console, screen=True, auto_refresh=False) as live:
                while not watched.finished:
                    time.sleep(config.every)
                    watched.look()
                    live.update(watched.page(time.time()), refresh=True)
        except KeyboardInterrupt:  # how one stops watching
            pass
    console.print(watched.page(time.time()))
    return 0


if __name__ == "__main__":
    cli.run(main)
