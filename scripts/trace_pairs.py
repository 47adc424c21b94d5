"""Preference pairs from the disagreement of frozen teachers: what `train --trace-weight` learns from. The teachers' rollouts
of the student's problems vote, or their answers at each state of the student's traces (`just ask-teachers`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.config import Common
from projected_grpo.data.preferences import Preferences, write_preferences
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class TracePairsConfig:
    """Whose rollouts are replayed, and who votes."""

    student: Path
    """Folder of the student's rollouts: a pool of `just probe-teacher-pool` (`--teacher ''`: of the model as it is), or a
    run of `just train`. Or, with --answers, a trace file of `just multi-turn`."""
    out: Path
    """File to write: .jsonl, or .jsonl.gz. Must not exist yet, or hold the very same pairs."""
    teachers: tuple[Path, ...] = ()
    """Folders of the same problems' rollouts, one a teacher, three or more of an odd number: the majority decides."""
    answers: NoPath = Path()
    """Folder of `just ask-teachers` on the states of the trace file (`just traces FILE --to states`)."""
    model: str = Common.model
    """The student, for --answers: its tokenizer reads them, its log-probabilities tell pairs from random ones."""
    base_seed: int = Common.base_seed
    """Which build of a model that is made here."""
    dtype: Literal["float32", "bfloat16"] = Common.dtype
    """Type of its frozen weights."""
    cache: Path = Common.cache
    """Where built models are kept."""


def from_pools(config: TracePairsConfig) -> tuple[Preferences, str, str]:
    """Returns the pairs, a cue and what was found. One state a trace; who votes has sampled the same problems."""
    from projected_grpo.traces.votes import pairs_of_pools

    if (n := len(config.teachers)) < 3 or not n % 2:
        raise BadInput(f"--teachers: {n} of them; a majority needs three or more, of an odd number")
    found = pairs_of_pools(config.student, config.teachers)
    made_from = {"student": str(config.student), "teachers": [str(t) for t in config.teachers]}
    made = Preferences(tuple(found.pairs), found.traces, found.traces, found.tokenizer_hash, made_from)
    return made, "🟢", f"left out {found.cut} traces that were cut and {found.without} that a teacher was not asked"


def from_answers(config: TracePairsConfig) -> tuple[Preferences, str, str]:
    """The same from several states a trace; who votes was asked at each. The verdict decides no exit code.

    BadInput on traces that are not of --model as it is: pairs are numbered by its log-probabilities.
    """
    from projected_grpo.traces.answers import read_answers
    from projected_grpo.traces.file import open_traces
    from projected_grpo.traces.votes import from_random, pairs_of_answers
    from projected_grpo.verdicts.registry import CLAIMS
    from projected_grpo.verdicts.teachers import Votes
    from projected_grpo.worlds.models import load_model

    answers = read_answers(config.answers)
    loaded = load_model(config.model, config.dtype, "cpu", config.base_seed, config.cache)
    header, read = open_traces(config.student)
    header.check_model(config.student, loaded.weights_hash, loaded.tokenizer_hash)
    traces = list(read)
    for trace in traces:
        if trace.source == "teacher" or trace.policy_step:
            raise BadInput(
                f"--student {config.student}: trace {trace.trace_id} is of another policy than --model {config.model} as it "
                "is; sample the traces with `just multi-turn`"
            )
    found = pairs_of_answers(loaded, traces, answers)
    kl = from_random(loaded, found)
    numbers = (kl.kl, kl.null, kl.p) if kl else (None, None, None)
    verdict = CLAIMS["pairs"].judged(Votes(found.traces, found.problems, len(found.pairs), *numbers, found.elsewhere))
    made_from = {
        "student": str(config.student), "answers": str(config.answers), "verdict": verdict.status, **verdict.numbers
    }  # fmt: skip
    made = Preferences(tuple(found.pairs), found.traces, found.steps, loaded.tokenizer_hash, made_from)
    return (
        made,
        verdict.status,
        f"{verdict.status}: {verdict.why}; left out {found.cut} states in which an action was cut",
    )


def main() -> None:
    config = cli.parse_plain(TracePairsConfig, __doc__)
    made, cue, found = from_pools(config) if config.answers == Path() else from_answers(config)
    if not made.pairs:
        raise BadInput(f"{config.student}: no pair from {made.steps} states: no majority, or all agree with the student; "
                       f"{found}; ask the teachers at a lower temperature, or for longer answers")  # fmt: skip
    write_preferences(config.out, made)
    bottom_line(config.out, cue, f"{len(made.pairs)} pairs of {made.traces} traces, {made.steps} states; {found}")


if __name__ == "__main__":
    cli.run(main)
