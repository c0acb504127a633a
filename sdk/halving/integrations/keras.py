"""A callback for Keras 3, on any backend: ``model.fit(…, callbacks=[HalvingCallback("digits")])``."""

from collections.abc import Mapping
from typing import Any

import keras

from halving import Run
from halving.errors import InvalidInput
from halving.integrations.deferred_run import DeferredRun
from halving.records.config_params import convert_config


class HalvingCallback(keras.callbacks.Callback):
    """Logs each epoch's results, at the number of optimizer steps done.

    The keys are ``train/loss``, ``val/loss``, ``epoch``, ``learning_rate`` and so on. The params are those of
    ``fit`` (epochs, steps), the optimizer's configuration under ``optimizer``, and ``config``, which
    overrides both. A run is opened when ``fit`` begins and finished when it ends; the next ``fit`` opens
    another one. To continue a run, give its ``id`` and the params that it had, or use ``run=halving.init(…,
    id=…)`` with any params. In a job of several processes give the callback to the first process only.

    Args:
        project: a name that groups runs.
        run: log to this run instead; it is yours, so its params stay as they are and you finish it.
        every: also log every so many batches, as ``batch/loss`` and so on: the epoch's running means. None
            logs epochs only.
        init: the other arguments of :func:`halving.init`: ``config``, ``root``, ``id``, ``seed``, ``tags``
            and so on.

    Raises:
        InvalidInput: neither or both of ``project`` and ``run`` are given, or ``every`` is no positive
            integer.
    """

    # Keras may call on_train_batch_end in its own threads, so that training need not wait for a loss from the
    # device.
    async_safe = True

    def __init__(
        self, project: str | None = None, *, run: Run | None = None, every: int | None = None, **init: Any
    ) -> None:
        super().__init__()
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise InvalidInput(f"every {every!r:.80} is not accepted: give a positive integer or None")
        self._deferred = DeferredRun(project, run, init)
        self._every = every
        self._epoch_began = 0

    @property
    def run(self) -> Run | None:
        """The run, while it is open."""
        return self._deferred.opened

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Open the run, with the params of ``fit`` and of the optimizer."""
        fit = {name: value for name, value in (self.params or {}).items() if name != "verbose"}
        optimizer = self.model.optimizer
        # Named by its class, because Keras numbers the names (sgd_1) within a process.
        described = {**optimizer.get_config(), "name": type(optimizer).__name__}
        self._deferred.renew()
        self._deferred.open(convert_config({**fit, "optimizer": described})[0])

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Remember the number of optimizer steps before the epoch."""
        self._epoch_began = self._steps()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the epoch's running means, every ``every`` batches."""
        if self._every is None or not logs or (batch + 1) % self._every:
            return
        # Counted, because reading the optimizer's own count would wait for the device.
        accumulated = self.model.optimizer.gradient_accumulation_steps or 1
        values = {f"batch/{name}": value for name, value in logs.items()}
        self._deferred.open().log(values, step=self._epoch_began + (batch + 1) // accumulated)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the epoch's results."""
        values: dict[str, Any] = {
            "epoch": epoch + 1,
            "learning_rate": float(self.model.optimizer.learning_rate),
        }
        for name, value in (logs or {}).items():
            family, _, metric = name.partition("_")
            if family == "val" and metric:
                values[f"val/{metric}"] = value
            else:
                values[f"train/{name}"] = value
        self._deferred.open().log(values, step=self._steps())

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Finish the run."""
        self._deferred.finish("finished")

    def _steps(self) -> int:
        return int(self.model.optimizer.iterations)
