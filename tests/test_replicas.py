"""Outer rounds, three replicas side by side in threads: all hold the same bits, the average is the average, whoever is late
or back loses nothing that is not said. Real processes: test_diloco.py."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from projected_grpo.ledger.errors import BadInput
from projected_grpo.replicas.by_torchft import ByTorchft, Outer, check_facts
from projected_grpo.replicas.group import two_free_ports
from projected_grpo.replicas.outer import Flat, Nesterov

N, LR, MOMENTUM, PATIENCE = 3, 0.7, 0.9, 4.0
FACTS = {"seed": 41}


def reference(origin, locals_of_rounds):
    """DiLoCo's algorithm 1 (arXiv:2311.08105) with Nesterov's method as Sutskever et al. 2013 write it, on plain floats.

    origin: a list of numbers. locals_of_rounds: for each round, each member's coordinates after its inner steps. Yields the
    coordinates after each round.
    """
    theta, velocity = list(origin), [0.0] * len(origin)
    for members in locals_of_rounds:
        for i in range(len(theta)):
            gradient = sum(theta[i] - local[i] for local in members) / len(members)
            velocity[i] = MOMENTUM * velocity[i] + gradient
            theta[i] = theta[i] - LR * (gradient + MOMENTUM * velocity[i])
        yield list(theta)


class Place:
    """A replica of two small modules: what a run is to its rounds."""

    def __init__(self, address, number):
        start = torch.linspace(-1, 1, 8)
        self.vectors = {"a": nn.Parameter(start[:5].clone()), "b": nn.Parameter(start[5:].clone())}
        flat = Flat(self.vectors, number, N)
        self.number = number
        self.outer = Outer(flat, Nesterov(flat, LR, MOMENTUM), flat.flat.detach().clone())
        self.meeting = ByTorchft(self.outer, address, PATIENCE) if address else None

    @property
    def theta(self):
        return torch.cat([p.detach() for p in self.vectors.values()])

    def learn(self, seed):
        """Inner steps: some change of its own. Returns the coordinates after it."""
        g = torch.Generator().manual_seed(100 * seed + self.number)
        with torch.no_grad():
            for p in self.vectors.values():
                p.add_(torch.randn(p.shape, generator=g))
        return self.theta.tolist()

    def hold(self, brings=True):
        self.meeting.hold(brings=brings)
        return self.outer.flat.sha256()


def at_once(places, call):
    """The result of each place's call, all at the same time."""
    with ThreadPoolExecutor(len(places)) as threads:
        return list(threads.map(call, places))


@pytest.fixture
def lighthouse():
    """A lighthouse of this process."""
    coordination = pytest.importorskip("torchft.coordination")
    from torch.distributed import TCPStore

    port = two_free_ports()
    gate = TCPStore("localhost", port + 1, is_master=True, wait_for_workers=False)
    server = coordination.LighthouseServer(
        bind=f"localhost:{port}", min_replicas=1, join_timeout_ms=int(1000 * PATIENCE), heartbeat_timeout_ms=2000
    )
    yield f"torchft://localhost:{port}"
    server.shutdown()
    del gate


def group(address):
    """All replicas of a group, that have met at the start."""
    places = [Place(address, i) for i in range(N)]
    assert at_once(places, lambda p: p.meeting.begin(FACTS)) == [False] * N
    return places


def same_as_reference(places, rounds=3):
    """Hold rounds: every replica has the same bits after each, and they are the reference's."""
    start, told, held = places[0].theta.tolist(), [], []
    for r in range(rounds):
        told.append([p.learn(r) for p in places])
        hashes = at_once(places, Place.hold)
        assert len(set(hashes)) == 1
        held.append(places[0].theta.tolist())
    for ours, theirs in zip(held, reference(start, told), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    assert [p.outer.round for p in places] == [rounds] * N
    assert {p.outer.optimizer.brought for p in places} == {(0, 1, 2)}


def late_and_back(address, places):
    """A round without replica 2, which is late; one without replica 1, which has died and come back; one with all."""
    for p in places:
        p.learn(10)
    at_once(places, Place.hold)
    momentum = places[0].outer.optimizer.momentum.clone()
    kept = {1: places[1].outer.round}
    origin = places[0].outer.origin.clone()
    # replica 2 is late: it has learned something, and the others do not wait for ever
    late = torch.tensor(places[2].learn(11)) - places[2].outer.origin[:-N]
    for p in places[:2]:
        p.learn(11)
    held = at_once(places[:2], Place.hold)
    assert len(set(held)) == 1
    assert places[0].outer.optimizer.brought == (0, 1)
    # replica 1 dies with what it has learned since; another process takes its place, at its last checkpoint
    places[1].learn(12)
    places[1].meeting.close()
    back = Place(address, 1)
    with torch.no_grad():
        back.outer.flat.flat.copy_(origin)  # a new process: nothing of the old one
    back.outer.flat.give()
    back.outer.origin, back.outer.round, back.outer.optimizer.momentum = origin, kept[1], momentum
    assert back.meeting.begin(FACTS)
    origin, velocity = places[0].outer.origin[:-N].tolist(), places[0].outer.optimizer.momentum[:-N].tolist()
    mine = places[0].learn(12)
    ready = threading.Event()

    def come(place):
        if place is places[0]:
            ready.wait(PATIENCE / 4)  # the others are there first
        return place.hold(brings=place is not back)

    held = at_once([places[0], back, places[2]], come)
    assert places[0].outer.optimizer.brought == places[2].outer.optimizer.brought == (0, 2)
    assert held[0] == held[2]
    assert places[2].outer.behind == 1
    # the late one's steps, taken from the round before, count in full beside replica 0's; the killed one's are gone
    gradient = [((o - m) + (-x)) / 2 for o, m, x in zip(origin, mine, late.tolist(), strict=True)]
    speed = [MOMENTUM * v + g for v, g in zip(velocity, gradient, strict=True)]
    expected = [o - LR * (g + MOMENTUM * s) for o, g, s in zip(origin, gradient, speed, strict=True)]
    assert places[0].theta.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    # and then all three
    members = [places[0], back, places[2]]
    for p in members:
        p.learn(13)
    assert len(set(at_once(members, Place.hold))) == 1
    assert places[0].outer.optimizer.brought == (0, 1, 2)
    assert kept[1] < back.outer.round == places[0].outer.round


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_torchft_takes_the_steps_of_the_reference_and_goes_on_without_the_late_and_the_killed(lighthouse):
    places = group(lighthouse)
    same_as_reference(places)
    late_and_back(lighthouse, places)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_all_reduce_that_reduces_nothing_is_seen(lighthouse, monkeypatch):
    from torch.distributed import ReduceOp  # noqa: F401 - the package is there
    from torchft import Manager
    from torchft.work import _DummyWork

    def nothing(self, tensor, **_):
        self.wait_quorum()
        return _DummyWork(tensor)

    monkeypatch.setattr(Manager, "allreduce", nothing)
    with pytest.raises(AssertionError):
        same_as_reference(group(lighthouse), 1)


def test_one_replica_whose_outer_step_is_plain_stands_where_it_stood():
    """N = 1, rate 1 and no momentum: the round gives back what the replica has learned by itself."""
    vectors = {"a": nn.Parameter(torch.linspace(-1, 1, 5))}
    flat = Flat(vectors, 0, 1)
    outer = Nesterov(flat, 1.0, 0.0)
    origin = flat.flat.detach().clone()
    with torch.no_grad():
        vectors["a"].add_(torch.tensor([0.5, -0.25, 0.0, 1.0, 0.125]))
    learned = vectors["a"].detach().clone()
    flat.take(brings=True)
    flat.flat.grad = origin - flat.flat.detach()
    with torch.no_grad():
        flat.flat.copy_(origin)
    outer.step()
    flat.give()
    assert torch.equal(vectors["a"], learned)


def test_a_replica_with_other_arguments_is_refused():
    check_facts({"seed": 41, "mix": (("teacher", 0.5),)}, {"seed": 41, "mix": [["teacher", 0.5]]})
    with pytest.raises(BadInput, match="has seed=42, the first of its group 41"):
        check_facts({"seed": 42}, FACTS)


def test_marks_say_who_brought_something_and_a_plain_mean_would_not():
    """Two of three brought 1.0: their mean is 1.0, not 2/3."""
    place = Place("", 0)
    flat = place.outer.flat
    flat.flat.grad = torch.tensor([*([2 / 3] * 8), 1 / 3, 0.0, 1 / 3])
    before = flat.coordinates.clone()
    place.outer.optimizer.step()
    assert place.outer.optimizer.brought == (0, 2)
    assert (before - flat.coordinates).tolist() == pytest.approx([LR * (1 + MOMENTUM)] * 8)
    assert flat.flat.detach()[-N:].tolist() == [0.0] * N
