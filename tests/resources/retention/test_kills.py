"""Retention killed at each step: protected content is always there, and the next retention ends the same."""

import itertools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from halving import Store
from halving.maintenance.compaction import compact
from halving.query.runs import list_names, list_runs
from halving.records.amendments import amend, with_lifecycle
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.files import Files
from halving.store.json_files import now as this_moment
from halving.store.store import blob_name, digest_of
from resources.catalog import Catalog, TrialRow
from resources.catalog.trial_key import trial_key
from resources.retention.carry_out import carry_out
from resources.retention.policy import parse_policy
from resources.retention.policy_file import PolicyFile
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import add_version, snapshot_row
from tests.changes import be_later, is_killed, is_process_killed
from tests.resources.retention.ended_sweeps import add_trial
from tests.s3 import S3
from tests.sdk.metric_files import read_points, read_rollup, write_segment

DAYS = 40  # since when everything is as it is
VALUES = (0.5, 0.9, 0.7)  # of trials 0 to 2: the best is 1, and 2 is the champion
IsKilled = Callable[[int, Path, Callable[[], object]], bool]


@dataclass
class Place:
    """A store with its catalog and the colder place that the policy names.

    Attributes:
        days: from now, when everything is 40 days old: 0 in a folder, where files can be made old.
    """

    store: Store
    catalog: str
    cold: Store
    days: int

    def retain(self) -> None:
        """Carry out a policy that has something to do of each kind."""
        policy = {
            "points": {"full": {"days": 0}},
            "checkpoints": {"top_k": 1, "days": 14},
            "artifacts": {"days": 20},
            "trash": {"days": 0},
            "cold": {"days": 30, "root": self.cold.root},
            "grace_days": 2,
            "projects": {
                "other": {
                    "points": {"full": {"days": None}, "system": {"days": 0}},
                    "artifacts": {"days": None},
                }
            },
        }
        file = PolicyFile(parse_policy(policy, "retention.yaml"), "retention.yaml")
        with closing(Catalog(self.catalog)) as catalog:
            carry_out(self.store, catalog, file, now=datetime.now(UTC) + timedelta(days=self.days))


@dataclass
class Filled:
    """A store's contents, each with whether it must stay, its manifests' parts, and its sweep."""

    sweep: str
    stays: set[bytes]
    goes: set[bytes]
    parts: dict[bytes, tuple[bytes, ...]]


def fill(store: Store, catalog: Catalog, spec: SweepSpec) -> Filled:
    """Fill a store: a sweep that has ended, runs of scripts, a run in the trash, and a blob of nobody.

    The sweep has three trials with two checkpoints and points each.
    """
    with catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    sweep = open_sweep(catalog, spec, "sha256:s", driver="job", commit=None).id
    filled = Filled(sweep, set(), set(), {})

    def put(content: bytes, *, stays: bool) -> str:
        (filled.stays if stays else filled.goes).add(content)
        return store.put_blob(content)

    with catalog.write() as session:
        for number, value in enumerate(VALUES):
            run = trial_key(sweep, number)
            digest = ""
            records = begin(store, "small", run)
            for epoch in (1, 2):
                parts = tuple(f"{run} {epoch} {part}".encode() for part in range(2 if number == 1 else 0))
                stays = number > 0 and epoch == 2
                named = [put(part, stays=stays) for part in parts]
                manifest = json.dumps(
                    {"halving_checkpoint": 1, "of": f"{run} {epoch}", "parts": named}, separators=(",", ":")
                ).encode()
                content = manifest if parts else f"{run} {epoch}".encode()
                filled.parts |= {manifest: parts} if parts else {}
                digest = put(content, stays=stays)
                records.add_checkpoint(SavedCheckpoint(epoch, 1, digest, {}, sharded=bool(parts)))
            records.add_artifact("log", put(f"log of {run}".encode(), stays=number == 2), 1)
            records.end(1, {"status": "finished", "time": this_moment(), "summary": {}})
            add_trial(session, sweep, number, value, digest)
            compact(store, "small", run)
        champion = {"run": trial_key(sweep, 2), "sweep": sweep, "trial": 2, "checkpoint": digest}
        add_version(
            session, model="small", version="1.0.0", stage="champion", snapshot="sha256:s", **champion
        )
    catalog.end_sweep(sweep, "finished")
    mixed = begin(store, "other", "mixed")
    mixed.add_checkpoint(SavedCheckpoint(1, 1, put(b"superseded", stays=False), {}))
    mixed.add_checkpoint(SavedCheckpoint(2, 1, put(b"newest of a script", stays=True), {}))
    mixed.end(1, {"status": "finished", "time": this_moment(), "summary": {}})
    compact(store, "other", "mixed")
    trashed = begin(store, "other", "trashed")
    trashed.add_artifact("weights", put(b"of a deleted run", stays=False), 1)
    trashed.end(1, {"status": "finished", "time": this_moment(), "summary": {}})
    amend(store, "runs/project=other/trashed", lambda before: with_lifecycle(before, "deleted", "ada"))
    put(b"of nobody", stays=False)
    return filled


def begin(store: Store, project: str, run: str) -> RunRecords:
    """A run that has logged three steps of two metrics."""
    records = RunRecords(store, project, run)
    records.start({}, {}, 1, {"provenance": {}, "started": this_moment()})
    logged = [
        (key, step, 1_700_000_000_000, float(step)) for key in ("loss", "system/cpu") for step in range(3)
    ]
    write_segment(store, run, 1, 0, logged, project)
    return records


def save_again(store: Store, filled: Filled) -> set[bytes]:
    """Save expired contents, a sharded checkpoint and moved contents in a run; returns them."""
    manifest = next(content for content in filled.parts if content in filled.goes)
    records = RunRecords(store, "other", "again")
    for part in filled.parts[manifest]:
        store.put_blob(part)
    records.start({}, {}, 1, {"provenance": {}, "started": this_moment()})
    records.add_checkpoint(SavedCheckpoint(1, 1, store.put_blob(manifest), {}, sharded=True))
    records.add_checkpoint(SavedCheckpoint(2, 1, store.put_blob(b"newest of a script"), {}))
    return {manifest, *filled.parts[manifest], b"newest of a script"}


def check_moment(place: Place, filled: Filled, saved: Collection[bytes] = ()) -> None:
    """What must hold in every moment, whoever has been killed."""
    for content in (*filled.stays, *saved):
        assert place.store.get_blob(digest_of(content)) == content
    for manifest, parts in filled.parts.items():
        if place.store.has_blob(digest_of(manifest)):
            assert all(place.store.has_blob(digest_of(part)) for part in parts), (
                "a manifest without its parts"
            )
    assert len(read_points(place.store, trial_key(filled.sweep, 2), "small")) == 6
    assert [row[1] for row in read_points(place.store, "mixed", "other")][:3] == ["loss"] * 3
    for project, run in runs_with_points(filled):
        assert len(read_rollup(place.store, run, project)) == 6


def runs_with_points(filled: Filled) -> list[tuple[str, str]]:
    return [*(("small", trial_key(filled.sweep, number)) for number in range(3)), ("other", "mixed")]


def end_of(place: Place, filled: Filled, saved: set[bytes]) -> dict[str, Any]:
    """All that a retention leaves; of what was saved again there may be a copy in the colder place."""
    store = place.store
    every = filled.stays | filled.goes
    with closing(Catalog(place.catalog)) as catalog, catalog.read() as session:
        left = {row.number: row.checkpoints_left for row in session.scalars(select(TrialRow))}
    return {
        "left": left,
        "points": {
            run: [row[1:4] for row in read_points(store, run, project)]
            for project, run in runs_with_points(filled)
        },
        "here": {content for content in every if Files.exists(store, blob_name(digest_of(content)))},
        "cold": {
            content for content in every - saved if Files.exists(place.cold, blob_name(digest_of(content)))
        },
        "records": {name for name, _, _ in store.files("runs")},
        "runs": {(info.project, info.run) for info in list_runs(store)},
        "names": set(list_names(store)),
    }


def check_end(end: dict[str, Any], filled: Filled, saved: set[bytes]) -> None:
    """What a retention ends with that nobody has killed; so that the others are not all wrong alike."""
    best = trial_key(filled.sweep, 1).encode()
    cold = {content for content in filled.stays if best in content or b"script" in content}
    assert (end["here"], end["cold"]) == ((filled.stays - cold) | saved, cold - saved)
    assert end["left"] == {0: "none", 1: "newest", 2: "newest"}
    assert [len(end["points"][run]) for _, run in runs_with_points(filled)] == [0, 0, 6, 3]
    assert end["names"] == end["runs"]
    assert ("other", "trashed") not in end["runs"]


@dataclass
class Copies:
    """A store with its catalog, of which each try has a copy of its own."""

    store: Store
    catalog: Path
    folder: Path
    s3: S3 | None

    def make(self) -> Place:
        """One of these copies."""
        folder = self.folder / secrets.token_hex(4)
        folder.mkdir()
        shutil.copy(self.catalog, folder / "catalog.db")
        if self.s3 is None:
            shutil.copytree(self.store.root, folder / "store")
            return Place(Store(folder / "store"), f"sqlite:///{folder}/catalog.db", Store(folder / "cold"), 0)
        store, cold = (Store(self.s3.root(secrets.token_hex(6))) for _ in range(2))
        for name, _, _ in self.store.files(""):
            store.replace(name.lstrip("/"), self.store.read(name.lstrip("/")))
        return Place(store, f"sqlite:///{folder}/catalog.db", cold, DAYS)


@pytest.fixture
def spec(small_spec: Callable[..., SweepSpec]) -> SweepSpec:
    return small_spec(strategy={"random": {"budget": 9}}, max_trials=3)


@pytest.fixture
def copies(
    any_store: Store,
    tmp_path: Path,
    catalog_file: Path,
    spec: SweepSpec,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Copies, Filled]:
    """Nobody waits for the disk: what a process has written outlives its death."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    base = tmp_path / "base.db"
    shutil.copy(catalog_file, base)
    with closing(Catalog(f"sqlite:///{base}")) as catalog:
        filled = fill(any_store, catalog, spec)
        if any_store.folder is not None:
            then = datetime.now(UTC) - timedelta(days=DAYS)
            for name, _, _ in any_store.files(""):
                os.utime(any_store.folder / name.lstrip("/"), (then.timestamp(), then.timestamp()))
            with catalog.write() as session:
                catalog.sweep(session, filled.sweep).finished_at = then
    return Copies(
        any_store, base, tmp_path, None if any_store.folder is not None else request.getfixturevalue("s3")
    ), filled


def kill_at_steps(copies: Copies, filled: Filled, is_killed: IsKilled, steps: Iterable[int]) -> int:
    """Kill a retention at each of these steps until one ends, and run another after it; returns the kills.

    In a folder, where what is there can be old and what is saved young, a run saves some of the same bytes in
    between.
    """

    def save(place: Place) -> set[bytes]:
        return save_again(place.store, filled) if place.store.folder is not None else set()

    place = copies.make()
    place.retain()
    saved = save(place)
    place.retain()
    check_moment(place, filled, saved)
    end = end_of(place, filled, saved)
    check_end(end, filled, saved)
    for count, step in enumerate(steps):
        place = copies.make()
        if not is_killed(step, copies.folder, place.retain):
            return count
        check_moment(place, filled)
        be_later(place.store, place.cold)
        save(place)
        place.retain()
        check_moment(place, filled, saved)
        assert end_of(place, filled, saved) == end, f"killed at step {step}"
    raise AssertionError("no retention came to its end")


@pytest.mark.folder
def test_a_retention_killed_at_any_step_loses_nothing_and_the_next_one_ends_the_same(
    copies: tuple[Copies, Filled],
) -> None:
    """Every fifth step, on a folder; the test below takes each of them."""
    assert kill_at_steps(*copies, is_killed, itertools.count(0, 5)) > 15


@pytest.mark.slow
def test_a_process_of_retention_killed_at_any_step_takes_nothing_that_stays(
    copies: tuple[Copies, Filled],
) -> None:
    """Every seventh step on S3, where steps take seconds and threads take them in any order."""
    if copies[0].s3 is None:
        assert kill_at_steps(*copies, is_process_killed, itertools.count()) > 75
    else:
        assert kill_at_steps(*copies, is_process_killed, itertools.count(0, 7)) > 8
