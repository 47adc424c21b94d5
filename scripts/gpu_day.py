"""A GPU day's checklist: bench, predicted against measured memory, extraction, training cut half way and resumed.

Exit code 1 when a check did not end as it should, 2 where there is no CUDA device (--dry prints the commands anywhere).
"""

import shlex

from projected_grpo.bench.settings import GpuDayConfig
from projected_grpo.run import cli


def main() -> int:
    config = cli.parse_plain(GpuDayConfig, __doc__)
    config.validate()
    from projected_grpo.bench import gpu_day
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK, BadInput
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.ledger.folder import check_new

    checks = gpu_day.checklist(config)
    if config.dry:
        for check in checks:
            print(f"# {check.name}\npython {shlex.join(check.argv)}")
        bottom_line(None, "⚪", f"{len(checks)} checks, none of them run (--dry)")
        return EXIT_OK
    import torch
    from loguru import logger

    if not torch.cuda.is_available():
        raise BadInput("no CUDA device here, and nothing of a GPU is told without one; --dry prints the commands")
    check_new(config.out)
    config.out.mkdir(parents=True)
    ended = []
    for number, check in enumerate(checks, 1):
        logger.info(f"{number} of {len(checks)}: {check.name}")
        ended.append(gpu_day.run(check, config.out / f"{number}.log"))
        if not ended[-1].passed:
            break
    path = config.out / "report.md"
    text = gpu_day.report(torch.cuda.get_device_name(), ended, checks[len(ended) :])
    write_atomic(path, text.encode())
    print(text)
    good = len(ended) == len(checks) and ended[-1].passed
    told = f"{sum(e.passed for e in ended)} of {len(checks)} checks ended as they should"
    bottom_line(path, "PASS" if good else "FAIL", told)
    return EXIT_OK if good else EXIT_FAILED


if __name__ == "__main__":
    cli.run(main)
