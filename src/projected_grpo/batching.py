"""Micro-batches by a token budget."""

from collections.abc import Sequence


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Rows grouped, longest first, so that rows x longest row stays within the budget (one row may exceed it alone).

    Sorting by length keeps padding small; the order is a pure function of the lengths.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    for i in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= token_budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
