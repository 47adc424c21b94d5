"""Preference pairs from the disagreement of frozen teachers: what `train --trace-weight` learns from. The teachers' rollouts
of the student's problems vote, or their answers at each state of the student's traces (`just ask-teachers`)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.data.preferences import MAJORITY, Preferences, write_preferences
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli
from projected_grpo.traces.record import Trace, open_traces


@dataclass(frozen=True)
class TracePairsConfig:
    """Whose rollouts are replayed, and who votes."""

    student: Path
    """Folder of the student's rollouts: a pool of `just probe-teacher-pool` (`--teacher ''`: of the model as it is), or a
    run of `just train`. Or a trace file of `just multi-turn` or `just traces`, with --answers."""
    out: Path
    """File to write: .jsonl, or .jsonl.gz. Must not exist yet, or hold the very same pairs."""
    teachers: tuple[Path, ...] = ()
    """Folders of the same problems' rollouts, one a teacher, three or more of an odd number: the majority decides."""
    answers: NoPath = Path()
    """Folder of `just ask-teachers` on the trace file."""
    model: str = ""
    """The student, for --answers: its tokenizer reads them, its log-probabilities tell pairs from random ones."""
    base_seed: int = 0
    """Which build of a model that is made here."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of its frozen weights."""
    cache: Path = Path("out/cache")
    """Where built models are kept."""

    def validate(self) -> None:
        """BadInput on what can have no majority."""
        if self.student.is_file():
            if self.answers == Path() or self.teachers:
                raise BadInput(
                    f"--student {self.student}: a file of traces, with which --answers FOLDER goes, not --teachers"
                )
            if not self.model:
                raise BadInput("--answers: needs --model, the student that the traces are of")
        elif self.answers != Path():
            raise BadInput(f"--student {self.student}: --answers goes with a trace file, and this is none")
        elif len(self.teachers) < 3 or not len(self.teachers) % 2:
            raise BadInput(
                f"--teachers: {len(self.teachers)} of them; a majority needs three or more, of an odd number"
            )


Made = tuple[Preferences, int, str, str]
"""Pairs, how many teachers voted, status, and what was found in words."""


def from_pools(config: TracePairsConfig) -> Made:
    """One state a trace; who votes has sampled the same problems."""
    from projected_grpo.traces.votes import pairs_of_pools

    found = pairs_of_pools(config.student, config.teachers)
    if not found.pairs:
        raise BadInput(f"{config.student}: no pair from {found.traces} traces ({found.left_out} left out): no majority, or "
                       "all agree with the student; sample the teachers at a lower --temperature")  # fmt: skip
    made_from = {"student": str(config.student), "teachers": [str(t) for t in config.teachers]}
    made = Preferences(tuple(found.pairs), found.traces, found.steps, found.tokenizer_hash, made_from)
    said = f"{len(found.pairs)} pairs of {found.traces} traces; left out {found.left_out}: cut, or a teacher not asked"
    return made, len(config.teachers), "🟢", said


def from_answers(config: TracePairsConfig) -> Made:
    """Several states a trace; who votes was asked at each. The verdict on the pairs is printed and decides no exit code."""
    from projected_grpo.traces.teachers import read_answers
    from projected_grpo.traces.votes import from_random, pairs_of_answers
    from projected_grpo.verdicts import teachers
    from projected_grpo.worlds.models import load_model

    answers = read_answers(config.answers)
    loaded = load_model(config.model, config.dtype, "cpu", config.base_seed, config.cache)
    header, traces = open_traces(config.student)
    header.check_model(config.student, loaded.weights_hash, loaded.tokenizer_hash)
    found = pairs_of_answers(loaded, of_the_untrained(traces, config), answers)
    if not found.pairs:
        raise BadInput(f"{config.student}: no pair from {found.steps} states ({found.left_out} more with a cut action): "
                       "no majority, or all agree with the student; raise max_tokens, or ask at temperature 0")  # fmt: skip
    kl = from_random(loaded, found)
    numbers = {name: getattr(kl, name, None) for name in ("kl", "null", "p")}
    verdict = teachers.pairs(
        traces=found.traces, problems=len(found.problems), pairs=len(found.pairs), elsewhere=found.elsewhere, **numbers
    )
    made_from = {"student": str(config.student), "answers": str(config.answers), "verdict": verdict.status, **numbers}
    made = Preferences(tuple(found.pairs), found.traces, found.steps, found.tokenizer_hash, made_from)
    said = f"{verdict.status}: {verdict.why}; left out {found.left_out} states in which an action was cut"
    return made, len(answers.teachers), verdict.status, said


def of_the_untrained(traces: Iterable[Trace], config: TracePairsConfig) -> Iterator[Trace]:
    """The traces, if --model as it is wrote them: pairs are numbered by its log-probabilities. BadInput else."""
    for trace in traces:
        if trace.source == "teacher" or trace.policy_step:
            who = "a teacher" if trace.source == "teacher" else f"the policy after {trace.policy_step} steps"
            raise BadInput(
                f"--student {config.student}: trace {trace.trace_id} is of {who}, not of --model {config.model} as it is; "
                "sample the traces with `just multi-turn`"
            )
        yield trace


def main() -> int:
    config = cli.parse_plain(TracePairsConfig, __doc__)
    config.validate()
    made, teachers, status, said = (from_answers if config.student.is_file() else from_pools)(config)
    write_preferences(config.out, made)
    over = sum(p.reason == MAJORITY for p in made.pairs)
    bottom_line(config.out, status, said, [
        ["teachers", "traces", "states", "pairs", "a trace", "majority over student", "student over minority"],
        [teachers, made.traces, made.steps, len(made.pairs), made.per_trace, over, len(made.pairs) - over],
    ])  # fmt: skip
    return 0


if __name__ == "__main__":
    cli.run(main)
