"""Build the base model of a world that is made here, and its hacky teacher (or find them in the cache), and hold both
against their bars.

Exit code 1 when a bar is missed: on such a model no run means anything.
"""

from dataclasses import replace

from projected_grpo.config import BuildConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import check_new
from projected_grpo.presets import PRESETS, presets
from projected_grpo.run import cli
from projected_grpo.worlds.registry import WORLDS, world_of_model


def main() -> int:
    built = {name: config for name, config in presets(BuildConfig).items() if PRESETS[name].builds_base}
    config = cli.parse(built, __doc__)
    world = world_of_model(config.model)
    if not world.bars or not (recipe := world.models[config.model]).teacher:
        known = (name for other in WORLDS.values() if other.bars for name, m in other.models.items() if m.teacher)
        raise BadInput(
            f"--model {config.model}: is not built here with a teacher and bars; there are {', '.join(known)}"
        )
    if config.rebuild and not recipe.rebuild:
        raise BadInput(f"--rebuild: no weights of --model {config.model} come with the package; leave it out")
    run = config.folder(world.name, config.model)
    check_new(run)
    from tabulate import tabulate

    from projected_grpo.data.live import live_groups, render_all
    from projected_grpo.data.problems import load_problems, problems_hash
    from projected_grpo.ledger.console import CUES, bottom_line
    from projected_grpo.ledger.folder import open_run, update_manifest
    from projected_grpo.ledger.rates import rates
    from projected_grpo.ledger.rows import rows_of
    from projected_grpo.ledger.step_file import write_step
    from projected_grpo.run.prepare import load, log_isolation
    from projected_grpo.verdicts.registry import exit_code
    from projected_grpo.worlds.bars import compared_with_bars
    from projected_grpo.worlds.models import builder

    if config.rebuild:
        builder(recipe.rebuild)(config.model, config.base_seed, config.cache)
    log_isolation()
    problems = load_problems(config.problems)[: config.n_problems or None]
    tasks = {p.problem_id: p.task for p in problems}
    keys = [f"bars {config.seed} {index}" for index in range(len(problems))]
    found, measured = [], {}
    stages = [("before", recipe.starts_from, None)] if recipe.starts_from else []
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
        found += [] if stage == "before" else compared_with_bars(stage, world.bars[stage], rows)
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
