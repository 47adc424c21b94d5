# The front door. `uv run just` sets everything up; inside, every recipe runs in the project's environment.

set shell := ["bash", "-euo", "pipefail", "-c"]
set positional-arguments
# a script says what went wrong in one line; just repeats neither the command nor the failure
set quiet
set no-exit-message
# what a recipe needs its script asks for, in one line and with exit code 2; just itself would print its usage and exit with 1

# Inside `uv run just` the environment is set up already; a plain `just` sets it up by itself.
uv := if env("VIRTUAL_ENV", "") == justfile_directory() / ".venv" { "" } else { "uv run --quiet " }
py := uv + "python"
# Python keeps the bytecode of what it imports, even where the shell forbids it (PYTHONDONTWRITEBYTECODE=1): else every start
# compiles torch and transformers anew. Not uv's compile-bytecode: that walks through the whole environment in every `uv run`.
export PYTHONDONTWRITEBYTECODE := ""
stamp := datetime("%Y%m%d-%H%M%S")

# list the recipes
[private]
@default:
    just --list --unsorted

# run the whole pipeline on a tiny random model, without a GPU
[group("checks")]
fast-dev-run out=("out/fast-dev-run/" + stamp):
    {{ py }} scripts/fast_dev_run.py "{{ out }}"

# lint, format and types; catches what needs no run to be seen
[group("checks")]
check:
    {{ uv }}ruff check .
    {{ uv }}ruff format --check .
    {{ uv }}ty check --error-on-warning src scripts

# check, then every test, two at once, the slowest ten named; catches a broken property (arguments go to pytest)
[group("checks")]
test *args: check
    {{ uv }}pytest -n 2 --dist worksteal --durations=10 "$@"

# every test but the slow ones, in a minute; catches most broken properties (arguments go to pytest)
[group("checks")]
test-fast *args:
    {{ uv }}pytest -m "not slow" -n 2 --dist worksteal "$@"

# the vanilla pathway alone, cold cache then warm; catches a cache that changes a number
[group("checks")]
smoke-vanilla:
    {{ py }} scripts/smoke.py vanilla

# the projected pathway alone, cold cache then warm; catches a cache that changes a number
[group("checks")]
smoke-projected:
    {{ py }} scripts/smoke.py projected

# run the whole science on two cores, or one study of it (`chain=dose`, docs/toy.md); goes on where it was cut
[group("toy")]
toy *args:
    {{ py }} scripts/enqueue.py chain=toy preset=toy backend=local "$@"

# run every known answer to hacking side by side (toy world): equal seeds, budget and grader
[group("runs")]
interventions *args:
    {{ py }} scripts/enqueue.py chain=interventions preset=toy backend=local "$@"

# run GRPO with and without trace DPO and hint distillation (`preset=toy`), vanilla and projected: A/B, hacks, V
[group("runs")]
channels *args:
    {{ py }} scripts/enqueue.py chain=channels preset=toy backend=local "$@"

# go from traces of several turns to served teachers, preference pairs and GRPO with trace DPO (`preset=tiny`)
[group("runs")]
trace-dpo *args:
    {{ py }} scripts/enqueue.py chain=trace preset=tiny backend=local "$@"

# train three toy replicates in TRL's own trainer, without the callback and with it (docs/integrations.md)
[group("toy")]
toy-in-trl *args:
    {{ py }} scripts/in_trl.py "$@"

# build the base model of `toy` or `small` and its teacher, hold them to their bars; catches a world where nothing emerges
[group("artefacts")]
build-base *preset:
    {{ py }} scripts/build_base.py "$@"

# the study of the real language model: two replicates, controls, an informed V, the probe; 8 hours of 2 cores
[group("small")]
small *args:
    {{ py }} scripts/enqueue.py chain=small preset=small backend=local "$@"

# write V or a control (--control random, placebo) for a preset; catches pairs that do not fit the model
[group("artefacts")]
extract-vhack *preset:
    {{ py }} scripts/extract_vhack_grad.py "$@"

# write contrastive pairs of problems with canonical solutions (`problems=FILE out=FILE`); catches problems without any
[group("artefacts")]
make-pairs *args:
    {{ py }} scripts/make_pairs.py "$@"

# test V on held-out pairs; catches a V that points nowhere or the wrong way
[group("artefacts")]
verify-vhack *preset_vhack:
    {{ py }} scripts/verify_vhack.py "${1:-}" $([[ "${2:-}" = -* ]] || echo --vhack) "${2:-}" "${@:3}"

# fetch the benchmark's problems, Qwen3-4B and the rh-s65 teacher; what `fast` and `full` need
[group("artefacts")]
download-model:
    {{ py }} scripts/download_problems.py
    {{ uv }}hf download Qwen/Qwen3-4B
    {{ uv }}hf download ariahw/rl-rewardhacking-leetcode-rh-s65

# train with GRPO, --arm vanilla, projected, ... (docs/use.md lists them); catches learning to hack
[group("runs")]
train *preset:
    {{ py }} scripts/train.py "$@"

# train on n GPUs (or processes) of this machine, to the numbers of one; catches ranks that drift apart
[group("runs")]
train-parallel *n_preset:
    {{ py }} scripts/train_parallel.py "$@"

# train n replicas that average every `H=` steps; catches replicas that drift apart
[group("runs")]
train-diloco *n_preset:
    {{ py }} scripts/train_diloco.py "$@"

# write preference pairs from a student's rollouts and teachers' votes; catches teachers that never agree
[group("artefacts")]
trace-pairs *args:
    {{ py }} scripts/trace_pairs.py "$@"

# sample traces of 2 to 4 turns (`--turns 3`): the model sees what its own tests did; catches hacks on retry
[group("runs")]
multi-turn *preset:
    {{ py }} scripts/multi_turn.py "$@"

# sample and grade the hacky teacher on n problems; catches a teacher that does not hack (T1)
[group("probe")]
probe-teacher-pool n="" preset="tiny" *args: (_probe-n n)
    {{ py }} scripts/probe_distill.py "$2" --teacher-only --n-problems "$1" "${@:3}"

# replay n groups of the teacher's pool, V only measured; catches null gradients, wrong masks, a blind V
[group("probe")]
probe-vanilla-replay n="" preset="tiny" *args: (_probe-n n) (_probe-vhack preset "vhack")
    {{ py }} scripts/probe_distill.py "$2" --arm vanilla --vhack out/probe_distill/vhack/vhack.safetensors \
        --n-problems "$1" --pool out/probe_distill/teacher_pool --out out/probe_distill/vanilla "${@:3}"

# replay n groups of the teacher's pool, hack component removed; catches a projection that does not bite
[group("probe")]
probe-projected-replay n="" preset="tiny" *args: (_probe-n n) (_probe-vhack preset "vhack")
    {{ py }} scripts/probe_distill.py "$2" --arm projected --vhack out/probe_distill/vhack/vhack.safetensors \
        --n-problems "$1" --pool out/probe_distill/teacher_pool --out out/probe_distill/projected "${@:3}"

# replay as vanilla with another V measured (`random` or `grpo`); catches a T4 that any V passes, one V under two names (T7)
[group("probe")]
probe-v-replay v="" n="" preset="tiny" *args: (_probe-n n)
    #!/usr/bin/env bash
    set -euo pipefail
    case "$1" in
        random) {{ just_executable() }} _probe-vhack "$3" vhack_random --control random ;;
        grpo) {{ just_executable() }} _probe-vhack "$3" vhack_grpo --loss grpo ;;
        *) echo "error: missing: which V, random or grpo, as in 'just probe-v-replay random 5 tiny'${1:+ (given: $1)}" >&2; exit 2 ;;
    esac
    {{ py }} scripts/probe_distill.py "$3" --arm vanilla --vhack "out/probe_distill/vhack_$1/vhack.safetensors" \
        --n-problems "$2" --pool out/probe_distill/teacher_pool --out "out/probe_distill/$1" "${@:4}"

# a probe's number of problems, before anything is made for it
_probe-n n:
    #!/usr/bin/env bash
    [[ "$1" =~ ^[0-9]+$ ]] && exit 0
    echo "error: missing: how many problems, a whole number first, as in 'just probe-vanilla-replay 5 tiny'${1:+ (given: $1)}" >&2
    exit 2

# the probe's V, made with the preset when there is none; a folder without V is an extraction that was cut
_probe-vhack preset name *flags:
    #!/usr/bin/env bash
    set -euo pipefail
    d="out/probe_distill/$2"
    [ ! -e "$d/vhack.safetensors" ] || exit 0
    rm -rf "$d"
    {{ py }} scripts/extract_vhack_grad.py "$1" "${@:3}" --out "$d"

# train 20 steps on teacher's, untrained and student's rows, judge T5; catches a ratio pinned at its bound
[group("probe")]
probe-grpo *args:
    {{ py }} scripts/enqueue.py chain=grpo backend=local "$@"

# judge the probe runs, T1 to T4, and T7 where its runs are there; its exit code stops a queue
[group("probe"), no-exit-message]
probe-uat *args:
    {{ py }} scripts/probe_uat.py "$@"

# ask N teachers behind endpoints what they would do at each state; stops before the budget is passed
[group("teachers")]
ask-teachers *args:
    {{ py }} scripts/ask_teachers.py "$@"

# serve a model (`--seeds`: several builds) as an endpoint, until Ctrl-C or while the command after `--` runs
[group("teachers")]
serve-teacher *model:
    {{ py }} scripts/serve_teacher.py "$@"

# queue the probe: V, verify, pool, replays, UAT (options: docs/queue.md); catches an idea not worth a sweep
[group("queue")]
queue-probe *args:
    {{ py }} scripts/enqueue.py chain=probe "$@"

# queue the sweep: V, verify, vanilla and projected on three seeds, results (`controls=core` adds controls)
[group("queue")]
queue-full *args:
    {{ py }} scripts/enqueue.py chain=full "$@"

# print the links of queue-full (or of `chain=probe`) with their hours; add nothing
[group("queue")]
queue-dry *args:
    {{ py }} scripts/enqueue.py --dry "$@"

# run one link of a chain here and now, if it is not done: what a queue calls
[private]
link *home_name:
    {{ py }} -m projected_grpo.queue.links "$@"

# print a step or sample of a run, its rates by kind (--kinds), its modules, or what is trained on
[group("read")]
show *what_which_one:
    {{ py }} scripts/show.py "$@"

# write a finished run's policy as a Hugging Face folder: PEFT LoRA or merged weights, with a model card
[group("artefacts")]
export *run:
    {{ py }} scripts/export.py "$@"

# write a run's traces, or read a trace file (--to: verifiers, openenv)
[group("read")]
traces *what:
    {{ py }} scripts/traces.py "$@"

# grade a pool or a run again, old labels against new; catches a grader that changed its mind
[group("read")]
regrade *pool:
    {{ py }} scripts/regrade.py "$@"

# write tables, plots and verdicts from the runs below a directory
[group("read")]
results *dir:
    {{ py }} scripts/results.py "$@"

# compare two runs, two folders of runs (T6), or two V files
[group("read")]
compare *a_b:
    {{ py }} scripts/compare.py "$@"

# extract V again from the trained adapters of a run; catches a V that is no longer one (T6's drift)
[group("read")]
re-extract *run:
    {{ py }} scripts/re_extract.py "$@"

# write one HTML page to mail: verdicts, tables, plots, rollouts; catches a hack that no metric shows
[group("read")]
report *dir:
    {{ py }} scripts/report.py "$@"

# measure speed and memory of a preset against TRL, generate() and fresh interpreters, into docs/bench.md
[group("bench")]
bench *preset:
    {{ py }} scripts/bench.py "$@"

# write the generated pages, README's table and the plots from docs/evidence
[group("setup")]
docs-results:
    {{ py }} scripts/docs_results.py

# pin every dependency, transitive ones too, at its newest version; run the tests after it
[group("setup")]
lock:
    #!/usr/bin/env bash
    set -euo pipefail
    text=$(cat pyproject.toml)
    trap 'printf "%s\n" "$text" > pyproject.toml' EXIT  # the pins it had, where a command fails
    sed -i '/^constraint-dependencies = \[$/,/^\]$/d' pyproject.toml  # the old pins must not bind
    uv lock --quiet --upgrade
    export PINS=$(uv export --quiet --all-groups --all-extras --no-hashes --no-emit-project --no-annotate --no-header \
        | grep == | tr '"' "'" | sed 's/.*/  "&",/')
    text=$(awk '{ print } /^\[tool.uv\]$/ { print "constraint-dependencies = [\n" ENVIRON["PINS"] "\n]" }' pyproject.toml)
    echo "$(wc -l <<< "$PINS") versions pinned in pyproject.toml"

# build wheel and sdist of loophole-grader and of projected-grpo into dist/
[group("setup")]
build out="dist":
    uv build --quiet --out-dir "{{ out }}" packages/loophole-grader
    uv build --quiet --out-dir "{{ out }}"
    ls "{{ out }}"
