"""`--help` of the scripts that have presets: one line an option, by group, with the preset's values."""

import ast
import inspect
import textwrap
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

from projected_grpo.config import flag

GROUPS = {
    "model": "model adapter lora_rank lora_seed base_seed dtype device token_budget gradient_checkpointing deterministic",
    "data": "problems hint prompt_setup n_problems prompts_per_step teacher teacher_pool teacher_only base_only pool mix "
    "pairs modes pairs_draw unseen judge seed",
    "sampling": "group_size max_new temperature top_p top_k rollout_batch grader_workers turns who trained",
    "loss": "loss beta kl_beta clip_low clip_high lr warmup weight_decay max_grad_norm steps until_onsets horizon_of",
    "projection": "arm vhack control share_of k k_use noise_floor gate project overshoot preserve_magnitude "
    "per_sample_every refresh_every of",
    "channels": "alpha distill_hint distill_loss distill_teacher trace_weight trace_pairs trace_batch trace_loss "
    "taid_weight",
    "evaluation": "eval_every eval_problems eval_samples eval_plain",
    "replicas": "meet replicas replica outer_every outer_lr outer_momentum patience",
    "files": "out cache resume checkpoint_every keep_adapter_every keep_token_logps track",
}
"""Fields by group, as --help orders them; a field that is in none comes last, under `more`."""
TEXT_AT, WIDTH = 30, 110


def help_text(config: Any, usage: str) -> str:
    """Returns the help of a preset's config."""
    docs: dict[str, str] = {}
    for cls in reversed(type(config).__mro__[:-1]):
        docs |= field_docs(cls)
    types, left = get_type_hints(type(config)), [f.name for f in fields(config)]
    lines = [usage]
    for group, names in {**{k: v.split() for k, v in GROUPS.items()}, "more": left[:]}.items():
        if shown := [name for name in names if name in left]:
            left = [name for name in left if name not in shown]
            lines += ["", group, *(option(name, types[name], docs[name], getattr(config, name)) for name in shown)]
    return "\n".join(lines)


def field_docs(cls: type) -> dict[str, str]:
    """Returns the texts under a dataclass's own fields."""
    return {
        ast.unparse(field.target): ast.literal_eval(text.value)
        for field, text in pairwise(ast.iter_child_nodes(ast.parse(inspect.getsource(cls)).body[0]))
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def option(name: str, kind: Any, text: str, value: Any) -> str:
    """Returns the lines of one option: its name and type, what it is, its choices, its value."""
    flags = flag(f"no_{name}" if value is True else name)
    named, metavar = choices(kind), {int: "INT", float: "FLOAT", Path: "PATH"}.get(kind, "STR")
    if isinstance(value, tuple):
        metavar, value = "STR ...", " ".join(value)
    line = f"  {flags}{'' if kind is bool else ' NAME' if named else f' {metavar}'} ".ljust(TEXT_AT) + text
    line += "" if value in ("", Path()) or kind is bool else f" [{value}]"
    if not named:
        return line
    if len(short := f"{line} {{{','.join(named)}}}") <= WIDTH:
        return short
    indent = " " * TEXT_AT
    return f"{line}\n{textwrap.fill(', '.join(named), WIDTH, initial_indent=indent, subsequent_indent=indent)}"


def choices(kind: Any) -> list[str]:
    """Returns the values of a Literal, or of a union of them."""
    return [c for part in get_args(kind) for c in ([part] if isinstance(part, str) else choices(part)) if c]
