"""Kills at any step of a change to the registry: catalog, events and store then agree."""

import io
import json
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

import pytest
from sqlalchemy import event, select

import halving
from halving import NotFound
from halving.checkpoints.serialization import pack
from halving.models.manifest import Manifest
from halving.models.published import published_folder, published_name
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.store import Store
from resources.backend import Backend
from resources.catalog import ModelVersionRow, PublishedModelRow, ReportRow, SweepRow, utcnow
from resources.catalog.models import champion_of, versions_of
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.judged_code import code_here, keep_code
from resources.evaluation.report import EvaluationReport
from resources.registry import by_hand
from resources.registry.events import events_of, newest_event
from resources.registry.gates.verdict import GateFailed
from resources.registry.promotion import promote_winner
from resources.registry.publishing import publish
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL

MODEL = "small"
RUN = "small-0.0000"
STAGES = {"staging", "champion", "archived"}
PASS = {"name": "finite_metrics", "outcome": "pass", "reason": "every test metric is finite"}
FAIL = {"name": "leakage", "outcome": "fail", "reason": "3 rows of the test split are in train"}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kills of the registry")]


class World:
    """A backend with a trained run, of which any number of sweeps can be the winner's."""

    def __init__(self, backend: Backend, spec: SweepSpec) -> None:
        self.backend = backend
        self._spec = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        self._snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        file = io.BytesIO()
        pack({"epochs_seen": [1]}, file)
        self._checkpoint = backend.store.put_blob(file.getvalue())
        records = RunRecords(backend.store, MODEL, RUN)
        git = {"commit": "c", "dirty": False}
        provenance = {"packages": {}, "python": {"version": "3.11.7"}, "git": git}
        records.start({"x": 0.5}, {"snapshot": self._snapshot.digest}, None, {"provenance": provenance})
        records.add_checkpoint(SavedCheckpoint(1, 1, self._checkpoint, {}))
        self._code = keep_code(backend.store, spec, code_here(spec))
        self._sweeps = 0

    def report(self, *gates: dict[str, Any], **settings: Any) -> EvaluationReport:
        """The report of a new sweep, judged against the champion of now; with settings of its spec."""
        backend = self.backend
        sweep = f"small-{self._sweeps}"
        now = champion(self.backend)
        self._sweeps = self._sweeps + 1
        spec = {**self._spec, **settings}
        data = {
            "sweep": sweep,
            "name": MODEL,
            "spec": spec,
            "snapshot": {"key": self._snapshot.key, "digest": self._snapshot.digest},
            "winner": {"key": RUN, "trial": 0, "checkpoint": self._checkpoint, "params": {"x": 0.5}},
            "labels": ["high", "low"],
            "code": self._code,
            "metrics": {"accuracy": 1.0},
            "champion": {"version": now} if now else None,
            "gates": [*(gates or (PASS,)), {"name": "lineage", "outcome": "pass", "reason": "all there"}],
        }
        made = EvaluationReport(
            data, backend.store.put_blob(json.dumps(data).encode()), "sha256:page", "reports/page.html"
        )
        with backend.catalog.write() as session:
            about = {
                "name": MODEL,
                "spec": spec,
                "spec_digest": "d",
                "snapshot": self._snapshot.digest,
                "driver": "job",
            }
            session.add(
                SweepRow(id=sweep, ordinal=self._sweeps, status="evaluating", created_at=utcnow(), **about)
            )
            session.flush()
            session.add(
                ReportRow(
                    sweep=sweep, digest=made.digest, html=made.html_digest, metrics={}, created_at=utcnow()
                )
            )
        return made

    def version(self, **settings: Any) -> str:
        """A new version that waits for an approval, with settings of its sweep's spec."""
        row, _ = promote_winner(self.backend, self.report(approval={"required": True}, **settings))
        assert row.stage == "staging"
        return row.version


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Once for all kills on a database: each change begins with a winner of its own."""
    folder = tmp_path_factory.mktemp("kills")
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("catalog_file"), folder / "catalog.db")
        url = f"sqlite:///{folder}/catalog.db"
    else:
        template = request.getfixturevalue("catalog_template")
        url = request.getfixturevalue("postgres").database(f"kills_{secrets.token_hex(6)}", template)
    backend = Backend(root=str(folder / "root"), catalog_url=url)
    world = World(backend, parse_spec(SMALL))
    for _ in range(2):  # a rollback needs a champion before
        promote_winner(backend, world.report(auto_promote=True))
    yield world
    backend.catalog.close()


class Change(NamedTuple):
    """A change that is killed.

    Attributes:
        prepared: makes what it is about, before.
        made: makes the change, by what was prepared; gives nothing.
        events: what it writes down, transaction by transaction.
        again: whether who finds it undone or half done, or does not know, gives the same command again.
        status: of the sweep, when it is done.
    """

    prepared: Callable[[World], Any]
    made: Callable[[Backend, Any], object]
    events: list[list[str]]
    again: bool = False
    status: str | None = None


def reject_winner(backend: Backend, report: EvaluationReport) -> None:
    with suppress(GateFailed):
        promote_winner(backend, report)


def decide(decision: Callable[..., Any], **options: Any) -> Callable[[Backend, Any], object]:
    return lambda backend, version: decision(backend, MODEL, version, pytest.fail, actor="ann", **options)


def approve_version(world: World) -> str:
    version = world.version()
    by_hand.approve(world.backend, MODEL, version, pytest.fail, actor="bob", note="good")
    return version


CHANGES = {
    "winner-that-is-promoted": Change(
        lambda world: world.report(auto_promote=True),
        promote_winner,
        [["registered", "replaced", "promoted"]],
        True,
        "finished",
    ),
    "winner-that-is-rejected": Change(lambda world: world.report(FAIL), reject_winner, [], True, "rejected"),
    "promote": Change(approve_version, decide(by_hand.promote), [["replaced", "promoted"]], True),
    "force": Change(
        lambda world: world.report(FAIL).data["sweep"],
        decide(by_hand.promote, note="now", force=True),
        [["registered"], ["replaced", "forced"]],
        True,
    ),
    "approve": Change(
        lambda world: world.version(auto_promote=True),
        decide(by_hand.approve, note="good"),
        [["approved", "replaced", "promoted"]],
    ),
    "reject": Change(World.version, decide(by_hand.reject, note="misses night scenes"), [["rejected"]]),
    "rollback": Change(
        lambda world: promote_winner(world.backend, world.report(auto_promote=True)),
        lambda backend, _: by_hand.rollback(backend, MODEL, pytest.fail, actor="ann"),
        [["replaced", "rolled back"]],
    ),
    "archive": Change(
        lambda world: promote_winner(world.backend, world.report(auto_promote=True))[0].version,
        decide(by_hand.archive),
        [["archived"]],
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_killed_at_any_step_is_whole_or_absent_and_is_published_later(
    world: World, change: Change
) -> None:
    backend = world.backend
    whole = list(chain.from_iterable(change.events))
    histories = list[list[str]]()
    for step in range(100):
        prepared = change.prepared(world)
        before = champion(backend)
        since = newest(backend)
        make_change = partial(change.made, backend, prepared)
        status = in_a_process_killed_at(step, backend, make_change)
        histories.append(event_kinds(backend, since))
        assert histories[-1] in accumulate(change.events, initial=[]), "no transaction is half made"
        assert published_champion(backend) in (before, champion(backend)), (
            "the store is behind at most, and names what is there"
        )
        assert publish(backend.store, backend.catalog) == []  # as a server does when it starts
        assert_one_truth(backend)
        if change.again:
            change.made(backend, prepared)
            assert event_kinds(backend, since) == whole, "nothing is lost, and nothing there twice"
            assert_one_truth(backend)
        if change.status:
            assert sweep_status(backend, prepared.data["sweep"]) == change.status
        if champion(backend) is None:  # the next is judged against one again
            promote_winner(backend, world.report())
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert status == 0
    assert step >= (5 if whole else 1), "there are so many steps to be killed at"
    assert (histories[0], histories[-1]) == ([], whole)


def in_a_process_killed_at(step: int, backend: Backend, change: Callable[[], object]) -> int:
    """Make a change in a forked process that is killed before its commit or write of this number.

    Within a transaction a kill is the same anywhere: the database takes it back.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    left = step

    def count(*_: object) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def count_calls(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            count()
            return function(*arguments, **more)

        return call

    status = 1
    try:
        engine = backend.catalog.engine
        connections = engine.pool  # are the other process's: neither used nor closed here
        engine.dispose(close=False)
        event.listen(engine, "commit", count)
        for name in ("replace", "delete", "put_blob"):
            setattr(Store, name, count_calls(getattr(Store, name)))
        change()
        del connections
        status = 0
    finally:
        os._exit(status)


def assert_one_truth(backend: Backend) -> None:
    """The versions, their events and the files of the store say the same."""
    with backend.catalog.read() as session:
        versions = versions_of(session, MODEL)
        events = events_of(session, MODEL)
        revision = session.get_one(PublishedModelRow, MODEL).revision
        assert revision == newest_event(session, MODEL)
        sweeps = list(session.scalars(select(ModelVersionRow.sweep).where(ModelVersionRow.model == MODEL)))
    assert len(sweeps) == len(set(sweeps)), "a sweep has one version"
    stages = {row.version: row.after for row in events if row.after in STAGES}
    assert stages == {row.version: row.stage for row in versions}
    files = {name.removesuffix(".json") for name in backend.store.names(published_folder(MODEL))}
    assert files == {"champion", "aliases", *stages}
    for version, stage in stages.items():
        assert json.loads(backend.store.read(published_name(MODEL, version)))["version"]["stage"] == stage
    assert published_champion(backend) == champion(backend)
    aliases = json.loads(backend.store.read(published_name(MODEL, "aliases")))["aliases"]
    assert aliases == ({"champion": champion(backend)} if champion(backend) else {})


def published_champion(backend: Backend) -> str | None:
    """What the store names as the champion; all that it takes to use it is there."""
    try:
        champion = halving.resolve(f"{MODEL}@champion", root=backend.root)
    except NotFound:
        return None
    assert champion.manifest is not None
    assert backend.store.has_blob(Manifest.read(backend.store, champion.manifest).checkpoint)
    return champion.version


def champion(backend: Backend) -> str | None:
    with backend.catalog.read() as session:
        row = champion_of(session, MODEL)
    return row.version if row else None


def newest(backend: Backend) -> int:
    with backend.catalog.read() as session:
        return newest_event(session, MODEL)


def event_kinds(backend: Backend, since: int) -> list[str]:
    with backend.catalog.read() as session:
        return [row.kind for row in events_of(session, MODEL, since)]


def sweep_status(backend: Backend, sweep: str) -> str:
    with backend.catalog.read() as session:
        return backend.catalog.sweep(session, sweep).status
