"""A run launcher that starts nothing, to measure what Dagster itself takes to launch a run."""

import time
from collections.abc import Mapping
from typing import Any, Self

from dagster import Field, Float
from dagster._core.launcher import LaunchRunContext, RunLauncher  # where every launcher has it from
from dagster._serdes import ConfigurableClass, ConfigurableClassData


class NoLaunch(RunLauncher, ConfigurableClass):
    """Waits as long as a cluster's API would, and leaves the run as starting.

    Args:
        seconds: for each run.
        inst_data: where it was configured.
    """

    def __init__(self, seconds: float, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__()
        self._seconds = seconds
        self._inst_data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"seconds": Field(Float, is_required=False, default_value=0.0)}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Self:
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        time.sleep(self._seconds)

    def terminate(self, run_id: str) -> bool:
        return False

    def join(self, timeout: int = 30) -> None:
        pass

    def can_terminate(self, run_id: str) -> bool:
        return False
