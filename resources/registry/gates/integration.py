"""The gate ``integration_tests``: the winner, exported as a folder, passes the tests that the spec names."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from halving import Store
from halving.machine.temporary_folders import scratch_folder
from halving.records.memory_kills import MemoryKills
from halving.trial.import_string import where
from resources.evaluation.memory_limit import LOOK_SECONDS, Family, memory_limit_of
from resources.evaluation.report import EvaluationReport
from resources.execution.child_environment import without_credentials
from resources.registry.artifacts import export_candidate
from resources.registry.gates.verdict import FAIL, PASS, Verdict
from resources.sweep_spec.gates import IntegrationTests

MAX_OUTPUT_IN_REASON = 500  # characters, the last that a failed test has written


def judge_integration(gate: IntegrationTests, store: Store, report: dict[str, Any]) -> Verdict:
    """Export the winner into a temporary folder, and run the tests on it in a process of their own."""
    so_far = EvaluationReport(
        report, store.put_blob(json.dumps(report, sort_keys=True, indent=1).encode()), "", ""
    )
    with scratch_folder("candidate") as work:
        try:
            folder = export_candidate(store, so_far, work / "model")
        except Exception as error:  # noqa: BLE001
            # The code of the predictor and the exporter is called, which may raise anything.
            reason = f"the winner could not be exported: {type(error).__name__} at {where(error)}: {error}"
            return Verdict("integration_tests", FAIL, reason, gate.function)
        return _run(gate, folder, work / "output")


def _run(gate: IntegrationTests, folder: Path, output: Path) -> Verdict:
    command = [
        sys.executable,
        "-m",
        "resources.registry.gates.integration_process",
        gate.function,
        str(folder),
    ]
    limit = memory_limit_of(gate.memory, "integration_tests.memory")
    until = time.monotonic() + gate.seconds
    memory = MemoryKills()
    with (
        output.open("wb") as file,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # However this process ends, the pipe is closed, and so the child ends.
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=without_credentials(os.environ),
        ) as process,
    ):
        family = Family(process.pid, with_itself=True)
        try:
            while (code := _wait_briefly(process)) is None:
                if time.monotonic() > until:
                    how = f"ended after {gate.seconds:g} seconds, the limit integration_tests.seconds"
                    return _fail(gate, how, output)
                if (size := family.memory()) > limit.memory:
                    how = f"{limit.excess(size)}: have it take fewer rows at a time, or raise the limit"
                    return _fail(gate, how, output)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # The group includes all that the tests have started.
    if code == 0:
        return Verdict(
            "integration_tests", PASS, f"{gate.function} passed on the exported model", gate.function
        )
    if code < 0:
        how = f"killed by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += memory.reason()
        return _fail(gate, how, output)
    return _fail(gate, f"exit code {code}", output)


def _wait_briefly(process: "subprocess.Popen[bytes]") -> int | None:
    """Wait a moment for a process to end; its exit code, or None while it still runs."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(LOOK_SECONDS)
    return None


def _fail(gate: IntegrationTests, how: str, output: Path) -> Verdict:
    reason = f"{gate.function} failed, {how}"
    if text := output.read_text(errors="replace").strip()[-MAX_OUTPUT_IN_REASON:]:
        reason += f": {text}"
    return Verdict("integration_tests", FAIL, reason, gate.function)
