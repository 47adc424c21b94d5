"""Options of `just multi-turn` and `just ask-teachers`. No torch here: --help stays fast."""

from dataclasses import dataclass
from pathlib import Path

from projected_grpo.config import Sampling, check_bounds, fixed, free, setting
from projected_grpo.ledger.folder import NoPath


@dataclass(frozen=True)
class MultiTurnConfig(Sampling):
    """multi_turn: traces in which the model sees what came of its answer, and tries again."""

    turns: int = setting(3, low=2, high=4)
    """Most answers in a trace, two to four."""
    trained: NoPath = fixed(Path())
    """Folder of a finished training run: its policy acts, and not --model as it is."""
    n_problems: int = fixed(0)
    """Problems to sample; 0 = all."""
    resume: bool = free(False)
    """Continue in --out: only what is missing is sampled."""

    @property
    def run_folder(self) -> Path:
        """The directory of the traces."""
        return self.folder("multi_turn", f"{'base' if self.trained == Path() else 'trained'}_seed{self.seed}")


@dataclass(frozen=True)
class AskConfig:
    """Whom to ask what, and for how much."""

    traces: Path
    """Trace file of `just multi-turn` or `just traces`: the chat before each of its actions is a state."""
    teachers: Path
    """TOML file of [[teacher]] tables: endpoint, model, prices, the variable that holds the key
    (docs/integrations.md)."""
    budget: float = free()
    """Most dollars that all sessions of this folder together may spend; it stops before they are passed."""
    out: Path = free()
    """Folder to write; must not exist yet, but for --resume."""
    concurrency: int = free(8, low=1)
    """Calls under way at once, all teachers together."""
    timeout: float = free(60.0)
    """Seconds that an attempt may be silent."""
    attempts: int = free(6, low=1)
    """Attempts at one call before it is set aside (by the openai client, after .5, 1, 2 ... s, or after its
    Retry-After); three such calls in a row, and the endpoint is down."""
    resume: bool = free(False)
    """Go on in --out: ask what has no answer yet."""

    def validate(self) -> None:
        """BadInput on calls or attempts below 1: nothing would be asked."""
        check_bounds(self)
