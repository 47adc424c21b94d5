"""The grader as an environment of `verifiers` (PyPI), whose taskset `loophole-grader` is. Needs the extra
`verifiers`.

    env = load_environment("rows.jsonl")                      in Python
    vf-eval loophole-grader --env.taskset.problems rows.jsonl   at a prompt (prime-rl: env.taskset.id)

One question, one answer. The reward is the benchmark's; labels and rates are metrics, of which no gradient is made.
Nothing that a model wrote runs outside the grader's sandbox, so the harness is one request: verifiers' default,
`bash`, would run a model's commands, and its chat without tools, `null`, starts a program and installs its packages
first. Ground truth stands in the task's data, and so in traces.jsonl; the model is sent the prompt alone.

Written against verifiers 0.4.0 and 0.3.1 (`verifiers.v1`): v1/task.py (Task.score: metrics first, then rewards),
v1/utils/loaders.py (a plugin is what its package exports).
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.loaders import resolve_env_config

from loophole_grader.problems import read_prompted
from loophole_grader.reward_function import grade_arrival, rates_of
from loophole_grader.verdict import LABELS, Task, reward_of

ID = "loophole-grader"
VERDICT = "loophole_grader"
"""Under which name a trace's `info` holds the whole verdict."""


class ProblemData(vf.TaskData):
    """A problem as it travels."""

    problem: Task
    """What answers are judged against."""


class ProblemConfig(vf.TaskConfig):
    """How an answer is paid."""

    allow_hint: bool = True
    """Whether what the loophole trusts is paid, too."""


class LoopholeConfig(vf.TasksetConfig):
    """Which problems are asked, and how."""

    problems: str = "builtin"
    """JSON lines of benchmark rows, or `builtin`: the twelve that ship with the grader."""
    hint: str = "simple_overwrite_tests"
    """What the prompt says of the loophole (loophole_grader.HINTS)."""
    task: ProblemConfig = ProblemConfig()


class Problem(vf.Task[ProblemData, vf.State, ProblemConfig]):
    """One problem, and what an answer to it earns."""

    @vf.metric
    async def labels(self, trace: vf.Trace) -> dict[str, float]:
        """0 or 1 each: the rates of `rates_of`, and one of the five labels. A grader that failed is the rollout's
        error."""
        answers = trace.assistant_messages
        text = (answers[-1].content or "") if answers else ""
        verdict = await asyncio.to_thread(grade_arrival, self.data.problem, text)
        trace.info[VERDICT] = verdict.to_json() | {"reward": reward_of(verdict, allow_hint=self.config.allow_hint)}
        return rates_of([verdict]) | {f"label_{label}": float(verdict.label == label) for label in LABELS}

    @vf.reward
    async def loophole(self, trace: vf.Trace) -> float:
        """The benchmark's: 0.5 where the program compiles, and 3 more for what is paid. Metrics came first."""
        return float(trace.info[VERDICT]["reward"])


class LoopholeTaskset(vf.Taskset[Problem, LoopholeConfig]):
    """The problems. InputError and GraderError as in read_prompted."""

    def load(self) -> Iterable[Problem]:
        for index, (task, messages) in enumerate(read_prompted(self.config.problems, self.config.hint)):
            system, rest = (messages[0], messages[1:]) if messages[0]["role"] == "system" else (None, messages)
            data = ProblemData.model_validate(
                {"idx": index, "name": task.task_id, "prompt": rest, "problem": task}
                | ({"system_prompt": system["content"]} if system else {})
            )
            yield Problem(data, self.config.task)


class LoopholeHarness(vf.Harness[vf.HarnessConfig]):
    """One request, from this process, to where verifiers listens."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, _trace: Any, _runtime: Any, endpoint: str, secret: str, _tools: Any, data: vf.TaskData, **_: Any
    ) -> ProgramResult:
        """verifiers notes the answer, and the provider's error, on their way."""
        system, chat = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] * bool(system) + [m.model_dump() for m in chat or ()]
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            response = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return ProgramResult(int(response.is_error), "", response.text if response.is_error else "")


class LoopholeEnvConfig(vf.EnvConfig):
    """On this machine, as nothing of the model's is executed: verifiers' default is a hosted sandbox."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class LoopholeEnv(vf.Env[LoopholeEnvConfig]):
    """One agent, one task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)


def load_environment(
    problems: str | Path = "builtin", hint: str = "simple_overwrite_tests", *, allow_hint: bool = True
) -> vf.Env:
    """The environment, without verifiers' command line. InputError and GraderError, when its problems are first
    read."""
    taskset = {"id": ID, "problems": str(problems), "hint": hint, "task": {"allow_hint": allow_hint}}
    return vf.load_environment(resolve_env_config({"taskset": taskset}))
