"""Work on items in threads while earlier results are used; NumPy, Arrow and hashing release the GIL."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_THREADS = 2


def map_in_threads(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = _THREADS
) -> Iterator[_Result]:
    """Apply a function to each item in threads, ahead of use; results come in the order of the items.

    At most two items more than there are threads are in work or finished at any time. Calls that have begun
    are finished, even if the results are no longer wanted.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
