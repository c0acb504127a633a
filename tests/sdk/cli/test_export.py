"""``halving export``, and what it and others say of points that are compacted, damaged or dropped."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

import halving
from halving import Store
from tests.sdk.cli.command_output import Halving, rows_of


def files_of(store: Store) -> dict[str, float]:
    return {str(path): path.stat().st_mtime_ns for path in Path(store.root).rglob("*") if path.is_file()}


def test_export_writes_every_stitched_point_in_each_format(
    filled: Store, command: Halving, tmp_path: Path
) -> None:
    said = command("export", "resumed", "odd", "--keys", "loss,up")
    assert (said.status, said.err) == (0, "")
    rows = rows_of(said)
    points = [
        (row["run"], row["key"], int(row["step"]), float(row["value"]), int(row["attempt"])) for row in rows
    ]
    stitched = [(float(step), 1) for step in range(3)] + [(step + 0.5, 2) for step in range(3, 8)]
    assert points[:8] == [("resumed", "loss", step, *value) for step, value in enumerate(stitched)]
    assert [(row["key"], row["value"]) for row in rows[8:]] == [("loss", "nan"), ("up", "inf")]
    assert rows[0]["wall_time"].endswith("Z")

    data = command("export", "resumed", "odd", "--keys", "loss,up", "--json").data
    assert data["columns"] == list(rows[0])
    assert [row[5] for row in data["rows"]][-3:] == [7.5, "NaN", "Infinity"]
    assert [row[3] for row in data["rows"]] == [int(row["step"]) for row in rows]

    target = tmp_path / "points.parquet"
    assert (
        command("export", "resumed", "odd", "-o", str(target)).err == f"11 points of 2 runs are in {target}\n"
    )
    table = pq.read_table(target)
    assert table.column_names == list(rows[0])
    assert table["value"].to_pylist()[:8] == [value for value, _ in stitched]
    assert command("export", "odd", "-o", str(target), "--json").data == {
        "file": str(target),
        "format": "parquet",
        "points": 3,
    }
    assert sorted(path.name for path in tmp_path.iterdir() if "points" in path.name) == ["points.parquet"]


def test_an_export_is_the_same_before_and_after_compaction(filled: Store, command: Halving) -> None:
    def export_rows() -> list[dict[str, str]]:
        return rows_of(command("export", "base-0", "base-1", "odd", "-k", "loss,val/acc,up"))

    before = export_rows()
    assert len(before) == 18
    said = command("compact", "--project", "digits")
    assert (said.status, "base-0" in said.out) == (0, True)
    assert export_rows() == before
    full = command("show", "odd", "--json").data["files"]["full"]
    assert full.startswith("metrics/project=digits/run=odd/full-000001-")


def test_an_export_that_cannot_be_made_leaves_no_file(
    filled: Store, command: Halving, tmp_path: Path
) -> None:
    said = command("export", "odd", "--keys", "lost", "-o", str(tmp_path / "x.csv"))
    assert (said.status, said.out) == (1, "")
    assert said.err == "halving export: no points of lost in these runs; there are down, loss, up\n"
    said = command("export", "odd", "-o", str(tmp_path / "nowhere" / "x.csv"))
    assert (said.status, "No such file or directory" in said.err) == (1, True)
    said = command("export", "odd", "--json", "--format", "csv")
    assert (said.status, said.out) == (1, "")
    assert not [path for path in tmp_path.iterdir() if "x.csv" in path.name]


def test_a_run_can_be_read_while_compactions_take_its_files_away(filled: Store, command: Halving) -> None:
    run = halving.init("text", {}, filled.root, id="busy", system_metrics=None)
    stop = threading.Event()

    def compact_always() -> None:
        from halving.maintenance.compaction import compact

        while not stop.is_set():
            compact(filled, "text", "busy")

    thread = threading.Thread(target=compact_always)
    thread.start()
    try:
        for step in range(30):
            run.log({"loss": float(step)}, step=step)
            run.flush()
            data = command("export", "busy", "--json").data
            assert [row[3] for row in data["rows"]] == list(range(step + 1))
    finally:
        stop.set()
        thread.join()
        run.finish()


def test_a_damaged_metric_file_is_one_message(filled: Store, command: Halving) -> None:
    for path in Path(filled.root, "metrics/project=digits/run=odd/live").iterdir():
        path.write_bytes(b"damaged")
    for name in ("show", "export"):
        said = command(name, "odd")
        assert (said.status, said.out) == (1, "")
        assert said.err.startswith(
            f"halving {name}: a metric file of run 'odd' in {filled.root} is damaged: "
        )


def test_what_retention_left_is_shown_and_what_it_took_is_not_exported(
    filled: Store, command: Halving
) -> None:
    from halving.maintenance.retention import PointDays, drop_points

    before = command("show", "resumed", "--json").data["metrics"]
    assert command("compact", "resumed").status == 0
    later = datetime.now(UTC) + timedelta(days=30)
    drop_points(filled, "text", PointDays(1), protected=[], now=later)
    assert command("show", "resumed", "--json").data["metrics"] == before
    said = command("export", "resumed", "base-0", "-k", "loss")
    assert (said.status, "were dropped by retention" in said.err) == (1, True)
    said = command("export", "resumed", "base-0")
    assert (said.status, {row["run"] for row in rows_of(said)}) == (0, {"base-0"})
    assert "left out: the points of 'loss' in run 'resumed' were dropped by retention" in said.err
    drop_points(filled, "text", PointDays(1, rollup=2), protected=[], now=later + timedelta(days=30))
    assert command("show", "resumed", "--json").data["metrics"] == {
        "loss": {"last": 7.5, "min": None, "max": None, "points": None}
    }


def test_reading_commands_write_nothing(filled: Store, command: Halving) -> None:
    before = files_of(filled)
    for arguments in (
        ["runs"],
        ["show", "base-0"],
        ["show", "killed"],
        ["compare", "base-0", "killed"],
        ["export", "resumed"],
    ):
        assert command(*arguments).status == 0
        assert command(*arguments, "--json").status == 0
    assert files_of(filled) == before
