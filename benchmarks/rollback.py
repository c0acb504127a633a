"""How long it takes to go back to the previous champion, of models with few and many versions."""

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import CHECKOUT, Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread

_VERSIONS = (50, 1_000)
_ROLLBACKS = 9
_TEXT = f"""
A model of so many versions, each of which was the champion in its turn (SQLite, a store in a folder), goes
back {_ROLLBACKS} times, each time to the champion before. *The catalog*: the transaction, in which the
champion changes and its event is written. *With the store*: the same with `models/NAME/champion.json`
replaced after it, as `halving rollback` and the job do it. *The command*: `halving rollback`, a process from
its start to its end.
"""


def measure(setting: Setting) -> Part:
    """Measure the seconds of a rollback, with the target of one second including the store."""
    part = Part("rollback", "Rolling a model back", _TEXT)
    table = Table(["versions", "the catalog, ms", "with the store, ms", "the command, s"], [], "A rollback")
    for versions in setting.choose(_VERSIONS[:1], _VERSIONS):
        root = str(setting.work / f"store-{versions}")
        in_child("benchmarks.rollback:fill", root=root, versions=versions)
        catalog = in_child(
            "benchmarks.rollback:roll_back", root=root, times=setting.choose(2, _ROLLBACKS), with_store=False
        )
        stored = in_child(
            "benchmarks.rollback:roll_back", root=root, times=setting.choose(2, _ROLLBACKS), with_store=True
        )
        commands = [_command(root) for _ in range(setting.choose(1, 3))]
        cells = [spread([1000 * seconds for seconds in each]) for each in (catalog, stored)]
        table.rows.append([number(versions), *cells, spread(commands)])
        part.targets.append(
            Target(f"a rollback of a model of {versions:,} versions, with the store", "s", stored, 1.0)
        )
    part.tables.append(table)
    return part


def fill(root: str, versions: int) -> int:
    """Make a model of so many versions, each of them champion until the next.

    To be called in a process of its own.
    """
    from resources.backend import Backend
    from resources.catalog import ModelVersionRow, SnapshotRow, SweepRow, utcnow
    from resources.registry.publishing import publish
    from resources.registry.versions import register

    backend = Backend(root=root, catalog_url=_catalog(root))
    digest = f"sha256:{0:064}"
    about = {
        "rows": 3,
        "bytes": 3,
        "schema_sha256": "s",
        "target": "label",
        "splits": {"train": 3},
        "source": "m:f",
        "recipe": {},
    }
    with backend.catalog.write() as session:
        session.add(
            SnapshotRow(digest=digest, name="points", transform_sha256="t", created_at=utcnow(), **about)
        )
    champion = None
    for ordinal in range(versions):
        sweep = f"digits-{ordinal}"
        spec = {
            "name": "digits",
            "spec": {"auto_promote": True},
            "spec_digest": "d",
            "snapshot": digest,
            "driver": "job",
        }
        with backend.catalog.write() as session:
            session.add(SweepRow(id=sweep, ordinal=ordinal, status="evaluating", created_at=utcnow(), **spec))
        row = ModelVersionRow(
            model="digits",
            checkpoint=f"sha256:{ordinal:064}",
            sweep=sweep,
            trial=0,
            run=f"{sweep}.0000",
            snapshot=digest,
            framework="torch 2",
            input_schema={"x": "double"},
            output_schema={"type": "int64"},
            metrics={"accuracy": 0.9},
            report=f"sha256:{ordinal:064}",
            gates=[
                {
                    "name": "finite_metrics",
                    "outcome": "pass",
                    "passed": True,
                    "reason": "every test metric is a number",
                }
            ],
        )
        champion = register(backend.catalog, row, judged_against=champion, auto_promote=True).version
    publish(backend.store, backend.catalog)
    return versions


def roll_back(root: str, times: int, with_store: bool) -> list[float]:
    """Seconds of each of some rollbacks. To be called in a process of its own."""
    from resources.backend import Backend
    from resources.registry import by_hand, stages

    backend = Backend(root=root, catalog_url=_catalog(root))
    with backend.catalog.read():  # opened and migrated, as in a server
        pass
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        if with_store:
            by_hand.rollback(backend, "digits", _fail, actor="bench")
        else:
            stages.rollback(backend.catalog, "digits", actor="bench")
        seconds.append(time.perf_counter() - began)
    return seconds


def _command(root: str) -> float:
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("halving")), "rollback", "digits", "--root", root]
    environment = {**os.environ, "HALVING_CATALOG": _catalog(root)}
    subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _catalog(root: str) -> str:
    """The store's own catalog: the one in ``HALVING_CATALOG`` may have real models."""
    return f"sqlite:///{root}/catalog.db"


def _fail(sentence: str) -> None:
    raise RuntimeError(sentence)
