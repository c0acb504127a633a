"""``wandb.alert`` and ``halving.Run.alert``: files of the run."""

import json
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

import halving
from halving import Store
from halving.errors import InvalidInput


def _alerts(store: Store, project: str, run: str) -> list[dict[str, Any]]:
    folder = f"runs/project={project}/{run}"
    names = [name for name in store.names(folder) if name.startswith("alert-")]
    return [json.loads(store.read(f"{folder}/{name}")) for name in sorted(names)]


def test_an_alert_is_durable_when_the_call_returns(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    wandb.alert("stuck", "the loss does not fall", level=wandb.AlertLevel.WARN)
    run.alert(title="more", text="")
    (first, second) = _alerts(store, "p", run.id)
    assert {**first, "time": ""} == {
        "title": "stuck",
        "text": "the loss does not fall",
        "level": "warn",
        "attempt": 1,
        "time": "",
    }
    assert (second["title"], second["level"]) == ("more", "info")


def test_alerts_of_one_title_wait_for_each_other(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    for _ in range(3):
        run.alert("stuck", "again")
    run.alert("stuck", "at once", wait_duration=timedelta(microseconds=1))
    assert [alert["text"] for alert in _alerts(store, "p", run.id)] == ["again", "at once"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"level": "LOUD"}, ValueError, "level must be one of 'INFO', 'WARN', or 'ERROR'"),
        ({"wait_duration": "long"}, TypeError, "wait_duration must be an int, float, or datetime.timedelta"),
    ],
)
def test_wrong_arguments_raise_what_wandb_raises(
    wandb: ModuleType, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    run = wandb.init(project="p")
    with pytest.raises(kind, match=message):
        run.alert("a", "b", **options)


@pytest.mark.parametrize(
    "arguments",
    [
        {"title": ""},
        {"title": "a\nb"},
        {"title": "x" * 201},
        {"title": "a", "level": "loud"},
        {"title": 3},
        {"title": "a\0"},
    ],
)
def test_a_wrong_alert_is_refused_and_does_not_end_training(store: Store, arguments: dict[str, Any]) -> None:
    strict = halving.init("p", root=store.root, strict=True, system_metrics=None)
    with pytest.raises(InvalidInput, match="alert"):
        strict.alert(**arguments)
    strict.finish()
    run = halving.init("p", root=store.root, system_metrics=None)
    with pytest.warns(UserWarning, match="alert"):
        assert run.alert(**arguments) is False
    with pytest.warns(UserWarning, match="1 values of"):
        run.finish()
    assert _alerts(store, "p", run.id) == []


def test_a_long_title_of_wandb_is_shortened_and_whole_in_the_text(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p")
    run.alert("first\nsecond \0", None)
    run.alert("x" * 300, "y" * 20_000)
    (lines, long) = _alerts(store, "p", run.id)
    assert (lines["title"], lines["text"]) == ("first second \ufffd", "")
    assert len(long["title"]) == 200
    assert len(long["text"]) == 10_000
    assert long["text"].startswith("x" * 300 + "\n\ny")


def test_a_store_that_refuses_an_alert_does_not_end_training(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = halving.init("p", root=store.root, system_metrics=None)

    def refuse(*arguments: Any, **options: Any) -> None:
        raise InvalidInput("no run's process writes such a file")

    with monkeypatch.context() as patched:
        patched.setattr(run.store, "create", refuse)
        with pytest.warns(UserWarning, match="the alert 'stuck' is not recorded"):
            assert run.alert("stuck") is False
    assert run.alert("stuck") is True
    run.finish()
