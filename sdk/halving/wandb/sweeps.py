"""``wandb.sweep`` and ``wandb.agent``: W&B's sweeps on Halving's search."""

import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from halving.errors import NotFound
from halving.wandb.errors import UsageError
from halving.wandb.errors.term import termerror, termlog
from halving.wandb.settings import Settings, project_of, settings_of_environment
from halving.wandb.sweep_config import FACTS, study_spec
from halving.wandb.sweep_studies import OVER, Studies, open_studies
from halving.wandb.sweep_trial import SweepTrial, TrialStopped

_WAIT_SECONDS = 0.25
_FLAPPING_SECONDS = 60.0
_MAX_FLAPPING = 3


def sweep(
    sweep: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | str | Path,
    entity: str | None = None,
    project: str | None = None,
    prior_runs: list[str] | None = None,
) -> str:
    """Open a sweep and return its id, for :func:`agent`.

    Args:
        sweep: W&B's configuration, a function that returns it, or the path of its YAML file.
        entity: has no meaning here.
        project: of the runs (default: that of the configuration, ``WANDB_PROJECT``, then ``uncategorized``).

    Raises:
        UsageError: naming every field of the configuration that is wrong or has no equal here.
        ExtraMissing: there is no server, and the application is not installed here.
    """
    if prior_runs:
        raise UsageError(
            f"prior_runs = {prior_runs!r:.80} has no equal here: a spec's warm_start learns from sweeps"
        )
    if callable(sweep):
        sweep = sweep()
    if isinstance(sweep, (str, Path)):
        sweep = _read(Path(sweep))
    if not isinstance(sweep, Mapping):
        raise UsageError(f"sweep = {sweep!r:.80} is not accepted: give its configuration as a dict")
    chosen = Settings(**settings_of_environment())
    name = project or sweep.get("project")
    if name is not None:
        chosen = chosen.merged({"project": name})
    spec = study_spec(sweep, project_of(chosen))
    studies = open_studies()
    try:
        study = studies.open(spec)
    finally:
        studies.close()
    termlog(f"Created sweep {study}: halving leaderboard {study} shows it")
    return study


def agent(
    sweep_id: str,
    function: Callable[[], Any] | None = None,
    entity: str | None = None,
    project: str | None = None,
    count: int | None = None,
    forward_signals: bool = False,
) -> None:
    """Train trials of a sweep, one after the other, until it is over.

    Within ``function``, ``wandb.init()`` opens the run of the trial, with its params as ``wandb.config``. A
    trial that the search stops ends by an exception of ``wandb.log``. Several agents, also on other machines,
    share a sweep; the trial of one that was killed is trained by another after two minutes.

    Args:
        sweep_id: as :func:`sweep` returned it; W&B's ``entity/project/id`` is accepted.
        function: trains one trial.
        count: how many trials to train at most.

    Raises:
        UsageError: there is no function, or no such sweep.
        ExtraMissing: there is no server, and the application is not installed here.
    """
    if function is None or not callable(function):
        raise UsageError(
            f"function = {function!r} is not accepted: give the function that trains one trial; programs of "
            "a sweep's configuration are not started here"
        )
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise UsageError(f"count = {count!r} is not accepted: give a whole number from 1 on, or None")
    study = str(sweep_id).rpartition("/")[2]
    studies = open_studies()
    try:
        _agent_of(studies, study, function).train(count)
    except KeyboardInterrupt:
        termlog("Ctrl + C detected. Stopping sweep.")
    finally:
        studies.close()


class _Agent:
    """Trains trials of one study."""

    def __init__(self, studies: Studies, study: str, function: Callable[[], Any]) -> None:
        self._studies = studies
        self._study = study
        self._function = function
        self._project = studies.project(study)
        self._began = time.monotonic()
        self._failed = 0

    def train(self, count: int | None) -> None:
        trained = 0
        while count is None or trained < count:
            work = self._studies.ask(self._study)
            if work == OVER:
                termlog(f"Sweep {self._study} is over.")
                return
            if not isinstance(work, Mapping):
                time.sleep(_WAIT_SECONDS)
                continue
            self._train(work)
            trained += 1
            if self._failed >= _MAX_FLAPPING and time.monotonic() - self._began < _FLAPPING_SECONDS:
                termerror(
                    f"{self._failed} trials failed within {_FLAPPING_SECONDS:.0f} seconds, so this agent "
                    "stops: mend the function"
                )
                return

    def _train(self, work: Mapping[str, Any]) -> None:
        if FACTS not in work["params"]:
            raise UsageError(
                f"sweep {self._study} is not accepted: it was not opened by wandb.sweep; docs/search.md has "
                "a loop for studies"
            )
        trial = SweepTrial(self._studies, self._study, self._project, work)
        termlog(f"Agent Starting Run: {trial.key} with config:")
        for name, value in trial.params.items():
            termlog(f"\t{name}: {value}")
        try:
            with trial.training():
                self._function()
                trial.complete()
            trial.finish_runs()
        except TrialStopped as stop:
            termlog(str(stop))
            trial.finish_runs()
        except KeyboardInterrupt:
            trial.release()
            trial.finish_runs(1)
            raise
        except Exception as error:  # noqa: BLE001
            # Whatever the function raises, the next trial may do better.
            traceback.print_exc()
            termerror(f"Run {trial.key} errored: {error!r}")
            trial.fail(repr(error))
            trial.finish_runs(1)
            self._failed += 1


def _agent_of(studies: Studies, study: str, function: Callable[[], Any]) -> _Agent:
    try:
        return _Agent(studies, study, function)
    except NotFound as error:
        raise UsageError(f"sweep_id = {study!r:.80} is not accepted: {error}") from None


def _read(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        UsageError: it is missing, PyYAML is not installed, or it is not YAML.
    """
    try:
        import yaml
    except ImportError:
        raise UsageError(
            f"sweep = {str(path)!r} needs PyYAML: `pip install pyyaml`, or give a dict"
        ) from None
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"sweep = {str(path)!r} is not accepted: {error}") from None
