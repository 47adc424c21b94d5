"""Build the base model of a world that is made here, and its hacky teacher (or find them in the cache), and hold both
against their bars.

Exit code 1 when a bar is missed: on such a model no run means anything.
"""

from dataclasses import replace

from projected_grpo.config import BuildConfig
from projected_grpo.presets import PRESETS, presets
from projected_grpo.run import cli


def main() -> int:
    built = {name: config for name, config in presets(BuildConfig).items() if PRESETS[name].builds_base}
    config = cli.parse(built, __doc__)
    from tabulate import tabulate

    from projected_grpo.data.live import live_groups, render_all
    from projected_grpo.data.problems import load_problems, problems_hash
    from projected_grpo.ledger.console import CUES, bottom_line
    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.ledger.folder import check_new, open_run, update_manifest
    from projected_grpo.ledger.rates import rates
    from projected_grpo.ledger.rows import rows_of
    from projected_grpo.ledger.step_file import write_step
    from projected_grpo.run.prepare import load, log_isolation
    from projected_grpo.verdicts.registry import exit_code
    from projected_grpo.worlds.bars import BARS, held_to_bars
    from projected_grpo.worlds.models import BUILT

    if config.model not in BUILT or BUILT[config.model].world not in BARS:
        known = ", ".join(name for name, model in BUILT.items() if model.world in BARS)
        raise BadInput(f"--model {config.model}: nothing that is built here has this name and bars; there are {known}")
    recipe = BUILT[config.model]
    run = config.folder(recipe.world, config.model)
    check_new(run)
    log_isolation()
    problems = load_problems(config.problems)[: config.n_problems or None]
    tasks = {p.problem_id: p.task for p in problems}
    keys = [f"bars {config.seed} {place}" for place in range(len(problems))]
    found, measured = [], {}
    stages = [("before", recipe.before, None)] if recipe.before else []
    stages += [("base", config.model, None)]
    stages += [] if config.base_only else [("teacher", config.model, config.model)]
    for step, (stage, model, teacher) in enumerate(stages):
        loaded = load(replace(config, model=model), teacher)
        if not step:
            open_run(run, "build_base", config, problems_hash=problems_hash(problems))
        drawn = (render_all(config, loaded, problems), tasks, config.group_size, keys, "teacher" if teacher else "base")
        groups, _, timing = live_groups(config, loaded, *drawn, loophole=True)
        timing["total"] = sum(timing.values())
        rows = rows_of(groups, [], {"timing": timing}, step=step)
        write_step(run, step, rows)
        measured[stage] = {"n": len(rows), **rates(rows)}
        found += [] if stage == "before" else held_to_bars(recipe.world, stage, rows)
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
