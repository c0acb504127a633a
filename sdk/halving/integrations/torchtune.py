"""A metric logger for torchtune's recipes: ``metric_logger._component_`` of their configs."""

import warnings
from collections.abc import Mapping
from typing import Any

from torchtune.training.metric_logging import MetricLoggerInterface, save_config
from torchtune.utils import get_world_size_and_rank

from halving import Run
from halving.errors import HalvingError
from halving.integrations.deferred_run import DeferredRun
from halving.records.config_params import convert_config


class HalvingLogger(MetricLoggerInterface):
    """Logs what a recipe logs, from the process of rank zero only.

    In a recipe's config it is one line::

        metric_logger:
          _component_: halving.integrations.torchtune.HalvingLogger
          log_dir: ${output_dir}/logs

    The run is opened when the recipe hands over its config, whose values are the params; ``config`` overrides
    them. The config's file, ``torchtune_config.yaml``, is kept as an artifact. ``close()`` finishes the run.

    Args:
        project: a name that groups runs.
        log_dir: not used, because points go to the store; the configs of recipes have it.
        run: log to this run instead; it is yours, so its params stay as they are and you finish it.
        init: the other arguments of :func:`halving.init`: ``config``, ``root``, ``id``, ``seed``, ``tags``
            and so on.

    Raises:
        InvalidInput: ``run`` and other arguments are given together.
    """

    def __init__(
        self,
        project: str | None = None,
        log_dir: str | None = None,
        *,
        run: Run | None = None,
        **init: Any,
    ) -> None:
        if project is None and run is None:
            project = "torchtune"
        self._deferred = DeferredRun(project, run, init)
        self._is_first = get_world_size_and_rank()[1] == 0

    @property
    def run(self) -> Run | None:
        """The run, while it is open."""
        return self._deferred.opened

    def log_config(self, config: Any) -> None:
        """Open the run with the recipe's config as its params, and keep the config's file."""
        if not self._is_first:
            return
        run = self._deferred.open(convert_config(config)[0])
        path = save_config(config)
        if path is None:  # torchtune has warned
            return
        try:
            run.log_artifact(path, path.name)
        except (HalvingError, OSError) as error:
            warnings.warn(f"halving: {path} is not stored: {error}", stacklevel=2)

    def log(self, name: str, data: Any, step: int) -> None:
        """Log one value."""
        self.log_dict({name: data}, step)

    def log_dict(self, payload: Mapping[str, Any], step: int) -> None:
        """Log values at a step."""
        if self._is_first:
            self._deferred.open().log(payload, step=step)

    def close(self) -> None:
        """Finish the run; a run that you gave is only flushed."""
        self._deferred.finish("finished")
