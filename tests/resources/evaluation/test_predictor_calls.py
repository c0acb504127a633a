"""A predictor's process does not outlive what it was started for."""

import multiprocessing
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from resources.evaluation.predictor_calls import _MAX_BYTES, PredictionFailed, _Incoming, call_function
from resources.evaluation.predictor_process import Question
from resources.sweep_spec.evaluation import EvaluationLimits
from tests.waiting import wait_for


def question(folder: Path, predictor: str) -> Question:
    rows = folder / "rows.arrow"
    table = pa.table({"x": [0.1, 0.9]})
    with pa.OSFile(str(rows), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    fields = {
        "field": "predictor",
        "function": f"tests.predictors:{predictor}",
        "dataset": ("points", "sha256:none"),
        "params": {},
    }
    checkpoint = "sha256:" + "0" * 64
    return Question(
        **fields,
        root=str(folder),
        checkpoint=checkpoint,
        split="test",
        rows=str(rows),
        serving_seconds=0.0,
        serving_batch=2,
    )


def pids(folder: Path) -> list[int]:
    """Of the predictor's process and of the one that it has started, once both have said so."""
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def is_running(pid: int) -> bool:
    try:
        # nobody may wait for it in a container
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_predictor_and_what_it_has_started_end_with_the_process_that_asked(tmp_path: Path) -> None:
    asking = multiprocessing.get_context("spawn").Process(
        target=call_function, args=(question(tmp_path, "waiting_and_marked"), EvaluationLimits())
    )
    asking.start()
    wait_for(lambda: len(pids(tmp_path)) == 2, 300, "the predictor runs")
    os.kill(asking.pid or 0, signal.SIGKILL)
    asking.join()
    for pid in pids(tmp_path):
        wait_for(lambda pid=pid: not is_running(pid), 300, "the predictor and what it has started end")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "limits", "said"),
    [
        ("filling_beside_a_child", {"memory": "400Mi"}, r"evaluation_limits\.memory = 400Mi"),
        ("waiting_and_marked", {"seconds": 10}, r"evaluation_limits\.seconds"),
        ("exiting_beside_a_child", {}, "exit code 3"),
    ],
)
def test_however_a_predictor_ends_what_it_has_started_has_ended_too(
    tmp_path: Path, predictor: str, limits: dict[str, Any], said: str
) -> None:
    with pytest.raises(PredictionFailed, match=said):
        call_function(question(tmp_path, predictor), EvaluationLimits.model_validate(limits))
    assert len(pids(tmp_path)) == 2
    assert not any(map(is_running, pids(tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "said"),
    [
        ("reducing", "returned a _Reduced: return texts, numbers or booleans"),
        ("speaking_for_itself", "it sent a message that is not valid"),
    ],
)
def test_what_a_predictor_sends_is_never_unpickled(tmp_path: Path, predictor: str, said: str) -> None:
    with pytest.raises(PredictionFailed, match=said):
        call_function(question(tmp_path, predictor), EvaluationLimits())
    assert not (tmp_path / "unpickled").exists()


def test_a_length_beyond_the_limit_is_refused_before_any_of_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((1 << 62).to_bytes(8, "big"))
        incoming = _Incoming(ours.fileno())
        incoming.read()
        assert (incoming.size > _MAX_BYTES, incoming.whole, incoming.ended) == (True, False, False)


@pytest.mark.slow
def test_the_memory_limit_is_that_of_the_beginning_also_while_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([64 << 30])  # asked a second time, nothing is left
    monkeypatch.setattr("resources.evaluation.memory_limit.available_memory", lambda: next(free, 1))
    with_serving = replace(question(tmp_path, "probabilities"), serving_seconds=0.01)
    serving = call_function(with_serving, EvaluationLimits()).serving
    assert serving is not None
    assert (serving["error"], serving["one_row"]["rows"]) == (None, 1)
