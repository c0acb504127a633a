"""The journals' folders, listed while runs end."""

import os
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.ingest.metric_writer import MetricWriter
from halving.journal.directory import attempt_folders, whose


def test_a_run_that_ends_while_folders_are_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    writers = [MetricWriter(store, "p", run, 1, delay=3600) for run in ("a", "gone", "z")]
    real = os.listdir

    def listdir(path: Any) -> Any:
        if str(path).endswith("run=gone"):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert sorted(whose(folder).run for folder in attempt_folders(store)) == ["a", "z"]
    monkeypatch.undo()
    for writer in writers:
        assert writer.close()
        writer.release()
