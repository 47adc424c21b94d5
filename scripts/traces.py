"""Traces, (state, action, reward) rows: from a finished run, from a trace file, from another project's records; written as
a trace file, as `verifiers` or OpenEnv records, or as the states that teachers are asked about. A trace file is checked from
its first byte to its last."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.ledger.console import bottom_line, progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class TracesConfig:
    """What to read, and what to write."""

    what: Annotated[Path, tyro.conf.Positional]
    """A finished run's folder (train, or a teacher's pool), a trace file, or with --read-as a folder of records."""
    read_as: Literal["ours", "verifiers", "openenv"] = "ours"
    """`ours`: a run or a trace file. Else WHAT is a folder with that project's file in it."""
    to: Literal["ours", "verifiers", "openenv", "states"] = "ours"
    """`ours`: a trace file. `verifiers`: traces.jsonl of episodes. `openenv`: results.jsonl and metadata.json. `states`: a
    file for `just ask-teachers`, the chat before each action."""
    out: NoPath = Path()
    """Trace file, file of states, or folder for another format. Empty: out/traces/NAME.jsonl.gz, NAME-states.jsonl.gz,
    NAME-FORMAT; a trace file is then only checked."""
    model: str = ""
    """Refuse traces that were not sampled from this model: a name or folder, loaded for its hashes. Empty: not compared."""
    base_seed: int = 0
    """Which build of a model that is made here."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of its frozen weights, which is in their hash."""
    cache: Path = Path("out/cache")
    """Where built models are kept."""


def hashes(config: TracesConfig) -> dict[str, str]:
    """Of the model at hand."""
    if not config.model:
        return {}
    from projected_grpo.run.models import load_model

    loaded = load_model(config.model, config.dtype, "cpu", config.base_seed, config.cache)
    return {"model_hash": loaded.weights_hash, "tokenizer_hash": loaded.tokenizer_hash}


def main() -> int:
    config = cli.parse_plain(TracesConfig, __doc__)
    from projected_grpo.traces.exchange import export, imported, write_states
    from projected_grpo.traces.file import open_traces, write_traces
    from projected_grpo.traces.from_run import traces_of_run
    from projected_grpo.traces.record import Trace

    mine = hashes(config)
    if config.read_as != "ours":
        header, traces = imported(config.read_as, config.what)
    elif config.what.is_dir():
        header, traces = traces_of_run(config.what)
    else:
        header, traces = (found := open_traces(config.what)).header, iter(found)
    for name, value in mine.items():
        if getattr(header, name) != value:
            raise BadInput(f"{config.what}: its {name} is {getattr(header, name)}, --model {config.model}'s is {value}")

    told = {"traces": 0, "turns": 0, "two turns or more": 0, "without logps": 0, "reward": 0.0}

    def counted(source: Iterable[Trace]) -> Iterable[Trace]:
        for trace in progress(source, "traces"):
            told["traces"] += 1
            told["turns"] += len(trace.steps)
            told["two turns or more"] += len(trace.steps) > 1
            told["without logps"] += any(step.action.logps is None for step in trace.steps)
            told["reward"] += trace.rewards[-1]
            yield trace

    name = config.what.resolve().name.removesuffix(".jsonl.gz")
    place = config.out if config.out != Path() else Path("out/traces") / (
        {"ours": f"{name}.jsonl.gz", "states": f"{name}-states.jsonl.gz"}.get(config.to, f"{name}-{config.to}")
    )  # fmt: skip
    only_checked = config.what.is_file() and config.to == "ours" and config.out == Path()
    if only_checked:
        place = config.what
        for _ in counted(traces):
            pass
    elif config.to == "ours":
        write_traces(place, header, counted(traces))
    elif config.to == "states":
        write_states(place, counted(traces))
    else:
        export(config.to, place, header, counted(traces))
    n = int(told["traces"])
    bare = f"; {told['without logps']:.0f} have no log-probability of each token" if told["without logps"] else ""
    bottom_line(
        place,
        "🟢",
        f"{n} traces of {told['turns']:.0f} turns {'whole' if only_checked else 'written'}, {told['two turns or more']:.0f} "
        f"with two or more{bare}",
        [["model", "from", "traces", "turns", "last_reward"],
         [header.model, header.made_by, n, int(told["turns"]), told["reward"] / n]],
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt="interrupted; nothing is written, the same command starts anew")
