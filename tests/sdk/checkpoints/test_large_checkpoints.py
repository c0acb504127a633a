"""A checkpoint passes through files: it is not twice in memory, and a full disk ends no training."""

import contextlib
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn

from halving import Store, StoreError
from halving.checkpoints.restoring import restore
from halving.trial.context import ObjectiveRule
from tests.checkpoints import pack_state
from tests.sdk.conftest import Script
from tests.sdk.run.runs import Grants, trial

MEASURED = """
import sys, torch, halving
from pathlib import Path
from halving.checkpoints import large_model
if sys.argv[1:]:
    large_model.available_memory = lambda: int(sys.argv[1])
run = halving.init('p', id='r', system_metrics=None)
weights = {f'w{i}': torch.nn.Parameter(torch.full((2**21,), float(i))) for i in range(32)}  # 8 MiB each
model = torch.nn.ParameterDict(weights)
run.flush()
def peak():  # not ru_maxrss, which a process takes over from the one that has started it
    return int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0]) >> 10
before = peak()
run.save(model=model) if run.attempt == 1 else run.restore(model=model)
print(peak() - before)
run.finish()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("available", "copied"), [(0, 0), (512, 256)], ids=["no room for a copy", "room for a copy"]
)
def test_saving_a_model_takes_its_memory_once_where_there_is_room_and_else_none(
    script: Script, available: int, copied: int
) -> None:
    saving = script(MEASURED, str(available << 20))
    restoring = script(MEASURED)
    assert copied <= int(saving.stdout) < 1.1 * copied + 100, saving.stderr  # MiB, of a model of 256 MiB
    assert int(restoring.stdout) < 256 + 100, restoring.stderr


@pytest.mark.slow
@pytest.mark.parametrize("torch_is_used", [True, False], ids=["torch", "JSON"])
def test_a_disk_without_room_for_a_checkpoint_skips_it_and_training_goes_on(
    script: Script, tmp_path: Path, torch_is_used: bool
) -> None:
    (tmp_path / "scratch").mkdir()
    done = script(
        f"import halving, resource{', torch' if torch_is_used else ''}\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "before = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "for epoch in run.epochs(2):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]) if epoch == 1 else before)\n"
        f"    run.save(weights={'torch.ones(2**19)' if torch_is_used else '[0.5] * 2**18'}, epoch=epoch)\n"
        "run.finish()\n"
        "print(run.checkpoint.epoch)\n",
        before=("env", f"TMPDIR={tmp_path / 'scratch'}"),
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "File too large" in done.stderr
    assert "TMPDIR" in done.stderr
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_damaged_checkpoint_is_noticed_before_anything_is_changed(store: Store) -> None:
    model = nn.Linear(3, 2)
    digest = store.put_blob(pack_state({"model": model}))
    (path,) = [path for path in (Path(store.root) / "artifacts").rglob("*") if path.is_file()]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    fresh = nn.Linear(3, 2)
    before = fresh.weight.clone()
    with pytest.raises(StoreError, match="is damaged"):
        restore(store, digest, {"model": fresh})
    assert torch.equal(fresh.weight, before)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_saves_leaves_no_temporary_file(
    script: Script, tmp_path: Path
) -> None:
    (tmp_path / "scratch").mkdir()
    done = script(
        "import halving, os, signal\n"
        "class Killing:\n"
        "    def state_dict(self): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    def load_state_dict(self, state): pass\n"
        "halving.init('p', id='r', system_metrics=None).save(model=Killing())\n",
        before=("env", f"TMPDIR={tmp_path / 'scratch'}"),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_disk_without_room_for_the_best_epochs_checkpoint_ends_no_trial(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants = Grants(2)
    with trial(store, grants, objectives=(ObjectiveRule("score", "best"),)) as run:
        for epoch, score in zip(run.epochs(), [0.9, 0.5], strict=True):
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing") if epoch == 1 else None)
            run.report(score=score)
            with pytest.warns(UserWarning, match="TMPDIR") if epoch == 1 else contextlib.nullcontext():
                assert (run.save(epoch=epoch) is None) == (epoch == 1)
    assert (grants.questions, grants.best) == ([(2, {"score": 0.9})], [None])
