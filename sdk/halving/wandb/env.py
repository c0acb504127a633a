"""The environment variables of W&B, by the names that scripts use; docs/wandb.md has those with an effect."""

import os
from collections.abc import MutableMapping

AGENT_DISABLE_FLAPPING = "WANDB_AGENT_DISABLE_FLAPPING"
AGENT_KILL_DELAY = "WANDB_AGENT_KILL_DELAY"
AGENT_MAX_INITIAL_FAILURES = "WANDB_AGENT_MAX_INITIAL_FAILURES"
AGENT_REPORT_INTERVAL = "WANDB_AGENT_REPORT_INTERVAL"
ANONYMOUS = "WANDB_ANONYMOUS"
API_KEY = "WANDB_API_KEY"
APP_URL = "WANDB_APP_URL"
ARGS = "WANDB_ARGS"
ARTIFACT_DIR = "WANDB_ARTIFACT_DIR"
ARTIFACT_FETCH_FILE_URL_BATCH_SIZE = "WANDB_ARTIFACT_FETCH_FILE_URL_BATCH_SIZE"
BASE_URL = "WANDB_BASE_URL"
CACHE_DIR = "WANDB_CACHE_DIR"
CONFIG_DIR = "WANDB_CONFIG_DIR"
CONFIG_PATHS = "WANDB_CONFIG_PATHS"
CORE_DEBUG = "WANDB_CORE_DEBUG"
CRASH_NOSYNC_TIME = "WANDB_CRASH_NOSYNC_TIME"
CREDENTIALS_FILE = "WANDB_CREDENTIALS_FILE"
DATA_DIR = "WANDB_DATA_DIR"
DEBUG = "WANDB_DEBUG"
DESCRIPTION = "WANDB_DESCRIPTION"
DIR = "WANDB_DIR"
DISABLE_CODE = "WANDB_DISABLE_CODE"
DISABLE_GIT = "WANDB_DISABLE_GIT"
DISABLE_SSL = "WANDB_INSECURE_DISABLE_SSL"
DOCKER = "WANDB_DOCKER"
ENABLE_DCGM_PROFILING = "WANDB_ENABLE_DCGM_PROFILING"
ENTITY = "WANDB_ENTITY"
ERROR_REPORTING = "WANDB_ERROR_REPORTING"
FILE_PUSHER_TIMEOUT = "WANDB_FILE_PUSHER_TIMEOUT"
GIT_COMMIT = "WANDB_GIT_COMMIT"
GIT_REMOTE_URL = "WANDB_GIT_REMOTE_URL"
GIT_ROOT = "WANDB_GIT_ROOT"
HOST = "WANDB_HOST"
HTTP_TIMEOUT = "WANDB_HTTP_TIMEOUT"
IDENTITY_TOKEN_FILE = "WANDB_IDENTITY_TOKEN_FILE"
IGNORE = "WANDB_IGNORE_GLOBS"
INITED = "WANDB_INITED"
INIT_TIMEOUT = "WANDB_INIT_TIMEOUT"
JOB_TYPE = "WANDB_JOB_TYPE"
JUPYTER = "WANDB_JUPYTER"
LAUNCH_QUEUE_ENTITY = "WANDB_LAUNCH_QUEUE_ENTITY"
LAUNCH_QUEUE_NAME = "WANDB_LAUNCH_QUEUE_NAME"
LAUNCH_TRACE_ID = "WANDB_LAUNCH_TRACE_ID"
MAGIC = "WANDB_MAGIC"
MODE = "WANDB_MODE"
NAME = "WANDB_NAME"
NOTEBOOK_NAME = "WANDB_NOTEBOOK_NAME"
NOTES = "WANDB_NOTES"
ORGANIZATION = "WANDB_ORGANIZATION"
PROGRAM = "WANDB_PROGRAM"
PROJECT = "WANDB_PROJECT"
QUIET = "WANDB_QUIET"
RESUME = "WANDB_RESUME"
RUN_DIR = "WANDB_RUN_DIR"
RUN_GROUP = "WANDB_RUN_GROUP"
RUN_ID = "WANDB_RUN_ID"
RUN_STORAGE_ID = "WANDB_RUN_STORAGE_ID"
SAVE_CODE = "WANDB_SAVE_CODE"
SERVICE = "WANDB_SERVICE"
SHOW_RUN = "WANDB_SHOW_RUN"
SILENT = "WANDB_SILENT"
SWEEP_ID = "WANDB_SWEEP_ID"
SWEEP_PARAM_PATH = "WANDB_SWEEP_PARAM_PATH"
TAGS = "WANDB_TAGS"
USERNAME = "WANDB_USERNAME"
USER_EMAIL = "WANDB_USER_EMAIL"
USE_V1_ARTIFACTS = "_WANDB_USE_V1_ARTIFACTS"
_EXECUTABLE = "WANDB_X_EXECUTABLE"


def is_offline() -> bool:
    """Whether the environment says ``offline``."""
    return os.environ.get(MODE) in ("offline", "dryrun")


def is_quiet() -> bool:
    """Whether the environment says that little is written."""
    return os.environ.get(QUIET, "").lower() in ("1", "true")


def is_silent() -> bool:
    """Whether the environment says that nothing is written."""
    return os.environ.get(SILENT, "").lower() in ("1", "true")


def get_project(default: str | None = None) -> str | None:
    """The project that the environment names."""
    return os.environ.get(PROJECT, default)


def get_entity(default: str | None = None) -> str | None:
    """The entity that the environment names."""
    return os.environ.get(ENTITY, default)


def get_run(default: str | None = None) -> str | None:
    """The run's id that the environment names."""
    return os.environ.get(RUN_ID, default)


def get_dir(default: str | None = None) -> str | None:
    """The folder that the environment names."""
    return os.environ.get(DIR, default)


def set_project(value: str, env: MutableMapping[str, str] | None = None) -> None:
    """Set the project of the runs that this process opens from now on."""
    _variables(env)[PROJECT] = value or "uncategorized"


def set_entity(value: str, env: MutableMapping[str, str] | None = None) -> None:
    """Set the entity of the runs that this process opens from now on."""
    _variables(env)[ENTITY] = value


def _variables(env: MutableMapping[str, str] | None) -> MutableMapping[str, str]:
    if env is None:
        return os.environ
    return env
