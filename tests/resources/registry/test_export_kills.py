"""An export that is killed leaves nothing half done: no folder, no scratch folder and no process."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from halving import load_model
from halving.machine.temporary_folders import temporary_folder
from halving.models import export
from halving.models.export import export_model
from halving.models.manifest import Manifest
from halving.models.trying import try_folder
from resources.backend import Backend
from tests.resources.registry.manifests import GONE, GONE_CODE
from tests.waiting import wait_for


@pytest.mark.slow
def test_what_killed_exports_left_goes_away_with_the_next_and_what_is_in_use_stays(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    place = tmp_path / "exports"
    if not (child := os.fork()):
        with temporary_folder(place) as left:
            (left / "model").mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (killed,) = place.iterdir()
    assert (killed / "model").exists()
    with temporary_folder(place) as used:
        assert list(place.iterdir()) == [used]
        export_model(backend.store, make_manifest(), place / "out")
        assert {path.name for path in place.iterdir()} == {used.name, "out"}


@pytest.mark.slow
@pytest.mark.folder
def test_killed_at_any_step_an_export_is_whole_or_not_there(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = make_manifest("predict_numbers", source="numbers", slope=np.array([2.0]))
    tried = list[Any]()
    monkeypatch.setattr(
        export, "try_folder", lambda *arguments: tried.append(try_folder(*arguments)) or tried[0]
    )
    export_model(backend.store, manifest, tmp_path / "out")
    # a new interpreter writes nothing but into what is not whole yet
    monkeypatch.setattr(export, "try_folder", lambda *arguments: tried[0])
    expected = pa.table({"x": [0.5]})
    for step in range(60):
        target = tmp_path / f"out-{step}"
        status = exported_in_a_process_killed_at(step, backend, manifest, target)
        if target.exists():
            assert load_model(target).predict(expected) == [2.0]
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert status == 0
    assert step >= 10, "there are so many steps to be killed at"
    assert target.exists()


@pytest.mark.slow
@pytest.mark.folder
def test_an_export_that_is_killed_leaves_no_process_that_still_tries_the_folder(
    backend: Backend, make_manifest: Callable[..., Manifest], tmp_path: Path
) -> None:
    marker = tmp_path / "told"
    hangs = "re.match('(a+)+$', 100 * 'a' + 'b')"  # and lets no other thread run
    model = (
        f"import os, re\ndef predict(run, table):\n    open({str(marker)!r} + str(os.getpid()), "
        f"'w').close()\n    {hangs}\n"
    )
    manifest = replace(make_manifest(), predictor=GONE, code={**GONE_CODE, "gone_elsewhere/model.py": model})
    if not (child := os.fork()):
        try:
            export_model(backend.store, manifest, tmp_path / "out")
        finally:
            os._exit(1)
    tries = wait_for(lambda: next(tmp_path.glob("told*"), None), 120, "the predictor is called")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pid = int(tries.name.removeprefix("told"))
    wait_for(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
        60,
        "its process ends",
    )
    assert not (tmp_path / "out").exists()


def exported_in_a_process_killed_at(step: int, backend: Backend, manifest: Manifest, target: Path) -> int:
    """Export in a forked process that is killed before its write of this number."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    left = step

    def count_calls(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **more)

        return call

    try:
        writes = (
            (Path, "write_text"),
            (Path, "write_bytes"),
            (shutil, "copytree"),
            (os, "replace"),
            (export, "try_folder"),
        )
        for owner, name in writes:
            setattr(owner, name, count_calls(getattr(owner, name)))
        export_model(backend.store, manifest, target)
    finally:
        os._exit(0)
