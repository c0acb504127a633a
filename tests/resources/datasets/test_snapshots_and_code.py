"""The same code does not read files again, unless asked to; changed code reads all of them.

Code means everything that the transform uses.
"""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets.snapshot_catalog import list_snapshots
from resources.datasets.snapshots import find_or_take_snapshot, take_snapshot
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.dataset import DatasetSource

LENGTHS = """import pyarrow.compute as pc
from of_lengths.units import UNIT

def in_units(table):
    return table.set_column(0, "id", pc.multiply(table["id"], UNIT))

def as_they_are(table):
    return table

def unrelated(table):
    return None
"""


@pytest.fixture
def ids(tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Takes a snapshot of some files by this transform and code, and gives the ids of its rows."""
    (tmp_path / "project" / "of_lengths").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "project")
    pq.write_table(pa.table({"id": range(100), "label": [0, 1] * 50}), tmp_path / "rows.parquet")

    def take(transform: str = "in_units", lengths: str = LENGTHS, units: str = "UNIT = 10") -> list[int]:
        for name, text in (("__init__", ""), ("lengths", lengths), ("units", units)):
            (tmp_path / "project" / "of_lengths" / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "of_lengths"]:
            monkeypatch.delitem(sys.modules, name)  # Import it again, as a new process would.
        importlib.invalidate_caches()
        # Bytecode could be stale, because it is compared by times in whole seconds.
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        recipe = {"name": "points", "target": "label", "source": {"files": f"{tmp_path}/*.parquet"}}
        source = DatasetSource.model_validate({**recipe, "transform": f"of_lengths.lengths:{transform}"})
        digest = take_snapshot(backend.store, backend.catalog, source).digest
        return sorted(Dataset(backend.store, "points", digest).read()["id"].to_pylist())

    return take


def test_rows_are_read_again_when_what_the_transform_stands_on_changed(ids: Callable[..., list[int]]) -> None:
    assert ids() == list(range(0, 1000, 10))
    assert ids(units="UNIT = 100") == list(range(0, 10_000, 100))


def test_rows_are_read_again_by_another_function_of_the_same_module(ids: Callable[..., list[int]]) -> None:
    assert ids() == list(range(0, 1000, 10))
    assert ids("as_they_are") == list(range(100))


def test_a_damaged_list_of_files_costs_a_new_reading_and_says_so(
    ids: Callable[..., list[int]], backend: Backend
) -> None:
    before = ids()
    (path,) = Path(backend.store.root).rglob("parts.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(
        UserWarning,
        match="all of points is read again, because datasets/points/.*/parts.parquet in .* is damaged",
    ):
        assert ids() == before


def test_packages_of_a_transform_are_in_the_lineage_despite_an_unreadable_module(
    ids: Callable[..., list[int]], backend: Backend, tmp_path: Path
) -> None:
    def packages() -> dict[str, str]:
        newest = max(list_snapshots(backend.catalog), key=lambda snapshot: snapshot.created_at)
        versions: dict[str, str] = Dataset(backend.store, "points", newest.digest).manifest["lineage"][
            "packages"
        ]
        return versions

    ids(lengths=LENGTHS.replace("import pyarrow", "import yaml\nimport pyarrow", 1))
    assert {"PyYAML", "pyarrow"} <= packages().keys()
    (tmp_path / "project" / "of_lengths" / "legacy.py").write_bytes("# größer".encode("latin-1"))
    ids(lengths=f"{LENGTHS}\ndef other():\n    import of_lengths.legacy\n", units="UNIT = 100")
    assert "pyarrow" in packages()


def test_no_row_is_read_again_when_other_code_of_the_module_changed(ids: Callable[..., list[int]]) -> None:
    before = ids()
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(pq.ParquetFile, "iter_batches")
        assert ids(lengths=LENGTHS.replace("return None", "return table")) == before


def test_all_is_read_again_where_that_is_asked_for(
    backend: Backend, tmp_path: Path, small_spec: Callable[..., SweepSpec]
) -> None:
    path = tmp_path / "rows.parquet"
    spec = small_spec(dataset={"name": "points", "target": "label", "source": {"files": str(path)}})
    digests = []
    for first, refresh in ((100, False), (200, False), (200, True), (200, False)):
        pq.write_table(
            pa.table({"id": range(first, first + 100), "label": [0, 1] * 50}),
            path,
            compression="none",
            use_dictionary=False,
        )
        os.utime(path, (1e9, 1e9))  # An unpacked archive keeps old times.
        digests.append(find_or_take_snapshot(backend.store, backend.catalog, spec, refresh=refresh).digest)
    before, stale, fresh, after = digests
    assert before == stale != fresh == after
    assert sorted(Dataset(backend.store, "points", fresh).read()["id"].to_pylist()) == list(range(200, 300))
    with pytest.raises(InvalidInput, match="refresh is not accepted: the spec names the snapshot"):
        find_or_take_snapshot(backend.store, backend.catalog, small_spec(snapshot=fresh), refresh=True)
