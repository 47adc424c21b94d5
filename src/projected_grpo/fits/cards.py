"""Cards: how much they hold, how fast they read and multiply. Rates are dense, without sparsity; `source` is where they are
published, written down from there by way of second-hand tables. How much torch sees of the memory is no data sheet's number:
it is an estimate, a little below what is sold, to be set right by the first card of a kind that `just gpu-day` meets."""

from dataclasses import dataclass

from projected_grpo.ledger.errors import BadInput

GIB = 2**30


@dataclass(frozen=True)
class Card:
    """One model of GPU."""

    name: str
    sold_as: int
    """Its memory as it is sold: the number that --gpu names."""
    memory: float
    """GiB that torch can see (total_memory of its device properties), estimated."""
    bandwidth: float
    """Bytes/s."""
    bfloat16: float
    """FLOP/s of tensor cores, float32 accumulation."""
    float32: float
    """FLOP/s outside of tensor cores: torch's default for float32."""
    source: str


_GA102 = "NVIDIA Ampere GA102 whitepaper v2, appendix A"
_ADA = "NVIDIA Ada whitepaper v2, appendix A"
_A100 = "NVIDIA A100 data sheet"
CARDS = (
    Card("RTX 3090", 24, 23.6, 936e9, 71.2e12, 35.6e12, _GA102),
    Card("RTX 4090", 24, 23.5, 1008e9, 165.2e12, 82.6e12, _ADA),
    Card("A100 40 GB", 40, 39.4, 1555e9, 312e12, 19.5e12, _A100),
    Card("A100 80 GB", 80, 79.1, 2039e9, 312e12, 19.5e12, _A100),
    Card("H100 SXM", 80, 79.1, 3350e9, 989.4e12, 66.9e12, "NVIDIA H100 data sheet"),
    Card("H200 SXM", 141, 139.8, 4800e9, 989.4e12, 66.9e12, "NVIDIA H200 data sheet"),
)


def cards_of(gpu: int) -> tuple[Card, ...]:
    """The cards sold with that many GB; all of them for 0. BadInput when there is none."""
    if found := tuple(card for card in CARDS if gpu in (0, card.sold_as)):
        return found
    sizes = sorted({card.sold_as for card in CARDS})
    raise BadInput(
        f"--gpu {gpu}: no card of that size is known; one of {', '.join(map(str, sizes))}, or leave it out for all"
    )
