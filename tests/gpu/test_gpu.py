"""A training on one GPU: what is logged, saved and resumed, and what it says when memory is not enough."""

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import halving
from halving import Store
from halving.checkpoints import large_model
from halving.checkpoints.restoring import saved_state
from halving.checkpoints.weights_digest import weights_digest
from halving.errors import Diverged, OutOfMemory
from halving.query.api import curves
from halving.query.runs import read_run
from halving.run.run import Run
from tests.checkpoints import Gate
from tests.sdk.distributed.trainings import Net, loss
from tests.sdk.run.runs import start

# torch's own use of it
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")]
CYCLES = 2_000_000_000  # of a GPU's clock, a second or so
ROWS = 64


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(step))
    return x, x[:, :4].argmax(1)


def begun(run: Run, **options: Any) -> dict[str, Any]:
    """A model with dropout, its optimizer and its training, restored."""
    torch.manual_seed(0)
    model = Net(width=64, dropout=0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    training = run.distribute(model, optimizer, **options)
    return run.restore(model=model, optimizer=optimizer, training=training)


def trained(store: Store, name: str, until: int, **options: Any) -> str | None:
    """The digest of the weights after training up to an epoch of four."""
    with start(store, run_id=name, seed=3, deterministic=True) as run:
        state = begun(run, **options)
        for epoch in run.epochs(4):
            for step in range(5):
                value = state["training"].step(loss, *batch(100 * epoch + step))
            run.log({"train/loss": value}, step=epoch)
            run.save(**state)
            if epoch == until:
                break
        assert next(state["model"].parameters()).is_cuda
        return weights_digest({"model": state["model"]})


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("is_large", [False, True], ids=["one file", "beside training"])
def test_a_resumed_training_is_the_same_to_the_last_bit(
    store: Store, monkeypatch: pytest.MonkeyPatch, precision: str, is_large: bool
) -> None:
    monkeypatch.setattr(large_model, "MIN_BYTES", 0 if is_large else 1 << 40)
    expected = trained(store, "straight", 4, precision=precision)
    trained(store, "interrupted", 2, precision=precision)
    assert trained(store, "interrupted", 4, precision=precision) == expected
    assert trained(store, "again", 4, precision=precision) == expected


def test_what_is_logged_is_not_waited_for_and_right(store: Store) -> None:
    with start(store) as run:
        run.log({"loss": torch.zeros((), device="cuda")}, step=0)
        torch.cuda.synchronize()
        total = torch.zeros((), device="cuda", dtype=torch.float64)
        ended = torch.cuda.Event()
        for step in range(1, 4):
            torch.cuda._sleep(CYCLES)
            total += step
            run.log({"loss": total, "lr": 0.1}, step=step)
        ended.record()
        assert not ended.query(), "run.log() has waited for the GPU"
        total.fill_(-1.0)
    table = curves([run.id], ["loss"], root=store)
    assert dict(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True)) == {
        0: 0.0,
        1: 1.0,
        2: 3.0,
        3: 6.0,
    }


def test_a_save_beside_training_holds_the_state_at_the_call_without_awaiting_the_gpu(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_model, "MIN_BYTES", 0)
    gate.open.set()
    model = nn.Linear(1024, 1024, bias=False)
    with start(store) as run, torch.no_grad():
        training = run.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
        run.save(model=model, training=training)  # it makes the memory of the copy
        run._saver.land(math.inf)
        torch.cuda._sleep(CYCLES)
        model.weight.fill_(1.0)
        ended = torch.cuda.Event()
        ended.record()
        run.save(model=model, training=training)
        assert not ended.query(), "run.save() has waited for the GPU"
        model.weight.fill_(-1.0)
    latest = run.records.latest_checkpoint()
    assert latest is not None
    assert torch.equal(saved_state(store, latest.digest)["model"]["weight"], torch.ones(1024, 1024))


def test_a_checkpoint_of_a_gpu_is_read_on_the_cpu_and_by_a_gpu_again(store: Store) -> None:
    with start(store) as run:
        model = nn.Linear(8, 8, device="cuda", dtype=torch.bfloat16)
        run.save(model=model)
    with start(store) as run:
        on_cpu = nn.Linear(8, 8, dtype=torch.bfloat16)
        run.restore(model=on_cpu)
        on_gpu = nn.Linear(8, 8, device="cuda", dtype=torch.bfloat16)
        run.restore(model=on_gpu)
    assert on_gpu.weight.is_cuda
    assert weights_digest({"m": model}) == weights_digest({"m": on_cpu}) == weights_digest({"m": on_gpu})


class Hungry(nn.Module):
    """Takes so many GiB for each row."""

    def __init__(self, gib_of_a_row: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.size = int(gib_of_a_row * 2**30 / 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (torch.ones(len(rows), self.size, device=rows.device) * self.weight).mean()


def hungry(run: Run, rows_that_fit: float, **options: Any) -> Any:
    """A training of 16 rows of which not all fit into the GPU at once.

    Args:
        rows_that_fit: into the forward pass, which holds the ones and their product; the backward pass takes
            half as much again.
    """
    free, _ = torch.cuda.mem_get_info()
    model = Hungry(free / 2**30 / rows_that_fit / 2)
    training = run.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    return training, lambda: training.step(lambda module, rows: module(rows), torch.ones(16, 1))


def test_out_of_memory_is_tried_again_with_half_the_rows(store: Store) -> None:
    with start(store) as run:
        training, step = hungry(run, rows_that_fit=14, out_of_memory="halve")
        with pytest.warns(
            UserWarning,
            match=r"rank 0 ran out of memory in step 1, with 1 micro-batches of 16 rows: of .* GiB of NVIDIA",
        ):
            # float32 rounds the mean, by how many ones fit into the memory
            assert step().item() == pytest.approx(1.0, rel=1e-6)
        assert training.micro_batch == 8
        step()


def test_out_of_memory_for_good_names_the_gpu_what_was_allocated_and_what_to_do(store: Store) -> None:
    with start(store) as run:
        _, step = hungry(run, rows_that_fit=12)
        with pytest.raises(
            OutOfMemory, match=r"GiB of NVIDIA .* PyTorch had allocated .*Give a smaller micro_batch"
        ) as raised:
            step()
    assert any("Allocated memory" in note for note in raised.value.__cause__.__notes__)


def test_steps_that_are_not_finite_are_left_out_and_too_many_end_the_training(store: Store) -> None:
    with start(store) as run:
        state = begun(run, precision="bf16", skips=2)
        x, y = batch(0)
        state["training"].step(loss, x, y)
        torch.cuda.synchronize()
        before = weights_digest({"model": state["model"]})
        with pytest.warns(UserWarning, match="was left out"), pytest.raises(Diverged):
            make_steps(state["training"], x * float("nan"), y)
        assert weights_digest({"model": state["model"]}) == before


def make_steps(training: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    for _ in range(5):
        training.step(loss, x, y)


def test_compiled_blocks_with_checkpointed_activations_learn(store: Store) -> None:
    with start(store, seed=1) as run:
        state = begun(run, precision="bf16", compile=True, activation_checkpointing=True, accumulate=2)
        losses = [state["training"].step(loss, *batch(0)).item() for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]


def test_the_record_and_the_system_metrics_are_of_this_gpu(store: Store, tmp_path: Path) -> None:
    with halving.init("p", root=store.root, system_metrics=0.2) as run:
        multiplied = torch.rand(4096, 4096, device="cuda")
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            multiplied = torch.nn.functional.normalize(multiplied @ multiplied)
            torch.cuda.synchronize()
    (gpu,) = read_run(store, "p", run.id).provenance["hardware"]["gpus"]
    assert torch.cuda.get_device_name() in gpu
    keys = [
        f"system/gpu.0/{name}"
        for name in ("utilization", "memory_used", "memory_percent", "temperature", "power")
    ]
    table = curves([run.id], keys, root=store)
    assert set(table["key"].to_pylist()) == set(keys)
    busy = [
        value
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
        if key == keys[0]
    ]
    assert max(busy) > 50


SCRIPT = """
import torch, halving
from torch import nn

with halving.init("p", {"lr": 0.1}, seed=5, deterministic=True, system_metrics=None) as run:
    layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 36, 10)
    model = nn.Sequential(*layers).cuda()
    table = nn.EmbeddingBag(100, 10).cuda()
    parameters = [*model.parameters(), *table.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=run.params["lr"])
    for epoch in run.epochs(3):
        for _ in range(10):
            images = torch.rand(32, 1, 8, 8, device="cuda")
            words = torch.randint(0, 100, (32, 20), device="cuda")
            loss = nn.functional.cross_entropy(model(images) + table(words), words[:, 0] % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        run.log({"loss": loss.detach()}, step=epoch)
        run.save(model=model, table=table, optimizer=optimizer)
    print(run.id)
"""


def test_a_rerun_on_the_same_gpu_is_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALVING_ROOT", str(tmp_path / "store"))
    (tmp_path / "train.py").write_text(SCRIPT)
    for command in (
        ["git", "init", "--quiet"],
        ["git", "add", "train.py"],
        [
            "git",
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@example.org",
            "commit",
            "--quiet",
            "--message",
            "the training",
        ],
    ):
        subprocess.run(command, check=True)
    name = _output_of([sys.executable, "train.py"]).split()[-1]
    assert "identical" in _output_of([sys.executable, "-m", "halving.cli.main", "rerun", name])


def _output_of(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
