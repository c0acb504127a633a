"""A logger for Lightning: ``Trainer(logger=HalvingLogger("digits", seed=1))``.

Works with ``lightning`` and with ``pytorch_lightning``, whichever the training script imported.
"""

import itertools
import re
import sys
import warnings
from argparse import Namespace
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from halving import Run
from halving.errors import AlreadyExists, HalvingError, InvalidInput
from halving.integrations.deferred_run import DeferredRun
from halving.records.config_params import convert_config

if TYPE_CHECKING:
    from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
    from lightning.pytorch.utilities import rank_zero_only
else:
    _imported = next(
        (name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules), None
    )
    _name = _imported or ("lightning.pytorch" if find_spec("lightning") else "pytorch_lightning")
    _loggers = import_module(f"{_name}.loggers.logger")
    Logger = _loggers.Logger
    rank_zero_experiment = _loggers.rank_zero_experiment
    rank_zero_only = import_module(f"{_name}.utilities").rank_zero_only


class HalvingLogger(Logger):
    """Sends what a LightningModule logs by ``self.log(…)`` to one run, from the process of rank zero only.

    The run is opened when it is first used, with the module's hyperparameters (``save_hyperparameters()``)
    and ``config`` as its params. Params never change: hyperparameters that differ later are not recorded, and
    there is a warning. Each ``fit``, ``test`` or ``validate`` with this logger is one attempt of the run.
    Continue a run by ``id``, with the hyperparameters that it had.

    Args:
        project: a name that groups runs.
        run: log to this run instead; it is yours, so its params stay as they are and you finish it.
        log_model: store the checkpoints of ``ModelCheckpoint`` as artifacts: ``"all"`` as they are saved,
            True those that are there at the end (or all, with ``save_top_k=-1``), False none. Only single
            files, not folders of shards. If one cannot be stored there is a warning, and training continues.
        init: the other arguments of :func:`halving.init`: ``config``, ``root``, ``id``, ``seed``, ``tags``
            and so on.

    Raises:
        InvalidInput: neither or both of ``project`` and ``run`` are given, or ``log_model`` is none of the
            three.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        run: Run | None = None,
        log_model: Literal["all"] | bool = False,
        **init: Any,
    ) -> None:
        super().__init__()
        if log_model not in (True, False, "all"):
            raise InvalidInput(f"log_model {log_model!r:.80} is not accepted: give True, False or 'all'")
        self._deferred = DeferredRun(project, run, init)
        self._log_model = log_model
        self._next_step = 0
        self._stored: dict[str, float] = {}  # modification times of stored checkpoints by path
        self._checkpoints: Any = None  # the callback whose checkpoints are stored at the end

    @property
    def name(self) -> str:
        """The project; with :attr:`version` it names the folder of the checkpoints."""
        return self._deferred.project

    @property
    def version(self) -> str:
        """The run's id."""
        return self._deferred.id

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The :class:`halving.Run`, for what ``self.log`` cannot do.

        For example ``logger.experiment.log({"x": halving.Image(…)}, step=…)``. Lightning asks for it before
        it knows the hyperparameters, so until then this is a stand-in that opens the run when it is used.
        """
        return self._deferred.opened or _Unopened(self._deferred)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Open the run with these params, if it is not yet open."""
        plain_params = convert_config(params)[0]
        self._deferred.open(plain_params)
        changed = self._deferred.changed_names(plain_params)
        if changed:
            warnings.warn(
                f"halving: params never change, so {changed} as given now are not recorded in run "
                f"{self.version}",
                stacklevel=2,
            )

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log at ``step``; without one, at the step after the last."""
        if step is None:
            step = self._next_step
        self._next_step = step + 1
        self._deferred.open().log(metrics, step=step)

    # Logger.save is inherited and does nothing: Lightning calls it after every log_metrics, and a thread
    # writes the points anyway.

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Store the last checkpoints and finish the run; a run that you gave is only flushed."""
        if self._deferred.opened is None:
            return
        if self._checkpoints is not None:
            self._store(self._checkpoints)
            self._checkpoints = None
        if status == "success":
            status = "finished"
        if status != "finished":
            status = "failed"
        self._deferred.finish(status)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Called by ``ModelCheckpoint`` on rank zero."""
        if self._log_model == "all" or (
            self._log_model and getattr(checkpoint_callback, "save_top_k", None) == -1
        ):
            self._store(checkpoint_callback)
        elif self._log_model:
            self._checkpoints = checkpoint_callback

    def _store(self, callback: Any) -> None:
        single = [getattr(callback, name, "") for name in ("last_model_path", "best_model_path")]
        paths = dict.fromkeys(
            Path(path) for path in (*single, *getattr(callback, "best_k_models", {})) if path
        )
        for path in filter(Path.is_file, paths):
            saved = path.stat().st_mtime
            if self._stored.get(str(path)) == saved:
                continue
            try:
                _log_file(self._deferred.open(), path)
                self._stored[str(path)] = saved
            except (HalvingError, OSError) as error:
                warnings.warn(f"halving: checkpoint {path} is not stored: {error}", stacklevel=2)


class _Unopened:
    """Stands in for a run that is not open yet, and opens it when one of its attributes is used."""

    def __init__(self, deferred: DeferredRun) -> None:
        self._deferred = deferred

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copying and pickling ask for
            raise AttributeError(name)
        return getattr(self._deferred.open(), name)


def _log_file(run: Run, path: Path) -> None:
    """Attach a checkpoint under its file's name.

    Artifacts never change, so ``last.ckpt`` with new content becomes ``last-2.ckpt``.
    """
    stem = re.sub(r"[^A-Za-z0-9._@+-]", "-", path.stem)
    stem = stem[:100].lstrip("._@+-") or "checkpoint"
    name = f"{stem}{path.suffix}"
    for number in itertools.count(2):
        try:
            run.log_artifact(path, name)
            return
        except AlreadyExists:
            name = f"{stem}-{number}{path.suffix}"
