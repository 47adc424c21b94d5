"""Training runs, one after the other, in one group of processes: starting the processes is what takes the time.

torchrun ... tests/parallel_scenarios.py FILE, where FILE holds a list of {name, args, pay_tokens, step_alone,
machines}. Each rank leaves its exit code and stderr in NAME.RANK.json. `step_alone` is a flaw: gradients are not
added up. `machines`: each rank works in a folder of its own, so that a relative --out is not shared."""

import contextlib
import io
import json
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import train  # noqa: E402

from projected_grpo import records  # noqa: E402
from projected_grpo.parallel import Ranks, joined  # noqa: E402
from projected_grpo.run import cli  # noqa: E402

REAL_GRADED = records.Group.graded.__func__


def graded_by_tokens(cls, problem_id, rollouts, verdicts, allow_hint):
    """Rewards that differ within every group: random weights write no code, and equal rewards have no gradient."""
    group = REAL_GRADED(cls, problem_id, rollouts, verdicts, allow_hint)
    rewards = tuple(float(sum(r.completion_ids) % 7) for r in rollouts)
    return records.Group(problem_id, rollouts, rewards, group.outcomes)


def rewarding_tokens():
    """Patch the reward to be a function of the tokens."""
    return mock.patch.object(records.Group, "graded", classmethod(graded_by_tokens))


def main():
    with joined() as ranks:
        for scenario in json.loads(Path(sys.argv[1]).read_text("utf-8")):
            sys.argv = ["scripts/train.py", *scenario["args"]]
            told = io.StringIO()
            with contextlib.ExitStack() as stack:
                stack.enter_context(mock.patch.object(train, "joined", return_value=contextlib.nullcontext(ranks)))
                stack.enter_context(contextlib.redirect_stderr(told))
                if scenario.get("pay_tokens"):
                    stack.enter_context(rewarding_tokens())
                if scenario.get("machines") and ranks.rank:
                    Path("machine_1").mkdir()
                    stack.enter_context(contextlib.chdir("machine_1"))
                if scenario.get("step_alone"):
                    stack.enter_context(mock.patch.object(Ranks, "add_gradients", return_value=None))
                try:
                    cli.run(train.main)
                except SystemExit as e:
                    code = e.code
            left = {"code": code, "stderr": told.getvalue()}
            Path(f"{scenario['name']}.{ranks.rank}.json").write_text(json.dumps(left), "utf-8")


if __name__ == "__main__":
    main()
