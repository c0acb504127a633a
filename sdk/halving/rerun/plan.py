"""Planning a rerun from a run's record, with the facts that the record lacks."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from halving.errors import InvalidInput
from halving.query.runs import RunInfo
from halving.records.command import script_at
from halving.records.provenance import CHECKOUT
from halving.records.redaction import HIDDEN
from halving.records.run_record import SavedCheckpoint
from halving.rerun.factors import Difference, resized_attempts
from halving.rerun.image import ImagePlan, image_plan, missing_for_pod
from halving.run.determinism import VARIABLES

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_KERNELS = ("ipykernel_launcher", "ipykernel", "colab_kernel_launcher")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a rerun.

    Attributes:
        name: ``project/run`` of the recorded run.
        ended: its status.
        commit, patch: those of its code; the patch is a blob's digest, or None. A trial of a pod has no
            commit, but an image.
        image: the pod of an image in which a trial can be trained again; None without one.
        folder: the folder of its process, within the checkout.
        import_paths: folders of the checkout from which Python imports.
        variables: environment variables of its process; None for one that was not set.
        trial: the context of a trial in its record, else None.
        trainable: ``module:function`` of a trial.
        arguments: the interpreter's arguments of a script.
        ordinal: the number of this run among those of its script.
        epochs: the epochs that a trial was trained for.
        environment: interpreter, packages, machine, as recorded.
        changed: factors that are not the recorded run's, in a rerun that measures their effect.
        incomplete: parts of the code that the record lacks, so that a worktree cannot restore them.
    """

    name: str
    ended: str
    commit: str | None
    patch: str | None
    folder: str
    import_paths: tuple[str, ...]
    remote: str | None
    variables: Mapping[str, str | None]
    params: Mapping[str, Any]
    seed: int | None
    deterministic: bool
    trial: Mapping[str, Any] | None = None
    trainable: str | None = None
    parent: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    ordinal: int = 1
    threads: int | None = None
    epochs: int = 0
    image: ImagePlan | None = None
    environment: Mapping[str, Any]
    incomplete: tuple[Difference, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def parent_of_rerun(self) -> dict[str, Any]:
        """Entries on this rerun for the parent in the new run's record."""
        entries: dict[str, Any] = {"rerun_of": self.name}
        if self.changed:
            entries["changed"] = list(self.changed)
        return entries

    @property
    def python(self) -> str:
        """The recorded Python's minor version, such as ``3.11``; empty where the record has none."""
        return ".".join(str((self.environment.get("python") or {}).get("version") or "").split(".")[:2])

    @property
    def dataset(self) -> tuple[str, str] | None:
        """Name and digest of the snapshot; None for a script, whose data is not recorded."""
        if not self.trial:
            return None
        return self.trial["dataset_name"], self.trial["dataset_digest"]


def plan_of(info: RunInfo, newest: SavedCheckpoint | None) -> Plan:
    """Plan a rerun by the record of a run's first attempt.

    Args:
        newest: its newest checkpoint.

    Raises:
        InvalidInput: the record lacks something that a rerun needs.
    """
    record = info.record
    name = f"{info.project}/{info.run}"
    provenance = record.get("provenance") or {}
    git = provenance.get("git") or {}
    trial = record.get("trial")
    imported = info.parent.get("imported")
    if imported:
        raise _refusal(name, f"it was imported from {imported.get('tool')}, which recorded no code of it")
    in_image = trial is not None and bool(provenance.get("image"))
    missing: str | None = "its code is not recorded: it did not run in a git checkout that has a commit"
    if in_image:
        missing = missing_for_pod(info)
    if missing and not git.get("commit"):
        raise _refusal(name, missing)
    arguments: tuple[str, ...] = ()
    if trial is None:
        arguments = tuple(provenance.get("arguments") or ())
    if git.get("commit"):
        _check_names(name, git, [*(provenance.get("packages_from") or {}).values(), *arguments])
    if trial is None and "ordinal" not in record:
        raise _refusal(
            name,
            "its record does not say how it was started: it was made over HTTP, or by an earlier version of "
            "halving",
        )
    if trial is not None and newest is None:
        raise _refusal(name, "it has no checkpoint, so that nothing says how far it was trained")
    is_kernel = any(kernel in part for part in arguments[:2] for kernel in _KERNELS)
    if trial is None and (not arguments or is_kernel):
        raise _refusal(name, "it ran in a notebook or an interactive session; a rerun needs a script")
    processes = record.get("one_of")
    if processes:
        raise _refusal(
            name,
            f"it was begun in one of {processes}, and only a script that is started by itself can be started "
            "again",
        )
    determinism = record.get("determinism") or {}
    epochs = 0
    if newest is not None:
        epochs = newest.epoch
    image = None
    if in_image and not missing:
        image = image_plan(info)
    return Plan(
        name=name,
        ended=info.status,
        commit=git.get("commit"),
        patch=git.get("patch"),
        folder=git.get("folder") or ".",
        import_paths=tuple(git.get("import_paths") or ()),
        remote=git.get("remote"),
        variables={variable: determinism.get(variable) for variable in VARIABLES},
        params=record["params"],
        seed=record.get("seed"),
        deterministic=bool(determinism.get("deterministic")),
        trial=trial,
        trainable=info.parent.get("trainable"),
        parent={key: info.parent[key] for key in _KEPT if key in info.parent},
        arguments=arguments,
        ordinal=int(record.get("ordinal") or 1),
        threads=determinism.get("torch.threads"),
        epochs=epochs,
        image=image,
        environment=provenance,
        incomplete=tuple(_incomplete(info, git, arguments)),
    )


# Entries of a trial's parent that are the rerun's as well, unlike its sweep and its number.
_KEPT = ("trainable", "dataset", "snapshot", "spec", "restored_from")


def _check_names(name: str, git: Mapping[str, Any], origins: Iterable[str]) -> None:
    """Check that facts which become part of a command or a path are a commit or folders of the checkout."""
    if not _COMMIT.fullmatch(git["commit"]):
        raise _refusal(name, f"commit = {git['commit']!r:.80} in its record is no commit")
    inside = [origin.rpartition(CHECKOUT)[2] for origin in origins if CHECKOUT in origin]
    for folder in (git.get("folder") or ".", *(git.get("import_paths") or ()), *inside):
        path = PurePosixPath(folder)
        if path.is_absolute() or ".." in path.parts:
            raise _refusal(name, f"the folder {folder!r:.80} in its record is not within the checkout")


def _incomplete(info: RunInfo, git: Mapping[str, Any], arguments: tuple[str, ...]) -> list[Difference]:
    differences = [
        Difference("code", entry["path"], _left_out(entry), None) for entry in git.get("left_out") or []
    ]
    more = git.get("left_out_count", 0) - len(differences)
    if more:
        differences.append(Difference("code", f"{more} more files", "not recorded", None))
    hidden = git.get("patch_redacted")
    if hidden:
        differences.append(
            Difference(
                "code",
                f"{hidden} changed lines",
                "with a secret that was hidden",
                f"with {HIDDEN} in its place",
            )
        )
    if git.get("dirty") is None:
        differences.append(
            Difference("code", "changes over the commit", f"unknown: {git.get('error')}", "none")
        )
    if any(HIDDEN in argument for argument in arguments):
        differences.append(
            Difference("code", "the command", "with a secret that was hidden", f"with {HIDDEN} in its place")
        )
    place = script_at(arguments)
    if place is not None and _is_outside(git.get("folder") or ".", arguments[place]):
        differences.append(
            Difference("code", arguments[place], "not in the checkout, so not recorded", "as it is there now")
        )
    for number, start in info.starts.items():
        later = (start.get("provenance") or {}).get("git") or {}
        if (later.get("commit"), later.get("patch")) != (git.get("commit"), git.get("patch")):
            differences.append(
                Difference(
                    "code",
                    f"attempt {number}",
                    f"of commit {later.get('commit')}, or of other changes",
                    "of attempt 1",
                )
            )
    return [*differences, *resized_attempts(info)]


def _left_out(entry: Mapping[str, Any]) -> str:
    if entry["path"].endswith("/"):
        return "a repository with changes of its own, not recorded"
    return f"{entry['bytes']} bytes, not recorded"


def _is_outside(folder: str, script: str) -> bool:
    return PurePosixPath(script).is_absolute() or os.path.normpath(f"{folder}/{script}").split("/")[0] == ".."


def _refusal(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"run {name} cannot be trained again: {why}")
