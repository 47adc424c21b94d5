"""Two V side by side: principal angles between their bases, module by module. Exit code: 0 they are two, 1 they are one
subspace (whatever they are called: the same loss, or the same tensors up to signs, order and rounding)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class CompareVConfig:
    """The two artefacts of extract_vhack_grad."""

    a: Annotated[Path, tyro.conf.Positional]
    """One vhack.safetensors."""
    b: Annotated[Path, tyro.conf.Positional]
    """The other."""
    out: NoPath = Path()
    """Write the printout here too (a .txt or .md file), its numbers (.json) beside it. Empty: print only."""


def main() -> int:
    config = cli.parse_plain(CompareVConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK, BadInput
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.run.two_bases import two_bases

    if config.out.suffix == ".json":
        raise BadInput(f"--out {config.out}: the printout is text; end it in .txt (the numbers go to .json beside it)")
    found = two_bases(config.a, config.b)
    text = found.text()
    print(text)
    if config.out != Path():
        write_atomic(config.out.with_suffix(".json"), (json.dumps(found.json(), indent=1) + "\n").encode())
        write_atomic(config.out, f"{text}\n".encode())
    told = "identical: one subspace under two names" if found.identical else "two bases"
    overlap = sum(m.overlap for m in found.modules) / len(found.modules)
    null = sum(m.null for m in found.modules) / len(found.modules)
    bottom_line(
        config.out if config.out != Path() else None,
        "FAIL" if found.identical else "PASS",
        f"{told}; overlap {overlap:.4f} over {len(found.modules)} modules (1: the same, {null:.4f}: unrelated)",
    )
    return EXIT_FAILED if found.identical else EXIT_OK


if __name__ == "__main__":
    cli.run(main)
