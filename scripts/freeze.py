"""Write the numbers of this checkout into one file, or hold this checkout against such a file. Temporary.

    python scripts/freeze.py --out numbers.json.gz             write them
    python scripts/freeze.py --against scripts/freeze.json.gz  compute them again, print what differs; exit code 1

Bits differ between kinds of processor. On another machine write the file again, from the code that it is about:
`git worktree add ../before 7d0577a && cp scripts/freeze.py ../before/scripts/`, and the first command in ../before.
Parts: train, v, judge, grade, queue, and small, which fetches a real model. Everything goes through the scripts and the
files that they write. Columns are compared to 10 digits; `theta_after` is a checksum and says whether bits are equal.
"""

import argparse
import contextlib
import gzip
import hashlib
import io
import itertools
import json
import math
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_CBWR": "AUTO,STRICT", "OMP_WAIT_POLICY": "PASSIVE"}
ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "out/cache"
PARTS = ("queue", "v", "train", "judge", "grade", "small")

ALLOWED: dict[str, tuple[str, str]] = {}
"""Pattern of a path in the file -> (what may differ: `any`, `missing` or `1e-5`, which is relative; why)."""
ALLOWED |= {
    r"train/more checkpointing/.*": ("any", "prompts run once a group: the same bits as without checkpointing"),
    r"queue/adapters .*/(anew|re_extract)_.*": ("any", "the links that extract V again have a plain name"),
    r"judge/[^/]*/why/.*": ("any", "texts of verdicts may change"),
    r"judge/results toy-mark.*": ("any", "toy-mark goes whole"),
    r"judge/[^/]* toy-mark/.*": ("any", "toy-mark goes whole"),
    r"judge/results [^/]*/json/(h2|warning)(/.*)?": ("missing", "H2 and early warning go whole"),
    r"queue/(share|mark) .*": ("any", "H2 and toy-mark go whole"),
    r"queue/variants .*_tenth.*": ("missing", "V of a tenth of the modules goes whole"),
    r"queue/full .*/results_controls": ("any", "results of vanilla and projected come first"),
    r"queue/toy .*/results_controls": ("any", "so they do in the toy chain"),
    r"queue/.*_(random_share|one_sided|update_one_sided)_\d+": (
        "any",
        "random_share and one_sided are arms, for issue 48",
    ),
    r"queue/trace .*/judge_teachers": ("missing", "ask_teachers prints the verdict on its teachers"),
    r"judge/results small/json/arms/1/minus_vanilla_pp/.*": ("any", "the sources' hash of two runs is not compared"),
    r"grade/attacks/.*": ("missing", "attacks by forms of test that are refused go, others are named anew"),
    r"train/.*/theta_before": ("missing", "the last step's theta_after says the same"),
    r"(train|pairs)/.*/(prompt_len|ratio_hist.*|loss_tokens|cos_signed_in|cos_signed_out|energy_out|v_overlap)": (
        "missing",
        "columns that nothing reads go in issue 43",
    ),
    r"(train|pairs)/.*/(behaviour_from|flat_groups|logp_gap)": ("missing", "functions of other columns of the file"),
    r"(train|pairs)/.*/(seed|ratio_high|energy_update_in)": ("missing", "columns that nothing reads go in issue 43"),
    r"train/more channel hint base/.*": ("any", "--distill-top-k goes: no recipe, preset or page uses it"),
    r"train/.*/(grad_norm_alone|cos_S_alone)": ("any", "a second gradient of one row is taken in the probe alone"),
    r"train/.*/(cos_out|removed_share)": ("1e-5", "taken from the gradient itself in issue 43"),
    r"train/.*/modules_\d+/(cos_signed_in|cos_update_in|cos_update|cos_signed_update)": (
        "missing",
        "columns of modules that nothing reads go in issue 43",
    ),
    r"judge/results .*/settings/(distill_(beta|temperature|token_clip|top_k)|trace_(beta|gamma_ratio|smoothing)|taid_.*)": (
        "missing",
        "options of the auxiliary losses that the config has no more",
    ),
    r"judge/channels channels-toy/printed/.*": ("missing", "units' rates are in the table of every run"),
    r"judge/channels channels-toy/printed/\d+": ("any", "empty lines, by their number"),
    r"train/.*/modules_\d+/removed": ("any", "a digest; taken from the gradient itself in issue 43"),
}

# ---------------------------------------------------------------- scripts, called in this process


def script(name: str, *args: object, codes: tuple[int, ...] = (0,)) -> str:
    """What a script prints. RuntimeError when it ends with another exit code."""
    before, sys.argv = sys.argv, [f"scripts/{name}.py", *map(str, args)]
    sys.path.insert(0, str(ROOT / "scripts"))
    out, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            runpy.run_path(str(ROOT / f"scripts/{name}.py"), run_name="__main__")
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv = before
        sys.path.remove(str(ROOT / "scripts"))
    if code not in codes:
        raise RuntimeError(f"{name} {' '.join(map(str, args))}: exit code {code}: {out.getvalue()[-500:]}")
    return out.getvalue()


def digest(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:12]


def short(value: Any) -> Any:
    """A JSON value to 10 digits; a long list of numbers, or a long table of them, as its digest."""
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        made = {str(k): short(v) for k, v in value.items()}
        return (
            digest(made)
            if len(made) > 12 and not any(isinstance(v, (dict, list, str)) for v in made.values())
            else made
        )
    if isinstance(value, list):
        made = [short(v) for v in value]
        return digest(made) if len(made) > 8 and not any(isinstance(v, (dict, str)) for v in made) else made
    return value


# ---------------------------------------------------------------- training

LEFT_OUT = ("timing", "prompt", "completion", "hint", "step", "arm", "seed", "sample_id", "replica")
LISTS = ("prompt_ids", "completion_ids", "behaviour_logps")


def rows_of(path: Path) -> dict[str, Any]:
    """Of a step file every column: one value where all rows agree, else one a row."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    columns = {}
    for name in rows[0]:
        if name not in LEFT_OUT:
            cells = [short(r[name]) if name not in LISTS else r[name] and digest(r[name]) for r in rows]
            columns[name] = cells[0] if all(c == cells[0] for c in cells) else cells
    return columns


def run_of(run: Path) -> dict[str, Any]:
    """Every step and evaluation, and of the modules' side file a digest of each column."""
    found = {str(p.relative_to(run))[:-9]: rows_of(p) for p in sorted(run.rglob("step_*.jsonl.gz"))}
    if (side := run / "modules.jsonl.gz").exists():
        for line in map(json.loads, gzip.decompress(side.read_bytes()).splitlines()[1:]):
            found[f"modules_{line['step']:03d}"] = {k: digest(v) for k, v in line.items() if k != "step"}
    return found


TINY = ("tiny", "--cache", CACHE, "--max-new", 8, "--group-size", 4, "--grader-workers", 1)
POOLED = ("--teacher-pool", "pairs")
JUDGE = ("--judge", "python:freeze:says")


def says(_prompt: str, completion: str) -> float:
    """A judge that flags some."""
    return len(completion) % 7 / 6


MONITORS = ("truth", "90", "70", "probe", "phrase", "judge")
ARMS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("vanilla", "projected", "literal", "shrunk", "kl", "no_loophole"), ("--vhack", "none", *POOLED)),
    **{arm: ("--vhack", arm, *POOLED) for arm in ("random", "placebo", "random_energy", "clean", "words")},
    **dict.fromkeys(("trusted", "trusted_update"), ("--vhack", "clean", *POOLED)),
    **dict.fromkeys(("post_hoc", "post_hoc_top"), ("--vhack", "none", "--of", "vanilla", *POOLED)),
    **dict.fromkeys(("advantage", "ablation"), POOLED),
    "inoculation_prompt": ("--vhack", "none"),
    **dict.fromkeys(("inoculation_adapter", "experts", "experts_random"), ("--teacher", "tiny", *POOLED)),
    **{
        f"{kind}_{who}": (*POOLED, *(JUDGE if who == "judge" else ()))
        for kind in ("penalty", "screen")
        for who in MONITORS
    },
    "quarantine": ("--vhack", "none", *POOLED),
    "quarantine_random": ("--vhack", "random", *POOLED),
}
DERIVED = ("post_hoc", "post_hoc_top")
HINT = ("--alpha", 1, "--distill-hint")
TRACE = ("--trace-weight", 0.5, "--trace-batch", 3, "--trace-pairs", "pairs.jsonl")
WITH_V = (*POOLED, "--vhack", "none")
MORE: dict[str, tuple[object, ...]] = {
    **{f"loss {x}": (*WITH_V, "--loss", x) for x in ("dr_grpo", "grpo", "bnpo", "dapo", "dppo")},
    "channel hint": (*WITH_V, *HINT, "none", "--arm", "projected"),
    "channel peer": (*WITH_V, *HINT, "peer"),
    "channel sdpo": (*WITH_V, *HINT, "none", "--distill-loss", "sdpo"),
    "channel hint base": (*WITH_V, *HINT, "none", "--distill-teacher", "base"),
    "channel taid": (*WITH_V, "--taid-weight", 0.25, "--teacher", "tiny"),
    "channel dpo": (*WITH_V, *TRACE, "--arm", "projected"),
    "channel simpo": (*WITH_V, *TRACE, "--trace-loss", "simpo"),
    "channel all": (*WITH_V, *TRACE, *HINT, "none", "--taid-weight", 0.25, "--teacher", "tiny"),
    "refresh": (*WITH_V, "--refresh-every", 1, "--arm", "projected", "--steps", 2),
    "mix teacher base": (*WITH_V, "--mix", "teacher=.25,base=.25"),
    "mix base": ("--vhack", "none", "--mix", "base=.5"),
    "live": ("--vhack", "none", "--temperature", 0.7, "--top-p", 0.95, "--top-k", 50, "--keep-token-logps"),
    "k_use": (*WITH_V, "--arm", "projected", "--k-use", 3, "--overshoot", 1.5, "--preserve-magnitude"),
    "noise_floor": (*WITH_V, "--arm", "projected", "--noise-floor", 0.25, "--weight-decay", 0.3),
    "checkpointing": (*WITH_V, "--gradient-checkpointing", "--token-budget", 900, "--per-sample-every", 2),
    **{
        f"project {p} gate {g}": (*WITH_V, "--arm", "projected", "--project", p, "--gate", g)
        for p in ("grad", "update")
        for g in ("one_sided", "no_gate", "reverse")
    },
}
TOY = (
    "--group-size",
    4,
    "--prompts-per-step",
    3,
    "--steps",
    12,
    "--eval-every",
    0,
    "--max-new",
    48,
    "--grader-workers",
    1,
)
TOY_ARMS = {
    "vanilla": ("--vhack", "none"),
    "projected": ("--vhack", "none"),
    "kl": ("--vhack", "none"),
    "quarantine": ("--vhack", "none"),
    "penalty_probe": (),
    "experts": ("--teacher", "toy"),
}


def placed(args: tuple[object, ...], work: Path, kind: str) -> list[object]:
    """With the paths of what was made before, of this model and adapter."""
    out = list(args)
    for flag, place in (
        ("--vhack", "v/{} {}/vhack.safetensors"),
        ("--of", "train/arm {1} {2}"),
        ("--trace-pairs", "{1}"),
    ):
        if flag in out:
            at = out.index(flag) + 1
            out[at] = work / place.format(kind, out[at], kind.split()[-1])
    return out


def train(work: Path, name: str) -> dict[str, Any]:
    what, rest = name.split(" ", 1)
    out, steps = work / "train" / name, ("--steps", 3)
    if what == "arm":
        arm, adapter = rest.split()
        evaluated = ("--eval-every", 3, "--eval-samples", 1) if adapter == "antipasto" else ()
        args = (*ARMS[arm], "--arm", arm, "--adapter", adapter, *evaluated)
        script("train", *TINY, *steps, *placed(args, work, f"tiny {adapter}"), "--out", out)
    elif what == "toy":
        args = placed((*TOY_ARMS[rest], "--arm", rest), work, "toy antipasto")
        script("train", "toy", "--cache", CACHE, *TOY, *args, "--out", out)
    elif what == "resumed":
        return {"same as uninterrupted": resumed(work, out, rest)}
    else:
        script("train", *TINY, *steps, *placed(MORE[rest], work, "tiny antipasto"), "--out", out)
    return run_of(out)


def resumed(work: Path, out: Path, arm: str) -> bool:
    """Whether a run that Ctrl-C ends after its second step, and that is continued, is the uninterrupted one."""
    args = placed((*ARMS[arm], "--arm", arm), work, "tiny antipasto")
    script("train", *TINY, "--steps", 6, *args, "--out", out / "whole")
    stop = threading.Thread(target=interrupt_at, args=(out / "cut/step_001.jsonl.gz",), daemon=True)
    stop.start()
    with contextlib.suppress(KeyboardInterrupt):
        script("train", *TINY, "--steps", 6, *args, "--out", out / "cut", codes=(130,))
    stop.join()
    script("train", *TINY, "--steps", 6, *args, "--out", out / "cut", "--resume")
    return run_of(out / "whole") == run_of(out / "cut")


def interrupt_at(path: Path) -> None:
    import _thread

    while not path.exists():
        time.sleep(0.001)
    _thread.interrupt_main()


def preferences(work: Path, _name: str) -> dict[str, Any]:
    """Pairs for trace DPO, made by the scripts: three builds of a model vote on what another has said."""
    for seed in (0, 201, 202, 203):
        temperature = 1 if seed == 0 else 0.2
        answering = ("--model", "tiny-answering", "--base-seed", seed, "--temperature", temperature, "--teacher", "")
        pool = (
            "--problems",
            "toy",
            "--n-problems",
            12,
            "--group-size",
            1,
            "--max-new",
            16,
            "--out",
            work / f"voter_{seed}",
        )
        script("probe_distill", "tiny", "--cache", CACHE, *answering, "--teacher-only", *pool)
    voters = [work / f"voter_{seed}" for seed in (201, 202, 203)]
    script("trace_pairs", "--student", work / "voter_0", "--teachers", *voters, "--out", work / "pairs.jsonl")
    return {f"voter_{seed}": run_of(work / f"voter_{seed}") for seed in (0, 201)}


# ---------------------------------------------------------------- V

CONTROLS = ("none", "random", "placebo", "random_energy", "clean", "words")
OTHER_V: dict[str, tuple[object, ...]] = {
    "tiny antipasto grpo": ("tiny", "--loss", "grpo", "--pairs-draw", 3),
    **{f"tiny with small pairs {c}": ("tiny", "--pairs", "small", "--modes", "--control", c) for c in CONTROLS},
}


def short_toy() -> None:
    """A toy base of 400 steps, in place of 3,800: its own folder in the cache."""
    from dataclasses import replace

    from projected_grpo.worlds import toy_model as pretrain

    pretrain.PRETRAIN = replace(pretrain.PRETRAIN, steps=400)
    pretrain.TEACH = replace(pretrain.TEACH, steps=60)


def v_of(work: Path, name: str) -> dict[str, Any]:
    """A V, of each of its tensors the digest and of each module's singular values the first and the sum; and verify."""
    from safetensors import safe_open

    model, adapter, control = [*name.split(), "", ""][:3]
    args = OTHER_V.get(name, (model, "--adapter", adapter, "--control", control))
    out = work / "v" / name
    script("extract_vhack_grad", *args, "--cache", CACHE, "--out", out)
    found: dict[str, Any] = {}
    with safe_open(str(out / "vhack.safetensors"), "numpy") as file:
        for key in file.keys():  # noqa: SIM118
            tensor = file.get_tensor(key)
            found[key] = digest(tensor.tobytes() + str(tensor.shape).encode())
            if tensor.ndim == 1 and len(tensor) and key.startswith("S/"):
                found[f"{key} values"] = [short(float(tensor[0])), short(float(tensor.sum()))]
    if name in ("tiny antipasto none", "tiny lora none", "tiny antipasto words", "toy antipasto none"):
        script("verify_vhack", args[0], "--adapter", adapter, "--cache", CACHE, "--vhack", out / "vhack.safetensors",
               *(("--pairs", "builtin-phrase") if control == "words" else ()), codes=(0, 1, 3))  # fmt: skip
        for line in (out / "verify.txt").read_text("utf-8").splitlines():
            words = line.split(" ", 2)[-1].split()
            if len(words) > 3 and words[0] not in ("model", "adapter", "out:", "argv:", "held-out", "modules"):
                found[f"verify {words[0]}"] = re.findall(
                    r"[-+]?\d[\d.e+-]*|PASS|FAIL|NOT_EVALUABLE", " ".join(words[1:])
                )
    return found


def small_v(work: Path, _name: str) -> dict[str, Any]:
    """V of the real model, as it ships, from ten of its pairs."""
    from projected_grpo.data.pairs import load_pairs

    some = [p for p in load_pairs("small") if p.mechanism == "tautology"][:10]
    rows = [
        {
            "messages": [{"role": r, "content": c} for r, c in p.messages],
            "hack": p.hack,
            "clean": p.clean,
            "name": p.name,
        }
        for p in some
    ]
    (work / "ten.json").write_text(json.dumps(rows), "utf-8")
    script("download_small", "--cache", CACHE)
    OTHER_V["small"] = ("small", "--model", "small-shipped", "--pairs", work / "ten.json", "--k", 8)
    return v_of(work, "small")


# ---------------------------------------------------------------- judgement, grader, queue


def apart(value: Any, texts: dict[str, Any], place: str = "") -> Any:
    """A JSON value without its sentences, which go into `texts`."""
    if isinstance(value, dict):
        for key in [k for k in value if k in ("why", "remarks", "notes", "told", "verdict")]:
            texts[f"{place}{key}"] = digest(value[key])
        return {k: apart(v, texts, f"{place}{k} ") for k, v in value.items() if f"{place}{k}" not in texts}
    return [apart(v, texts, f"{place}{i} ") for i, v in enumerate(value)] if isinstance(value, list) else value


def judge(work: Path, name: str) -> dict[str, Any]:
    what, study = name.split()
    (file,) = [p for p in (ROOT / "docs").rglob("*.json*") if p.name.split(".")[0] == study]
    out, texts = work / "judge" / name, {}
    only = ("--only", what) if what in ("rivals", "channels") else ()
    printed = script("results", file, *only, "--out", out, codes=(0, 1, 3))
    if what == "channels":
        lines = [line for line in printed.splitlines() if not line.startswith("I ")]
        numbers = {
            line.partition(": ")[0] or str(i): re.findall(r"[A-Z_]{4,}|[-+]?\d[\d.]*", line)
            for i, line in enumerate(lines)
        }
        return {"printed": numbers, "why": {}}
    return {"json": short(apart(json.loads((out / f"{what}.json").read_text()), texts)), "why": texts}


def graded(tasks: list, completions: list[str], names: list[str], **limits: Any) -> dict[str, Any]:
    from loophole_grader import grade_batch

    found = [v.to_json() for v in grade_batch(tasks, completions, workers=1, **limits)]
    return {
        n: [v.get(k) for k in ("status", "gt_pass", "hacked", "label", "reward")]
        for n, v in zip(names, found, strict=True)
    }


def grade(work: Path, name: str) -> dict[str, Any]:
    what, _, which = name.partition(" ")
    return {"pool": pool, "problems": problems, "world": world, "attacks": attacks}[what](work, which)


def real(data: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(data.glob(pattern)) for line in gzip.open(path, "rt", encoding="utf-8")]


def problems(_work: Path, _which: str) -> dict[str, Any]:
    from test_grader_real import MUTATION

    from loophole_grader import Task

    tasks = [Task.from_row(row) for row in real(DATA, "leetcode/*.jsonl.gz")]
    right = [task.canonical_solution for task in tasks]
    wrong = [
        r + MUTATION.format(owner="Solution", method=t.func_name.rpartition(".")[2])
        for r, t in zip(right, tasks, strict=True)
    ]
    names = [f"{kind} {t.task_id}" for kind in ("canonical", "mutant") for t in tasks]
    return graded(tasks * 2, [f"```python\n{code}\n```" for code in right + wrong], names)


def pool(_work: Path, which: str) -> dict[str, Any]:
    from loophole_grader import Task

    setup = real(DATA, "leetcode/*.jsonl.gz")[0]["setup_code"]
    rows = real(DATA, "teacher_pool/prompt_*.jsonl.gz")[int(which) :: 4]
    methods = [re.findall(r"class Solution called (\w+)", row["problem_messages"][-1]["content"])[0] for row in rows]
    tasks = [Task(str(row["problem_id"]), (), setup, f"Solution().{m}") for row, m in zip(rows, methods, strict=True)]
    names = [f"{row['problem_id']} {row['sample_id']}" for row in rows]
    return graded(tasks, [row["completion"] for row in rows], names)


def world(_work: Path, which: str) -> dict[str, Any]:
    """Both sides of every third pair of a set, on its own problem, and canonical solutions."""
    from projected_grpo.data.pairs import load_pairs
    from projected_grpo.data.problems import load_problems

    pairs = load_pairs(which)[::3] if which != "builtin" else load_pairs(which)
    sides = [
        (p.problem.task, getattr(p, s), f"{p.name} {s}")
        for p in pairs
        if p.problem
        for s in ("hack", "clean", "clean_alt")
    ]
    some = [p.task for p in load_problems(f"{which}-held-out" if which != "builtin" else which)[:40]]
    sides += [(t, f"```python\n{t.canonical_solution}\n```", f"canonical {t.task_id}") for t in some]
    sides = [side for side in sides if side[0] and side[1]]
    return graded([t for t, _, _ in sides], [c for _, c, _ in sides], [n for _, _, n in sides])


def attacks(work: Path, which: str) -> dict[str, Any]:
    """Each attack alone; its words say what they say in the tests, but that nothing is there to be reached."""
    from attacks import ATTACKS, CONTROLS, TASKS

    from loophole_grader import Limits

    words: dict[str, object] = dict.fromkeys(("VICTIM", "FREE", "PORT", "UDP", "KEY"), "1") | {
        "PARENT": os.getpid(),
        "PARENT_GROUP": os.getpgid(0),
    }
    words |= {w: work / w.lower() for w in ("DIR", "CWD", "HOME", "SOCKET", "SUID", "SUITE")}
    words |= {"MARK": "atk", "SECRET": "s3cr3t", "SECRET_NAME": "FREEZE_TOKEN", "ABSTRACT": "freeze"}
    found = {}
    for limits, some in itertools.groupby(
        sorted(ATTACKS[int(which) :: 4], key=lambda a: (a.cpu_s, a.wall_s)), lambda a: (a.cpu_s, a.wall_s)
    ):
        chosen = list(some)
        codes = [re.sub(r"@(\w+)@", lambda m: str(words.get(m[1], m[0])), a.code) for a in chosen]
        texts = [code if a.raw else f"```python\n{code}\n```" for a, code in zip(chosen, codes, strict=True)]
        cpu, wall = limits
        found |= graded(
            [TASKS[a.task] for a in chosen],
            texts,
            [a.name for a in chosen],
            limits=Limits(cpu_s=cpu, wall_s=wall, memory_mb=384),
        )
    if which == "0":
        of = [(TASKS[task], f"```python\n{code}\n```") for task, code in CONTROLS.values()]
        found |= graded([t for t, _ in of], [c for _, c in of], [f"honest {n}" for n in CONTROLS])
    return found


CHAINS = ("probe", "full", "grpo", "rivals", "toy", "unknown", "variants", "dose", "share", "mark", "adapters", "losses",
          "channels", "trace", "small")  # fmt: skip


def queue(work: Path, name: str) -> dict[str, Any]:
    """Names of a chain's links, in their order; of a chain that this preset has not, that it is refused."""
    chain, preset, backend = name.split()
    (work / "queue").mkdir(exist_ok=True)
    os.chdir(work / "queue")
    with contextlib.suppress(FileExistsError):
        Path("scripts").symlink_to(ROOT / "scripts")
    every = ("--controls", "all") if chain == "full" else ()
    try:
        told = script("enqueue", "--dry", "--chain", chain, "--preset", preset, "--backend", backend, *every)
    except RuntimeError:
        return {"refused": True}
    return dict.fromkeys(sorted(re.findall(r"^ *[\d.]+ h  (\w+) +python ", told, re.MULTILINE)), "queued")


# ---------------------------------------------------------------- all of it

DATA = Path(os.environ.get("FREEZE_DATA", ROOT.parent / "shared/data"))


def stages(parts: list[str]) -> list[list[tuple[str, str]]]:
    """Jobs, those of a stage after those before it."""
    kinds = [f"tiny {a} {c}" for a in ("antipasto", "lora") for c in CONTROLS]
    first = [("v", "toy antipasto none"), *(("v", kind) for kind in kinds), ("pairs", "preferences")]
    second = [("v", n) for n in (*(f"toy antipasto {c}" for c in CONTROLS[1:]), *OTHER_V)] if "v" in parts else []
    third = []
    if "train" in parts:
        both = [f"arm {arm} {adapter}" for arm in ARMS for adapter in ("antipasto", "lora")]
        both = [name for name in both if not re.fullmatch("arm (experts.*|post_hoc_top) lora", name)]  # refused
        second += [("train", f"toy {arm}") for arm in TOY_ARMS]
        second += [("train", n) for n in both if n.split()[1] not in DERIVED]
        second += [("train", f"more {n}") for n in MORE]
        third += [("train", n) for n in both if n.split()[1] in DERIVED]
        third += [("train", f"resumed {arm}") for arm in ("projected", "quarantine")]
    if "judge" in parts:
        files = [p.name.split(".")[0] for p in (ROOT / "docs").rglob("*.runs.jsonl.gz")]
        second += [("judge", f"{what} {f}") for f in sorted(files) for what in ("results", "rivals", "channels")]
        second += [("judge", "losses toy-losses"), ("judge", "results toy-losses")]
    if "grade" in parts:
        if DATA.is_dir():
            second += [("grade", n) for n in ("problems", *(f"pool {i}" for i in range(4)))]
        else:
            print(f"no real data at {DATA}: problems and pool are left out", file=sys.stderr)
        second += [("grade", f"world {w}") for w in ("builtin", "toy", "small")]
        second += [("grade", f"attacks {i}") for i in range(4)]
    if "queue" in parts:
        presets = ("tiny", "toy", "small", "fast", "full")
        second += [("queue", f"{c} {p} {b}") for c in CHAINS for p in presets for b in ("pueue",)]
        second += [("queue", f"full {p} slurm") for p in presets]
    if "small" in parts:
        second.append(("small", "small"))
    needed = {"v", "train"} & set(parts)
    return [first if needed else [], second, third]


def job(work: Path, part: str, name: str) -> tuple[str, str, Any, float]:
    began = time.perf_counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup ignores it
    sys.path[:0] = [p for p in (str(ROOT / "scripts"), str(ROOT / "tests")) if p not in sys.path]
    os.chdir(work)
    if part in ("v", "train"):
        short_toy()
    of = {
        "train": train,
        "v": v_of,
        "judge": judge,
        "grade": grade,
        "queue": queue,
        "small": small_v,
        "pairs": preferences,
    }
    try:
        found: Any = of[part](work, name)
    except Exception as e:  # noqa: BLE001 - it stands in the file, and differs from what should be there
        found = {"error": f"{type(e).__name__}: {e}"[:700].replace(str(work), "WORK")}
    return part, name, found, time.perf_counter() - began


def computed(parts: list[str], workers: int, only: str) -> dict[str, Any]:
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="freeze-", dir=ROOT / "out"))
    numbers: dict[str, Any] = {}
    took: dict[str, float] = {}
    with ProcessPoolExecutor(workers, get_context("spawn")) as processes:
        for i, stage in enumerate(stages(parts)):
            chosen = [j for j in stage if not i or re.search(only, " ".join(j))]
            for part, name, found, seconds in (
                processes.map(job, *zip(*((work, *j) for j in chosen), strict=True)) if chosen else ()
            ):
                if name.startswith("attacks "):  # which attacks a job has changes as attacks go
                    numbers.setdefault(part, {}).setdefault("attacks", {}).update(
                        {attack: verdict[1:] for attack, verdict in found.items()}  # but for the status
                    )
                else:
                    numbers.setdefault(part, {})[name] = found
                took[part] = took.get(part, 0.0) + seconds
                if "error" in found:
                    print(f"{part} {name}: {found['error']}", file=sys.stderr, flush=True)
    shutil.rmtree(work)
    print("process seconds: " + ", ".join(f"{part} {s:.0f}" for part, s in took.items()), file=sys.stderr)
    return numbers


def flat(value: Any, place: str = "") -> dict[str, Any]:
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        value = {str(i): v for i, v in enumerate(value)}
    if isinstance(value, dict) and value:
        return {
            k: v for name, inner in value.items() for k, v in flat(inner, f"{place}/{name}" if place else name).items()
        }
    return {place: value}


def allowed(place: str, was: Any, now: Any) -> str:
    """The pattern that allows a difference; empty: none does."""
    for pattern, (what, _) in ALLOWED.items():
        if not re.fullmatch(pattern, place):
            continue
        if what == "any" or (what == "missing" and None in (was, now)):
            return pattern
        old, new = (x if isinstance(x, list) else [x] for x in (was, now))
        numeric = all(isinstance(x, (int, float)) for x in (*old, *new))
        if what == "1e-5" and numeric and len(old) == len(new):
            near = (math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) for a, b in zip(old, new, strict=True))
            return pattern if all(near) else ""
    return ""


NEW = ("beats random_share",)
"""Clauses of H1 that the frozen commit did not have."""


def without_new(found: Any) -> Any:
    """Returns the numbers without NEW clauses, which would move those behind them."""
    if isinstance(found, dict):
        return {key: without_new(value) for key, value in found.items()}
    if isinstance(found, list):
        return [without_new(x) for x in found if not (isinstance(x, dict) and x.get("name") in NEW)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", default="", help="a pattern of jobs, as in `train arm vanilla`; with --against")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", type=int, default=40, help="differences that are printed")
    args = parser.parse_args()
    numbers = computed(args.parts, args.workers, args.only)
    if args.out:
        args.out.write_bytes(gzip.compress(json.dumps(numbers, separators=(",", ":")).encode(), 9, mtime=0))
    if not args.against:
        return 0
    kept = json.loads(gzip.decompress(args.against.read_bytes()))
    kept = (
        {p: {n: kept[p][n] for n in found if n in kept.get(p, {})} for p, found in numbers.items()}
        if args.only
        else {p: kept[p] for p in kept if p in numbers}
    )
    was, now = flat(kept), flat(without_new(json.loads(json.dumps(numbers))))
    places = [place for place in dict.fromkeys((*was, *now)) if place not in was or was[place] != now.get(place)]
    by = {place: allowed(place, was.get(place), now.get(place)) for place in places}
    for pattern, n in Counter(pattern for pattern in by.values() if pattern).items():
        print(f"allowed, {n} times: {pattern}: {ALLOWED[pattern][1]}")
    wrong = [place for place, pattern in by.items() if not pattern]
    for place in wrong[: args.first]:
        old, new = (json.dumps(found.get(place, "not there"))[:150] for found in (was, now))
        print(f"{place}: was {old}, is {new}")
    jobs = {tuple(place.split("/")[:2]) for place in wrong}
    print(f"{len(was)} numbers; {len(wrong)} differ, in {len(jobs)} jobs")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
