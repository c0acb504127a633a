"""Tests of what a GPU alone can show.

They stand on the SDK and PyTorch, so that a machine with a GPU needs nothing else.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from halving import Store
from tests.checkpoints import Gate, gate_before_writing


@pytest.fixture(autouse=True)
def _on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of the test's own, and PyTorch's switches as they were."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU that PyTorch can use")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False
    torch.cuda.empty_cache()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Before what is written beside training."""
    with gate_before_writing(monkeypatch) as gate:
        yield gate
