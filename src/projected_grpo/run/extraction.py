"""V made from pairs: by `extract_vhack_grad`, and on first use by a run that needs one and was given none."""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loguru import logger

from projected_grpo.adapters.base import Adapter
from projected_grpo.config import ExtractConfig, Gradient
from projected_grpo.data.pairs import pairs_for, pairs_hash
from projected_grpo.ledger.files import built_once, content_hash
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Pair
from projected_grpo.run.inputs import settings_for
from projected_grpo.vhack import Extraction, Sides, VBasis, facts_of, save_vhack

FILE = "vhack.safetensors"


def extraction_of(config: ExtractConfig) -> Extraction:
    """Returns how V is made."""
    return Extraction(
        loss=config.loss,
        control=config.control,
        k=config.k,
        max_new=config.max_new,
        pairs_draw=config.pairs_draw,
        hint=config.hint,
        prompt_setup=config.prompt_setup,
        seed=config.seed,
    )


@dataclass(frozen=True)
class PairData:
    """What V is extracted from."""

    source: str
    """Name of the pair set."""
    pairs: Sequence[Pair]
    sides: Sequence[Sides]
    """Of the training pairs."""
    single: Sequence[Sides]
    """The completions of the held-out pairs, one by one."""


def pair_data(config: ExtractConfig, how: Extraction, loaded: LoadedModel) -> PairData:
    """Returns the pairs, tokenised. BadInput as in pairs_for and pair_sides."""
    source, pairs = pairs_for(config)
    return PairData(source, pairs, how.sides(pairs, loaded), how.single_sides(pairs, loaded))


def extracted(config: ExtractConfig, how: Extraction, data: PairData, loaded: LoadedModel, adapter: Adapter) -> VBasis:
    """Returns V, and logs what it is made of. NonFinite, naming module and pair."""
    sides, n = data.sides, len(data.sides)
    modes = () if config.control == "words" else config.modes  # its pairs have no mechanism
    logger.info(f"{n} training pairs ({len(data.single) // 2} held out), mechanisms: {', '.join(modes) or 'all'}")
    if config.control != "clean":
        gap = sum(s.advantage * len(s.completion_ids) for row in sides for s in row) / n
        logger.info(f"mean length gap {gap:+.1f} tokens (SHOULD be near 0, ELSE V sees length)")
    show_text("first prompt, as the model reads it", loaded.tokenizer.decode(sides[0][0].prompt_ids))
    show_text("first completion", loaded.tokenizer.decode(sides[0][0].completion_ids))
    facts = facts_of(loaded, adapter.metadata(), data.pairs, data.source, modes)
    gradients = functools.partial(how.differences, loaded, adapter, token_budget=config.token_budget)
    return how.basis(gradients, sides, data.single, adapter.basis_probes(), facts)


def vhack_of(config: Gradient, loaded: LoadedModel, adapter: Adapter) -> Path:
    """Returns the file of a run's V: that of --vhack, or one in the cache, which is made when it is first used. It is
    found there by model, adapter, pairs, loss, k, draw and control."""
    if config.vhack != Path():
        return config.vhack
    settings = settings_for(config)
    how = extraction_of(settings)
    data = pair_data(settings, how, loaded)
    key = [loaded.weights_hash, loaded.tokenizer_hash, adapter.metadata(), str(loaded.model.device.type), config.dtype]
    name = f"{config.model.replace('/', '_')}_{how.control}_{content_hash([*key, pairs_hash(data.pairs), asdict(how)])[:12]}"

    def build(folder: Path) -> None:
        save_vhack(folder / FILE, extracted(settings, how, data, loaded, adapter))

    folder = config.cache / "vhack" / name
    return built_once(folder, build, f"no --vhack: extracts V (control {how.control}, k {how.k}) into {folder}") / FILE


def show_text(what: str, text: str, ends: int = 90) -> None:
    """One line with both ends of a text to the terminal, the whole to log.txt."""
    short = text if len(text) <= 2 * ends else f"{text[:ends]} […] {text[-ends:]}"
    logger.info(f"{what}: {short!r}")
    logger.debug(f"{what}:\n{text}⏎")
