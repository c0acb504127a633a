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
        minute, second = divmod(int(time.monotonic()), 60)
        minute_before, wrong = self._counts.pop(address, (minute, 0))
        if minute_before != minute:
            wrong = 0
        wrong += 1
        self._counts[address] = (minute, wrong)
        while len(self._counts) > _ADDRESSES:
            self._counts.popitem(last=False)
        if wrong <= _PER_MINUTE:
            return None
        return 60 - second
