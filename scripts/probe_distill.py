"""The cheap look before a GPU sweep: sample the hacky teacher's pool once, replay it through the student.

--teacher-only samples and grades the pool. Without it the pool is replayed, one group a step, per-sample mean NLL on
completion tokens (as v_hack was extracted), with every sample's own gradient measured against V.
"""

from dataclasses import replace
from pathlib import Path

from projected_grpo.config import ProbeConfig
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.presets import presets
from projected_grpo.run import cli
from projected_grpo.run.inputs import check_inputs

OF_POOL = (
    "teacher", "problems", "hint", "prompt_setup", "group_size", "max_new", "temperature", "top_p", "top_k",
)  # fmt: skip
"""Settings of a pool that its replays have."""


def main() -> int:
    config = cli.parse(presets(ProbeConfig), __doc__)
    check_inputs(config)
    if (manifest := Path(config.pool) / "manifest.json").exists() and not config.teacher_only:
        sampled = read_manifest(manifest.parent)["config"]  # the manifest says how the replayed rows were sampled
        config = replace(config, **{name: sampled[name] for name in OF_POOL})
    from projected_grpo.run.replay import replay, sample_pool

    return sample_pool(config) if config.teacher_only else replay(config)


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
