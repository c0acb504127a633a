"""``wandb.watch``: gradients and parameters of PyTorch's models under W&B's names."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from halving import Store
from halving.wandb import watching
from halving.wandb.watching import histogram_of

INPUTS = torch.arange(6.0).reshape(2, 3)


def train(run: Any, model: torch.nn.Module, batches: int) -> None:
    for _ in range(batches):
        model(INPUTS).sum().backward()
        run.log({"loss": 1.0})


def histograms(store: Store, run: str) -> dict[str, list[int]]:
    """The steps of each key's media."""
    steps: dict[str, list[int]] = {}
    for path in sorted((Path(store.root) / f"runs/project=p/{run}/media").glob("*.json")):
        row = json.loads(path.read_text())
        steps.setdefault(row["key"], []).append(row["step"])
    return steps


def test_gradients_and_parameters_are_logged_every_so_many_batches(wandb: ModuleType, store: Store) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    with wandb.init(project="p", id="r") as run:
        run.watch(model, log="all", log_freq=3)
        train(run, model, 7)
    names = ("0.weight", "0.bias", "1.weight", "1.bias")
    assert histograms(store, "r") == {
        f"{kind}/{name}": [2, 5] for kind in ("gradients", "parameters") for name in names
    }


def test_only_gradients_are_logged_by_default_and_none_after_unwatch(wandb: ModuleType, store: Store) -> None:
    models = [torch.nn.Linear(3, 1), torch.nn.Linear(3, 1, bias=False)]
    models[0].bias.requires_grad_(False)
    with wandb.init(project="p", id="r") as run:
        run.watch(models, log_freq=1)
        for model in models:
            train(run, model, 1)
        run.unwatch(models[0])
        train(run, models[0], 1)
        train(run, models[1], 1)
        run.unwatch()
        train(run, models[1], 1)
    assert histograms(store, "r") == {"gradients/weight": [0], "gradients/graph_1weight": [1, 3]}
    assert not models[1].weight._backward_hooks


def test_an_error_in_a_hook_is_one_warning_and_training_goes_on(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tensor: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("halving.wandb.watching.histogram_of", fail)
    warnings: list[str] = []
    monkeypatch.setattr("halving.wandb.watching.termwarn", warnings.append)
    model = torch.nn.Linear(3, 1)
    with wandb.init(project="p") as run:
        run.watch(model, log="all", log_freq=1)
        train(run, model, 2)
    model(INPUTS).sum().backward()
    assert warnings == [
        "parameters/weight is not logged (RuntimeError: out of memory); not warned about again"
    ]


@pytest.mark.parametrize("place", ["memory", "device"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_histogram_counts_the_finite_values_between_the_ends(
    dtype: torch.dtype, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(watching._COUNTERS, "memory", watching._COUNTERS[place])
    tensor = torch.tensor([[0.0, 1.0, float("nan")], [float("inf"), 0.25, float("-inf")]], dtype=dtype)
    histogram = histogram_of(tensor)
    assert histogram is not None
    content = json.loads(histogram.encode())
    assert (sum(content["counts"]), len(content["counts"])) == (3, 64)
    assert (content["edges"][0], content["edges"][-1]) == (0.0, 1.0)
    assert [content["counts"][place] for place in (0, 16, 63)] == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_counts_are_those_of_torchs_own_histogram(dtype: torch.dtype, scale: float) -> None:
    values = (torch.randn(20_000, dtype=dtype, generator=torch.Generator().manual_seed(1)) * scale).round(
        decimals=7
    )
    histogram = histogram_of(values)
    assert histogram is not None
    expected = torch.histc(values, 64, values.min().item(), values.max().item())
    assert json.loads(histogram.encode())["counts"] == expected.tolist()


def test_counts_are_numpys() -> None:
    values = np.random.default_rng(0).normal(size=1_000)
    histogram = histogram_of(torch.from_numpy(values))
    assert histogram is not None
    assert json.loads(histogram.encode())["counts"] == np.histogram(values, 64)[0].tolist()


def test_equal_values_sparse_ones_and_none_at_all_have_histograms_or_are_left_out() -> None:
    equal = histogram_of(torch.full((2, 2), 3.0))
    assert equal is not None
    assert json.loads(equal.encode())["counts"] == [4]
    sparse = histogram_of(torch.sparse_coo_tensor([[1, 4]], [1.0, 2.0], (10,), check_invariants=True))
    assert sparse is not None
    content = json.loads(sparse.encode())
    assert (content["counts"][0], sum(content["counts"]), content["edges"][0]) == (8, 10, 0.0)
    assert histogram_of(torch.zeros(0)) is None
    assert histogram_of(torch.tensor([float("nan")])) is None


def test_a_tensor_in_parts_is_refused_before_other_processes_are_waited_for() -> None:
    class InParts(torch.Tensor):
        def to_local(self) -> torch.Tensor:
            raise AssertionError("only rank zero watches, so nothing of the parts may be asked for")

    with pytest.raises(TypeError, match="a distributed tensor has no histogram"):
        histogram_of(torch.zeros(3).as_subclass(InParts))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"models": 3}, TypeError, "Expected a pytorch model"),
        ({"models": torch.nn.Linear(1, 1), "log": "loss"}, ValueError, "log must be one of"),
        ({"models": torch.nn.Linear(1, 1), "log_freq": 0}, ValueError, "log_freq 0 is not accepted"),
    ],
)
def test_what_can_not_be_watched_is_refused(
    wandb: ModuleType, arguments: dict[str, Any], error: Any, said: str
) -> None:
    with wandb.init(project="p") as run, pytest.raises(error, match=said):
        run.watch(**arguments)


def test_one_model_is_watched_once_and_its_text_is_logged(wandb: ModuleType, store: Store) -> None:
    model = torch.nn.Linear(3, 1)
    with wandb.init(project="p", id="r") as run:
        run.watch(model, log_graph=True)
        with pytest.raises(ValueError, match='already been set under name "gradients/weight"'):
            run.watch(model, idx=0)
        run.log({"loss": 1})
    assert histograms(store, "r") == {"graph_0": [0]}
