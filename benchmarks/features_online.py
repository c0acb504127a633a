"""Online features: Halving's views are pushed into a store, and looked up there."""

import time
from typing import Any

from benchmarks.features_joins import view_of
from benchmarks.machine import ChildFailed
from benchmarks.peers.features_harness import look_up

FEATURES = {**{f"f{place}": "double" for place in range(8)}, "night": "bool", "city": "string"}
_ROWS: dict[str, int] = {}


def rows() -> Any:
    """The source of the view that is looked up: one row for each user."""
    import numpy as np
    import pyarrow as pa

    users = _ROWS["users"]
    source = np.random.default_rng(1)
    times = pa.array(source.integers(0, 10**9, users)).cast(pa.timestamp("us", "UTC"))
    features = {name: source.normal(size=users) for name, kind in FEATURES.items() if kind == "double"}
    city = pa.array([f"city {user % 1000}" for user in range(users)])
    return pa.table(
        {
            "user": np.arange(users),
            "ts": times,
            "loaded": times,
            **features,
            "night": source.random(users) < 0.5,
            "city": city,
        }
    )


def fill(root: str, address: str, users: int) -> float:
    """Materialise and push a view; return the rows pushed each second. In a process of its own."""
    from halving import Store
    from resources.features.materialize import materialize_all
    from resources.features.online import push
    from resources.features.view import parse_view

    definition = view_of("known", 0).as_dict() | {"name": "users", "schema": FEATURES}
    del definition["ttl"]
    _ROWS["users"] = users
    store = Store(root)
    view = parse_view(definition)
    materialize_all(store, view)
    began = time.perf_counter()
    pushed = push(store, view, address)
    seconds = time.perf_counter() - began
    if pushed.taken != users:
        raise ChildFailed(f"{pushed.taken} of {users} rows were taken")
    return users / seconds


def ask(address: str, users: int, lookups: int) -> dict[str, float]:
    """Look up random users, one by one and a hundred at a time. In a process of its own."""
    from halving.features import OnlineFeatures

    with OnlineFeatures(address, [f"users@1:{name}" for name in FEATURES]) as reader:
        return look_up(reader.get, reader.read, _cities, users, lookups)


def _cities(features: Any) -> list[str]:
    if isinstance(features, dict):
        return [features["city"]]
    return features["city"].to_pylist()
