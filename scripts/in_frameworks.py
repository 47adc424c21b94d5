"""Do verifiers, inspect-ai and this project say the same of a model? Greedy answers to a world's problems, through each.

Exit code 1 where an answer or its label differs. Needs the frameworks' environments (`just frameworks`).
"""

from projected_grpo.elsewhere.settings import InFrameworksConfig
from projected_grpo.run import cli

ROWS, LOG = "rows.jsonl", "serve.log"


def main() -> int:
    config = cli.parse_plain(InFrameworksConfig, __doc__)
    config.validate()
    from loguru import logger

    from loophole_grader import LABELS
    from projected_grpo.elsewhere import frameworks
    from projected_grpo.groups.problems import as_rows, check_hint, load_problems
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.run.models import folder_of
    from projected_grpo.teachers.local_server import free_port, served

    for name, command in (("verifiers", "vf-eval"), ("inspect", "inspect")):
        frameworks.command_of(name, command)
    problems = load_problems(config.problems)[: config.n]
    check_hint(config.hint, problems)
    folder = folder_of(config.model, config.base_seed, config.cache)
    rows = (config.out / ROWS).resolve()
    frameworks.clear(config.out, (ROWS, LOG, *frameworks.FRAMEWORKS))
    write_atomic(rows, as_rows(problems))
    said = {"here": frameworks.ask_here(folder, problems, config.hint, config.max_tokens)}
    with served([folder], free_port(), config.out / LOG) as url:
        at = frameworks.Endpoint(url, str(folder), config.max_tokens)
        for name, ask in frameworks.FRAMEWORKS.items():
            logger.info(f"{name} asks {len(problems)} problems")
            said[name] = ask(rows, config.hint, at, (config.out / name).resolve())
    table, odd = [], 0
    for name, asked in said.items():
        unlike = frameworks.unlike(said["here"], asked)
        odd += len(unlike)
        for problem in unlike[:3]:
            logger.info(f"{problem}: {said['here'].get(problem)} here, {asked.get(problem)} in {name}")
        labels = [sum(s.label == label for s in asked.values()) for label in LABELS]
        table.append([name, len(asked), *labels, len(problems) - len(unlike)])
    bottom_line(
        config.out,
        "🟢" if not odd else "🔴",
        f"{folder.name}: each framework gets the words and gives the label of here, on each of {len(problems)} problems "
        f"(SHOULD, ELSE its prompt, its sampling or its grading differs): {odd} differ",
        [["", "n", *LABELS, "words and label as here"], *table],
    )
    return 1 if odd else 0


if __name__ == "__main__":
    cli.run(main)
