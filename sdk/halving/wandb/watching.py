"""``wandb.watch``: histograms of a PyTorch model's gradients and parameters, every so many batches.

A histogram is computed where the tensor is. Only its counts are fetched, and only in the batches that are
logged. What fails in a hook is a warning, and never ends a training.
"""

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from halving.ingest.media import Histogram, edges_around
from halving.wandb.errors.term import termwarn

if TYPE_CHECKING:
    import torch

    from halving.wandb.run import Run

_LOGS = ("gradients", "parameters", "all", None)
_BINS = 64  # W&B's


class _Watch:
    """The hooks of a run.

    Attributes:
        handles: by model's id, then by the name that is logged.
        count: of the models that were watched.
    """

    def __init__(self) -> None:
        self.handles: dict[int, dict[str, Any]] = {}
        self.count = 0
        self.is_warned = False


_watches: "weakref.WeakKeyDictionary[Run, _Watch]" = weakref.WeakKeyDictionary()


def watch(
    run: "Run",
    models: Any,
    criterion: Any = None,
    log: str | None = "gradients",
    log_freq: int = 1000,
    idx: int | None = None,
    log_graph: bool = False,
) -> list[Any]:
    """Log ``gradients/NAME`` and ``parameters/NAME`` of models as histograms, with the run's next values.

    Args:
        models: a model or several; the second one's names begin with ``graph_1``, as in W&B.
        log: ``gradients``, ``parameters``, ``all``, or None for neither.
        log_freq: after how many batches; each parameter's backward passes are counted.
        idx: the number of the first model; default: how many were watched before.
        log_graph: log the models' texts as ``graph_0`` …

    Raises:
        ValueError: another ``log``, or ``log_freq`` is no positive integer.
        TypeError: something else than PyTorch's modules.
    """
    if run.disabled:
        return []
    import torch

    if log not in _LOGS:
        raise ValueError("log must be one of 'gradients', 'parameters', 'all', or None")
    if isinstance(log_freq, bool) or not isinstance(log_freq, int) or log_freq < 1:
        raise ValueError(f"log_freq {log_freq!r} is not accepted: give a positive integer")
    modules: Sequence[Any] = models if isinstance(models, (tuple, list)) else (models,)
    for module in modules:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"Expected a pytorch model (torch.nn.Module). Received {type(module)}")
    state = _watches.setdefault(run, _Watch())
    first = state.count if idx is None else idx
    for number, module in enumerate(modules, first):
        state.count += 1
        prefix = f"graph_{number}" if number > 0 else ""
        if log in ("parameters", "all"):
            _watch_parameters(run, state, module, prefix, log_freq)
        if log in ("gradients", "all"):
            _watch_gradients(run, state, module, prefix, log_freq)
        if log_graph:
            run.log({f"graph_{number}": str(module)}, commit=False)
    return []


def unwatch(run: "Run", models: Any = None) -> None:
    """Remove the hooks of models; None: of all that the run watches."""
    state = _watches.get(run)
    if state is None:
        return
    watched = list(state.handles)
    if models is not None:
        modules = models if isinstance(models, (tuple, list)) else (models,)
        watched = [id(module) for module in modules]
    for model in watched:
        for handle in state.handles.pop(model, {}).values():
            handle.remove()


def _watch_gradients(
    run: "Run", state: _Watch, module: "torch.nn.Module", prefix: str, log_freq: int
) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            key = f"gradients/{prefix}{name}"
            register: Any = parameter.register_hook
            _add(state, module, key, register(_gradient_hook(run, state, key, log_freq)))


def _watch_parameters(
    run: "Run", state: _Watch, module: "torch.nn.Module", prefix: str, log_freq: int
) -> None:
    is_due = _every(log_freq)

    def hook(model: "torch.nn.Module", arguments: Any, output: Any) -> None:
        if is_due():
            for name, parameter in model.named_parameters():
                _log(run, state, f"parameters/{prefix}{name}", parameter)

    _add(state, module, f"parameters/{prefix}", module.register_forward_hook(hook))


def _add(state: _Watch, module: "torch.nn.Module", key: str, handle: Any) -> None:
    handles = state.handles.setdefault(id(module), {})
    if key in handles:
        handle.remove()
        raise ValueError(f'A hook has already been set under name "{key}"')
    handles[key] = handle


def _gradient_hook(run: "Run", state: _Watch, key: str, log_freq: int) -> "Callable[[torch.Tensor], None]":
    is_due = _every(log_freq)

    def hook(gradient: "torch.Tensor") -> None:
        if is_due():
            _log(run, state, key, gradient)

    return hook


def _every(log_freq: int) -> Callable[[], bool]:
    """Whether a call is the last of ``log_freq`` calls."""
    count = 0

    def is_due() -> bool:
        nonlocal count
        count += 1
        if count < log_freq:
            return False
        count = 0
        return True

    return is_due


def _log(run: "Run", state: _Watch, key: str, tensor: "torch.Tensor") -> None:
    if run._is_finished or run._run is None:
        return
    try:
        histogram = histogram_of(tensor)
        if histogram is not None:
            run._history.log({key: histogram}, None, False)
    except Exception as error:  # noqa: BLE001
        # The device may have no memory left, or the tensor a kind without histograms: the training goes on.
        if not state.is_warned:
            state.is_warned = True
            termwarn(f"{key} is not logged ({type(error).__name__}: {error}); not warned about again")


def histogram_of(tensor: "torch.Tensor") -> Histogram | None:
    """The histogram of a tensor's finite values as W&B computes it; None: it has none.

    It has 64 bins from the lowest to the highest value, or one if all are equal.
    """
    import torch

    if hasattr(tensor, "to_local"):
        # Its ends are those of all its parts: finding them would wait for processes that watch nothing.
        raise TypeError("a distributed tensor has no histogram here")
    values = tensor.detach()
    zeros = 0
    if values.is_sparse:
        values = values.coalesce()
        zeros = values.numel() - values._nnz()
        values = values.values()
    flat = values.reshape(-1)
    if flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    kind = "memory" if flat.device.type == "cpu" else "device"
    counter = _COUNTERS[kind](flat)
    if counter.count == 0:
        return None
    low = counter.low
    high = counter.high
    if zeros:
        low = min(low, 0.0)
        high = max(high, 0.0)
    if low == high:
        return Histogram(counts=[counter.count + zeros], edges=edges_around(low))
    counts = counter.count_bins(low, high)
    edges = _edges(low, high)
    if zeros:
        counts[_bin_of_zero(edges)] += zeros
    return Histogram(counts=counts, edges=edges)


def _edges(low: float, high: float) -> list[float]:
    """The edges of the bins in float32, as W&B has them, unless some are equal then."""
    import torch

    edges: list[float] = torch.linspace(low, high, _BINS + 1, dtype=torch.float32).tolist()
    if all(begin < end for begin, end in pairwise(edges)):
        return edges
    finer: list[float] = torch.linspace(low, high, _BINS + 1, dtype=torch.float64).tolist()
    return finer


class _Counter(Protocol):
    """Counts the finite values of a tensor.

    Attributes:
        low, high: the ends of the finite values.
        count: how many there are.
    """

    low: float
    high: float
    count: int

    def count_bins(self, low: float, high: float) -> list[float]:
        """The counts of equal bins between two ends."""


class _OnDevice:
    """Counts where the tensor is; the device is waited for twice, for the ends and for the counts."""

    def __init__(self, flat: "torch.Tensor") -> None:
        import torch

        self.low = self.high = 0.0
        self.count = 0
        self._flat = flat
        if flat.numel():
            self._finite = torch.isfinite(flat)
            low = torch.where(self._finite, flat, torch.inf).min()
            high = torch.where(self._finite, flat, -torch.inf).max()
            count = self._finite.sum().to(torch.float64)
            ends = torch.stack([low.to(torch.float64), high.to(torch.float64), count])
            self.low, self.high, number = ends.tolist()
            self.count = int(number)

    def count_bins(self, low: float, high: float) -> list[float]:
        import torch

        # What is not finite lies outside of both ends, so it is not counted.
        values = torch.where(self._finite, self._flat, high + abs(high) + 1)
        counts: list[float] = torch.histc(values, _BINS, low, high).tolist()
        return counts


class _InMemory:
    """Counts as ``torch.histc`` does, without torch's threads, which take milliseconds to meet."""

    def __init__(self, flat: "torch.Tensor") -> None:
        import numpy as np

        array = flat.numpy()
        self._array = array[np.isfinite(array)]
        self.low = self.high = 0.0
        self.count = int(self._array.size)
        if self.count:
            self.low = float(self._array.min())
            self.high = float(self._array.max())

    def count_bins(self, low: float, high: float) -> list[float]:
        import numpy as np

        kind = self._array.dtype.type
        places = ((self._array - kind(low)) * kind(_BINS) / (kind(high) - kind(low))).astype(np.int64)
        counts: list[float] = np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS).tolist()
        return counts


_COUNTERS: dict[str, "Callable[[torch.Tensor], _Counter]"] = {"memory": _InMemory, "device": _OnDevice}


def _bin_of_zero(edges: list[float]) -> int:
    for number, (begin, end) in enumerate(pairwise(edges)):
        if begin <= 0 < end:
            return number
    return len(edges) - 2
