"""``wandb.init``: opens a run, or returns the one that is open."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from halving.identifiers import sanitize_name
from halving.store.opening import open_store
from halving.store.retry import retry_while_unavailable
from halving.wandb import current
from halving.wandb.config import DEFAULTS_FILE, Config, parse_config, read_config_file
from halving.wandb.errors import Error, NotSupported, UsageError
from halving.wandb.errors.term import termlog, termsetup, termwarn
from halving.wandb.exit_code import watch_exit
from halving.wandb.run import Run
from halving.wandb.run_labels import Labels
from halving.wandb.session import default_settings
from halving.wandb.settings import Settings, project_of, settings_of_environment
from halving.wandb.stored_run import StoredRun, read_next_step, read_stored_run
from halving.wandb.sweep_trial import assigned_trial
from halving.wandb.util import generate_id

_RESUMES = ("allow", "must", "auto")


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    config: Any = None,
    config_exclude_keys: list[str] | None = None,
    config_include_keys: list[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: bool | str | None = None,
    resume: bool | str | None = None,
    resume_from: str | None = None,
    fork_from: str | None = None,
    save_code: bool | None = None,
    tensorboard: bool | None = None,
    sync_tensorboard: bool | None = None,
    monitor_gym: bool | None = None,
    settings: Settings | dict[str, Any] | None = None,
    anonymous: Any = None,
) -> Run:
    """Open a run in the store that ``HALVING_ROOT`` or ``HALVING_URL`` names, and make it the current one.

    Arguments are W&B's; ``docs/wandb.md`` says what each does here.

    Raises:
        UsageError, Error: an argument is not accepted, or a run cannot be resumed as ``resume`` wants it.
        InvalidSettings: a setting is not accepted (also a ``ValueError``).
        NotSupported: ``resume_from``, ``fork_from``, ``sync_tensorboard`` or ``monitor_gym`` is set.
        StoreError: the store refuses, or was unavailable for ten minutes.
    """
    passed = {
        "allow_val_change": allow_val_change,
        "anonymous": anonymous,
        "entity": entity,
        "force": force,
        "fork_from": fork_from,
        "mode": mode,
        "project": project,
        "reinit": reinit,
        "resume": resume,
        "resume_from": resume_from,
        "root_dir": dir,
        "run_group": group,
        "run_id": id,
        "run_job_type": job_type,
        "run_name": name,
        "run_notes": notes,
        "run_tags": tags,
        "save_code": save_code,
        "sync_tensorboard": tensorboard if sync_tensorboard is None else sync_tensorboard,
    }
    own = Settings(**settings) if isinstance(settings, dict) else settings or Settings()
    chosen = (
        Settings(**default_settings())
        .merged(settings_of_environment())
        .merged(own.as_dict())
        .merged({field: value for field, value in passed.items() if value is not None})
    )
    trial = assigned_trial()
    if trial is not None:
        chosen = chosen.merged(trial.settings())
    _refuse_missing(chosen, monitor_gym)
    termsetup(chosen)
    values = {
        **read_config_file(DEFAULTS_FILE, must_exist=False),
        **parse_config(config or {}, config_exclude_keys, config_include_keys),
    }
    if chosen.mode == "disabled":
        return _open_disabled(chosen, values)
    previous = _previous_run(chosen)
    if previous is not None:
        return previous
    return _open(chosen, values)


def _refuse_missing(settings: Settings, monitor_gym: bool | None) -> None:
    missing = {
        "resume_from": "a run's recorded points never change; open a new run with resume='allow' instead",
        "fork_from": "open a new run, and name the one that it continues in its config",
        "sync_tensorboard": "import TensorBoard's folder: `halving import tensorboard FOLDER`",
    }
    for field, advice in missing.items():
        if getattr(settings, field):
            raise NotSupported(f"wandb.init({field}={getattr(settings, field)!r}) is not there: {advice}")
    if monitor_gym:
        raise NotSupported("wandb.init(monitor_gym=True) is not there: log videos with wandb.Video")
    if settings.mode == "shared":
        raise NotSupported(
            "wandb.init(mode='shared') is not there: open a run in each process, with one group for all"
        )


def _previous_run(settings: Settings) -> Run | None:
    """The open run that is returned; None after finishing the open ones, or where another one may be opened.

    Raises:
        Error: a run must be resumed while another is open.
    """
    runs = [run for run in current.open_runs() if not run.disabled and run._process == os.getpid()]
    if not runs or settings.reinit == "create_new":
        return None
    if settings.reinit in (True, "finish_previous"):
        for run in reversed(runs):
            run.finish()
        return None
    if settings.resume == "must":
        raise Error(
            "Cannot resume a run while another run is active."
            " You must either finish it using run.finish(),"
            " or use reinit='create_new' when calling wandb.init()."
        )
    termlog(
        "wandb.init() called while a run is active and reinit is"
        f" set to {settings.reinit!r}, so returning the previous run."
    )
    return runs[-1]


def _open(settings: Settings, values: Mapping[str, Any]) -> Run:
    import halving

    resume_file = None
    if settings.resume == "auto":
        resume_file = Path(settings.root_dir or ".") / "wandb" / "wandb-resume.json"
    run_id = settings.run_id or _id_of(resume_file) or generate_id()
    project = project_of(settings)
    stored_id = sanitize_name(run_id, otherwise="run")
    stored: StoredRun | None = None
    if settings.run_id is not None or resume_file is not None:
        with closing(open_store(None, None, None, f"{project}/{stored_id}")) as store:
            stored = retry_while_unavailable(
                store, f"run {stored_id}", lambda: read_stored_run(store, project, stored_id)
            )
    _check_resume(settings.resume, stored, f"{project}/{stored_id}")
    is_resumed = stored is not None and settings.resume in _RESUMES
    settings = settings.merged({"run_id": stored_id, "project": project, "resumed": is_resumed})
    labels = Labels.of(settings)
    config = Config()
    vars(config)["_allow_val_change"] = settings.allow_val_change
    labels.recorded = labels.as_tags()
    if stored is not None:
        labels.recorded = Labels.of_script(stored.tags)
    if stored is not None and is_resumed:
        labels = labels.completed(stored.tags)
        config.update(stored.params)
    config.update(dict(values), allow_val_change=True)
    trial = assigned_trial()
    if trial is not None:
        config.update_locked(trial.params, "sweep")
    interval = float(settings.x_stats_sampling_interval)
    run = halving.init(
        project,
        config=None if stored is not None else config.as_dict(),
        id=stored_id,
        tags=labels.as_tags(),
        system_metrics=None if settings.x_disable_stats else max(interval, 1.0),
        distributed=False,
    )
    first_step = 0
    if is_resumed:
        # Only now: what a killed attempt has left on this machine was written to the store just now.
        first_step = retry_while_unavailable(
            run.store, f"run {run.id}", lambda: read_next_step(run.store, run.project, run.id)
        )
    earlier_params: list[str] = []
    if stored is not None:
        earlier_params = list(stored.params)
    opened = Run(
        run,
        settings,
        config,
        labels,
        first_step=first_step,
        resumed=is_resumed,
        earlier_params=earlier_params,
    )
    if stored is not None and is_resumed:
        opened._history.values.update(stored.summary)
    opened._resume_file = resume_file
    if trial is not None:
        trial.follow(opened)
    if resume_file is not None:
        _write_id(resume_file, run_id)
    vars(config)["_on_change"] = opened._note_config
    if stored is not None and stored.params != config.as_dict():
        opened._note_config()
    if labels.recorded != labels.as_tags():
        opened._note_labels()
    watch_exit()
    current.enter(opened, is_current=settings.reinit != "create_new")
    if settings.save_code:
        opened.log_code()
    return opened


def _open_disabled(settings: Settings, values: Mapping[str, Any]) -> Run:
    run_id = settings.run_id or generate_id()
    settings = settings.merged(
        {
            "run_id": run_id,
            "run_name": settings.run_name or f"dummy-{run_id}",
            "project": settings.project or "dummy",
            "entity": settings.entity or "dummy",
        }
    )
    config = Config()
    vars(config)["_allow_val_change"] = settings.allow_val_change
    config.update(dict(values))
    run = Run(None, settings, config, Labels.of(settings))
    current.enter(run)
    return run


def _check_resume(resume: str | None, stored: StoredRun | None, path: str) -> None:
    """Check that a run is there, or is not, as ``resume`` wants it.

    Raises:
        UsageError: with W&B's own message.
    """
    if resume == "must" and stored is None:
        raise UsageError(
            "You provided an invalid value for the `resume` argument. The value 'must' is not a valid option"
            f" for resuming a run ({path}) that has never been initialized. Please check your inputs and try"
            " again with a valid value for the `resume` argument. If you are trying to start a new run,"
            " please omit the `resume` argument or use `resume='allow'`."
        )
    if resume == "never" and stored is not None:
        raise UsageError(
            "You provided an invalid value for the `resume` argument. The value 'never' is not a valid option"
            f" for resuming a run ({path}) that already exists. Please check your inputs and try again with a"
            " valid value for the `resume` argument."
        )


def _id_of(resume_file: Path | None) -> str | None:
    """The id that ``resume="auto"`` has left, if the last run of this folder did not finish well."""
    if resume_file is None:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(resume_file.read_text())["run_id"])
    return None


def _write_id(resume_file: Path, run_id: str) -> None:
    try:
        resume_file.parent.mkdir(parents=True, exist_ok=True)
        resume_file.write_text(json.dumps({"run_id": run_id}))
    except OSError as error:
        termwarn(f"resume='auto' will not find this run again: {resume_file} cannot be written ({error})")
