"""A callback for Hugging Face's Trainer: ``Trainer(…, callbacks=[HalvingCallback("digits")])``."""

from typing import Any

from transformers import TrainerCallback

from halving import Run
from halving.integrations.deferred_run import DeferredRun
from halving.records.config_params import convert_config

# TrainingArguments that say where files are and what is reported, not what is trained. They may differ when a
# run is continued.
_NO_PARAMS = {
    "output_dir",
    "run_name",
    "project",
    "resume_from_checkpoint",
    "local_rank",
    "disable_tqdm",
    "report_to",
    "logging_dir",
}
_NO_PARAM_FAMILIES = ("hub_", "push_to_hub", "trackio_", "log_level")


class HalvingCallback(TrainerCallback):
    """Logs what the Trainer logs, at the global step, from the process of world rank zero only.

    Names follow the Trainer's convention: ``train/loss``, ``eval/loss``, ``test/loss``; ``epoch`` stays. The
    params are the TrainingArguments, the model's configuration under ``model``, and ``config``, which
    overrides both. A run is opened when training begins and finished when it ends; the next training opens
    another one. What is logged after the end (``trainer.evaluate()``) goes to the run's next attempt. To
    continue a run, give its ``id`` and the params that it had, or use ``run=halving.init(…, id=…)`` with any
    params.

    Args:
        project: a name that groups runs.
        run: log to this run instead; it is yours, so its params stay as they are and you finish it.
        init: the other arguments of :func:`halving.init`: ``config``, ``root``, ``id``, ``seed``, ``tags``
            and so on.

    Raises:
        InvalidInput: neither or both of ``project`` and ``run`` are given.
    """

    def __init__(self, project: str | None = None, *, run: Run | None = None, **init: Any) -> None:
        self._deferred = DeferredRun(project, run, init)

    @property
    def run(self) -> Run | None:
        """The run, while it is open."""
        return self._deferred.opened

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Open the training's run."""
        if state.is_world_process_zero:
            self._deferred.renew()
            self._deferred.open(_params(args, model))

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Log what the Trainer logs."""
        if state.is_world_process_zero and logs:
            self._log(args, state, model, logs)

    def on_predict(
        self, args: Any, state: Any, control: Any, metrics: dict[str, Any], model: Any = None, **kwargs: Any
    ) -> None:
        """Log the metrics of a prediction, as ``test/…``."""
        if state.is_world_process_zero and metrics:
            self._log(args, state, model, metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Finish the training's run."""
        if state.is_world_process_zero:
            self._deferred.finish("finished")

    def _log(self, args: Any, state: Any, model: Any, logs: dict[str, Any]) -> None:
        run = self._deferred.opened or self._deferred.open(_params(args, model))
        run.log({_name(key): value for key, value in logs.items()}, step=int(state.global_step))


def _name(key: str) -> str:
    if key == "epoch":
        return key
    family, separator, rest = key.partition("_")
    if separator and family in ("eval", "test"):
        return f"{family}/{rest}"
    return f"train/{key}"


def _params(args: Any, model: Any) -> dict[str, Any]:
    params = {
        name: value
        for name, value in args.to_dict().items()
        if name not in _NO_PARAMS and not name.startswith(_NO_PARAM_FAMILIES)
    }
    config = getattr(model, "config", None)
    if config is not None:
        if not isinstance(config, dict):
            config = config.to_dict()
        params["model"] = {name: value for name, value in config.items() if name != "transformers_version"}
    return convert_config(params)[0]
