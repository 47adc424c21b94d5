"""Traces, (state, action, reward) rows: from a finished run or a trace file; written as a trace file, or as
`verifiers` or OpenEnv records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class TracesConfig:
    """What to read, and what to write."""

    what: Annotated[Path, tyro.conf.Positional]
    """A finished run's folder (train, or a teacher's pool), or a trace file."""
    to: Literal["ours", "verifiers", "openenv"] = "ours"
    """`ours`: a trace file. `verifiers`: traces.jsonl of episodes. `openenv`: results.jsonl and metadata.json."""
    out: NoPath = Path()
    """Trace file, or folder for another format. Empty: out/traces/NAME.jsonl.gz or NAME-FORMAT; a trace file is then
    only read."""


def main() -> None:
    config = cli.parse_plain(TracesConfig, __doc__)
    from projected_grpo.traces.formats import export
    from projected_grpo.traces.from_run import traces_of_run
    from projected_grpo.traces.record import open_traces, write_traces

    of_run = config.what.is_dir()
    header, source = traces_of_run(config.what) if of_run else open_traces(config.what)
    if not (traces := list(source)):
        raise BadInput(f"{config.what}: no traces in it")
    name = config.what.resolve().name.removesuffix(".jsonl.gz")
    default = Path("out/traces", f"{name}.jsonl.gz" if config.to == "ours" else f"{name}-{config.to}")
    path = config.out if config.out != Path() else default
    if config.to != "ours":
        export(config.to, path, header, traces)
    elif of_run or config.out != Path():
        write_traces(path, header, traces)
    else:
        path = config.what
    n, turns = len(traces), sum(len(t.steps) for t in traces)
    said = f"{n} traces of {turns} turns, {sum(len(t.steps) > 1 for t in traces)} with two or more"
    bottom_line(path, "🟢", said, [
        ["model", "from", "traces", "turns", "last_reward"],
        [header.model, header.made_by, n, turns, sum(t.steps[-1].reward for t in traces) / n],
    ])  # fmt: skip


if __name__ == "__main__":
    cli.run(main, on_interrupt="interrupted; nothing is written, the same command starts anew")
