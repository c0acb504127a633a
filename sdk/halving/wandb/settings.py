"""``wandb.Settings``: W&B's fields, from a call, from the environment, and by default."""

import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.identifiers import sanitize_name
from halving.wandb.errors import UsageError
from halving.wandb.run_labels import tag_problem

_ENVIRONMENT = "WANDB_"
_SPECIAL_NAMES = {
    "WANDB_DIR": "root_dir",
    "WANDB_NAME": "run_name",
    "WANDB_NOTES": "run_notes",
    "WANDB_TAGS": "run_tags",
    "WANDB_JOB_TYPE": "run_job_type",
}
_MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")
_RESUMES = ("allow", "must", "never", "auto")
_REINITS = ("default", "return_previous", "finish_previous", "create_new")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")
_TEXTS = ("entity", "project", "run_group", "run_id", "run_job_type", "run_name", "run_notes", "sweep_id")
_FLAGS = ("allow_val_change", "force", "silent", "quiet", "save_code", "sync_tensorboard", "x_disable_stats")
_STEP_OF_RUN = re.compile(r"[^?]+\?_step=\d+")
_NO_PROJECT = "uncategorized"

# The fields that have a meaning here, with their defaults.
_DEFAULTS: dict[str, Any] = {
    "allow_val_change": False,
    "anonymous": None,
    "config_paths": None,
    "disable_code": False,
    "disable_git": False,
    "entity": None,
    "force": False,
    "fork_from": None,
    "mode": "online",
    "program": None,
    "project": None,
    "quiet": False,
    "reinit": "default",
    "resume": None,
    "resume_from": None,
    "resumed": False,
    "root_dir": None,
    "run_group": None,
    "run_id": None,
    "run_job_type": None,
    "run_name": None,
    "run_notes": None,
    "run_tags": None,
    "save_code": None,
    "silent": False,
    "sweep_id": None,
    "sweep_param_path": None,
    "sync_tensorboard": None,
    "x_disable_stats": False,
    "x_files_dir": None,
    "x_stats_sampling_interval": 15.0,
}
# Fields that are accepted and have no effect: W&B's own server, service, uploads and console.
_WITHOUT_EFFECT = frozenset(
    [
        "allow_media_symlink",
        "allow_offline_artifacts",
        "api_key",
        "app_url_override",
        "azure_account_url_to_access_key",
        "base_url",
        "capture_loggers",
        "code_dir",
        "console",
        "console_chunk_max_bytes",
        "console_chunk_max_seconds",
        "console_multipart",
        "credentials_file",
        "disable_git_fork_point",
        "disable_job_creation",
        "docker",
        "email",
        "finish_timeout",
        "finish_timeout_raises",
        "git_commit",
        "git_remote",
        "git_remote_url",
        "git_root",
        "heartbeat_seconds",
        "host",
        "http_proxy",
        "https_proxy",
        "identity_token_file",
        "ignore_globs",
        "init_timeout",
        "insecure_disable_ssl",
        "job_name",
        "job_source",
        "label_disable",
        "launch",
        "launch_config_path",
        "login_timeout",
        "max_end_of_run_history_metrics",
        "max_end_of_run_summary_metrics",
        "notebook_name",
        "organization",
        "program_abspath",
        "program_relpath",
        "relogin",
        "sagemaker_disable",
        "settings_system",
        "show_colors",
        "show_emoji",
        "show_errors",
        "show_info",
        "show_warnings",
        "stop_fn",
        "stop_on_fatal_error",
        "strict",
        "summary_timeout",
        "summary_warnings",
        "symlink",
        "system_settings",
        "table_raise_on_max_row_limit_exceeded",
        "use_dot_wandb",
        "username",
        "x_cli_only_mode",
        "x_disable_machine_info",
        "x_disable_meta",
        "x_disable_viewer",
        "x_executable",
        "x_extra_http_headers",
        "x_file_stream_max_bytes",
        "x_file_stream_max_line_bytes",
        "x_file_stream_no_gzip",
        "x_file_stream_retry_max",
        "x_file_stream_retry_wait_max_seconds",
        "x_file_stream_retry_wait_min_seconds",
        "x_file_stream_timeout_seconds",
        "x_file_stream_transmit_interval",
        "x_file_transfer_retry_max",
        "x_file_transfer_retry_wait_max_seconds",
        "x_file_transfer_retry_wait_min_seconds",
        "x_file_transfer_timeout_seconds",
        "x_flow_control_custom",
        "x_flow_control_disabled",
        "x_graphql_retry_max",
        "x_graphql_retry_wait_max_seconds",
        "x_graphql_retry_wait_min_seconds",
        "x_graphql_timeout_seconds",
        "x_history_value_encoding",
        "x_internal_check_process",
        "x_jupyter_name",
        "x_jupyter_path",
        "x_jupyter_root",
        "x_label",
        "x_live_policy_rate_limit",
        "x_live_policy_wait_time",
        "x_log_level",
        "x_network_buffer",
        "x_primary",
        "x_proxies",
        "x_runqueue_item_id",
        "x_save_requirements",
        "x_server_side_derived_summary",
        "x_service_transport",
        "x_service_wait",
        "x_skip_transaction_log",
        "x_start_time",
        "x_stats_buffer_size",
        "x_stats_coreweave_metadata_base_url",
        "x_stats_coreweave_metadata_endpoint",
        "x_stats_cpu_count",
        "x_stats_cpu_logical_count",
        "x_stats_dcgm_exporter",
        "x_stats_disk_paths",
        "x_stats_gpu_count",
        "x_stats_gpu_device_ids",
        "x_stats_gpu_type",
        "x_stats_neuron_monitor_config_path",
        "x_stats_no_cgroup",
        "x_stats_open_metrics_endpoints",
        "x_stats_open_metrics_filters",
        "x_stats_open_metrics_http_headers",
        "x_stats_pid",
        "x_stats_self_usage",
        "x_stats_track_process_tree",
        "x_sync",
        "x_sync_dir_suffix",
        "x_transaction_log_flush_interval",
        "x_update_finish_state",
        "start_method",
        "_service_wait",
        "_disable_stats",
        "_disable_meta",
    ]
)


class InvalidSettings(UsageError, InvalidInput):
    """A setting has a name or a value that is not accepted; also a ``ValueError``, as W&B's is."""


class Settings:
    """What ``wandb.init`` is told, by W&B's names of fields; those that are not set have their defaults.

    Raises:
        InvalidSettings: a name or a value is not accepted.
    """

    def __init__(self, **fields: Any) -> None:
        vars(self)["_set"] = {}
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _DEFAULTS and name not in _WITHOUT_EFFECT:
            raise InvalidSettings(f"Settings.{name} = {value!r:.80} is not accepted: there is no such field")
        self._set[name] = _checked(name, value)

    def __getattr__(self, name: str) -> Any:
        own = vars(self).get("_set", {})
        if name in own:
            return own[name]
        if name in _DEFAULTS:
            return _DEFAULTS[name]
        if name in _WITHOUT_EFFECT:
            return None
        raise AttributeError(f"'Settings' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._set.items())})"

    @property
    def _offline(self) -> bool:
        return self.mode in ("offline", "dryrun")

    @property
    def _noop(self) -> bool:
        return bool(self.mode == "disabled")

    @property
    def files_dir(self) -> str:
        """The run's folder on this machine for its script's own files."""
        if self.x_files_dir:
            return str(self.x_files_dir)
        folder = Path(self.root_dir or ".").absolute() / "wandb" / f"run-{self.run_id}" / "files"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            folder = Path(tempfile.gettempdir()) / "wandb" / f"run-{self.run_id}" / "files"
            folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def copy(self) -> "Settings":
        """Settings with the same fields."""
        return self.merged({})

    model_copy = copy

    def merged(self, later: Mapping[str, Any]) -> "Settings":
        """These settings, with ``later`` fields instead of their own."""
        return Settings(**{**self._set, **later})

    def as_dict(self) -> dict[str, Any]:
        """The fields that are set."""
        return dict(self._set)


def settings_of_environment() -> dict[str, Any]:
    """The settings that ``WANDB_…`` variables name; those with no effect here are left out.

    Raises:
        InvalidSettings: a value is not accepted.
    """
    fields: dict[str, Any] = {}
    for variable, text in os.environ.items():
        if not variable.startswith(_ENVIRONMENT) or not text:
            continue
        name = variable.removeprefix(_ENVIRONMENT).lower()
        if name.startswith("_"):
            name = f"x{name}"  # W&B's private settings: WANDB__DISABLE_STATS is x_disable_stats.
        name = _SPECIAL_NAMES.get(variable, name)
        if name in _DEFAULTS:
            fields[name] = _of_text(name, text)
    if os.environ.get("WANDB_DISABLED", "").lower() in _TRUE:
        fields["mode"] = "disabled"
    return fields


def project_of(settings: Settings) -> str:
    """The project's name in the store."""
    return sanitize_name(settings.project or _NO_PROJECT, otherwise=_NO_PROJECT)


def _of_text(name: str, text: str) -> Any:
    if name == "run_tags":
        return tuple(part for part in text.split(",") if part)
    if name == "reinit" and text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    if name == "resume" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if isinstance(_DEFAULTS[name], bool) or name in _FLAGS:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise InvalidSettings(f"{name} = {text!r:.80} is not accepted: give true or false")
        return text.lower() in _TRUE
    return text


def _checked(name: str, value: Any) -> Any:
    """A field's value as it is kept.

    Raises:
        InvalidSettings: it is not accepted.
        UsageError: a run's id or a project has characters that W&B does not take.
    """
    if value is None:
        return _DEFAULTS.get(name)
    if name in _TEXTS and not isinstance(value, str):
        raise InvalidSettings(f"{name} = {value!r:.80} is not accepted: give a text")
    if name == "mode":
        _check_choice(name, value, _MODES)
    elif name == "resume":
        value = {True: "auto", False: None}.get(value, value)
        if value is not None:
            _check_choice(name, value, _RESUMES)
    elif name == "reinit" and not isinstance(value, bool):
        _check_choice(name, value, _REINITS)
    elif name in ("resume_from", "fork_from") and not _STEP_OF_RUN.fullmatch(str(value)):
        raise InvalidSettings(f"{name} = {value!r:.80} is not accepted: give RUN?_step=NUMBER")
    elif name == "run_tags":
        value = tuple(value)
        if problem := tag_problem(value):
            raise InvalidSettings(f"run_tags = {value!r:.200} is not accepted: {problem}")
    elif name == "run_id":
        _check_run_id(value)
    elif name == "project":
        _check_project(value)
    elif name == "root_dir":
        value = os.fspath(value)
    elif name == "x_stats_sampling_interval":
        value = _seconds(name, value)
    return value


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidSettings(f"{name} = {value!r:.80} is not accepted: give seconds")
    return seconds


def _check_choice(name: str, value: Any, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise InvalidSettings(f"{name} = {value!r:.80} is not accepted: give {', '.join(accepted)}")


def _check_run_id(run_id: str) -> None:
    if not run_id:
        raise UsageError("Run ID cannot be empty")
    if run_id != run_id.strip():
        raise UsageError("Run ID cannot start or end with whitespace")
    if any(character in run_id for character in ":;,#?/'"):
        raise UsageError("Run ID cannot contain the characters: :;,#?/'")


def _check_project(project: str) -> None:
    wrong = [character for character in "/\\#?%:" if character in project]
    if wrong:
        raise UsageError(
            f"Invalid project name {project!r}: cannot contain characters '/,\\,#,?,%,:',"
            f" found {','.join(map(repr, wrong))}"
        )
    if len(project) > 128:
        raise UsageError(f"Invalid project name {project!r}: exceeded 128 characters")
