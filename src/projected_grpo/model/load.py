"""Load a model and its tokenizer from a folder or the hub cache, merge a PEFT teacher. Never downloads.

Names of models that are made here (`tiny`, `toy`, ...) are resolved to folders in worlds/models.py.
"""

import hashlib
import logging
import os
import re
import warnings
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from peft import PeftModel, get_peft_model_state_dict
from peft.utils import load_peft_weights
from peft.utils.constants import EMBEDDING_LAYER_NAMES
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import content_hash
from projected_grpo.model.attention import PLAIN, fuse

MERGED_LIKE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Largest relative difference of a merged teacher's logits from the unmerged ones: merging rounds each weight
once."""

transformers_logging.disable_progress_bar()  # its bars ("Loading weights") draw even when nobody watches
logging.getLogger("transformers.modeling_utils").addFilter(lambda record: "LOAD REPORT" not in record.getMessage())


@dataclass(frozen=True)
class LoadedModel:
    """A frozen model with what the loop needs to know of it."""

    model: Any
    """A transformers causal LM in eval mode."""
    tokenizer: Any
    model_id: str
    weights_hash: str
    tokenizer_hash: str
    eos_ids: frozenset[int]
    pad_id: int
    context: int
    """Longest prompt + completion, in tokens."""

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that names its special tokens."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def completion_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a written completion, end-of-sequence token included."""
        return (*self.text_ids(text), self.tokenizer.eos_token_id)

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """The same of an answer that another model wrote: a special token that it spells is letters."""
        ids = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return (*ids, self.tokenizer.eos_token_id)


def hash_parameters(named: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hash of every parameter's name, type, shape and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, p in named:
        digest.update(f"{name} {p.dtype} {tuple(p.shape)}".encode())
        digest.update(p.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fixed_order(device: torch.device) -> None:
    """From now on a CUDA device's kernels add up in one fixed order; what has no such kernel warns, by its name.
    SHOULD be called before cuBLAS is first used, which then reads its variable."""
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def use_card(device: torch.device) -> None:
    """Makes a CUDA device the current one, for captures and streams too, and leaves cuDNN's attention out: torch prefers it
    on an H100 and plans it again for every new length, a second each (pytorch issue 196678: NaN with some masks)."""
    torch.cuda.set_device(device)
    torch.backends.cuda.enable_cudnn_sdp(False)


def pick_device(device: str) -> torch.device:
    """`auto` is cuda when there is one. BadInput on a device that is not there."""
    there = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if there else "cpu")
    if device != "cpu" and not (there and re.fullmatch(r"cuda(:\d+)?", device)):
        raise BadInput(f"--device {device}: not available here; use auto{', cuda' * there} or cpu")
    return torch.device(device)


def _unreadable(what: str, name: str, e: Exception) -> BadInput:
    why = " ".join(str(e).split())
    return BadInput(
        f"{what} {name}: cannot be read ({type(e).__name__}: {why:.200}); give a whole one, or fetch Qwen3-4B and "
        "the rh-s65 teacher with `just download-model`"
    )


def pad_of(tokenizer: Any) -> int:
    """Its padding token, or what ends a text where it names none (SmolLM2's by transformers 5.17)."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def load_folder(
    name: str, folder: str | Path, dtype: Literal["float32", "bfloat16"], device: str, teacher: str | Path | None = None
) -> LoadedModel:
    """Load a folder (or a cached hub id), frozen and in eval mode, to be known as `name`; with `teacher`, merge that
    LoRA.

    BadInput when the device, the model or the teacher is missing, or as in check_whole and merge_teacher.
    """
    chosen = pick_device(device)
    if chosen.type == "cuda":
        use_card(chosen)
    if Path(folder, "adapter_config.json").exists():  # transformers would add it to the weights, unmerged
        raise BadInput(
            f"--model {name}: holds adapter_config.json; give the base, or a merged model in a folder of its own"
        )
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, found = AutoModelForCausalLM.from_pretrained(  # ty: ignore[not-iterable]
            folder, dtype=getattr(torch, dtype), local_files_only=True, attn_implementation=PLAIN,
            output_loading_info=True, ignore_mismatched_sizes=True,  # check_whole names them
        )  # fmt: skip
    except Exception as e:  # whatever a damaged file makes its reader raise
        raise _unreadable("--model", name, e) from e
    check_whole(name, model, tokenizer, found)
    if teacher is not None:
        model = merge_teacher(model, str(teacher))
    model.requires_grad_(False).eval().to(chosen)
    if chosen.type == "cuda":
        fuse(model)
    eos = model.generation_config.eos_token_id if model.generation_config else None
    eos_ids = {i for i in (tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])) if i is not None}
    return LoadedModel(
        model,
        tokenizer,
        name,
        hash_parameters(model.named_parameters()),
        content_hash([sorted(tokenizer.get_vocab().items()), tokenizer.chat_template]),
        frozenset(eos_ids),
        pad_of(tokenizer),
        model.config.max_position_embeddings,
    )


def check_whole(name: str, model: Any, tokenizer: Any, found: Mapping[str, Any]) -> None:
    """BadInput when weights and config.json do not fit (`found`: transformers' loading info), as it fills what is
    missing with random numbers; or when the tokenizer cannot read a word, end a text, or has more tokens than the
    model."""
    faults = [f"{what.removesuffix('_keys')} for its config.json: {min(keys)}" for what, keys in found.items() if keys]
    ids = tokenizer("return", add_special_tokens=False)["input_ids"]
    if tokenizer.eos_token_id is None or tokenizer.decode(ids).strip() != "return":
        faults.append("its tokenizer has no vocabulary or no end-of-sequence token")
    if len(tokenizer) > (rows := len(model.get_input_embeddings().weight)):
        faults.append(f"its tokenizer has {len(tokenizer)} tokens, its embedding {rows}")
    if faults:
        raise BadInput(f"--model {name}: {faults[0]}; give a whole model with its tokenizer")


def merge_teacher(model: Any, teacher: str) -> Any:
    """Merge a PEFT LoRA into the model's weights.

    BadInput when it is missing, does not fit or changes nothing, and when the merged model is not the adapter's
    function."""
    if Path(teacher).is_dir() and not [*Path(teacher).glob("adapter_model.*")]:
        raise BadInput(f"--teacher {teacher}: has no adapter_model.safetensors; give the folder of a whole LoRA")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    try:
        with without_warnings():
            adapted = PeftModel.from_pretrained(model, teacher, local_files_only=True)
            check_fit(adapted, load_peft_weights(teacher, device="cpu", local_files_only=True), teacher)
            logits = probe_logits(adapted)
            merged = adapted.merge_and_unload()
    except BadInput:
        raise
    except Exception as e:  # PEFT checks neither its config nor whether a kind of adapter can be merged
        raise _unreadable("--teacher", teacher, e) from e
    if all(torch.equal(merged.get_parameter(n), weight) for n, weight in before.items()):
        raise BadInput(f"--teacher {teacher}: merging it left every weight of the base as it was; it is no teacher")
    apart = float((probe_logits(merged) - logits).norm() / logits.norm())
    if not apart <= MERGED_LIKE[merged.dtype]:  # NaN is not
        raise BadInput(
            f"--teacher {teacher}: merged, its logits differ by {apart:.1%} from those of the unmerged adapter; "
            "give a LoRA that merges into the weights"
        )
    return merged


def check_fit(adapted: PeftModel, saved: Iterable[str], teacher: str) -> None:
    """BadInput when the names of the tensors that are `saved` are not just those of the adapter."""
    wanted, there = get_peft_model_state_dict(adapted, save_embedding_layers=False).keys(), set(saved)
    whole = tuple(f".{name}.base_layer.weight" for name in EMBEDDING_LAYER_NAMES)  # PEFT saves them next to their LoRA
    extra = {key for key in there - wanted if not key.endswith(whole)}
    for keys, what in ((wanted - there, "lacks"), (extra, "has a key without a device in the model,")):
        if keys:
            raise BadInput(f"--teacher {teacher}: its file {what} {min(keys)}; give a whole LoRA of this model")


@torch.no_grad()
def probe_logits(model: Any) -> Float[torch.Tensor, "n v"]:
    """Logits of a few tokens, float32."""
    ids = torch.arange(1, 9, device=model.device)[None] % model.config.get_text_config().vocab_size
    return model(input_ids=ids, use_cache=False).logits[0].float()


@contextmanager
def without_warnings() -> Generator[None]:
    """Silences PEFT, which warns of what is checked here; not where it does not know a setting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", message="Unexpected keyword arguments")
        yield
