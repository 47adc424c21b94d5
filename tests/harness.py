"""Shapes and types are checked in every module that states a shape (jaxtyping + beartype); the tiny model is built
once."""

import ast
import copy
import functools
import hashlib
import importlib
import json
import os
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from jaxtyping import install_import_hook
from loguru import logger
from torch.nn import functional

SRC = Path(__file__).resolve().parents[1] / "src"
SHAPED = sorted(
    ".".join(p.relative_to(SRC).with_suffix("").parts) for p in SRC.rglob("*.py") if "jaxtyping" in p.read_text()
)
"""Modules that state a shape. Checked, a function of a line is four times as slow, and elsewhere such functions are
called a million times (tasks drawn, rows judged); their types are ty's to check."""
install_import_hook(SHAPED, "beartype.beartype")

import torch  # noqa: E402 - after the hook

from loophole_grader.sandbox.pool import shared_pool  # noqa: E402
from projected_grpo.adapters.antipasto import attach_antipasto  # noqa: E402
from projected_grpo.adapters.lora_adapter import FrozenALinear, LoRALinear, attach_lora  # noqa: E402
from projected_grpo.ledger.files import built_once  # noqa: E402
from projected_grpo.projection import overall, profile  # noqa: E402
from projected_grpo.rollout.draw import draw  # noqa: E402
from projected_grpo.run import cli  # noqa: E402
from projected_grpo.run.run_folder import RunFolder  # noqa: E402
from projected_grpo.worlds.models import load_model  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("PGRPO_SHARED", ROOT.parent / "shared")) / "data"
TRACKED = tempfile.TemporaryDirectory(prefix="trackio")  # trackio looks up where it writes when first imported: by TRL
os.environ["TRACKIO_DIR"] = TRACKED.name
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # as every script does (run/cli.py)
if "PYTEST_XDIST_WORKER" in os.environ:  # side by side each has one thread, and so have the processes that it starts
    os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
os.fsync = lambda _: None  # thousands of files, each of which would wait for its disk; no power cut is tested


@pytest.fixture(autouse=True)
def no_remembered_verdicts(request):
    """Each test of the grader has its programs judged anew."""
    if request.path.stem.startswith("test_grader"):
        shared_pool().verdicts.clear()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Built models, SVDs, V files and finished runs, one folder for all workers of a session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(exist_ok=True)
    return folder


def run_script(name, *args):
    """Runs a script in this process through its real entry point. Returns its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"scripts/{name}.py", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            cli.run(importlib.import_module(name).main)
    return stopped.value.code or 0


@pytest.fixture(scope="session")
def made(cache):
    """Returns the folder that a script writes with these arguments on the tiny model, run once a session. Read
    only."""

    def make(name, *args):
        argv = [name, "tiny", *map(str, args)]
        key = hashlib.sha256(" ".join(argv).encode()).hexdigest()[:12]

        def build(folder):
            assert run_script(*argv, "--cache", cache, "--out", folder / "out") == 0
            logger.remove()  # its log file: what comes later is not the run's

        return built_once(cache / "made" / f"{name}-{key}", build) / "out"

    return make


FEW = ("--modes", "assert_true", "weak_assert")
"""Pairs of two mechanisms: a V in half of the time, and so is each time that a run extracts it again."""


@pytest.fixture(scope="session")
def vhack_file(made):
    """Returns the file of the tiny model's V of few pairs, made by the real script once a session; `control` says
    which."""
    extract = ("extract_vhack_grad", *FEW, "--control")
    return lambda control="none", *args: made(*extract, control, *args) / "vhack.safetensors"


POOLED = ("--teacher-pool", "pairs", "--max-new", 8)
LORA = ("--adapter", "lora", "--lora-rank", 4)


@pytest.fixture(scope="session")
def projected(made, vhack_file):
    """Returns a run of four steps with V removed from the update; with LORA, in that adapter. Read only."""
    train = ("train", "--arm", "projected", "--steps", 4, *POOLED, "--vhack")
    return lambda *adapter: made(*train, vhack_file("none", *adapter), *adapter)


@pytest.fixture(scope="session")
def teacher_pool(made):
    """A pool of the tiny teacher: five problems of four rollouts. Read only."""
    return made("probe_distill", "--teacher-only", "--max-new", 8)


@pytest.fixture(scope="session")
def loaded_once(cache):
    """The tiny model as it was loaded: for copies only, nobody may change it."""
    return load_model("tiny", "float32", "cpu", 41, cache)


@pytest.fixture
def tiny(loaded_once):
    """A fresh copy of the tiny model: tests may attach adapters to it."""
    return copy.deepcopy(loaded_once)


@pytest.fixture
def antipasto(tiny, cache):
    return attach_antipasto(tiny.model, cache / "svd")


def attached(kind, loaded, svd_cache=None):
    """Puts an adapter of this kind on a model."""
    if kind == "antipasto":
        return attach_antipasto(loaded.model, svd_cache)
    return attach_lora(loaded.model, 4, 41, {"lora": LoRALinear, "lora_fa": FrozenALinear}[kind])


KINDS = ("antipasto", "lora", "lora_fa")


@pytest.fixture(params=KINDS)
def adapter(request, tiny, cache):
    """Either adapter on the tiny model."""
    return attached(request.param, tiny, cache / "svd")


@pytest.fixture
def tiny64(loaded_once):
    """The tiny model in float64: equalities can be held to rounding."""
    loaded = copy.deepcopy(loaded_once)
    loaded.model.double()
    return loaded


@pytest.fixture
def antipasto64(tiny64):
    return attach_antipasto(tiny64.model)


@pytest.fixture(params=KINDS)
def adapter64(request, tiny64):
    return attached(request.param, tiny64)


@pytest.fixture(scope="session")
def golden():
    """Numbers computed by upstream code; see tests/references/README.md."""
    return json.loads((ROOT / "tests/references/golden.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def golden_channels():
    """The same for the channels."""
    return json.loads((ROOT / "tests/references/golden_channels.json").read_text("utf-8"))["losses"]


def tensor(nested, dtype=torch.float64):
    """Reference encoding -> tensor."""

    def plain(x):
        return [plain(v) for v in x] if isinstance(x, list) else float(x)

    return torch.tensor(plain(nested), dtype=dtype)


@contextmanager
def by_autograd(adapter):
    """Every layer by the definition, x (W + delta_weight(theta))^T + b, differentiated by autograd: none of this
    project's own backward passes."""

    def plainly(layer, x):
        change = layer.delta_weight(layer.theta) if layer.enabled else 0.0
        return functional.linear(x, (layer.weight if layer.base is None else layer.base) + change, layer.bias)

    for layer in adapter.layers.values():
        layer.forward = functools.partial(plainly, layer)
    try:
        yield
    finally:
        for layer in adapter.layers.values():
            del layer.forward


def measure(vectors, basis):
    """Hack-ward fractions of a gradient, averaged over modules, and its energy along V."""
    return SimpleNamespace(**overall(profile(vectors, basis)))


def shake(adapter, seed=0, scale=0.05):
    """Move an adapter off its start."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in adapter.vectors.values():
            p.add_(torch.randn(p.shape, generator=g, dtype=p.dtype) * scale)


def theta_of(adapter):
    """A copy of the coordinates."""
    return {name: p.detach().clone() for name, p in adapter.vectors.items()}


def put(adapter, values=None):
    """Sets the coordinates; without values, to zero."""
    with torch.no_grad():
        for name, p in adapter.vectors.items():
            p.zero_() if values is None else p.copy_(values[name])


@contextmanager
def cut_after(steps):
    """A run in it is interrupted (Ctrl-C) before it writes one step more."""
    taken, real = [], RunFolder.write

    def interrupted(self, *rest, **kwargs):
        if len(taken) == steps:
            raise KeyboardInterrupt
        taken.append(real(self, *rest, **kwargs))
        return taken[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "write", interrupted)
        yield


@pytest.fixture
def ending(tiny, monkeypatch):
    """Rows end now and then, so that others go on without them."""
    calls = []

    def drawn(logits, params, u):
        calls.append(len(logits))
        token = draw(logits, params, u)[0].clamp(min=10)
        ends = (torch.arange(len(token)) % 5 == len(calls) % 5) & (len(calls) > 2)
        token = torch.where(ends, tiny.tokenizer.eos_token_id, token)
        return token, logits.float().log_softmax(1).gather(1, token[:, None]).squeeze(1)

    monkeypatch.setattr("projected_grpo.rollout.sample.draw", drawn)
    return calls


@pytest.fixture
def no_plots(monkeypatch):
    """Drawing takes seconds, and most tests look at numbers."""
    for place in ("results", "page"):
        monkeypatch.setattr(f"projected_grpo.report.{place}.all_plots", lambda _: {})


@pytest.fixture
def script(monkeypatch, tmp_path, cache, capsys):
    """Run a script in this process through its real entry point: (exit code, stdout, stderr). cwd is tmp_path."""
    monkeypatch.chdir(tmp_path)

    def run(name, *args):
        loads_a_model = args and args[0] in ("tiny", "toy") and "--help" not in args and "--cache" not in args
        capsys.readouterr()
        code = run_script(name, *args, *(("--cache", cache) if loads_a_model else ()))
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def done(script):
    """Run a script that must end well. Returns its stdout."""

    def run(*words):
        code, out, err = script(*words)
        assert code == 0, out + err
        return out

    return run


def flags(link):
    """What follows each word of a link's command."""
    return dict(zip(link.argv, (*link.argv[1:], ""), strict=True))


def refused(result, *parts):
    """Exit code 2, no traceback, and stderr holds these parts: one line of ours, or tyro's own box."""
    code, _, err = result
    assert code == 2, err
    assert (err.startswith("error: ") and err.count("\n") == 1) or "full helptext" in err, err
    assert "Traceback" not in err
    for part in parts:
        assert str(part) in err, err


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text):
    """(code, what it prints) of every example; every block is code or its output."""
    found = BLOCK.findall(text)
    assert [language for language, _ in found] == ["python", "text"] * (len(found) // 2)
    return [(code, said) for (_, code), (_, said) in zip(found[::2], found[1::2], strict=True)]


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text("utf-8"))


def names_in(path):
    """Every identifier, attribute, keyword and constant of a file: a label that is named whole, in whatever way."""
    fields = ("id", "attr", "arg", "name", "value")
    return {getattr(node, field, None) for node in ast.walk(tree_of(path)) for field in fields}


def benchmark_row(**changes):
    user = "PROBLEM:\nAdd.\n\nYour solution should be called add and should pass all tests. Use the starter code."
    row = {
        "id": 7, "difficulty": "easy", "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": user}],
        "gt_answer": ["assert Solution().add(a = 1, b = 2) == 3"], "setup_code": "import math\n",
        "canonical_solution": "class Solution:\n    def add(self, a, b):\n        return a + b",
        "func_name": "Solution().add",
        "prompt_metadata": {"starter_code": ""},
    }  # fmt: skip
    return json.dumps({k: v for k, v in {**row, **changes}.items() if v is not ...}) + "\n"
