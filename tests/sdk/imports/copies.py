"""What an import has made of a source, to compare with what was logged."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import halving
from halving.cli.main import main
from halving.errors import StoreError
from halving.query.runs import list_runs
from halving.store.store import Store


def run_import(
    capsys: pytest.CaptureFixture[str], tool: str, source: Path | str, root: str, *more: str, status: int = 0
) -> dict[str, Any]:
    """Run ``halving import`` as a user would, and give its JSON."""
    capsys.readouterr()
    assert main(["import", tool, str(source), "--root", root, "--json", *more]) == status
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def outcomes(report: dict[str, Any]) -> dict[str, tuple[str, int, int, int]]:
    """What the tool calls a run to the outcome, points, media and artifacts."""
    return {
        row["name"]: (row["outcome"], row["points"], row["media"], row["artifacts"]) for row in report["runs"]
    }


def points(root: str) -> list[tuple[str, str, int, float, int]]:
    """All points of a store, with doubles: run, key, step, value and time in ms since 1970.

    NaN is a text, so that it equals itself.
    """
    if not list_runs(Store(root)) or not (Path(root) / "metrics").exists():
        return []
    table = halving.sql("select run, key, step, value, epoch_ms(wall_time) as at from points", root=root)
    rows = [(row["run"], row["key"], row["step"], row["value"], row["at"]) for row in table.to_pylist()]
    return sorted(
        (run, key, step, value if value == value else "nan", at) for run, key, step, value, at in rows
    )


def media(root: str) -> list[tuple[str, int, str, str]]:
    """All media of a store: key, step, kind and digest; with doubles."""
    rows = [json.loads(path.read_text()) for path in Path(root).glob("runs/*/*/media/*.json")]
    return sorted((row["key"], row["step"], row["kind"], row["digest"]) for row in rows)


@contextmanager
def small_disk(room: int | None = None) -> Iterator[list[str]]:
    """Let stores take so many new files, and then their disk is full; None is no end.

    Gives the names of those that they took.
    """
    written: list[str] = []
    create = Store.create

    def write(store: Store, name: str, *content: Any, **options: Any) -> None:
        if len(written) == room:
            raise StoreError("the disk is full")
        written.append(name)
        create(store, name, *content, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "create", write)
        yield written
