"""Outer rounds, three replicas side by side in threads: all hold the same bits, the average is the average, whoever is late
or back loses nothing that is not said. By torchft and through an object store alike; real processes: test_diloco.py."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput, BrokenWorld
from projected_grpo.replicas.by_store import ByStore, packed
from projected_grpo.replicas.by_torchft import ByTorchft, host_and_port
from projected_grpo.replicas.group import two_free_ports
from projected_grpo.replicas.meeting import Outer
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

    def __init__(self, by, address, number):
        start = torch.linspace(-1, 1, 8)
        self.vectors = {"a": nn.Parameter(start[:5].clone()), "b": nn.Parameter(start[5:].clone())}
        flat = Flat(self.vectors, number, N)
        self.number = number
        self.outer = Outer(flat, Nesterov(flat, LR, MOMENTUM), flat.flat.detach().clone())
        self.meeting = by(self.outer, address, PATIENCE)

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
def s3():
    """A bucket of a moto server, as s3fs meets it."""
    pytest.importorskip("moto")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1",
                            "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():  # fmt: skip
            patch.setenv(name, value)
        import fsspec

        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket/rounds"
    server.stop()


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


def group(by, address):
    """All replicas of a group, that have met at the start."""
    places = [Place(by, address, i) for i in range(N)]
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


def late_and_back(by, address, places):
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
    back = Place(by, address, 1)
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
    places = group(ByTorchft, lighthouse)
    same_as_reference(places)
    late_and_back(ByTorchft, lighthouse, places)


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
        same_as_reference(group(ByTorchft, lighthouse), 1)


def test_a_folder_takes_the_steps_of_the_reference(tmp_path):
    same_as_reference(group(ByStore, f"file://{tmp_path}/rounds"))


def test_a_folder_goes_on_without_the_late_and_the_killed(tmp_path):
    address = f"file://{tmp_path}/rounds"
    late_and_back(ByStore, address, group(ByStore, address))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_bucket_takes_the_steps_of_the_reference_and_goes_on_without_the_late(s3):
    places = group(ByStore, s3)
    same_as_reference(places)
    late_and_back(ByStore, s3, places)


def test_an_average_of_one_replica_alone_is_seen(tmp_path, monkeypatch):
    """The sneaky fail: every replica averages what it has itself."""
    real = ByStore._average
    monkeypatch.setattr(ByStore, "_average", lambda self, _: real(self, [self.name]))
    with pytest.raises(BrokenWorld, match="is not what the round's objects make"):
        same_as_reference(group(ByStore, f"file://{tmp_path}/rounds"), 1)


def test_one_closes_a_round_whoever_races(tmp_path):
    place = Place(ByStore, f"file://{tmp_path}/rounds", 0)
    with ThreadPoolExecutor(8) as threads:
        written = list(threads.map(lambda i: place.meeting.put("round_00000/closed.json", b"%d" % i), range(64)))
    assert sum(written) == 1
    assert int(place.meeting.get("round_00000/closed.json")) == written.index(True)


def test_what_was_brought_before_a_kill_counts_once(tmp_path):
    """Killed after it has brought its steps and before the round is over: they count, and nothing is brought again."""
    address = f"file://{tmp_path}/rounds"
    places = group(ByStore, address)
    told = [p.learn(0) for p in places]
    places[1].outer.flat.take(brings=True)
    learned = places[1].outer.origin - places[1].outer.flat.flat.detach()
    assert places[1].meeting.put("round_00000/replica_1.safetensors", packed(learned=learned))
    back = Place(ByStore, address, 1)  # nothing of round 0 is over: it waits with the others
    held = at_once([places[0], back, places[2]], lambda p: p.hold(brings=p is not back))
    assert len(set(held)) == 1
    (expected,) = reference(torch.linspace(-1, 1, 8).tolist(), [told])
    assert back.theta.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_another_run_at_the_same_place_is_refused(tmp_path):
    address = f"file://{tmp_path}/rounds"
    group(ByStore, address)
    with pytest.raises(BadInput, match="has seed=42, the first of its group 41"):
        Place(ByStore, address, 0).meeting.begin({"seed": 42})


def test_two_runs_of_one_number_are_seen_in_a_store(tmp_path):
    """The second's steps were left out in silence."""
    address = f"file://{tmp_path}/rounds"
    places = group(ByStore, address)
    twin = Place(ByStore, address, 1)
    for r, seed in enumerate((20, 21)):
        for p in (*places, twin):
            p.learn(seed + 7 * (p is twin))
        if r == 0:  # begun anew before its first round was over: told, as the first one's steps are as good
            at_once([*places, twin], Place.hold)
    at_once(places, Place.hold)
    twin.outer.round = 1
    with pytest.raises(
        BrokenWorld, match=r"round_00001/replica_1.safetensors is another run's: two runs have this number"
    ):
        twin.meeting._bring(twin.outer.origin - twin.outer.flat.flat.detach() + 1)


HOSTILE = {
    "not finite": (lambda v: v * float("nan"), "holds numbers that are not finite"),
    "another length": (lambda v: v[:-1], r"is \(10,\) torch.float32, not \(11,\) torch.float32"),
    "another type": (lambda v: v.double(), "torch.float64, not"),
    "another's mark": (lambda v: torch.cat([v[:-N], torch.tensor([1.0, 0.0, 0.0])]), "is marked as another replica's"),
    "a greater weight": (
        lambda v: torch.cat([v[:-N], torch.tensor([0.0, 0.0, 5.0])]),
        "is marked as another replica's",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_replicas_coordinates_stops_a_round_by_name(name, tmp_path):
    spoil, said = HOSTILE[name]
    address = f"file://{tmp_path}/rounds"
    places = group(ByStore, address)
    for p in places:
        p.learn(0)
    learned = torch.cat([torch.ones(8), torch.tensor([0.0, 0.0, 1.0])])
    places[2].meeting.put("round_00000/replica_2.safetensors", packed(learned=spoil(learned)))
    with pytest.raises(BrokenWorld, match=rf"round_00000/replica_2.safetensors .*{said}.*; take it away"):
        at_once(places[:2], Place.hold)


def test_an_object_that_cannot_be_read_and_a_foreign_replica_take_no_part(tmp_path):
    address = f"file://{tmp_path}/rounds"
    places = group(ByStore, address)
    told = [p.learn(0) for p in places]
    places[0].meeting.put("round_00000/replica_7.safetensors", b"not ours")
    assert len(set(at_once(places, Place.hold))) == 1
    (expected,) = reference(torch.linspace(-1, 1, 8).tolist(), [told])
    assert places[0].theta.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    places[0].meeting.put("round_00001/closed.json", b'["replica_7"]')
    with pytest.raises(BrokenWorld, match=r"closed.json .*names no replicas of this group"):
        places[1].hold()
    places[0].meeting.put("round_00002/state.safetensors", b"torn")
    with pytest.raises(BrokenWorld, match=r"round_00002/state.safetensors cannot be read"):
        places[2].hold(brings=False)


def held(address, rounds=1):
    """A group that has held so many rounds, and its place."""
    places = group(ByStore, address)
    for r in range(rounds):
        for p in places:
            p.learn(r)
        at_once(places, Place.hold)
    return places


def one_late(address):
    """A group of which replica 2 has missed the second round."""
    places = held(address)
    for p in places:
        p.learn(1)
        p.outer.rounds, p.meeting.patience = 2, 1.0
    assert len(set(at_once(places[:2], Place.hold))) == 1
    return places


def test_a_late_replica_holds_no_round_beyond_the_last(tmp_path):
    """It held one more, alone, and ended well with other coordinates than its group."""
    places = one_late(f"file://{tmp_path}")
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(BrokenWorld, match=r"the others have held the last round, 2, without replica_2; .*--resume"):
        places[2].hold()
    assert sorted(tmp_path.rglob("*")) == there
    assert torch.equal(places[2].theta, places[0].theta)
    assert places[2].outer.round == 2


def test_a_replica_that_loses_the_last_round_while_it_brings_holds_no_other(tmp_path, monkeypatch):
    """The round was closed without it between its look at the states and its own object."""
    places = held(f"file://{tmp_path}")
    for p in places:
        p.outer.rounds = 2
        p.learn(1)
    real = ByStore._bring

    def late(self, learned):
        if self.name == "replica_2" and self.outer.round == 1:
            at_once(places[:2], Place.hold)
        real(self, learned)

    monkeypatch.setattr(ByStore, "_bring", late)
    with pytest.raises(BrokenWorld, match="the others have held the last round, 2, without replica_2"):
        places[2].hold()
    assert torch.equal(places[2].theta, places[0].theta)
    assert not (tmp_path / "round_00002").exists()


def change(path, name, by=0.25, *, told_anew=False):
    """Another number in an object; with the SHA-256 of what it held before, or with its own."""
    vectors, data = load(path.read_bytes()), path.read_bytes()
    vectors[name][2] += by
    path.write_bytes(packed(**vectors) if told_anew else data[: -len(body(vectors))] + body(vectors))


def body(vectors):
    """What follows the header of a safetensors object."""
    return b"".join(vectors[name].numpy().tobytes() for name in sorted(vectors))


@pytest.mark.parametrize("name", ["origin", "momentum"])
def test_a_changed_number_in_a_state_is_seen_by_who_comes_later(name, tmp_path):
    """It is as long and as finite as the right one: who was back stood elsewhere than its group, and nobody said so."""
    late = one_late(f"file://{tmp_path}")[2]
    change(tmp_path / "round_00001/state.safetensors", name)
    with pytest.raises(
        BrokenWorld, match=r"round_00001/state.safetensors holds other numbers than were written.*take it"
    ):
        late.hold(brings=False)


def test_a_changed_number_in_what_was_brought_is_seen(tmp_path):
    places = held(f"file://{tmp_path}")
    for p in places:
        p.learn(1)
    learned = torch.cat([torch.ones(8), torch.tensor([0.0, 0.0, 1.0])])
    places[1].meeting.put("round_00001/replica_2.safetensors", packed(learned=learned))
    change(tmp_path / "round_00001/replica_2.safetensors", "learned")
    with pytest.raises(BrokenWorld, match=r"round_00001/replica_2.safetensors holds other numbers"):
        at_once(places[:2], Place.hold)


def test_an_object_without_a_sha256_is_refused(tmp_path):
    late = one_late(f"file://{tmp_path}")[2]
    path = tmp_path / "round_00001/state.safetensors"
    path.write_bytes(save(load(path.read_bytes())))
    with pytest.raises(BrokenWorld, match=r"round_00001/state.safetensors holds other numbers than were written"):
        late.hold(brings=False)


def test_a_state_that_is_not_what_the_round_makes_is_seen_by_who_averages(tmp_path):
    """That it could not be written was thrown away."""
    places = held(f"file://{tmp_path}")
    path = tmp_path / "round_00000/state.safetensors"
    change(path, "origin", told_anew=True)
    for p in places:
        p.learn(1)
        p.meeting.put("round_00001/state.safetensors", path.read_bytes())
        p.meeting._catch_up = lambda: None  # it was written after they had looked
    with pytest.raises(BrokenWorld, match=r"round_00001/state.safetensors is not what the round's objects make of"):
        at_once(places, Place.hold)


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xfe", b""])
def test_facts_that_say_nothing_are_named(data, tmp_path):
    (tmp_path / "facts.json").write_bytes(data)
    with pytest.raises(BadInput, match=r"facts.json does not say what the first of the group runs .*take it away"):
        Place(ByStore, f"file://{tmp_path}", 0).meeting.begin(FACTS)


NO_MEMBERS = [b"{", b"[]", b"5", b"{}", b"\xff", b'["replica_7", "replica_x"]', b'["replica_0", "replica_0"]', b"[[1]]"]


@pytest.mark.parametrize("data", NO_MEMBERS)
def test_a_closed_round_that_names_nobody_is_named_by_a_late_replica(data, tmp_path):
    places = one_late(f"file://{tmp_path}")
    (tmp_path / "round_00001/closed.json").write_bytes(data)
    with pytest.raises(BrokenWorld, match=r"round_00001/closed.json .*names no replicas of this group, once each"):
        places[2].hold()


@pytest.mark.parametrize("name", ["round_zzz", "round_000005", "round_", "round_-0001", "elsewhere"])
def test_a_folder_of_another_name_is_no_round(name, tmp_path):
    held(f"file://{tmp_path}")
    shutil.copytree(tmp_path / "round_00000", tmp_path / name)
    back = Place(ByStore, f"file://{tmp_path}", 1)
    back.hold(brings=False)
    assert back.outer.round == 1


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        (
            [*([2 / 3] * 8), 1 / 4, 2 / 4, 1 / 4],
            "replica 1 came more than once to one round: two runs have this number",
        ),
        ([*([float("inf")] * 8), 1 / 3, 1 / 3, 1 / 3], "numbers that are not finite"),
    ],
)
def test_a_mean_that_is_no_mean_of_replicas_is_not_stepped_on(mean, said):
    place = Place(ByStore, "memory://y", 0)
    place.outer.flat.flat.grad = torch.tensor(mean)
    before = place.outer.flat.flat.detach().clone()
    with pytest.raises(BrokenWorld, match=said):
        place.outer.optimizer.step()
    assert torch.equal(before, place.outer.flat.flat)


def test_marks_say_who_brought_something_and_a_plain_mean_would_not():
    """Two of three brought 1.0: their mean is 1.0, not 2/3."""
    place = Place(ByStore, "memory://x", 0)
    flat = place.outer.flat
    flat.flat.grad = torch.tensor([*([2 / 3] * 8), 1 / 3, 0.0, 1 / 3])
    before = flat.coordinates.clone()
    place.outer.optimizer.step()
    assert place.outer.optimizer.brought == (0, 2)
    assert (before - flat.coordinates).tolist() == pytest.approx([LR * (1 + MOMENTUM)] * 8)
    assert flat.flat.detach()[-N:].tolist() == [0.0] * N


BASE = {"steps": 4, "meet": "file:///x", "replicas": 3, "outer_every": 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"meet": ""}, "they need a place to --meet"),
        ({"meet": "here"}, "must be torchft://HOST:PORT"),
        ({"replica": 3}, "--replica 3: must be 0 to 2"),
        ({"outer_every": 0}, "--outer-every 0: must be 1 or more"),
        ({"outer_every": 3}, "--steps 4: must be a multiple of --outer-every 3"),
        ({"until_onsets": 2.0}, "leave --until-onsets"),
        ({"outer_momentum": 1.0}, r"must be above 0, in \[0, 1\)"),
    ],
)
def test_replicas_that_cannot_be_are_refused_by_name(change, said):
    TrainConfig(**BASE).validate()
    with pytest.raises(BadInput, match=said):
        TrainConfig(**{**BASE, **change}).validate()


@pytest.mark.parametrize("address", ["torchft://", "torchft://host", "torchft://host:x"])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(BadInput, match="must be torchft://HOST:PORT"):
        host_and_port(address)


def test_facts_are_compared_as_they_are_stored(tmp_path):
    """A path is a string once it is JSON: no replica refuses itself."""
    place = Place(ByStore, f"file://{tmp_path}/rounds", 0)
    place.outer.flat.replicas = 1
    assert place.meeting.begin({"mix": [["teacher", 0.5]], "lr": 0.1}) is False
    assert json.loads(place.meeting.get("facts.json"))["lr"] == 0.1


@pytest.mark.slow
def test_a_second_group_at_a_place_that_is_done_takes_no_other_groups_result_for_its_own(script, tmp_path):
    """It ended at once, finished, with the first group's coordinates and no step of its own."""
    pooled = ("--arm", "vanilla", "--teacher-pool", "pairs", "--max-new", 4, "--eval-every", 0, "--steps", 2)
    group = ("--meet", f"file://{tmp_path}/rounds", "--replicas", 1, "--outer-every", 2, "--patience", 1)
    assert script("train", "tiny", *pooled, *group, "--out", "one")[0] == 0
    code, _, err = script("train", "tiny", *pooled, *group, "--out", "other")
    assert code == 1
    assert "all rounds have been held there, and this run has taken no step; meet elsewhere" in err
    assert not json.loads((tmp_path / "other/manifest.json").read_text()).get("finished")


@pytest.mark.slow
def test_a_late_run_is_stopped_after_the_last_round(script, tmp_path, monkeypatch):
    """It ended well, after a third round of two."""
    pooled = ("--arm", "vanilla", "--teacher-pool", "pairs", "--max-new", 4, "--eval-every", 0, "--steps", 4)
    meet = ("--meet", f"file://{tmp_path}/rounds", "--replicas", 2, "--outer-every", 2, "--patience", 0.1)
    argv = ("train", "tiny", *pooled, *meet)
    assert script(*argv, "--replica", 0, "--out", "one")[0] == 0
    real = ByStore._catch_up
    blind = iter([True])  # at the start it sees no round: as if it had held the first one with the other

    def first_late(self):
        if next(blind, False):
            return
        real(self)

    monkeypatch.setattr(ByStore, "_catch_up", first_late)
    code, _, err = script(*argv, "--replica", 1, "--out", "late")
    assert code == 1
    assert "the others have held the last round, 2, without replica_1" in err
    assert "Traceback" not in err
    assert sorted(p.name for p in (tmp_path / "rounds").glob("round_*")) == ["round_00000", "round_00001"]
    assert not (tmp_path / "rounds/round_00001/replica_1.safetensors").exists()
    assert not json.loads((tmp_path / "late/manifest.json").read_text()).get("finished")
