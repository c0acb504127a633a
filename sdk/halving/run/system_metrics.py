"""The machine's load while a run trains: sampled by one daemon thread, logged as ``system/…``.

By psutil (extra ``system``):

================================  ===========================================================================
``system/cpu/percent``            percent of the CPUs that the process may use, 0-100
``system/memory/process``         bytes resident, this process only
``system/memory/used``            bytes, all processes
``system/memory/percent``         percent of the memory that the process may use, 0-100
``system/disk/used``              bytes, the file system of the working directory
``system/disk/read``, ``write``   bytes/s, all disks
``system/network/sent``,          bytes/s, all interfaces but the loopback
``system/network/received``
================================  ===========================================================================

Where a control group has a CPU quota or a memory limit (a container, a batch job) these are measured of that
group, else of the whole machine; the CPUs are those of the process's affinity.

By NVML (``nvidia-ml-py``, extra ``gpu``), for each GPU that the process may use, numbered as the process sees
them:

================================  ===========================================================================
``system/gpu.0/utilization``      percent of the time in which a kernel ran, 0-100
``system/gpu.0/memory_used``      bytes
``system/gpu.0/memory_percent``   percent, 0-100
``system/gpu.0/temperature``      °C
``system/gpu.0/power``            W
================================  ===========================================================================

And ``system/throughput``, samples/s, once :meth:`Throughput.add` was called, and where the time went
(:mod:`halving.run.time_shares`). The step is the time in Unix seconds.

In a gang, each rank samples its own GPU and its own time, and the first rank of each node samples the
machine. What rank 3 samples is named ``system/…/rank.3``; what rank 0 samples has no number behind it.
"""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from halving.errors import InvalidInput
from halving.records.hardware import cpu_quota, memory_limit, usable_cpus

_FIRST = 1.0  # seconds before the first sample: a shorter run imports nothing for it
_JOIN_SECONDS = 2.0  # seconds that stop() waits for a sensor that hangs
_MAX_PENDING = 4096  # calls of add() before their samples are summed up

Log = Callable[..., object]
"""Takes a dict of names and numbers, and ``step=``."""


class Throughput:
    """Samples per second, counted by :meth:`add` and read by :class:`SystemMetrics`.

    Where there are no system metrics, give ``log``: then ``add`` logs ``system/throughput`` itself, at most
    once per ``interval``. The clock starts with the first call, so that the time before the first batch
    (reading data, compiling) does not count.

    Args:
        log: the function that ``add`` logs with; None where :class:`SystemMetrics` logs the rate.
        interval: seconds between two points, with ``log``.
    """

    def __init__(self, log: Log | None = None, interval: float = 30.0) -> None:
        self._log = log
        self._interval = check_interval(interval)
        # Its append and popleft are atomic, so that it needs no lock, which a fork could leave locked.
        self._added: deque[float] = deque()
        self._since: float | None = None

    def add(self, samples: float) -> None:
        """Count samples that were processed. It costs a list append.

        Raises:
            InvalidInput: not a finite number, or below 0.
        """
        try:
            accepted = 0 <= samples < math.inf
        except (TypeError, ValueError, RuntimeError):
            accepted = False
        if not accepted:
            raise InvalidInput(f"samples {samples!r:.80} is not accepted: give a finite number of at least 0")
        if self._since is None:
            self._since = time.monotonic()
            return
        if len(self._added) >= _MAX_PENDING:
            # Nobody reads the rate, as in a forked child or while a sensor hangs.
            self._added.append(self._take())
        self._added.append(float(samples))
        if self._log is not None and time.monotonic() - self._since >= self._interval:
            self._log_rate(self._log)

    def rate(self) -> float | None:
        """Samples per second since the last call; None if that is less than a millisecond ago.

        The first call counts from the first ``add``, and returns None before it.
        """
        since = self._since
        now = time.monotonic()
        if since is None or now - since < 1e-3:
            return None
        self._since = now
        return self._take() / (now - since)

    def stop(self) -> None:
        """Log the rate since the last point, where this has a ``log``."""
        if self._log is not None and self._added:
            self._log_rate(self._log)

    def _take(self) -> float:
        total = 0.0
        with suppress(IndexError):  # The deque is empty.
            while True:
                total += self._added.popleft()
        return total

    def _log_rate(self, log: Log) -> None:
        rate = self.rate()
        if rate is not None:
            log({"system/throughput": rate}, step=int(time.time()))


class SystemMetrics:
    """Samples the machine's load in a thread until :meth:`stop`.

    It never raises into training: a sensor that fails is left out of that sample and tried again.

    The first sample is due 1 s after the start (or after ``interval``, if that is shorter), so that short
    runs import nothing. Rates and the CPU's percentage need two samples. A forked child does not sample.

    Args:
        log: called by the sampling thread.
        interval: seconds between samples.
        throughput: its rate is logged with each sample.
        shares: returns more values for each sample.
        machine: whether to sample the machine's CPU, memory of all processes, disk and network.
        gpu: the only one of the visible GPUs that is sampled; None for all.
        name: names the thread: ``halving-system-NAME``.

    Raises:
        InvalidInput: the interval is not a number of seconds above 0.
    """

    def __init__(
        self,
        log: Log,
        interval: float = 30.0,
        *,
        throughput: Throughput | None = None,
        shares: Callable[[], dict[str, float]] | None = None,
        machine: bool = True,
        gpu: int | None = None,
        name: str = "metrics",
    ) -> None:
        self._log = log
        self._interval = check_interval(interval)
        self._throughput = throughput
        self._shares = shares
        self._ended = threading.Event()
        self._process = os.getpid()
        self._abandoned = False
        self._machine = _Machine(only_process=not machine)
        self._gpus = _Gpus(gpu)
        self._thread = threading.Thread(
            target=self._sample_until_stopped, name=f"halving-system-{name}", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:  # The system has no more threads, or Ctrl-C came.
            self._ended.set()
            raise

    def stop(self) -> None:
        """End the thread after a last sample, if there was a first one; wait at most 2 s for it."""
        if os.getpid() != self._process or self._thread is threading.current_thread():
            return
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)
        self._abandoned = True

    def _sample_until_stopped(self) -> None:
        first = min(_FIRST, self._interval)
        wait = first
        sampled = None
        while not self._ended.wait(wait):
            self._sample()
            wait = self._interval
            sampled = time.monotonic()
        # A rate over less time is noise.
        if sampled is not None and time.monotonic() - sampled >= first:
            self._sample()

    def _sample(self) -> None:
        with suppress(Exception):  # Training goes on without this sample.
            values = self._machine.read() | self._gpus.read()
            if self._throughput is not None and (rate := self._throughput.rate()) is not None:
                values["system/throughput"] = rate
            if self._shares is not None:
                values |= self._shares()
            if values and not self._abandoned:
                self._log(values, step=int(time.time()))


class _Machine:
    """CPU, memory, disk and network, by psutil."""

    def __init__(self, *, only_process: bool = False) -> None:
        self._only_process = only_process
        self._counters: dict[str, tuple[float, float]] = {}  # when each was last read, and its value
        self._primed = False

    def read(self) -> dict[str, float]:
        try:
            import psutil
        except ImportError:
            return {}
        values: dict[str, float] = {}
        sensors = [self._process]
        if not self._only_process:
            sensors += [self._cpu, self._memory, self._disk_space, self._disk, self._network]
        for sensor in sensors:
            with suppress(Exception):  # It is left out of this sample and tried again with the next.
                values |= sensor(psutil)
        return values

    def _cpu(self, psutil: Any) -> dict[str, float]:
        quota = cpu_quota()
        if quota is not None:
            limit, group = quota
            used = self._rates({"system/cpu/percent": group.cpu_seconds()})
            return {name: 100 * cpus / min(limit, usable_cpus()) for name, cpus in used.items()}
        percents = psutil.cpu_percent(None, percpu=True)
        if not self._primed:
            self._primed = True
            return {}  # The first call has nothing to compare with, and its result is 0.
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(percents))
        # LXC shows a container only its own CPUs, numbered from 0, while its affinity has the machine's
        # numbers.
        if max(allowed) < len(percents):
            percents = [percents[cpu] for cpu in allowed]
        return {"system/cpu/percent": sum(percents) / len(percents)}

    def _memory(self, psutil: Any) -> dict[str, float]:
        limited = memory_limit()
        if limited is not None:
            limit, group = limited
            used = group.memory_used()
            return {"system/memory/used": float(used), "system/memory/percent": 100 * used / limit}
        memory = psutil.virtual_memory()
        return {"system/memory/used": float(memory.used), "system/memory/percent": float(memory.percent)}

    def _process(self, psutil: Any) -> dict[str, float]:
        return {"system/memory/process": float(psutil.Process().memory_info().rss)}

    def _disk_space(self, psutil: Any) -> dict[str, float]:
        return {"system/disk/used": float(psutil.disk_usage(".").used)}

    def _disk(self, psutil: Any) -> dict[str, float]:
        counters = psutil.disk_io_counters()
        if counters is None:  # No disk has counters, as in some containers.
            return {}
        return self._rates(
            {"system/disk/read": counters.read_bytes, "system/disk/write": counters.write_bytes}
        )

    def _network(self, psutil: Any) -> dict[str, float]:
        outward = [
            counters
            for name, counters in psutil.net_io_counters(pernic=True).items()
            if not name.lower().startswith("lo")
        ]
        sent = sum(counters.bytes_sent for counters in outward)
        received = sum(counters.bytes_recv for counters in outward)
        return self._rates({"system/network/sent": sent, "system/network/received": received})

    def _rates(self, counters: dict[str, float]) -> dict[str, float]:
        """The rate of each counter per second since the last sample.

        There is none for a counter that fell, because an interface was removed.
        """
        now = time.monotonic()
        rates = {}
        for name, counter in counters.items():
            before = self._counters.get(name)
            self._counters[name] = (now, counter)
            if before is not None and now > before[0] and counter >= before[1]:
                rates[name] = (counter - before[1]) / (now - before[0])
        return rates


class _Gpus:
    """The GPUs that this process may use, by NVML."""

    def __init__(self, only: int | None = None) -> None:
        self._only = only
        self._handles: list[Any] | None = None  # None: not opened yet, or no longer valid

    def read(self) -> dict[str, float]:
        try:
            import pynvml
        except ImportError:
            return {}
        if self._handles is None:
            try:
                pynvml.nvmlInit()
                self._handles = _visible_handles(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
            except Exception:  # noqa: BLE001
                # There is no driver, or it is being replaced; the next sample tries again.
                return {}
        values: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            if self._only is not None and number != self._only:
                continue
            for sensor in (_utilization, _gpu_memory, _temperature, _power):
                with suppress(Exception):  # It is left out of this sample and tried again with the next.
                    values |= sensor(pynvml, handle, f"system/gpu.{number}")
        if self._handles and not values:
            self._handles = None  # The driver was reloaded, and the handles are no longer valid.
        return values


def _visible_handles(nvml: Any, listed: str | None) -> list[Any]:
    """The handles of the GPUs named by ``CUDA_VISIBLE_DEVICES``, in its order.

    It is read as CUDA reads it: entries are numbers or beginnings of UUIDs (``GPU-…``, ``MIG-…``). An entry
    that names no GPU ends the list, and a GPU that is named twice makes none visible. NVML numbers GPUs by
    their place on the bus, CUDA the fastest first. On a machine with different GPUs the numbers agree only
    under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    """
    count = nvml.nvmlDeviceGetCount()
    if listed is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    chosen: list[str] = []
    uuids: dict[str, int] = {}
    for entry in (part.strip() for part in listed.split(",")):
        name = ""
        if entry.startswith("MIG-"):  # NVML accepts only the complete name.
            name = entry
        elif entry.startswith("GPU-"):
            uuids = uuids or {_uuid_of(nvml, index): index for index in range(count)}
            matches = [uuid for uuid in uuids if uuid.startswith(entry)]
            if len(matches) == 1:
                name = str(uuids[matches[0]])
        elif entry.isdecimal() and int(entry) < count:
            name = entry
        if not name:
            break
        if name in chosen:
            return []
        chosen.append(name)
    return [_handle_of(nvml, name) for name in chosen]


def _handle_of(nvml: Any, name: str) -> Any:
    """The handle of a GPU by its number, or of a part of one (MIG) by its UUID."""
    if name.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(name)
    return nvml.nvmlDeviceGetHandleByIndex(int(name))


def _uuid_of(nvml: Any, index: int) -> str:
    uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)  # Older versions return bytes.


def _utilization(nvml: Any, handle: Any, prefix: str) -> dict[str, float]:
    return {f"{prefix}/utilization": float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)}


def _gpu_memory(nvml: Any, handle: Any, prefix: str) -> dict[str, float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        f"{prefix}/memory_used": float(memory.used),
        f"{prefix}/memory_percent": 100 * memory.used / memory.total,
    }


def _temperature(nvml: Any, handle: Any, prefix: str) -> dict[str, float]:
    try:
        degrees = nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)
    except (AttributeError, nvml.NVMLError):
        # Older bindings and drivers have only the older call.
        degrees = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    return {f"{prefix}/temperature": float(degrees)}


def _power(nvml: Any, handle: Any, prefix: str) -> dict[str, float]:
    return {f"{prefix}/power": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}  # mW


def check_interval(interval: float) -> float:
    """Check the seconds between two samples.

    Raises:
        InvalidInput: not a number above 0.
    """
    if isinstance(interval, bool) or not isinstance(interval, (int, float)) or not 0 < interval < math.inf:
        raise InvalidInput(
            f"system_metrics {interval!r:.80} is not accepted: give the seconds between two samples, above "
            "0, or None"
        )
    return min(float(interval), threading.TIMEOUT_MAX)
