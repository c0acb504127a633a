"""Work on one item after the other, done ahead by other cores: NumPy, Arrow and hashing let go of the
interpreter's lock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_THREADS = 2


def done_ahead(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = _THREADS
) -> Iterator[_Result]:
    """The result of each item, in their order.

    What was begun ends, also where the results are not wanted any more.

    One item more than there are threads is worked on, or done, while another is taken or its result used.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
