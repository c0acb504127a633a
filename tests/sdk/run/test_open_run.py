"""What a program says of its run without having it at hand is said of the run that it opened last."""

import json
from pathlib import Path

import pytest

import halving
from halving import InvalidInput, Store


def titles(root: Path, run: str) -> list[str]:
    store = Store(root)
    folder = f"runs/project=p/{run}"
    names = [name for name in store.names(folder) if name.startswith("alert-")]
    return [json.loads(store.read(f"{folder}/{name}"))["title"] for name in names]


def test_an_alert_is_that_of_the_run_that_was_opened_last(tmp_path: Path) -> None:
    first = halving.init("p", {}, tmp_path, id="first", system_metrics=None)
    second = halving.init("p", {}, tmp_path, id="second", system_metrics=None)
    assert halving.alert("one", level="warn")
    second.finish()
    assert halving.alert("two")
    first.finish()
    assert (titles(tmp_path, "second"), titles(tmp_path, "first")) == (["one"], ["two"])


def test_an_alert_without_an_open_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no run is open; call halving\.init\(\) before"):
        halving.alert("nobody hears")
