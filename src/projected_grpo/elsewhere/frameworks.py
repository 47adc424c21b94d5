"""One model asked by verifiers, by inspect-ai and by this project: do the three say the same of it?

Each framework lives in an environment of its own, since its releases and this project's pins do not go together
(docs/use-in-your-trainer.md), and is called as its users call it: by its command, against an endpoint.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.records import Problem

ENVIRONMENTS = Path("out/environments")
"""Where `just frameworks` puts them."""
NO_KEY = "NO_KEY"
AT_ONCE = 4
GREEDY = 1e-6
"""The temperature at which this project's sampler takes the likeliest token."""


@dataclass(frozen=True)
class Endpoint:
    """Which model is asked, where, and how long it may answer."""

    url: str
    model: str
    max_tokens: int


@dataclass(frozen=True)
class Said:
    """What a model answered to a problem, and the label that this earns."""

    text: str
    label: str


Asked = Mapping[str, Said]
"""By problem id."""


def command_of(framework: str, name: str) -> Path:
    """A framework's command. BadInput where its environment is not there."""
    path = ENVIRONMENTS / framework / "bin" / name
    if not path.is_file():
        raise BadInput(f"{path}: not there; `just frameworks` makes the environments of both frameworks")
    return path


def _run(argv: Sequence[str | Path], out: Path, more: Mapping[str, str]) -> None:
    """Run a framework's command; what it says goes into a file. BadInput with its last line where it fails."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "log.txt"
    with log.open("wb") as said:
        code = subprocess.run(
            [str(word) for word in argv], check=False, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **more}
        ).returncode
    if code:
        last = (log.read_text("utf-8", "replace").strip().splitlines() or ["nothing"])[-1][:200]
        raise BadInput(f"{Path(argv[0]).name}: exit code {code}, it said {last!r}; {log} has all of it")


def ask_verifiers(rows: Path, hint: str, at: Endpoint, out: Path) -> Asked:
    """`vf-eval loophole-grader`, one greedy rollout a problem."""
    _run(
        [
            command_of("verifiers", "vf-eval"), "loophole-grader",
            "--env.taskset.problems", rows, "--env.taskset.hint", hint, "--model", at.model,
            "--client.base-url", at.url, "--client.api-key-var", NO_KEY,
            "--sampling.temperature", "0", "--sampling.max-tokens", str(at.max_tokens),
            "--max-concurrent", str(AT_ONCE), "--no-push", "--no-rich", "--output-dir", out, "--run.dir", "run",
        ],
        out, {NO_KEY: "none"},
    )  # fmt: skip
    episodes = [json.loads(line) for line in (out / "run" / "traces.jsonl").read_text("utf-8").splitlines()]
    found = {}
    for episode in episodes:
        [trace] = episode["traces"]
        if not trace["ok"]:
            raise BadInput(f"verifiers: problem {trace['task']['data']['name']}: {str(trace['errors'])[:200]}")
        answer = next(node["message"]["content"] for node in trace["nodes"] if node["sampled"])
        found[trace["task"]["data"]["name"]] = Said(answer or "", trace["info"]["loophole_grader"]["label"])
    return found


def ask_inspect(rows: Path, hint: str, at: Endpoint, out: Path) -> Asked:
    """`inspect eval loophole_grader/loophole`, one greedy answer a problem."""
    _run(
        [
            command_of("inspect", "inspect"), "eval", "loophole_grader/loophole",
            "--model", f"openai-api/local/{at.model}", "-T", f"problems={rows}", "-T", f"hint={hint}",
            "--temperature", "0", "--max-tokens", str(at.max_tokens), "--max-connections", str(AT_ONCE),
            "--log-dir", out / "logs", "--log-format", "json", "--display", "none",
        ],
        out, {"LOCAL_BASE_URL": at.url, "LOCAL_API_KEY": "none"},
    )  # fmt: skip
    logs = sorted((out / "logs").glob("*.json"))
    log = json.loads(logs[-1].read_text("utf-8"))
    if log["status"] != "success":
        raise BadInput(f"inspect: {log['status']}: {str(log.get('error'))[:200]}")
    return {
        sample["id"]: Said(
            sample["output"]["choices"][0]["message"]["content"], sample["scores"]["judged"]["explanation"]
        )
        for sample in log["samples"]
    }


def ask_here(folder: Path, problems: Sequence[Problem], hint: str, max_tokens: int) -> Asked:
    """This project's own sampler and grader, greedy."""
    from projected_grpo.config import Sampling
    from projected_grpo.groups.live import live_verdicts, render_all
    from projected_grpo.run.models import load_model

    loaded = load_model(str(folder), "float32", "cpu", 0, Path())
    config = Sampling(hint=hint, max_new=max_tokens, temperature=GREEDY, top_p=1.0)
    prompts = render_all(config, loaded, problems)
    keys = [p.problem_id for p in problems]
    rollouts, verdicts, _ = live_verdicts(
        config, loaded, prompts, {p.problem_id: p.task for p in problems}, 1, keys, "student"
    )
    return {
        key: Said(sampled[0].completion, judged[0].label)
        for key, sampled, judged in zip(keys, rollouts, verdicts, strict=True)
    }


FRAMEWORKS: Mapping[str, Callable[[Path, str, Endpoint, Path], Asked]] = {
    "verifiers": ask_verifiers,
    "inspect-ai": ask_inspect,
}


def unlike(here: Asked, there: Asked) -> list[str]:
    """Problems whose answer (white space at its ends aside) or label differs, or that one of them lacks. Labels alone would
    pass a server that gives the prompt back with each answer, and any model that is always wrong."""
    return sorted(name for name in {*here, *there} if _key(here.get(name)) != _key(there.get(name)))


def _key(said: Said | None) -> tuple[str, str] | None:
    return None if said is None else (said.text.strip(), said.label)


def clear(out: Path, own: Collection[str]) -> None:
    """Remove what was written here before. BadInput where anything else stands there: nothing of others is removed."""
    if out.exists() and (strange := sorted(p.name for p in out.iterdir() if p.name not in own)):
        raise BadInput(f"--out {out}: holds {strange[0]}, which is none of this script's; choose a folder of its own")
    for name in own:
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
