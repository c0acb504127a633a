"""What W&B's files say of a run besides its history: who, when, with which config, on which machine, and how it ended."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halving.imports.step_values import NOT_JSON
from halving.imports.wandb_messages import milliseconds
from halving.imports.wandb_values import tree_of
from halving.records.redaction import without_password, without_secrets


@dataclass
class Facts:
    """Gathered over the files of one run, in the order of their times.

    Attributes:
        run: W&B's record of it, the latest.
        config: without W&B's own.
        exit_code: of the last file; None where it has none.
        started, last: ms since 1970; 0 where nothing says so.
    """

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    started: int = 0
    last: int = 0
    git: dict[str, Any] = field(default_factory=dict)
    python: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)

    def learn(self, record: Any) -> None:
        """Take what a record says."""
        if record.HasField("run"):
            self._learn_run(record.run)
        elif record.HasField("config"):
            self._learn_config(record.config)
        elif record.HasField("environment"):
            self._learn_environment(record.environment)
        elif record.HasField("stats"):
            self.last = max(self.last, milliseconds(record.stats.timestamp))
        elif record.HasField("output_raw"):
            self.last = max(self.last, milliseconds(record.output_raw.timestamp))
        elif record.HasField("history"):
            self.last = max(self.last, logged_at(record.history) or 0)
        elif record.HasField("exit"):
            self.exit_code = record.exit.exit_code

    def learn_files(self, files: Path) -> None:
        """Take what the files beside the log say: ``wandb-metadata.json`` and ``requirements.txt``, if they are there.

        Raises:
            OSError: one is there and cannot be read; what a run was copied without never comes later.
        """
        try:
            said = json.loads((files / "wandb-metadata.json").read_bytes())
        except (FileNotFoundError, ValueError):  # it is an artifact as well, so nothing is lost
            said = None
        if isinstance(said, dict):
            self._learn_metadata(said)
        try:
            lines = (files / "requirements.txt").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return
        self.packages |= {name: version for name, mark, version in (line.partition("==") for line in lines) if mark}

    def provenance(self) -> dict[str, Any]:
        found = {"python": self.python, "packages": self.packages, "hardware": self.hardware}
        return {**found, "git": self.git or None, "command": without_secrets(self.command, os.environ)}

    def _learn_run(self, run: Any) -> None:
        self.run = run
        self.started = self.started or milliseconds(run.start_time)
        self._learn_config(run.config)
        if run.host:
            self.hardware["host"] = run.host
        self._learn_git(run.git.commit, run.git.remote_url)

    def _learn_config(self, config: Any) -> None:
        """An update says a value's whole new content, or that of a name inside of it."""
        for name, value in tree_of(item for item in config.update if not item.nested_key).items():
            self.config[name] = _plain(value)
        for item in config.update:
            if item.nested_key:
                _merge(self.config, tree_of([item]))
        for item in config.remove:
            _remove(self.config, list(item.nested_key) or [item.key])
        self.config.pop("_wandb", None)

    def _learn_environment(self, said: Any) -> None:
        names = [gpu.name for gpu in said.gpu_nvidia] or [said.gpu_type] * said.gpu_count
        known = {"host": said.host, "platform": said.os, "cpus": said.cpu_count_logical, "memory_bytes": said.memory.total, "gpus": names}
        self.hardware |= {name: value for name, value in known.items() if value}
        self._learn_python(said.python)
        self._learn_command(said.executable, said.program, list(said.args))
        self._learn_git(said.git.commit, said.git.remote_url)

    def _learn_metadata(self, said: dict[str, Any]) -> None:
        gpus = [gpu.get("name") for gpu in _list(said.get("gpu_nvidia")) if isinstance(gpu, dict)]
        count = said.get("gpu_count")
        if not gpus and said.get("gpu") and isinstance(count, int):
            gpus = [str(said["gpu"])] * count
        memory = said.get("memory")
        total = str(memory.get("total", "")) if isinstance(memory, dict) else ""
        known = {
            "host": said.get("host"),
            "platform": said.get("os"),
            "cpus": said.get("cpu_count_logical"),
            "memory_bytes": int(total) if total.isdigit() else None,
            "gpus": gpus,
        }
        self.hardware |= {name: value for name, value in known.items() if value}
        self._learn_python(str(said.get("python") or ""))
        self._learn_command(said.get("executable"), said.get("program"), [str(one) for one in _list(said.get("args"))])
        git = said.get("git")
        if isinstance(git, dict):
            self._learn_git(git.get("commit"), git.get("remote"))

    def _learn_python(self, said: str) -> None:
        if said:
            implementation, _, version = said.rpartition(" ")
            self.python = {"version": version, "implementation": implementation or "CPython"}

    def _learn_command(self, executable: Any, program: Any, arguments: list[str]) -> None:
        if program:
            self.command = [str(part) for part in (executable, program) if part] + arguments

    def _learn_git(self, commit: Any, remote: Any) -> None:
        if commit:
            self.git["commit"] = str(commit)
        if remote:
            self.git["remote"] = without_password(str(remote))


def logged_at(history: Any) -> int | None:
    """When a step was logged, in ms since 1970; None where it does not say."""
    for item in history.item:
        if (list(item.nested_key) or [item.key]) == ["_timestamp"]:
            time = tree_of([item])["_timestamp"]
            return round(time * 1000) if isinstance(time, (int, float)) and 0 <= time < 1e11 else None
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _plain(value: Any) -> Any:
    """A config's value, without what could not be read."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if value is NOT_JSON else value


def _merge(into: dict[str, Any], tree: dict[str, Any]) -> None:
    for name, value in tree.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = _plain(value)


def _remove(tree: dict[str, Any], names: list[str]) -> None:
    for name in names[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return
        tree = inner
    tree.pop(names[-1], None)
