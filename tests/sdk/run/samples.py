"""Samples of system metrics for tests, and an NVML with GPUs that stand in for real ones."""

import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from halving.run.system_metrics import SystemMetrics
from tests.waiting import wait_for

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]


MIG = "MIG-7f0c"


class Logged:
    """What was logged, and on which thread."""

    def __init__(self) -> None:
        self.samples: list[tuple[dict[str, float], int]] = []
        self.threads: set[str] = set()

    def __call__(self, values: dict[str, float], *, step: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.samples.append((dict(values), step))

    @property
    def last(self) -> dict[str, float]:
        return self.samples[-1][0]


class FakeNvml(ModuleType):
    """``pynvml`` as on a machine with three GPUs; each reading can be broken."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.broken: set[str] = set()
        self.started = 0

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.broken or "everything" in self.broken:
            raise self.NVMLError(name)
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self._answer("init", None)
        self.started += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != MIG:
            raise self.NVMLError("not found")
        return 10

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return UUIDS[handle]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return self._answer("utilization", SimpleNamespace(gpu=10 + handle))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return self._answer("memory", SimpleNamespace(used=2**30 * (1 + handle), total=2**32))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return self._answer("temperature", 40 + handle)  # type: ignore[no-any-return]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return self._answer("power", 250_500)  # type: ignore[no-any-return]


def wait_until(reached: Callable[[], bool]) -> None:
    wait_for(reached, 30, "what is logged", every=0.005)


def sample(log: Logged, sampling: Callable[..., SystemMetrics], count: int = 1) -> dict[str, float]:
    """Take ``count`` samples and give the last one."""
    metrics = sampling(log, 0.02)
    wait_until(lambda: len(log.samples) >= count)
    metrics.stop()
    return log.samples[count - 1][0]
