"""Traces, (state, action, reward) rows: from a finished run or a trace file; written with --out as a trace file, as
`verifiers` or OpenEnv records, or as the states that teachers are asked about."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class TracesConfig:
    """What to read, and what to write."""

    what: Annotated[Path, tyro.conf.Positional]
    """A finished run's folder (train, or a teacher's pool), or a trace file."""
    to: Literal["ours", "verifiers", "openenv", "states"] = "ours"
    """`ours`: a trace file. `verifiers`: traces.jsonl of episodes. `openenv`: results.jsonl and metadata.json. `states`: a
    file for `just ask-teachers`, the chat before each action."""
    out: NoPath = Path()
    """Trace file, file of states, or folder for another format. Empty: only read and count."""


def main() -> None:
    config = cli.parse_plain(TracesConfig, __doc__)
    from projected_grpo.traces.exchange import export
    from projected_grpo.traces.file import open_traces, write_traces
    from projected_grpo.traces.from_run import traces_of_run
    from projected_grpo.traces.states import write_states

    header, source = traces_of_run(config.what) if config.what.is_dir() else open_traces(config.what)
    traces, out, done = list(source), config.out, "written"
    if out == Path():
        out, done = config.what, "read; --out writes them"
    elif config.to == "ours":
        write_traces(out, header, traces)
    elif config.to == "states":
        write_states(out, traces)
    else:
        export(config.to, out, header, traces)
    n, turns = len(traces), [len(trace.steps) for trace in traces]
    without = sum(any(step.action.logps is None for step in trace.steps) for trace in traces)
    bottom_line(
        out,
        "🟢",
        f"{n} traces of {sum(turns)} turns {done}, {sum(t > 1 for t in turns)} with two or more; {without} have no "
        f"log-probability of each token (--keep-token-logps); made by {header.made_by} of {header.model}",
    )


if __name__ == "__main__":
    cli.run(main, on_interrupt="interrupted; nothing is written, the same command starts anew")
