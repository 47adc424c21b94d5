"""Build the toy world's base model and its hacky teacher (or find them in the cache) and hold both against their bars.

Exit code 1 when a bar is missed: on such a model no run means anything.
"""

from projected_grpo.presets import presets
from projected_grpo.run import cli
from projected_grpo.toy.settings import BuildToyConfig


def main() -> int:
    config = cli.parse_plain(BuildToyConfig, __doc__, default=presets(BuildToyConfig)["toy"]).at_home()
    config.validate()
    from tabulate import tabulate

    from projected_grpo.groups.live import live_groups, render_all
    from projected_grpo.groups.problems import load_problems, problems_hash
    from projected_grpo.ledger.console import CUES, bottom_line
    from projected_grpo.ledger.folder import check_new, open_run, update_manifest
    from projected_grpo.ledger.rates import rates
    from projected_grpo.ledger.rows import rows_of
    from projected_grpo.ledger.step_file import write_step
    from projected_grpo.run.prepare import default_out, load, log_isolation
    from projected_grpo.toy import bars
    from projected_grpo.verdicts.registry import exit_code

    run = default_out(config, "toy", config.model)
    check_new(run)
    log_isolation()
    problems = load_problems(config.problems)
    tasks = {p.problem_id: p.task for p in problems}
    found = []
    measured = {}
    for step, teacher in enumerate((None, config.model)):
        loaded = load(config, teacher)
        if teacher is None:
            open_run(run, "build_toy", config, problems_hash=problems_hash(problems))
        source = "teacher" if teacher else "base"
        groups, timing = live_groups(
            config,
            loaded,
            render_all(config, loaded, problems),
            tasks,
            config.group_size,
            [f"bars {config.seed} {place}" for place in range(len(problems))],
            source,
            loophole=True,
        )
        timing["total"] = sum(timing.values())
        rows = rows_of(groups, [], {"timing": timing}, step=step, arm=source, seed=config.seed)
        write_step(run, step, rows)
        measured[source] = {"n": len(rows), **rates(rows)}
        found += bars.toy_bars(source, rows)
    update_manifest(run, finished=True, measured=measured)
    print(tabulate([[CUES[v.status], v.name, v.status, v.why] for v in found], ["", "bar", "", "numbers"]))
    code = exit_code(found, [v.name for v in found])
    bottom_line(
        run,
        {0: "PASS"}.get(code, "FAIL"),
        f"{config.model}: {len(problems)} held-out problems x {config.group_size} completions",
        [["", *measured["base"]], *([name, *shares.values()] for name, shares in measured.items())],
    )
    return code


if __name__ == "__main__":
    cli.run(main)
