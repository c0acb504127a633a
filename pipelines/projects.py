"""Jobs that set and rename projects from Dagster's UI; ``halving projects`` has the same."""

from typing import Any

import dagster as dg
from pydantic import Field

from assets.events import expected_failures
from resources.backend import Backend
from resources.tenancy import projects


class ProjectChange(dg.Config):
    """A project, and the settings to change; those that are left out stay."""

    project: str = Field(
        description=(
            "The project's name; * is all projects together, of which only max_trials and max_gpus are set."
        )
    )
    owners: list[str] | None = Field(default=None, description="Who is responsible for it; [] is nobody.")
    weight: float | None = Field(
        default=None, description="Its share beside the others': 2 is twice that of 1."
    )
    max_trials: int | None = Field(default=None, description="Most trials at a time; -1: no limit.")
    max_gpus: int | None = Field(default=None, description="Most GPUs at a time; -1: no limit.")
    gpu_hours: float | None = Field(
        default=None, description="Most hours of one GPU in a calendar month (UTC); -1: no limit."
    )
    unset: bool = Field(
        default=False, description="First take back all that was set of it: its owners, weight and quotas."
    )
    rename_to: str | None = Field(
        default=None,
        description="What it is called from now on; its trials go on, its runs stay where they are.",
    )


@dg.op
def change_project(context: dg.OpExecutionContext, config: ProjectChange, backend: Backend) -> None:
    """Unset a project's settings (``unset``), set those in the config, and then rename it (``rename_to``)."""
    settings: dict[str, Any] = {}
    limits = {"max_trials": config.max_trials, "max_gpus": config.max_gpus, "gpu_hours": config.gpu_hours}
    for name, limit in limits.items():
        if limit == -1:
            settings[name] = None
        elif limit is not None:
            settings[name] = limit
    if config.owners is not None:
        settings["owners"] = config.owners
    if config.weight is not None:
        settings["weight"] = config.weight
    with expected_failures():
        if config.unset:
            projects.unset_project(backend.catalog, config.project)
        # A config that changes nothing is refused by set_project.
        if settings or (config.rename_to is None and not config.unset):
            projects.set_project(backend.catalog, config.project, **settings)
        if config.rename_to is not None:
            projects.rename_project(backend.catalog, config.project, config.rename_to)
        lines = {line.name: line for line in projects.list_projects(backend.catalog)}
    line = lines.get(config.rename_to or config.project)
    if line:
        context.log.info(f"project {line.name}: {line.as_dict()}")
    else:
        context.log.info(f"nothing is set for project {config.project} any more")


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Set a project's owners, weight and quotas, take them back, or rename it; trials that run go on."
    ),
)
def set_project() -> None:
    change_project()
