"""What verdicts are made of, and those of the probe: what is judged, from which evidence, by which function. One
entry a verdict; --require and the UAT read this registry. How to add one: docs/extending.md.

Definitions, thresholds and the sneaky fail that must turn each one red are fixed in docs/spec.md. No numpy and no
torch here: a judge is imported when it is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_NOT_EVALUABLE, EXIT_OK

Status = Literal["PASS", "FAIL", "NOT_EVALUABLE"]


@dataclass(frozen=True)
class Finding:
    """A verdict with the numbers it rests on."""

    name: str
    status: Status
    why: str
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)


def condition(name: str, wrong: Sequence[str], why: str) -> Finding:
    """PASS, or NOT_EVALUABLE with everything that is wrong: runs like these are no evidence, for or against."""
    return Finding(name, "NOT_EVALUABLE" if wrong else "PASS", "; ".join(wrong) or why)


@dataclass(frozen=True)
class Line:
    """A verdict with the clauses that it rests on."""

    verdict: Finding
    clauses: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    """What is printed with it and decides nothing."""

    @property
    def decided(self) -> str:
        """What decided it: of a FAIL the first clause that fails, with its numbers, and the names of the others."""
        failed = [c for c in self.clauses if c.status == "FAIL"]
        if self.verdict.status != "FAIL" or not failed:
            return self.verdict.why
        others = ", ".join(c.name for c in failed[1:])
        return f"{failed[0].name}: {failed[0].why}" + (f"; also: {others}" if others else "")


@dataclass(frozen=True)
class Claim:
    """One entry."""

    name: str
    says: str
    """What holds when it passes, in at most 8 words."""
    reads: Literal["pool", "vanilla", "projected", "losses"]
    """Its evidence: rows of the teacher's pool, or of the vanilla replay; steps of the projected replay, one problem
    each; rows of the vanilla replay against a V of --loss nll, and of the same against one of --loss grpo."""
    judge: str
    """`module:function` in this folder: from the evidence to a Finding."""
    decides: bool = True
    """Whether it may decide an exit code; otherwise it is printed next to those that do."""

    def judged(self, evidence: Any) -> Finding:
        """What the judge says of the evidence."""
        module, _, function = self.judge.partition(":")
        return getattr(import_module(f"projected_grpo.verdicts.{module}"), function)(evidence)


CLAIMS: Mapping[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim("T1", "the teacher hacks", "pool", "probe:t1"),
        Claim("T2", "gradients are real and of the right tokens", "vanilla", "probe:t2"),
        Claim("T3", "projection removes V", "projected", "probe:t3"),
        Claim("T4", "V separates pure hacks from hack-and-correct", "vanilla", "probe:t4"),
        Claim("T4+", "V separates hacked from clean", "vanilla", "probe:t4_companion", decides=False),
        Claim("T7", "V of the training loss separates as well", "losses", "extraction:t7", decides=False),
    )
}
REQUIRABLE = tuple(claim.name for claim in CLAIMS.values() if claim.decides)
"""Verdicts of the probe that may decide an exit code."""
if TYPE_CHECKING:
    UatClaim = str
else:
    UatClaim = Literal[REQUIRABLE]


def exit_code(findings: Sequence[Finding], required: Sequence[str]) -> int:
    """0 when every required one passes, 1 when one fails, else 3: also when one is not there at all, or none is
    required."""
    states = {f.status for f in findings if f.name in required}
    if "FAIL" in states:
        return EXIT_FAILED
    missing = set(required) - {f.name for f in findings}
    return EXIT_OK if states == {"PASS"} and not missing else EXIT_NOT_EVALUABLE
