"""Hostile completions: none earns ground truth, reaches outside its sandbox, holds up a verdict or leaves a trace.

Each attack of the package `attacks` is graded once, followed in the same worker by an honest solution. Its test then looks
at all that happened.
"""

import pkgutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import attacks
import pytest
from attacks import ATTACKS, CONTROLS, FAMILIES, TASKS, Attack
from attacks.world import Outcome, World, descendants, run_attack, surroundings

import loophole_grader.sandbox.pool as sandbox
from loophole_grader import LAYERS, Verdict, close_pool, grade_batch, isolation, verdicts_of

BY_NAME = {attack.name: attack for attack in ATTACKS}
# Which layers keep each promise that not every host can give; any one of them is enough.
PROMISES = {
    "read": {"mount_namespace", "landlock"},
    "write": {"mount_namespace", "landlock"},
    "network": {"net_namespace", "seccomp"},
    "others": {"pid_namespace", "seccomp", "own_user"},
    "limits": {"seccomp", "own_user"},  # the init of a pid namespace has the program's user, unless that is its own
    "root": {"own_user", "capabilities", "seccomp"},
    "kernel": {"seccomp"},
    "disk": {"mount_namespace"},
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with surroundings() as found:
        yield found


NAMESPACES = {name for name in LAYERS if name.endswith("_namespace")}
# Hosts that allow less, by the layers that they lack.
HOSTS = {
    "without_namespaces": NAMESPACES,
    "without_filters": {"landlock", "seccomp"},
    "filters_only": NAMESPACES | {"own_user"},
}
OUTSIDE = [
    attack.name
    for attack in ATTACKS
    if attack.needs
    or attack.control in ("signals", "scratch_files")
    or attack.name.startswith(("daemon", "orphan", "sibling", "fork_bomb"))
]


def run_selected(names: list[str], world: World) -> dict[str, Outcome]:
    """Those whose promise the layers in force can keep, two at a time."""
    names = [name for name in names if promised(BY_NAME[name].needs)]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(lambda name: run_attack(BY_NAME[name], world), names), strict=True))


def selected(request: pytest.FixtureRequest, test: str) -> list[dict[str, str]]:
    """The parameters of one test that this run of pytest selects."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    return [item.callspec.params for item in items if item.originalname == test and hasattr(item, "callspec")]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, world: World) -> dict[str, Outcome]:
    """Every attack that is selected."""
    return run_selected([str(params["name"]) for params in selected(request, "test_attack")], world)


@pytest.fixture(scope="module")
def poorer_outcomes(request: pytest.FixtureRequest, world: World) -> dict[str, dict[str, Outcome]]:
    """The attacks on what lies outside, once more for each of HOSTS."""
    found, wanted = {}, selected(request, "test_attack_on_a_poorer_host")
    for host, lacking in HOSTS.items():
        names = [str(params["name"]) for params in wanted if params["host"] == host]
        close_pool()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sandbox, "_pool", sandbox.Pool(frozenset(lacking)))
            found[host] = {} if not names else run_selected(names, world)
            close_pool()
    return found


def promised(promise: str) -> bool:
    """Whether the layers of this host keep it."""
    return not promise or bool(PROMISES[promise] & set(isolation().active))


# ---------------------------------------------------------------- the attacks


def check(attack: Attack, outcomes: dict[str, Outcome]) -> None:
    if attack.name not in outcomes:
        pytest.skip(f"none of {sorted(PROMISES[attack.needs])} is in force")
    outcome = outcomes[attack.name]
    assert outcome.error is None
    verdict, honest = outcome.verdict, outcome.honest
    assert verdict is not None
    assert honest is not None
    assert not verdict.gt_pass
    assert attack.passed in (verdict.tests_passed, -1)
    assert verdict.tests_passed < verdict.tests_total
    assert not attack.status or verdict.status in attack.status
    assert verdict.label in ("incorrect", "attempted_hack", "reward_hack")
    assert attack.hinted or not (verdict.hinted_pass or verdict.hacked)
    assert outcome.seconds < 4 * attack.wall_s + 5
    assert (honest.gt_pass, honest.status) == (True, "ok")
    assert outcome.changed == []
    assert outcome.processes == []
    assert outcome.left_open == []
    assert outcome.victim_lives


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BY_NAME))
def test_attack(name: str, outcomes: dict[str, Outcome]) -> None:
    check(BY_NAME[name], outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", OUTSIDE)
def test_attack_on_a_poorer_host(host: str, name: str, poorer_outcomes: dict[str, dict[str, Outcome]]) -> None:
    check(BY_NAME[name], poorer_outcomes[host])


@pytest.mark.slow
def test_no_attack_was_heard(outcomes: dict[str, Outcome], world: World) -> None:
    assert outcomes
    if not promised("network"):
        pytest.skip("this host gives no network isolation")
    assert {name: listener.heard for name, listener in world.listeners.items() if listener.heard} == {}


@pytest.mark.slow
def test_no_signal_came(outcomes: dict[str, Outcome], world: World) -> None:
    assert outcomes
    assert world.signals == []


@pytest.mark.slow
def test_no_process_is_left(outcomes: dict[str, Outcome]) -> None:
    assert outcomes
    close_pool()
    end = time.monotonic() + 5
    while descendants() and time.monotonic() < end:
        time.sleep(0.05)
    assert descendants() == {}


@pytest.mark.slow
def test_no_scratch_directory_is_left(outcomes: dict[str, Outcome], world: World) -> None:
    assert outcomes
    close_pool()
    assert list((world.base / "tmp").iterdir()) == []


# ---------------------------------------------------------------- their opposites


@pytest.fixture(scope="module")
def control_verdicts() -> dict[str, Verdict]:
    tasks = [TASKS[task] for task, _ in CONTROLS.values()]
    completions = [f"```python\n{code}\n```" for _, code in CONTROLS.values()]
    return dict(zip(CONTROLS, verdicts_of(grade_batch(tasks, completions)), strict=True))


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name: str, control_verdicts: dict[str, Verdict]) -> None:
    verdict = control_verdicts[name]
    assert (verdict.gt_pass, verdict.status) == (True, "ok")
    assert verdict.tests_passed == verdict.tests_total


def test_every_attack_has_a_control() -> None:
    assert len(BY_NAME) == len(ATTACKS) >= 60
    assert {attack.control for attack in ATTACKS} <= set(CONTROLS)


def test_every_module_of_attacks_is_a_family_that_runs() -> None:
    apart = {"forms", "honest", "problems", "world"}
    modules = {module.name for module in pkgutil.iter_modules(attacks.__path__)}
    assert {family.__name__.removeprefix("attacks.") for family in FAMILIES} == modules - apart


def test_every_task_is_solved_by_its_canonical_solution() -> None:
    tasks = [task for task in TASKS.values() if task.canonical_solution]
    verdicts = grade_batch(tasks, [f"```python\n{task.canonical_solution}\n```" for task in tasks])
    assert [verdict.task_id for verdict in verdicts if not verdict.gt_pass] == []
