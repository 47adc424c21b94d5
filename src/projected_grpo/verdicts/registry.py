"""Claims: what is judged, from which evidence, by which function. One entry a verdict; everything that lists verdicts
(--require, the UAT, the report) reads this registry. How to add one: docs/extending.md.

Definitions, thresholds and the sneaky fail that must turn each one red are fixed in docs/spec.md. No numpy and no torch
here: a judge is imported when it is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_NOT_EVALUABLE, EXIT_OK
from projected_grpo.ledger.step_file import Row

Status = Literal["PASS", "FAIL", "NOT_EVALUABLE"]


@dataclass(frozen=True)
class Finding:
    """A verdict with the numbers it rests on."""

    name: str
    status: Status
    why: str
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A verdict with the clauses that it rests on."""

    verdict: Finding
    clauses: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    """Numbers that are printed with it and decide nothing."""

    @property
    def decided(self) -> str:
        """What decided it: of a FAIL the first clause that fails, with its numbers, and the names of the others."""
        failed = [c for c in self.clauses if c.status == "FAIL"]
        if self.verdict.status != "FAIL" or not failed:
            return self.verdict.why
        others = ", ".join(c.name for c in failed[1:])
        return f"{failed[0].name}: {failed[0].why}" + (f"; also: {others}" if others else "")


@dataclass(frozen=True)
class Evidence:
    """What the verdicts of the probe are judged from: rows of the teacher's pool and of its two replays."""

    pool: Sequence[Row]
    vanilla: Sequence[Row]
    projected: Sequence[Sequence[Row]]
    """Steps, one group (one problem) each."""
    losses: tuple[Sequence[Row], Sequence[Row]] | None = None
    """Rows of the vanilla replay against a V of --loss nll, and of the same against one of --loss grpo; None without the
    second."""


@dataclass(frozen=True)
class Claim:
    """One entry."""

    name: str
    says: str
    """What holds when it passes, in at most 8 words."""
    reads: Literal["pool", "vanilla", "projected", "losses", "pairs", "runs", "answers", "votes"]
    """Its evidence: a field of Evidence; held-out pairs (verify_vhack); finished runs (results); teachers' answers
    (ask_teachers); what they voted for (trace_pairs)."""
    judge: str
    """`module:function` that judges it: from the evidence to a Finding (of runs: from groups and runs to one H1, or one
    Line of clauses, each)."""
    decides: bool = True
    """Whether it may decide an exit code; otherwise it is printed next to those that do."""

    def judged(self, *evidence: Any) -> Any:
        """What the judge says of the evidence."""
        module, _, function = self.judge.partition(":")
        judge: Callable[..., Any] = getattr(import_module(module), function)
        return judge(*evidence)


_HERE = "projected_grpo.verdicts"
CLAIMS: Mapping[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim("verify", "V is hack-ward on held-out pairs", "pairs", f"{_HERE}.held_out:vhack_verdict"),
        Claim("T1", "the teacher hacks", "pool", f"{_HERE}.probe:t1"),
        Claim("T2", "gradients are real and of the right tokens", "vanilla", f"{_HERE}.probe:t2"),
        Claim("T3", "projection removes V", "projected", f"{_HERE}.probe:t3"),
        Claim("T4", "V separates pure hacks from hack-and-correct", "vanilla", f"{_HERE}.probe:t4"),
        Claim("T4+", "V separates hacked from clean", "vanilla", f"{_HERE}.probe:t4_companion", decides=False),
        Claim("T5", "GRPO pushes towards hacking, projection slows it", "runs", f"{_HERE}.trajectory:judge"),
        Claim("T7", "V of the training loss separates as well", "losses", f"{_HERE}.extraction:t7", decides=False),
        Claim("T6", "a LoRA keeps 80 % of the reduction", "runs", f"{_HERE}.adapters:t6_of"),
        Claim("teachers", "teachers are cheap and fast enough", "answers", f"{_HERE}.teachers:judge"),
        Claim("pairs", "teachers' votes give enough pairs", "votes", f"{_HERE}.teachers:pairs"),
        Claim("H1", "projection lowers hacking at a matched pass rate", "runs", f"{_HERE}.h1:judge"),
    )
}


ON_PROBE = tuple(claim for claim in CLAIMS.values() if claim.reads in ("pool", "vanilla", "projected", "losses"))
"""What is judged from the probe's runs."""


def of_probe(evidence: Evidence) -> list[Finding]:
    """Returns the finding of every claim on the probe whose evidence is there."""
    return [c.judged(getattr(evidence, c.reads)) for c in ON_PROBE if getattr(evidence, c.reads) is not None]


REQUIRABLE = tuple(claim.name for claim in ON_PROBE if claim.decides)
"""Verdicts of the probe that may decide an exit code."""
if TYPE_CHECKING:
    UatClaim = str
else:
    UatClaim = Literal[REQUIRABLE]


def exit_code(findings: Sequence[Finding], required: Sequence[str]) -> int:
    """0 when every required one passes, 1 when one fails, else 3: also when one is not there at all, or none is required."""
    states = {f.status for f in findings if f.name in required}
    if "FAIL" in states:
        return EXIT_FAILED
    missing = set(required) - {f.name for f in findings}
    return EXIT_OK if states == {"PASS"} and not missing else EXIT_NOT_EVALUABLE
