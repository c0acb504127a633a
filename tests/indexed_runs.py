"""Runs in a store and what the index says of them, for the tests of the index."""

from pathlib import Path
from typing import Any

import halving
from halving import Store
from halving.query.run_filter_parser import parse_fields, parse_filter
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.analysis.run_index import select_names, select_page
from resources.analysis.run_index.select import state_of
from resources.backend import Backend
from resources.catalog import Catalog, TrialRow, utcnow
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = utcnow().timestamp()

    def __call__(self) -> float:
        return self.now


def add_run(
    store: Store,
    run: str,
    params: dict[str, Any] | None = None,
    *,
    project: str = "digits",
    **curves: list[float],
) -> None:
    """A finished run, or another attempt at it, with a curve for each keyword."""
    opened = halving.init(project, params or {}, store.root, id=run, system_metrics=None)
    for key, values in curves.items():
        for step, value in enumerate(values):
            opened.log({key: value}, step=step)
    opened.finish()


def add_record(
    store: Store,
    run: str,
    params: dict[str, Any] | None = None,
    parent: dict[str, Any] | None = None,
    **last: float,
) -> None:
    """A finished run without points: its records alone, with a last value for each keyword.

    It takes a hundredth of the time.
    """
    records = RunRecords(store, "digits", run)
    records.start(params or {}, parent or {}, None, {"started": now(), "provenance": {}})
    records.end(1, {"status": "finished", "summary": last})


def record_of(store: Store, run: str, project: str = "digits") -> Path:
    assert store.folder is not None
    return store.folder / "runs" / f"project={project}" / run / "record.json"


def rows(catalog: Catalog, text: str = "", columns: str = "") -> list[dict[str, Any]]:
    with catalog.read() as session:
        return select_page(session, parse_filter(text), columns=parse_fields(columns)).runs


def names(catalog: Catalog, text: str = "") -> list[str]:
    with catalog.read() as session:
        return [run for _, run in select_names(session, parse_filter(text))]


def revision(catalog: Catalog) -> int:
    with catalog.read() as session:
        return state_of(session).revision


def with_trial(backend: Backend, spec: SweepSpec) -> str:
    """A sweep with one trial, whose run has ended; its id."""
    sweep = _open_sweep(backend, spec, trials=1)
    add_run(backend.store, f"{sweep}.0000", project=spec.name, score=[0.1, 0.9, 0.5], other=[1.0])
    record = record_of(backend.store, f"{sweep}.0000", spec.name)
    record.write_text(
        record.read_text().replace('"parent": {}', f'"parent": {{"sweep": "{sweep}", "trial": 0}}')
    )
    return sweep


def paused_trials(backend: Backend, spec: SweepSpec, count: int) -> str:
    """A sweep that searches, with paused trials whose runs are r0, r1 and so on; its id."""
    sweep = _open_sweep(backend, spec, trials=count)
    for number in range(count):
        records = RunRecords(backend.store, "digits", f"r{number}")
        records.start({}, {"sweep": sweep, "trial": number}, None, {"started": now(), "provenance": {}})
        records.end(1, {"status": "paused", "summary": {}})
    return sweep


def _open_sweep(backend: Backend, spec: SweepSpec, *, trials: int) -> str:
    """Open a sweep with paused trials; return its id."""
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    sweep = open_sweep(backend.catalog, spec, "sha256:a", driver="job", commit=None).id
    with backend.catalog.write() as session:
        for number in range(trials):
            session.add(TrialRow(sweep=sweep, number=number, params={}, status="paused", attempt=1))
    return sweep
