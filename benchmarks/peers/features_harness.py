"""The measurements of joins and lookups of features.

They run in each peer's environment: standard library, and NumPy for lookups.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def usage_of_process() -> dict[str, float]:
    """CPU and wall seconds of this process since its start, imports included, and its peak in MiB."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    # its start, after the machine's
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    wall = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return {"cpu": usage.ru_utime + usage.ru_stime, "wall": wall, "mebibytes": usage.ru_maxrss / 1024}


def look_up(
    get_one: Callable[[dict[str, int]], Any],
    many: Callable[[list[dict[str, int]]], Any],
    cities: Callable[[Any], list[str]],
    users: int,
    lookups: int,
) -> dict[str, float]:
    """Ask for random users, one by one and a hundred at a time.

    Args:
        one, many: called with ``{"user": number}`` and with a hundred of those; give all features of each.
        cities: the text feature in what they gave, which is compared with what was loaded; not timed.
        users, asked: how many users there are, and how many are asked for one by one.

    Returns:
        ``one_p50`` and ``one_p99`` in µs, ``many_p50`` and ``many_p99`` in ms, and how many answers were
        ``missing`` or wrong.
    """
    import numpy as np

    source = np.random.default_rng(2)
    singles = []
    hundreds = []
    missing = 0
    get_one({"user": 0})
    for user in source.integers(0, users, lookups).tolist():
        began = time.perf_counter()
        features = get_one({"user": user})
        singles.append(time.perf_counter() - began)
        missing += cities(features) != [f"city {user % 1000}"]
    for _ in range(max(20, lookups // 10)):
        some = source.integers(0, users, 100).tolist()
        entities = [{"user": user} for user in some]
        began = time.perf_counter()
        features = many(entities)
        hundreds.append(time.perf_counter() - began)
        missing += cities(features) != [f"city {user % 1000}" for user in some]
    return {
        "one_p50": statistics.median(singles) * 1e6,
        "one_p99": float(np.percentile(singles, 99)) * 1e6,
        "many_p50": statistics.median(hundreds) * 1e3,
        "many_p99": float(np.percentile(hundreds, 99)) * 1e3,
        "missing": missing,
    }
