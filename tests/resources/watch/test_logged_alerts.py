"""What a run logs as an alert reaches people through the index of runs, once."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select

import halving
from halving.store.json_files import now
from resources.alerts.channels import add_channel
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import AlertDeliveryRow, AlertRow, RunRow
from resources.watch import Watch


@pytest.fixture
def watched(backend: Backend) -> Backend:
    with backend.catalog.write() as session:
        add_channel(session, "hook", "webhook", "https://hooks.example.com/", actor="ada")
    Watch(backend.catalog).look()
    return backend


def raise_in_run(backend: Backend, run: halving.Run, number: int, **changes: str) -> None:
    """Write an alert's file as ``Run.alert`` does."""
    content = {"title": "loss stands still", "text": "look", "level": "warn", "attempt": 1, "time": now()}
    name = f"runs/project={run.project}/{run.id}/alert-0001-{number:06d}-0123abcd.json"
    backend.store.create(name, json.dumps({**content, **changes}).encode())


def test_an_alert_of_a_run_is_told_once_with_its_words(watched: Backend) -> None:
    refresher = Refresher(watched.store, watched.catalog)
    run = halving.init("digits", {}, Path(watched.store.root), id="a", system_metrics=None)
    raise_in_run(watched, run, 1)
    refresher.refresh()
    raise_in_run(watched, run, 2, title="it falls again", level="info")
    run.finish()
    with watched.catalog.write() as session:
        for row in session.scalars(select(RunRow)):
            row.look_again = 0.0
    refresher.refresh()
    with watched.catalog.read() as session:
        alerts = session.scalars(select(AlertRow).order_by(AlertRow.id)).all()
        assert len(session.scalars(select(AlertDeliveryRow)).all()) == 2
    assert [(alert.title, alert.text, alert.level) for alert in alerts] == [
        ("digits/a: loss stands still", "look", "warn"),
        ("digits/a: it falls again", "look", "info"),
    ]


def test_alerts_from_before_the_watch_or_long_ago_are_not_told(backend: Backend, watched: Backend) -> None:
    run = halving.init("digits", {}, Path(watched.store.root), id="a", system_metrics=None)
    raise_in_run(watched, run, 1, time="2020-01-01T00:00:00+00:00")
    raise_in_run(watched, run, 2, time="no time")
    run.finish()
    Refresher(watched.store, watched.catalog).refresh()
    with watched.catalog.read() as session:
        assert session.scalars(select(AlertRow)).all() == []


def test_a_damaged_alert_keeps_no_run_out_of_the_index(watched: Backend) -> None:
    run = halving.init("digits", {}, Path(watched.store.root), id="a", system_metrics=None)
    watched.store.create("runs/project=digits/a/alert-0001-000001-00000000.json", b"no json")
    run.finish()
    assert Refresher(watched.store, watched.catalog).refresh().added == 1
