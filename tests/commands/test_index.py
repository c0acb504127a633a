"""``halving index``."""

import json
from pathlib import Path

import pytest

import halving
from halving.cli.main import main


def test_the_index_is_refreshed_and_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in "ab":
        halving.init("digits", {}, tmp_path, id=run, system_metrics=None).finish()
    command = ["index", "--root", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 2
    assert main([*command, "--rebuild"]) == 0
    assert "2 runs: 0 added, 2 read again, 0 deleted, 2 looked at" in capsys.readouterr().out
    (tmp_path / "runs" / "project=digits" / "a" / "record.json").write_text("{")
    assert main([*command, "--rebuild"]) == 1
    assert "digits/a is not in the index as it is: " in capsys.readouterr().out
