"""The cheap look before a GPU sweep: sample the hacky teacher's pool once, replay it through the student.

--teacher-only samples and grades the pool. Without it the pool is replayed, one group a step, per-sample mean NLL on
completion tokens (as v_hack was extracted), with every sample's own gradient measured against V.
"""

from projected_grpo.config import ProbeConfig
from projected_grpo.presets import presets
from projected_grpo.run import cli
from projected_grpo.run.inputs import check_inputs


def main() -> int:
    config = cli.parse(presets(ProbeConfig), __doc__)
    check_inputs(config)
    from projected_grpo.run.replay import replay, sample_pool

    return sample_pool(config) if config.teacher_only else replay(config)


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
