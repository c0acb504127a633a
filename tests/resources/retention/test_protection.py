"""What is protected: exactly what the registry, the reports and unfinished sweeps reach."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from halving import InvalidInput, NotFound
from halving.models.published import published_name
from halving.records.run_record import RunRecords
from resources.backend import Backend
from resources.catalog import ModelVersionRow, ReportRow, RungResultRow, SweepRow, TrialRow, utcnow
from resources.registry.events import APPROVED, REGISTERED, REJECTED, add_event
from resources.registry.publishing import publish
from resources.retention.protection import find_protected, trial_checkpoints
from resources.scheduling import intents
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import add_version, snapshot_row


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def add_sweep(
    backend: Backend, sweep: str, status: str, stage: str | None = None, *, reported: bool = False
) -> None:
    """A sweep of three trials whose winner is number 1; trial 2 reached two rungs."""
    digest = backend.store.put_blob(
        json.dumps({"name": "digits", "winner": {"key": f"{sweep}.0001"}}).encode()
    )
    with backend.catalog.write() as session:
        if not session.get(type(snapshot_row("sha256:s")), "sha256:s"):
            session.add(snapshot_row("sha256:s"))
            session.flush()
        row = SweepRow(
            id=sweep,
            name="digits",
            spec={},
            spec_digest=sweep,
            snapshot="sha256:s",
            driver="job",
            ordinal=0,
            status=status,
        )
        row.created_at = utcnow()
        session.add(row)
        session.flush()
        for number in range(3):
            session.add(TrialRow(sweep=sweep, number=number, params={}, status="paused"))
        session.flush()
        for rung in range(2):
            result = RungResultRow(
                sweep=sweep, trial=2, rung=rung, epochs=1, value=0.5, decision="pause", attempt=1, seconds=1.0
            )
            result.checkpoint = f"sha256:{sweep}-rung{rung}"
            result.reached_at = utcnow()
            session.add(result)
        if reported:
            session.add(
                ReportRow(sweep=sweep, digest=digest, html="sha256:h", metrics={}, created_at=utcnow())
            )
        if stage:
            fields = {
                "sweep": sweep,
                "trial": 1,
                "run": f"{sweep}.0001",
                "snapshot": "sha256:s",
                "report": digest,
            }
            checkpoint = f"sha256:{sweep}-winner"
            add_version(
                session,
                model="digits",
                version=f"1.0.{sweep[-1]}",
                stage=stage,
                checkpoint=checkpoint,
                **fields,
            )


def test_only_what_champions_staging_reports_and_open_sweeps_need_is_protected(
    backend: Backend,
) -> None:
    add_sweep(backend, "s-1", "finished", "archived")
    add_sweep(backend, "s-2", "finished", "champion")
    add_sweep(backend, "s-3", "finished", "staging")
    add_sweep(backend, "s-4", "rejected", reported=True)
    add_sweep(backend, "s-5", "failed")
    assert set(find_protected(backend.store, backend.catalog).runs) == {
        ("digits", f"s-{number}.0001") for number in (2, 3, 4)
    }
    add_sweep(backend, "s-6", "searching")
    assert set(find_protected(backend.store, backend.catalog).runs) == {
        *(("digits", f"s-{number}.0001") for number in (2, 3, 4)),
        *(("digits", f"s-6.{number:04d}") for number in range(3)),
    }


def test_protected_runs_of_a_sweep_are_in_its_project_whatever_its_model_is_called(
    backend: Backend,
) -> None:
    for sweep, status in (("s-1", "finished"), ("s-2", "searching")):
        add_sweep(backend, sweep, status, reported=True)
    with backend.catalog.write() as session:
        for sweep in ("s-1", "s-2"):
            session.get_one(SweepRow, sweep).project = "vision"
    assert set(find_protected(backend.store, backend.catalog).runs) == {
        ("vision", "s-1.0001"),
        *(("vision", f"s-2.{number:04d}") for number in range(3)),
    }


def test_reports_and_checkpoints_of_versions_and_of_highest_rungs_stay(
    backend: Backend,
) -> None:
    add_sweep(backend, "s-1", "finished", "archived", reported=True)
    with backend.catalog.write() as session:
        version = session.get(ModelVersionRow, ("digits", "1.0.1")) or pytest.fail("no version")
        predicted = {
            "predictions": "sha256:ours",
            "champion": {"predictions": "sha256:theirs"},
            "figures": [{"digest": "sha256:drawn"}],
        }
        earlier = backend.store.put_blob(json.dumps({**predicted, "code": "sha256:code"}).encode())
        report = version.report
        version.report = earlier
        version.manifest = "sha256:manifest"
    named = {"sha256:s-1-winner", report, "sha256:h", earlier, "sha256:manifest"}
    named |= {"sha256:ours", "sha256:theirs", "sha256:drawn", "sha256:code"}
    assert find_protected(backend.store, backend.catalog).blobs == named
    with backend.catalog.write() as session:
        assert set(trial_checkpoints(session, ())) == {"sha256:s-1-rung1"}
        assert set(trial_checkpoints(session, {("s-1", 2)})) == set()
        session.get_one(TrialRow, ("s-1", 2)).checkpoints_left = "none"
        session.flush()
        assert set(trial_checkpoints(session, ())) == set()


def test_the_report_by_which_somebody_decided_stays_when_the_version_has_another(backend: Backend) -> None:
    add_sweep(backend, "s-1", "finished", "staging", reported=True)
    gone = "sha256:" + "ab" * 32
    read = backend.store.put_blob(b'{"predictions": "sha256:rows"}')
    with backend.catalog.write(exclusive=True) as session:
        row = session.get_one(ModelVersionRow, ("digits", "1.0.1"))
        now = row.report
        row.report = read
        add_event(session, "digits", APPROVED, "ann", version=row, note="fine")
        row.report = gone
        add_event(session, "digits", REJECTED, "bob", version=row, note="no")
        row.report = now
    assert {read, "sha256:rows", gone} <= find_protected(backend.store, backend.catalog).blobs


def test_a_report_that_cannot_be_read_stops_retention(backend: Backend) -> None:
    add_sweep(backend, "s-1", "finished", reported=True)
    with backend.catalog.write() as session:
        (session.get(ReportRow, "s-1") or pytest.fail("no report")).digest = "sha256:" + "0" * 64
    with pytest.raises(NotFound):
        find_protected(backend.store, backend.catalog)


def test_a_report_of_a_sweep_that_the_catalog_does_not_know_stops_retention(backend: Backend) -> None:
    add_sweep(backend, "s-1", "finished", reported=True)
    backend.store.replace("reports/s-1.html", b"known")
    assert find_protected(backend.store, backend.catalog).blobs
    backend.store.replace("reports/theirs-1.html", b"of another catalog")
    with pytest.raises(
        InvalidInput, match=r"it has no sweep theirs-1, of which the store .* has a report; what"
    ):
        find_protected(backend.store, backend.catalog)


def begin_trial(backend: Backend, run: str, parent: dict[str, Any]) -> RunRecords:
    records = RunRecords(backend.store, "digits", run)
    records.start({}, parent, 1, {"provenance": {}, "started": "2026-01-01T00:00:00+00:00"})
    return records


def test_runs_of_an_unknown_sweep_stop_retention_until_it_is_declared_lost(
    backend: Backend,
) -> None:
    """An open sweep has no report yet, and one without a predictor never gets one."""
    add_sweep(backend, "s-1", "finished")
    for number in range(2):
        begin_trial(backend, f"s-1.{number:04d}", {"sweep": "s-1", "trial": number})
    begin_trial(backend, "mine.0001", {})  # a name that somebody chose
    begin_trial(backend, "again", {"rerun_of": "digits/theirs-1.0000"})
    assert find_protected(backend.store, backend.catalog).runs == {}
    begin_trial(backend, "theirs-1.0000", {"sweep": "theirs-1", "trial": 0})
    with pytest.raises(
        InvalidInput,
        match=r"it has no sweep theirs-1, of which the store .* has runs; what .* Set HALVING_CATALOG to",
    ):
        find_protected(backend.store, backend.catalog)
    backend.store.replace("retention/lost-sweeps.txt", b"s-0\ntheirs-1\n")
    assert find_protected(backend.store, backend.catalog).runs == {}


@pytest.mark.parametrize(
    "record", [b'{\n "parent": {\n  "sweep": "theirs-1",\n  "tri', b"\0" * 200], ids=["cut", "zeros"]
)
def test_a_damaged_record_of_a_trial_or_another_one_says_which_sweep_it_is_of(
    backend: Backend, record: bytes
) -> None:
    backend.store.create("runs/project=digits/theirs-1.0000/record.json", record)
    begin_trial(backend, "theirs-1.0001", {"sweep": "theirs-1", "trial": 1})
    with pytest.raises(InvalidInput, match="it has no sweep theirs-1, of which"):
        find_protected(backend.store, backend.catalog)


def test_versions_that_the_catalog_does_not_know_stop_retention(backend: Backend) -> None:
    """What a client registered is named by the catalog alone."""
    with backend.catalog.write(exclusive=True) as session:
        for number in (1, 2):
            row = add_version(
                session,
                model="a model/of ours",
                version=f"{number}.0.0",
                stage="staging",
                manifest="sha256:m",
            )
        add_event(session, row.model, REGISTERED, "ann", version=row)
    assert publish(backend.store, backend.catalog) == []
    assert find_protected(backend.store, backend.catalog).blobs == {"sha256:m"}
    with backend.catalog.write(exclusive=True) as session:  # killed before it was published
        session.delete(session.get_one(ModelVersionRow, (row.model, row.version)))
    assert find_protected(backend.store, backend.catalog).blobs == {"sha256:m"}
    backend.store.replace(published_name("theirs", "1.0.0"), b"{}")
    name = "models/theirs/1.0.0.json"
    with pytest.raises(
        InvalidInput,
        match=rf"it has no version of a model for {name} of the store .* If such a version is gone for good",
    ):
        find_protected(backend.store, backend.catalog)


def test_the_run_that_an_unfinished_training_run_goes_on_from_is_protected(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    add_sweep(backend, "s-1", "finished")
    source = {"project": "digits", "run": "s-1.0000", "epoch": 3, "checkpoint": "sha256:" + "a" * 64}
    spec = small_spec(restored_from=source, strategy={"random": {"budget": 9}})
    with backend.catalog.write() as session:
        intent = intents.add(session, spec, kind="training-run", driver="sensors", actor="ada")
    assert ("digits", "s-1.0000") in find_protected(backend.store, backend.catalog).runs
    open_sweep(backend.catalog, spec, "sha256:s", driver="sensors", commit=None, sweep=intent.sweep)
    intents.become(backend.catalog, intent.id, intents.Became(intents.DONE, "r"))
    assert ("digits", "s-1.0000") in find_protected(backend.store, backend.catalog).runs
    backend.catalog.end_sweep(intent.sweep, "finished")
    assert ("digits", "s-1.0000") not in find_protected(backend.store, backend.catalog).runs
