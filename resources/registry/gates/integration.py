"""The gate ``integration_tests``: the winner, exported as a folder that stands alone, passes the tests that
the spec names.
"""

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
from resources.evaluation.memory_limit import LOOK_SECONDS, Family, most_memory
from resources.evaluation.report import EvaluationReport
from resources.execution.child_environment import without_credentials
from resources.registry.artifacts import export_candidate
from resources.registry.gates.verdict import FAIL, PASS, Verdict
from resources.sweep_spec.gates import IntegrationTests

_SAID = 500  # characters of what a failed test has written


def judge_integration(gate: IntegrationTests, store: Store, report: dict[str, Any]) -> Verdict:
    """Export the winner into a temporary folder, and run the tests on it in a process of their own."""
    so_far = EvaluationReport(
        report, store.put_blob(json.dumps(report, sort_keys=True, indent=1).encode()), "", ""
    )
    with scratch_folder("candidate") as work:
        try:
            folder = export_candidate(store, so_far, work / "model")
        except Exception as error:  # noqa: BLE001
            # the predictor and the exporter are called, whose code may raise anything
            reason = f"the winner could not be exported: {type(error).__name__} at {where(error)}: {error}"
            return Verdict("integration_tests", FAIL, reason, gate.function)
        return _run(gate, folder, work / "said")


def _run(gate: IntegrationTests, folder: Path, said: Path) -> Verdict:
    command = [
        sys.executable,
        "-m",
        "resources.registry.gates.integration_process",
        gate.function,
        str(folder),
    ]
    most = most_memory(gate.memory, "integration_tests.memory")
    until = time.monotonic() + gate.seconds
    memory = MemoryKills()
    asked_by = subprocess.PIPE  # closed when this process ends, however it does
    with (
        said.open("wb") as output,
        subprocess.Popen(
            command,
            stdin=asked_by,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=without_credentials(os.environ),
        ) as process,
    ):
        family = Family(process.pid, with_itself=True)
        try:
            while (code := _ended(process)) is None:
                if time.monotonic() > until:
                    return _failed(
                        gate,
                        f"ended after {gate.seconds:g} seconds, the limit integration_tests.seconds",
                        said,
                    )
                if (held := family.memory()) > most.memory:
                    return _failed(
                        gate,
                        f"{most.exceeded(held)}: have it take fewer rows at a time, or raise the limit",
                        said,
                    )
        finally:
            with suppress(ProcessLookupError):  # with all that it has started
                os.killpg(process.pid, signal.SIGKILL)
    if code == 0:
        return Verdict(
            "integration_tests", PASS, f"{gate.function} passed on the exported model", gate.function
        )
    if code < 0:
        return _failed(
            gate,
            f"killed by {signal.Signals(-code).name}{memory.reason() if code == -signal.SIGKILL else ''}",
            said,
        )
    return _failed(gate, f"exit code {code}", said)


def _ended(process: "subprocess.Popen[bytes]") -> int | None:
    """Its exit code; None while it runs, after a moment."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(LOOK_SECONDS)
    return None


def _failed(gate: IntegrationTests, how: str, said: Path) -> Verdict:
    text = said.read_text(errors="replace").strip()[-_SAID:]
    return Verdict(
        "integration_tests",
        FAIL,
        f"{gate.function} failed, {how}{f': {text}' if text else ''}",
        gate.function,
    )
