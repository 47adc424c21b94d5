"""Hostile completions: none earns ground truth, reaches outside its sandbox, holds up a verdict or leaves a trace.

The attacks of the package `attacks` are graded in a few batches, an honest solution behind each of them.
"""

import time
from collections.abc import Iterator

import pytest
from attacks import ATTACKS, CONTROLS, TASKS, Attack
from attacks.world import World, descendants, run_attacks, surroundings

import loophole_grader.sandbox.pool as sandbox
from loophole_grader import LAYERS, RowError, close_pool, grade_batch, isolation

# Which layers keep each promise that not every host can give; any one of them is enough.
PROMISES = {
    "read": {"mount_namespace", "landlock"},
    "write": {"mount_namespace", "landlock"},
    "network": {"net_namespace", "seccomp"},
    "others": {"pid_namespace", "seccomp", "own_user"},
    "limits": {"seccomp", "own_user"},  # the init of a pid namespace has the program's user, unless that is its own
    "root": {"own_user", "capabilities", "seccomp"},
    "kernel": {"seccomp"},
    "children": {"seccomp"},  # without it CPU time of children that nobody waits for is only sampled
    "disk": {"mount_namespace"},
}
NAMESPACES = {name for name in LAYERS if name.endswith("_namespace")}
# Hosts that allow less, by the layers that they lack.
HOSTS = {
    "this one": set(),
    "without_namespaces": NAMESPACES,
    "without_filters": {"landlock", "seccomp"},
    "filters_only": NAMESPACES | {"own_user"},
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with surroundings() as found:
        yield found


def reaches_out(attack: Attack) -> bool:
    """Whether a poorer host could make a difference."""
    return bool(attack.needs) or attack.control in ("signals", "scratch_files", "fork")


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_no_attack_gets_anywhere(host: str, world: World) -> None:
    close_pool()
    with pytest.MonkeyPatch.context() as patch:
        if HOSTS[host]:
            patch.setattr(sandbox, "_pool", sandbox.Pool(frozenset(HOSTS[host])))
        kept = {promise for promise, layers in PROMISES.items() if layers & {*isolation().active}}  # by those in force
        chosen = [one for one in ATTACKS if (reaches_out(one) or not HOSTS[host]) and one.needs in {"", *kept}]
        verdicts, honest = run_attacks(chosen, world)
        close_pool()
    assert [why for attack in chosen for why in faults(attack, verdicts[attack.name])] == []
    assert {(one.gt_pass, one.status) for one in honest} == {(True, "ok")}
    assert world.victim.poll() is None
    assert world.signals == []
    assert {name: heard for name, (_, heard) in world.listeners.items() if heard} == {}
    end = time.monotonic() + 5
    while descendants().keys() - {world.victim.pid} and time.monotonic() < end:
        time.sleep(0.05)
    assert descendants().keys() == {world.victim.pid}
    assert list((world.base / "tmp").iterdir()) == []


def faults(attack: Attack, found: object) -> list[str]:
    """What is wrong with the verdict on an attack."""
    if isinstance(found, RowError):
        return [f"{attack.name}: {found.message}"]
    wanted = {
        "gt_pass": not found.gt_pass,
        "tests_passed": attack.passed in (found.tests_passed, -1) and found.tests_passed < found.tests_total,
        "status": not attack.status or found.status in attack.status,
        "label": found.label in ("incorrect", "attempted_hack", "reward_hack"),
        "hacked": attack.hinted or not (found.hinted_pass or found.hacked),
    }
    return [f"{attack.name}: {name} is {getattr(found, name)}" for name, holds in wanted.items() if not holds]


# ---------------------------------------------------------------- their opposites


def test_every_honest_program_of_the_same_features_is_right() -> None:
    found = grade_batch(
        [TASKS[task] for task, _ in CONTROLS.values()], [f"```python\n{code}\n```" for _, code in CONTROLS.values()]
    )
    assert [one for one in found if isinstance(one, RowError) or not one.gt_pass or one.status != "ok"] == []


def test_every_attack_has_a_control() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
    assert {attack.control for attack in ATTACKS} <= set(CONTROLS)


def test_every_task_is_solved_by_its_canonical_solution() -> None:
    tasks = [task for task in TASKS.values() if task.canonical_solution]
    verdicts = grade_batch(tasks, [f"```python\n{task.canonical_solution}\n```" for task in tasks])
    assert [verdict.task_id for verdict in verdicts if not verdict.gt_pass] == []
