"""An index of runs full of made-up rows, written straight into the catalog's tables."""

import random
from typing import Any

_AT_ONCE = 20_000  # rows in a statement
_STARTED = 1_780_000_000.0
_WORDS = ("resnet50", "resnet18", "vit-base", "convnext", "mlp")


def fill(url: str, *, runs: int, params: int = 10, metrics: int = 10) -> None:
    """Write so many runs, each with so many params and metrics; in a process of its own."""
    from sqlalchemy import Connection, insert, text

    from resources.catalog import Catalog, RunIndexRow, RunNameRow, RunRow, RunValueRow

    catalog = Catalog(url)
    source = random.Random(0)
    names = ["lr", "optimizer", "pretrained", *(f"param_{number}" for number in range(3, params))]
    keys = ["val_loss", *(f"metric_{number}" for number in range(1, metrics))]
    named = (
        [("params", name) for name in names[:params]]
        + [("metrics", name) for name in keys]
        + [("tags", "team")]
    )

    def write(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> None:
        for at in range(0, len(rows), _AT_ONCE):
            connection.execute(insert(table), rows[at : at + _AT_ONCE])

    with catalog.engine.connect().execution_options(write=True) as connection, connection.begin():
        write(
            connection,
            RunNameRow,
            [{"id": place, "kind": kind, "name": name} for place, (kind, name) in enumerate(named, 1)],
        )
        connection.execute(text(f"UPDATE {RunIndexRow.__tablename__} SET revision = 1"))
    for first in range(1, runs + 1, 1_000):
        numbers = range(first, min(first + 1_000, runs + 1))
        with catalog.engine.connect().execution_options(write=True) as connection, connection.begin():
            write(connection, RunRow, [_run(number, source) for number in numbers])
            write(
                connection, RunValueRow, [row for number in numbers for row in _values(number, named, source)]
            )
    with catalog.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if catalog.engine.dialect.name == "postgresql":
            connection.exec_driver_sql("VACUUM ANALYZE")  # as the server does by itself after a while
    catalog.close()


def _run(number: int, source: random.Random) -> dict[str, Any]:
    started = _STARTED + number * 60
    seconds = source.uniform(10, 10_000)
    status = source.choices(("finished", "failed", "running"), (90, 9, 1))[0]
    words = {
        "dataset": "digits",
        "snapshot": f"sha256:{number % 7:064x}",
        "commit": f"{number // 500:040x}",
        "signature": f"{number:032x}",
    }
    times = {"started": started, "ended": None, "seconds": seconds, "look_again": 1e12}
    if status != "running":
        times["ended"] = started + seconds
    counts = {
        "epoch": 9,
        "attempt": 1,
        "sweep": f"digits-{number // 1000:04x}",
        "trial": number % 1000,
        "seed": number,
        "revision": 1,
    }
    return {
        "id": number,
        "project": f"project-{number % 5}",
        "run": f"run-{number:08d}",
        "status": status,
        **words,
        **times,
        **counts,
    }


def _values(number: int, named: list[tuple[str, str]], source: random.Random) -> list[dict[str, Any]]:
    empty = {"type": 0, "number": None, "text": None, "min": None, "max": None, "best": None}
    rows = []
    for place, (kind, name) in enumerate(named, 1):
        row = {**empty, "name_id": place, "run_id": number}
        if kind == "metrics":
            last = source.lognormvariate(0, 1)
            row |= {"number": last, "min": last * 0.9, "max": last * 2, "best": last * 0.9}
        elif name in ("optimizer", "team"):
            row |= {"type": 1, "text": source.choice(_WORDS)}
        elif name == "pretrained":
            row |= {"type": 2, "number": float(source.random() < 0.5)}
        else:
            row |= {"number": 10 ** source.uniform(-5, -1)}
        rows.append(row)
    return rows
