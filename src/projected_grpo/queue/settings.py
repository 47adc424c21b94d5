"""What `just queue-full` and the other chains can be asked for; the text under a field is its --help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.ledger.folder import NoPath
from projected_grpo.presets import PresetName

ChainName = Literal[
    "probe", "full", "grpo", "interventions", "toy", "unknown", "variants", "dose", "adapters", "channels", "trace",
    "small",
]  # fmt: skip


@dataclass(frozen=True)
class QueueConfig:
    """enqueue: run a chain, or put it into a queue. Fields may be given as words too: `preset=toy backend=slurm`."""

    chain: ChainName = "full"
    """probe: V, teacher pool, replays, UAT. full: extract, verify, vanilla and projected of every seed, results.
    grpo: 20 steps on mixed groups, T5. interventions: every arm and every other answer to hacking. channels, trace:
    vanilla and projected with and without auxiliary losses. Studies: toy, unknown, variants, dose, adapters (T6),
    small."""
    preset: PresetName = "full"
    """The world to run in."""
    backend: Literal["pueue", "slurm", "local"] = "pueue"
    """pueue or slurm: queue it and return. local: run its links in this terminal, one after the other."""
    out: NoPath = Path()
    """Folder of the whole chain; one that exists is continued. Empty: out/PRESET-CHAIN."""
    seeds: tuple[int, ...] = ()
    """One replicate each, with a draw of the pairs, V and controls. Empty: 41 42 43; of the chain small 41 42."""
    bases: tuple[int, ...] = (0,)
    """Builds of a built-in base model, given to the replicates in turn: `0 101 102` are three."""
    controls: Literal["none", "core", "all"] = "none"
    """Of the chain full, run behind vanilla and projected. core: random_energy, random_share, placebo. all: each
    control."""
    arms: tuple[str, ...] = ()
    """Arms to train (docs/use.md lists them), `projected@16` with V's first 16 directions; empty: the chain's."""
    steps: int = 0
    """Optimizer steps of every arm; 0 = the preset's: a number of vanilla's onsets, where the preset has a
    horizon."""
    quick: bool = False
    """A pilot (n = 1): the first replicate, few steps. It can show that something is wrong, and no more."""
    model: str = ""
    """Another model that is built for the preset's world: `toy-deep`. Empty: the preset's."""
    problems: str = ""
    """Problems to train and to probe on: `builtin`, or the benchmark's JSON-lines file. Empty: the preset's."""
    n_problems: int = 0
    """Problems of the teacher's pool; 0 = the preset's."""
    gpu_gb: Literal[80, 48, 24] = 80
    """Memory of the GPU. 48 and 24 take smaller batches (docs/use.md): slower."""
    port: int = 8000
    """Of the chain trace: where they are served, on 127.0.0.1."""
    slurm: str = ""
    """More arguments of sbatch, in one string: "--partition=gpu --time=12:00:00"."""
    dry: bool = False
    """Print each link with its hours and its command, and their sum; add nothing."""

    @property
    def home(self) -> Path:
        """The chain's folder."""
        both = dict.fromkeys((self.preset, self.chain))
        return self.out if self.out != Path() else Path("out") / "-".join(both)
