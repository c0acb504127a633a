"""What W&B's files say of a run besides its history.

That is who trained it, when, with which config and on which machine, its summary, and how it ended.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halving.imports.foreign_run import Skipped
from halving.imports.step_values import NOT_JSON, number_of, parse_json
from halving.imports.wandb_messages import milliseconds
from halving.imports.wandb_values import HistoryValues, tree_of
from halving.ingest.values import is_key
from halving.records.redaction import without_password, without_secrets


@dataclass
class Facts:
    """Facts that are collected over the files of one run, in the order of their times.

    Attributes:
        run: W&B's latest record of the run.
        config: the config without W&B's own; a value that cannot be read is ``NOT_JSON``, as in ``summary``.
        summary: what W&B shows as the values of the whole run.
        logged: the first names of what the history has.
        exit_code: of the last file; None where it has none.
        started, last: ms since 1970; 0 where nothing says so.
    """

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    exit_code: int | None = None
    started: int = 0
    last: int = 0
    git: dict[str, Any] = field(default_factory=dict)
    python: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)

    def learn(self, record: Any) -> None:
        """Add what a record says."""
        if record.HasField("run"):
            self._learn_run(record.run)
        elif record.HasField("config"):
            _update(self.config, record.config)
        elif record.HasField("summary"):
            _update(self.summary, record.summary)
        elif record.HasField("environment"):
            self._learn_environment(record.environment)
        elif record.HasField("stats"):
            self.last = max(self.last, milliseconds(record.stats.timestamp))
        elif record.HasField("output_raw"):
            self.last = max(self.last, milliseconds(record.output_raw.timestamp))
        elif record.HasField("history"):
            self.last = max(self.last, logged_at(record.history) or 0)
            for item in record.history.item:
                self.logged.add([*item.nested_key, item.key][0])
        elif record.HasField("exit"):
            self.exit_code = record.exit.exit_code

    def learn_files(self, files: Path) -> None:
        """Add what the files beside the log say, if there are any: machine, packages and summary.

        The summary's file is written last.

        Raises:
            OSError: one is there and cannot be read; what a run was copied without never comes later.
        """
        self._learn_metadata(_json_of(files / "wandb-metadata.json"))
        self.summary |= _json_of(files / "wandb-summary.json")
        try:
            lines = (files / "requirements.txt").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return
        self.packages |= {
            name: version for name, mark, version in (line.partition("==") for line in lines) if mark
        }

    def params(self, skipped: Skipped) -> dict[str, Any]:
        """The config without W&B's own; values that cannot be read are null, and are counted."""
        config = {name: value for name, value in self.config.items() if name != "_wandb"}
        return {name: _without_unreadable(value, skipped) for name, value in config.items()}

    def summary_values(self, skipped: Skipped) -> dict[str, float]:
        """The summary's numbers and flags by their names, nested ones joined by ``/``.

        Anything else is counted, except the last values of the history, which are taken or counted with that.
        """
        values: dict[str, float] = {}
        for key, value in _leaves(
            {name: value for name, value in self.summary.items() if name not in HistoryValues.internal}
        ):
            number = _number_or_reason(key, value)
            if isinstance(number, float):
                values[key] = number
            elif key.partition("/")[0] not in self.logged:
                skipped.add(number)
        return values

    def provenance(self) -> dict[str, Any]:
        """Code, packages, machine and command, as :func:`halving.records.provenance.capture` has them."""
        facts = {"python": self.python, "packages": self.packages, "hardware": self.hardware}
        return {**facts, "git": self.git or None, "command": without_secrets(self.command, os.environ)}

    def _learn_run(self, run: Any) -> None:
        self.run = run
        self.started = self.started or milliseconds(run.start_time)
        _update(self.config, run.config)
        _update(self.summary, run.summary)
        if run.host:
            self.hardware["host"] = run.host
        self._learn_git(run.git.commit, run.git.remote_url)

    def _learn_environment(self, environment: Any) -> None:
        names = [gpu.name for gpu in environment.gpu_nvidia] or [environment.gpu_type] * environment.gpu_count
        facts = {
            "host": environment.host,
            "platform": environment.os,
            "cpus": environment.cpu_count_logical,
            "memory_bytes": environment.memory.total,
            "gpus": names,
        }
        self.hardware |= {name: value for name, value in facts.items() if value}
        self._learn_python(environment.python)
        self._learn_command(environment.executable, environment.program, list(environment.args))
        self._learn_git(environment.git.commit, environment.git.remote_url)

    def _learn_metadata(self, metadata: dict[str, Any]) -> None:
        gpus = [gpu.get("name") for gpu in _list(metadata.get("gpu_nvidia")) if isinstance(gpu, dict)]
        count = metadata.get("gpu_count")
        if not gpus and metadata.get("gpu") and isinstance(count, int):
            gpus = [str(metadata["gpu"])] * count
        memory = metadata.get("memory")
        total = ""
        if isinstance(memory, dict):
            total = str(memory.get("total", ""))
        if not total.isdigit():
            total = "0"
        facts = {
            "host": metadata.get("host"),
            "platform": metadata.get("os"),
            "cpus": metadata.get("cpu_count_logical"),
            "memory_bytes": int(total),
            "gpus": gpus,
        }
        self.hardware |= {name: value for name, value in facts.items() if value}
        self._learn_python(str(metadata.get("python") or ""))
        arguments = [str(argument) for argument in _list(metadata.get("args"))]
        self._learn_command(metadata.get("executable"), metadata.get("program"), arguments)
        git = metadata.get("git")
        if isinstance(git, dict):
            self._learn_git(git.get("commit"), git.get("remote"))

    def _learn_python(self, text: str) -> None:
        if text:
            implementation, _, version = text.rpartition(" ")
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
    """The time when a step was logged, in ms since 1970; None if it does not say."""
    for item in history.item:
        if (list(item.nested_key) or [item.key]) == ["_timestamp"]:
            time = tree_of([item])["_timestamp"]
            if isinstance(time, (int, float)) and 0 <= time < 1e11:
                return round(time * 1000)
            return None
    return None


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def _json_of(path: Path) -> dict[str, Any]:
    """Read the names and values of a JSON file; none if it is not there or damaged.

    The file is an artifact as well.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    value = parse_json(content.decode(errors="replace"))
    if isinstance(value, dict):
        return value
    return {}


def _without_unreadable(value: Any, skipped: Skipped) -> Any:
    """Replace what could not be read in a config's value by null, and count it."""
    if isinstance(value, dict):
        return {name: _without_unreadable(inner, skipped) for name, inner in value.items()}
    if value is NOT_JSON:
        skipped.add("values of configs that are not JSON")
        return None
    return value


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested dicts by names joined by ``/``, without nulls; a medium is one value."""
    for name, value in values.items():
        if isinstance(value, dict) and "_type" not in value:
            yield from _leaves(value, f"{prefix}{name}/")
        elif value is not None:
            yield f"{prefix}{name}", value


def _number_or_reason(key: str, value: Any) -> float | str:
    """Convert a summary's value to a number, or say why it is not taken."""
    if not is_key(key):
        return (
            "summary values with a name that is empty, longer than 256 characters or has control characters"
        )
    if value is NOT_JSON:
        return "values of summaries that are not JSON"
    try:
        number = number_of(value)
    except OverflowError:
        return "integers in summaries that a float64 does not hold"
    if number is not None:
        return number
    reasons: dict[type, str] = {str: "texts in summaries", list: "lists in summaries"}
    return reasons.get(type(value), "media in summaries")


def _update(tree: dict[str, Any], record: Any) -> None:
    """Apply a record of a config or a summary.

    An update has a value's whole new content, or that of a name inside of it.
    """
    tree.update(tree_of(item for item in record.update if not item.nested_key))
    for item in record.update:
        if item.nested_key:
            _merge(tree, tree_of([item]))
    for item in record.remove:
        _remove(tree, list(item.nested_key) or [item.key])


def _merge(into: dict[str, Any], tree: dict[str, Any]) -> None:
    for name, value in tree.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _remove(tree: dict[str, Any], names: list[str]) -> None:
    for name in names[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return
        tree = inner
    tree.pop(names[-1], None)
