"""A cap on what is spent that concurrent calls cannot pass together."""

import asyncio
from decimal import Decimal


class OverBudget(RuntimeError):  # noqa: N818 - the budget is over, nothing is broken
    """The next attempt could pass the cap, and none is under way whose settlement could make room."""


class Budget:
    """Dollars: `spent` is settled, `held` is the most that the attempts under way can cost. spent + held <= cap always,
    unless an attempt cost more than was held for it."""

    def __init__(self, cap: Decimal, spent: Decimal) -> None:
        self.cap = cap
        self.spent = spent
        self.held = Decimal(0)
        self._changed = asyncio.Condition()

    async def hold(self, most: Decimal) -> None:
        """Set aside the most that an attempt can cost, before it is sent; waits while attempts under way may turn out
        cheaper. OverBudget."""
        async with self._changed:
            while self.spent + self.held + most > self.cap:
                if not self.held:
                    raise OverBudget(
                        f"${self.spent:.4f} of ${self.cap} are spent and the next attempt may cost ${most:.4f}"
                    )
                await self._changed.wait()
            self.held += most

    async def settle(self, most: Decimal, usd: Decimal) -> None:
        """An attempt for which `most` was held has cost `usd`."""
        async with self._changed:
            self.held -= most
            self.spent += usd
            self._changed.notify_all()
