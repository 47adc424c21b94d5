"""Preference pairs from the disagreement of frozen teachers: what `train --trace-weight` learns from. The teachers'
rollouts of the student's problems vote, or their answers at each state of the student's traces (`just
ask-teachers`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from projected_grpo.data.preferences import MAJORITY, Preferences, write_preferences
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class TracePairsConfig:
    """Whose rollouts are replayed, and who votes."""

    student: Path
    """Folder of the student's rollouts: a pool of `just probe-teacher-pool` (`--teacher ''`: of the model as it is),
    or a run of `just train`. Or a trace file of `just multi-turn` or `just traces`, with --answers."""
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
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    cache: Path = Path("out/cache")
    """Where built models are kept."""

    def validate(self) -> None:
        """BadInput on what can have no majority."""
        if self.student.is_file() and (self.answers == Path() or not self.model or self.teachers):
            raise BadInput(
                f"--student {self.student}: a file of traces, which goes with --answers FOLDER and --model, not --teachers"
            )
        if not self.student.is_file() and (self.answers != Path() or self.model):
            raise BadInput(
                f"--student {self.student}: no file of traces, so --answers and --model are not used; leave them out"
            )
        if not self.student.is_file() and (len(self.teachers) < 3 or not len(self.teachers) % 2):
            raise BadInput(
                f"--teachers: {len(self.teachers)} of them, and --student {self.student} is no trace file; a majority needs "
                "three or more, of an odd number"
            )


def main() -> int:
    config = cli.parse_plain(TracePairsConfig, __doc__)
    config.validate()
    from projected_grpo.traces.record import open_traces
    from projected_grpo.traces.teachers import read_answers
    from projected_grpo.traces.votes import from_random, pairs_of_answers, pairs_of_pools
    from projected_grpo.verdicts import teachers
    from projected_grpo.worlds.models import load_model

    made_from: dict[str, Any] = {"student": str(config.student)}
    status, said = "🟢", ""
    if config.student.is_file():
        answers, (header, traces) = read_answers(config.answers), open_traces(config.student)
        loaded = load_model(config.model, config.dtype, config.device, config.base_seed, config.cache)
        header.check_model(config.student, loaded.weights_hash, loaded.tokenizer_hash)
        found = pairs_of_answers(loaded, traces, answers)
        kl = from_random(loaded, found)
        numbers = kl._asdict() if kl else dict.fromkeys(("kl", "null", "p"))
        verdict = teachers.pairs(
            traces=len(found.problem_of), problems=len(set(found.problem_of.values())), pairs=len(found.pairs),
            elsewhere=found.elsewhere, **numbers,
        )  # fmt: skip
        status, said = verdict.status, f"{verdict.status}: {verdict.why}"
        made_from |= {"answers": str(config.answers), "verdict": status, **numbers}
    else:
        found = pairs_of_pools(config.student, config.teachers)
        made_from["teachers"] = [str(t) for t in config.teachers]
    left_out = f"{found.left_out} left out: an action was cut, or a teacher not asked"
    if not found.pairs:
        raise BadInput(f"{config.student}: no pair from {found.steps} states ({left_out}): no majority, or all agree with "
                       "the student; ask the teachers at a lower temperature, or for longer answers")  # fmt: skip
    made = Preferences(tuple(found.pairs), len(found.problem_of), found.steps, found.tokenizer_hash, made_from)
    write_preferences(config.out, made)
    n, over = len(made.pairs), sum(p.reason == MAJORITY for p in made.pairs)
    bottom_line(config.out, status, f"{said or f'{n} pairs of {made.traces} traces'}; {left_out}", [
        ["teachers", "traces", "states", "pairs", "a trace", "majority over student", "student over minority"],
        [made.pairs[0].teachers, made.traces, made.steps, n, n / made.traces, over, n - over],
    ])  # fmt: skip
    return 0


if __name__ == "__main__":
    cli.run(main)
