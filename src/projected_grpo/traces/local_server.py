"""Models of this machine as an endpoint: `transformers serve`, started, waited for and stopped."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.processes import die_with_parent, end

HOST = "127.0.0.1"
GRACE_S, PATIENCE_S = 10.0, 300.0
"""How long a server may take to end before it is killed, and to come up."""


@contextlib.contextmanager
def served(folders: Sequence[Path], port: int, log: Path) -> Generator[str]:
    """The URL of an endpoint that serves the models in these folders, for as long as the context lasts; it logs into
    `log`.

    Greedy or sampled as each request asks, with thinking switched off in the chat template, as in every prompt of
    ours. A model's name is str(folder). One model is loaded before the endpoint is up, and other names are refused by
    the server; each of several at its first request. BadInput when the port is taken, or the server does not come up.
    """
    try:
        socket.create_server((HOST, port)).close()
    except (OSError, OverflowError) as e:
        raise BadInput(f"--port {port}: cannot be listened on ({e}); choose another") from e
    models = map(str, folders) if len(folders) == 1 else ("--model-timeout", "-1")
    argv = [sys.executable, "-m", "transformers.cli.transformers", "serve", *models, "--reasoning", "off", "--host", HOST,
            "--port", str(port)]  # fmt: skip
    with log.open("ab") as out:
        # a new session: Ctrl-C at the terminal is for us, and we end it; where we are killed, it ends all the same
        server = subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent
        )
    # without the proxy of the environment, which does not know this machine's servers
    direct, deadline = urllib.request.build_opener(urllib.request.ProxyHandler({})), time.monotonic() + PATIENCE_S
    try:
        up = False
        while not up and server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), direct.open(f"http://{HOST}:{port}/health", timeout=5):
                up = True
            time.sleep(0.2)
        if not up:
            said = " ".join(log.read_text("utf-8", "replace").split())[-200:]
            raise BadInput(f"`transformers serve` is not up (exit code {server.poll()}): {said}; {log} has it all")
        yield f"http://{HOST}:{port}/v1"
    finally:
        end(server, GRACE_S)


def table_of(url: str, model: str, name: str, max_tokens: int) -> str:
    """The [[teacher]] table that asks it. What this machine costs is for the reader to put in."""
    return (
        f'[[teacher]]\nname = "{name}"\nurl = "{url}"\nmodel = "{model}"\n'
        "usd_per_million_in = 0   # 0: the verdict on the cost is NOT_EVALUABLE\nusd_per_million_out = 0\n"
        f"max_tokens = {max_tokens}\n"
    )
