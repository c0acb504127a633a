"""A laptop that trains for years by a test's clock: all but records is bounded by the shipped policy."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from halving.maintenance.compaction import compact
from halving.maintenance.daily import claim
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.json_files import to_json
from resources.backend import Backend
from resources.catalog import RungResultRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.retention.automatic import why_not_due, write_last
from resources.retention.carry_out import carry_out
from resources.retention.policy_file import load_policy
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import add_version, snapshot_row
from tests.sdk.metric_files import write_segment

# a sweep each half year
YEARS = 12
PERIOD = 180
TRIALS = 4
SIZES = {"checkpoint": 40_000, "media": 10_000, "artifact": 20_000}
POINTS = 500


class Laptop:
    """A store and its catalog, with a clock of their own: whatever is written has its time."""

    def __init__(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = backend.store
        self.catalog = backend.catalog
        self.day = datetime.now(UTC) - timedelta(days=366 * YEARS)
        self.runs: list[tuple[str, str]] = []
        self.written = 0  # bytes of blobs, each with a content of its own
        monkeypatch.setattr(
            "halving.maintenance.compaction.now", lambda: self.day.isoformat(timespec="milliseconds")
        )
        with self.catalog.write() as session:
            session.add(snapshot_row("sha256:s"))

    def train(self, project: str, run: str) -> str:
        """A run with everything that a run may have; the digest of its last checkpoint."""
        records = RunRecords(self.store, project, run)
        records.start({}, {}, 1, {"started": self.day.isoformat(), "provenance": {}})
        for epoch in (1, 2, 3):
            records.add_checkpoint(SavedCheckpoint(epoch, 1, digest := self._put("checkpoint"), {}))
        records.add_artifact("weights", self._put("artifact"), SIZES["artifact"])
        self.store.create(
            f"{records.folder}/media/picture-0001.json", to_json({"digest": self._put("media")})
        )
        logged = [
            (key, step, step, 1 / (step + 1)) for key in ("loss", "system/cpu") for step in range(POINTS)
        ]
        write_segment(self.store, run, 1, 0, logged, project)
        records.end(1, {"status": "finished", "summary": {}})
        self.runs.append((project, run))
        return digest

    def search(self, spec: SweepSpec) -> tuple[str, str]:
        """A sweep from its beginning to its end; its id, and the last checkpoint of its best trial."""
        sweep = open_sweep(self.catalog, spec, "sha256:s", driver="job", commit=None).id
        with self.catalog.write() as session:
            for number in range(TRIALS):
                best = self.train(spec.name, trial_key(sweep, number))
                about = {
                    "params": {"x": number / TRIALS},
                    "status": "completed",
                    "attempt": 1,
                    "checkpoint": best,
                }
                session.add(TrialRow(sweep=sweep, number=number, **about))
                session.flush()
                result = {
                    "rung": 0,
                    "epochs": 9,
                    "value": float(number),
                    "decision": "finish",
                    "attempt": 1,
                    "seconds": 1.0,
                }
                session.add(
                    RungResultRow(sweep=sweep, trial=number, checkpoint=best, reached_at=self.day, **result)
                )
        self.catalog.end_sweep(sweep, "finished")
        with self.catalog.write() as session:
            ended = self.catalog.sweep(session, sweep)
            ended.created_at = ended.finished_at = self.day
        return sweep, best

    def clear_away(self) -> bool:
        """What the process does that the end of a run begins; whether there was any."""
        begun = (
            claim(Path(self.store.root), self.day.date())
            and why_not_due(self.store, load_policy(self.store), self.day) is None
        )
        self._date_files()
        if begun:
            for project, run in self.runs[-2 * TRIALS - 2 :]:  # what was replaced before goes now
                compact(self.store, project, run)
            write_last(
                self.store,
                carry_out(self.store, self.catalog, load_policy(self.store), now=self.day),
                self.day,
            )
            self._date_files()
        return begun

    def bytes(self) -> tuple[int, int]:
        """Of contents and points, and of all else but the catalog."""
        sizes = {name.lstrip("/"): size for name, size, _ in self.store.files("") if "catalog." not in name}
        large = sum(
            size
            for name, size in sizes.items()
            if name.startswith(("artifacts/", "metrics/")) and "manifest" not in name
        )
        return large, sum(sizes.values()) - large

    def _put(self, kind: str) -> str:
        self.written += SIZES[kind]
        return self.store.put_blob(os.urandom(16) + bytes(SIZES[kind] - 16))

    def _date_files(self) -> None:
        """Give new files the day's time: those whose time is the real one."""
        recent = (datetime.now(UTC) - timedelta(days=1)).timestamp()
        for path in Path(self.store.root).rglob("*"):
            if path.is_file() and path.stat().st_mtime > recent:
                os.utime(path, (self.day.timestamp(), self.day.timestamp()))


@pytest.mark.slow
def test_what_a_laptop_keeps_does_not_grow_with_the_years_and_results_stay(
    backend: Backend, small_spec: Callable[..., SweepSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = Laptop(backend, monkeypatch)
    store = backend.store
    by_hand = laptop.train("mine", "by-hand")
    champion, best_of_first = laptop.search(
        small_spec(name="first", strategy={"random": {"budget": 9}}, max_trials=TRIALS)
    )
    with backend.catalog.write() as session:
        named = {
            "sweep": champion,
            "trial": TRIALS - 1,
            "run": trial_key(champion, TRIALS - 1),
            "snapshot": "sha256:s",
        }
        add_version(
            session, model="first", version="1.0.0", stage="champion", checkpoint=best_of_first, **named
        )
    assert not laptop.clear_away()  # of the first day nothing is old
    large: list[int] = []
    records: list[int] = []
    best = ""
    for _ in range(YEARS * 365 // PERIOD):
        laptop.day += timedelta(days=PERIOD)
        before = best
        _, best = laptop.search(small_spec(strategy={"random": {"budget": 9}}, max_trials=TRIALS))
        assert laptop.clear_away()
        assert not laptop.clear_away()
        for sizes, size in zip((large, records), laptop.bytes(), strict=True):
            sizes.append(size)
        assert not before or store.has_blob(before)  # of the best trial of the sweep before
    half = len(large) // 2
    assert max(large[half:]) <= 1.001 * max(large[:half]), large
    assert max(large) < laptop.written / 5
    assert (records[-1] - records[half - 1]) / (half * TRIALS) < 3_000, records  # of each run
    # Nobody's results go: those of a run that somebody began by hand, and of a champion.
    artifact = json.loads(store.read("runs/project=mine/by-hand/artifacts/weights.json"))["digest"]
    assert [store.has_blob(digest) for digest in (by_hand, artifact, best_of_first)] == [True] * 3
