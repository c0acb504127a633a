"""A tracker for Accelerate: ``Accelerator(log_with=HalvingTracker("digits"))``."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from halving import Image, Run, Table, Text
from halving.integrations.deferred_run import DeferredRun
from halving.records.config_params import convert_config


class HalvingTracker(GeneralTracker):
    """Logs what ``accelerator.log(…)`` is given, from the main process only.

    The run is opened by ``accelerator.init_trackers(…)``: its params are the ``config`` that is given there,
    and the ``config`` given here, which overrides it. Params never change: those that differ later are not
    recorded, and there is a warning. ``accelerator.end_training()`` finishes it. Accelerate does not tell a
    tracker that is handed in the name of the project; give it here.

    With ``accelerate.tracking.register_tracker_class(HalvingTracker)`` it has the name ``halving``:
    ``Accelerator(log_with="halving")`` takes the project from ``init_trackers("digits", init_kwargs=
    {"halving": {…}})``.

    Args:
        project: a name that groups runs.
        run: log to this run instead; it is yours, so its params stay as they are and you finish it.
        init: the other arguments of :func:`halving.init`: ``config``, ``root``, ``id``, ``seed``, ``tags``
            and so on.

    Raises:
        InvalidInput: neither or both of ``project`` and ``run`` are given.
    """

    name = "halving"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, project: str | None = None, *, run: Run | None = None, **init: Any) -> None:
        super().__init__()
        self._deferred = DeferredRun(project, run, init)
        self._next_step = 0

    @property
    def tracker(self) -> Run | None:
        """The :class:`halving.Run`, while it is open; ``accelerator.get_tracker("halving", unwrap=True)``."""
        return self._deferred.opened

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Open the run with these params, if it is not yet open."""
        params = convert_config(values)[0]
        self._deferred.open(params)
        changed = self._deferred.changed_names(params)
        if changed:
            warnings.warn(
                f"halving: params never change, so {changed} as given now are not recorded in run "
                f"{self._deferred.id}",
                stacklevel=2,
            )

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers, texts and nested dicts of these at ``step``; without one, at the step after the last.

        Args:
            kwargs: other arguments of :meth:`halving.Run.log`, which ``accelerator.log(…, log_kwargs=
                {"halving": {…}})`` hands on.
        """
        if step is None:
            step = self._next_step
        self._next_step = step + 1
        self._deferred.open().log(_with_texts(values), step=step, **kwargs)

    @on_main_process
    def log_images(self, values: Mapping[str, Sequence[Any]], step: int | None = None, **kwargs: Any) -> None:
        """Log the images of each name as ``NAME/0``, ``NAME/1`` and so on.

        Args:
            values: arrays (height, width, channels), tensors, pictures of Pillow's, or files.
            kwargs: other arguments of :class:`halving.Image`.
        """
        images = {
            f"{name}/{number}": Image(image, **kwargs)
            for name, several in values.items()
            for number, image in enumerate(several)
        }
        self.log(images, step=step)

    @on_main_process
    def log_table(
        self,
        table_name: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Log a table, of columns and rows or of a data frame."""
        if dataframe is not None:
            columns = [str(column) for column in dataframe.columns]
            data = dataframe.to_numpy().tolist()
        self.log({table_name: Table(columns=list(columns or ()), rows=list(data or ()))}, step=step)

    @on_main_process
    def finish(self) -> None:
        """Finish the run; a run that you gave is only flushed."""
        self._deferred.finish("finished")


def _with_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, str):
            converted[name] = Text(value)
        elif isinstance(value, Mapping):
            converted[name] = _with_texts(value)
        else:
            converted[name] = value
    return converted
