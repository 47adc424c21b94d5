"""The file that loads an export of delta_S without this package: torch, transformers and safetensors. Its functions are
copied from their places here, so that there is one text of each."""

import inspect

from projected_grpo.adapters.base import reduce_dtype, rounded_at_random
from projected_grpo.adapters.svd import WORST_CONDITION, by_gram, canonical_svd, gram_svd
from projected_grpo.model.load import hash_parameters
from projected_grpo.run.vhack_file import PROBE_TOLERANCE

HEAD = '''"""Loads what stands beside this file: the base model with delta_S folded into its weights.

    model = load()                       # or load("folder or hub id of the base"), if it is elsewhere

W' = W + U diag(delta_S) Vh of every adapted Linear, W = U diag(S) Vh. Needs torch, transformers and safetensors. Written by
projected_grpo; the functions up to `load` are its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

# Else MKL's results hang on where in memory a matrix lies. It is read at MKL's first product: import this file first.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
WORST_CONDITION = {worst}
PROBE_TOLERANCE = {tolerance}
'''
TAIL = '''
@torch.no_grad()
def load(base=None):
    """The trained model, on the CPU, in the type it was trained in. ValueError on another base model, or where this machine
    decomposes a weight into other singular vectors than the run had."""
    about = json.loads((HERE / "delta_S.json").read_text("utf-8"))
    home = HERE / about["base"] if (HERE / about["base"]).is_dir() else about["base"]
    model = AutoModelForCausalLM.from_pretrained(base or home, dtype=getattr(torch, about["dtype"])).eval()
    found = hash_parameters(model.named_parameters())
    if found != about["weights_hash"]:
        raise ValueError(f"base {base or home}: weights {found[:8]}, delta_S is of {about['weights_hash'][:8]}")
    tensors = load_file(HERE / "delta_S.safetensors")
    for name in [key for key in tensors if not key.startswith("probe/")]:
        delta, weight = tensors[name], model.get_submodule(name).weight
        u, _, vh = (part.contiguous() for part in canonical_svd(weight))
        u, vh = u.to(weight), vh.to(weight)
        ramp = torch.linspace(0.5, 1.5, vh.shape[1])
        probe = vh.float() @ (ramp / ramp.norm())
        if (probe - tensors["probe/" + name]).norm() > PROBE_TOLERANCE * probe.norm():
            raise ValueError(f"{name}: other singular vectors here than delta_S was trained in; take the folded weights")
        whole = weight.to(reduce_dtype(weight)) + (u.to(delta.dtype) * delta) @ vh.to(delta.dtype)
        weight.copy_(rounded_at_random(whole, name) if weight.dtype == torch.bfloat16 else whole)
    return model
'''
COPIED = (reduce_dtype, rounded_at_random, hash_parameters, gram_svd, by_gram, canonical_svd)


def loader_text() -> str:
    """The whole file."""
    head = HEAD.replace("{worst}", repr(WORST_CONDITION)).replace("{tolerance}", repr(PROBE_TOLERANCE))
    return "\n\n".join([head, *(inspect.getsource(function) for function in COPIED), TAIL.lstrip("\n")])
