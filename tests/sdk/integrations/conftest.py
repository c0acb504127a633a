"""What the integrations leave in a store, read from its files."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.records.run_record import RunRecords


def record_only_what_is_logged(patch: pytest.MonkeyPatch) -> None:
    """Turn off system metrics, and the look at all installed packages, which takes half a second."""
    patch.setattr("halving.records.provenance.capture", lambda store: {"git": None})
    patch.setattr("halving.run.system_metrics._FIRST", 3600.0)


@pytest.fixture(autouse=True)
def _only_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    record_only_what_is_logged(monkeypatch)


class StoredRuns:
    """The runs of project ``p`` of a store, as its files have them."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def runs(self) -> list[str]:
        return sorted(self.store.names("runs/project=p"))

    def params(self, run: str) -> dict[str, Any]:
        params: dict[str, Any] = RunRecords(self.store, "p", run).read()["params"]
        return params

    def points(self, run: str, *, attempt: int | None = None) -> dict[str, dict[int, float]]:
        """Name to step to value."""
        points: dict[str, dict[int, float]] = {}
        for row in self._rows(run):
            if attempt in (None, row["attempt"]):
                points.setdefault(row["key"], {})[row["step"]] = row["value"]
        return points

    def ends(self, run: str) -> list[str]:
        """How each attempt ended."""
        folder = f"runs/project=p/{run}"
        return [
            json.loads(self.store.read(f"{folder}/{name}"))["status"]
            for name in sorted(self.store.names(folder))
            if name.startswith("end-")
        ]

    def artifacts(self, run: str) -> dict[str, bytes]:
        folder = f"runs/project=p/{run}/artifacts"
        artifacts = {}
        for name in self.store.names(folder):
            entry = json.loads(self.store.read(f"{folder}/{name}"))
            artifacts[entry["name"]] = self.store.get_blob(entry["digest"])
        return artifacts

    def _rows(self, run: str) -> Iterator[dict[str, Any]]:
        folder = f"metrics/project=p/run={run}/live"
        for name in sorted(self.store.names(folder)):
            yield from pq.ParquetFile(self.store.path(f"{folder}/{name}")).read().to_pylist()


@pytest.fixture
def stored_runs(store: Store) -> StoredRuns:
    return StoredRuns(store)
