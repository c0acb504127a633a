"""``halving.init`` in a user's own script of several processes: one run, rank 0's, of which all ranks hear
the same.
"""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import halving
from halving import InvalidInput, Store
from halving.distributed import joining
from halving.records.run_record import RunRecords
from tests.gangs import run_ranks
from tests.sdk.integrations.conftest import StoredRuns

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
import halving, torch
from torch.nn.parallel import DistributedDataParallel

run = halving.init("p", {"lr": 0.1, "sizes": (1, 2)}, seed=1, id=sys.argv[1] if len(sys.argv) > 1 else None)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=run.params["lr"])
run.restore(model=model, optimizer=optimizer)
ddp = DistributedDataParallel(model)
seen = []
for epoch in run.epochs(4):
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * epoch + run.rank))
    optimizer.zero_grad()
    loss = ((ddp(inputs) - 1) ** 2).mean()
    loss.backward()
    optimizer.step()
    run.log({"rank": run.rank}, step=epoch)
    run.report(score=epoch)
    run.save(model=model, optimizer=optimizer)
    seen.append(epoch)
    if epoch == 2 and run.attempt == 1:
        break  # its checkpoint counts, as where one process leaves its loop
run.finish()
report = {"id": run.id, "attempt": run.attempt, "rank": run.rank, "of": run.world_size}
report |= {"params": run.params, "seen": seen}
report |= {"max": run.max_epochs, "epoch": run.epoch, "weights": model.weight.tolist()}
open(f"report-{run.attempt}-{run.rank}.json", "w").write(json.dumps(report))
"""


def test_a_script_that_torchrun_starts_twice_has_one_run_which_goes_on(store: Store, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    def records_of(attempt: int) -> list[dict[str, Any]]:
        return [json.loads((tmp_path / f"report-{attempt}-{rank}.json").read_text()) for rank in (0, 1)]

    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "train.py",
    ]
    environment = {**os.environ, "HALVING_ROOT": store.root, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, other = records_of(1)
    assert (first["rank"], other["rank"], first["of"], other["of"]) == (0, 1, 2, 2)
    assert {**first, "rank": 1} == other
    assert (first["params"], first["seen"], first["max"], first["epoch"]) == (
        {"lr": 0.1, "sizes": [1, 2]},
        [1, 2],
        4,
        2,
    )
    assert StoredRuns(store).runs() == [first["id"]]
    visible = [os.environ.get("CUDA_VISIBLE_DEVICES")]  # of both ranks
    assert RunRecords(store, "p", first["id"]).read()["ranks"] == {
        "size": 2,
        "nodes": 1,
        "visible_gpus": visible,
    }
    run_ranks(2, as_script, tmp_path, store.root, first["id"])
    first, other = records_of(2)
    assert {**first, "rank": 1} == other
    assert (first["attempt"], first["seen"], first["epoch"]) == (2, [3, 4], 4)
    assert StoredRuns(store).points(first["id"])["rank"] == dict.fromkeys((1, 2, 3, 4), 0.0)
    assert StoredRuns(store).ends(first["id"]) == ["finished", "finished"]
    assert [saved.epoch for saved in RunRecords(store, "p", first["id"]).checkpoints()] == [1, 2, 3, 4]


def as_script(folder: Path, root: str, *arguments: str) -> None:
    """What torchrun does in a rank; torch is there already, which each process would import for seconds."""
    os.environ["HALVING_ROOT"] = root
    os.chdir(folder)
    sys.argv = ["train.py", *arguments]
    runpy.run_path("train.py", run_name="__main__")


def on_one_rank_only(folder: Path) -> None:
    """As scripts call other trackers. Then with the argument for it, and at last together."""
    dist.init_process_group("gloo")
    joining.TIMEOUT_SECONDS = 0.2
    joining._WARN_SECONDS = 0.1
    if dist.get_rank() == 0:
        with (
            pytest.warns(UserWarning, match="on rank 0 waits for rank 1"),
            pytest.raises(InvalidInput, match="not by rank 1: call it on"),
        ):
            halving.init("p", root=folder / "store", id="none")
        halving.init("p", root=folder / "store", id="own", distributed=False).finish()
    dist.barrier()
    joining.TIMEOUT_SECONDS = joining._WARN_SECONDS = 600.0
    if dist.get_rank() == 1:
        next(joining._CALLS)  # the call that it had left out
    with halving.init("p", root=folder / "store", id="both", seed=dist.get_rank()) as run:
        assert (run.rank, run.seed) == (dist.get_rank(), 0)
        with pytest.raises(InvalidInput, match="give the number of epochs"):
            run.epochs()
    with halving.init("p", root=folder / "store", id="next") as run:  # of the same ranks
        assert list(run.epochs(2)) == [1, 2]


def test_a_run_that_one_rank_alone_opens_is_refused_unless_it_is_meant(store: Store, tmp_path: Path) -> None:
    run_ranks(2, on_one_rank_only, tmp_path)
    assert StoredRuns(store).runs() == ["both", "next", "own"]
