"""Limits how often an address may send wrong tokens."""

import time
from collections import OrderedDict

_PER_MINUTE = 20
_ADDRESSES = 10_000  # remembered at most


class WrongTokens:
    """Counts wrong tokens by address and minute.

    Tokens that hold are never kept waiting: others may share their address.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def count(self, address: str) -> int | None:
        """Count a wrong token; returns the seconds to wait for if the address has sent too many."""
        now = int(time.monotonic())
        minute, wrong = self._counts.pop(address, (now // 60, 0))
        wrong = wrong + 1 if minute == now // 60 else 1
        self._counts[address] = (now // 60, wrong)
        while len(self._counts) > _ADDRESSES:
            self._counts.popitem(last=False)
        return 60 - now % 60 if wrong > _PER_MINUTE else None
