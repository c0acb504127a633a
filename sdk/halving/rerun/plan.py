"""From a run's record to what has to be brought back to train it again; and what of it the record does not
have.
"""

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
from halving.rerun.image import ImagePlan, image_plan, lacks
from halving.run.determinism import VARIABLES

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_KERNELS = ("ipykernel_launcher", "ipykernel", "colab_kernel_launcher")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run is trained again.

    Attributes:
        name: ``project/run`` of the recorded run.
        ended: its status.
        commit, patch: of its code; the patch is a blob's digest, or None. A trial of a pod has no commit, but
            an image.
        image: of a trial the pod of an image in which it can be trained again; None where there is none.
        folder: where it ran, within the checkout.
        import_paths: folders of the checkout that Python imports from.
        variables: environment variables that its process had, or had not (None).
        trial: of a trial what its record has of its context, else None.
        trainable: of a trial ``module:function``.
        arguments: of a script those of the interpreter.
        ordinal: of a script, which of its runs this was.
        epochs: of a trial, how far it was trained.
        environment: interpreter, packages, machine, as recorded.
        changed: factors that are not the recorded run's, in a rerun that asks what they do.
        incomplete: what of the code the record does not have, so that a worktree cannot bring it back.
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
        """What the record of the new run says of where it comes from."""
        return {"rerun_of": self.name, **({"changed": list(self.changed)} if self.changed else {})}

    @property
    def python(self) -> str:
        """The recorded Python's minor version, such as ``3.11``; empty where the record has none."""
        return ".".join(str((self.environment.get("python") or {}).get("version") or "").split(".")[:2])

    @property
    def dataset(self) -> tuple[str, str] | None:
        """Name and digest of the snapshot; None of a script, whose data the record does not have."""
        return (self.trial["dataset_name"], self.trial["dataset_digest"]) if self.trial else None


def plan_of(info: RunInfo, newest: SavedCheckpoint | None) -> Plan:
    """What has to be brought back of a run, by its first attempt.

    Args:
        newest: its newest checkpoint.

    Raises:
        InvalidInput: the record does not have what a rerun needs.
    """
    record = info.record
    name = f"{info.project}/{info.run}"
    provenance = record.get("provenance") or {}
    git = provenance.get("git") or {}
    trial = record.get("trial")
    if imported := info.parent.get("imported"):
        raise _refused(name, f"it was imported from {imported.get('tool')}, which recorded no code of it")
    in_image = trial is not None and bool(provenance.get("image"))
    lacking = (
        lacks(info)
        if in_image
        else "its code is not recorded: it did not run in a git checkout that has a commit"
    )
    if lacking and not git.get("commit"):
        raise _refused(name, lacking)
    arguments = tuple(provenance.get("arguments") or ()) if trial is None else ()
    if git.get("commit"):
        _check_names(name, git, [*(provenance.get("packages_from") or {}).values(), *arguments])
    if trial is None and "ordinal" not in record:
        raise _refused(
            name,
            (
                "its record does not say how it was started: it was made over HTTP, or by an earlier version "
                "of halving"
            ),
        )
    if trial is not None and newest is None:
        raise _refused(name, "it has no checkpoint, so that nothing says how far it was trained")
    if trial is None and (
        not arguments or any(kernel in part for part in arguments[:2] for kernel in _KERNELS)
    ):
        raise _refused(name, "it ran in a notebook or an interactive session; a rerun needs a script")
    if whose := record.get("one_of"):
        raise _refused(
            name,
            (
                f"it was begun in one of {whose}, and only a script that is started by itself can be started "
                "again"
            ),
        )
    determinism = record.get("determinism") or {}
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
        epochs=newest.epoch if newest else 0,
        image=image_plan(info) if in_image and not lacking else None,
        environment=provenance,
        incomplete=tuple(_incomplete(info, git, arguments)),
    )


# of a trial's parent; its sweep and number are not the rerun's
_KEPT = ("trainable", "dataset", "snapshot", "spec", "restored_from")


def _check_names(name: str, git: Mapping[str, Any], origins: Iterable[str]) -> None:
    """See that what becomes part of a command or a path is a commit, or a folder within the checkout."""
    if not _COMMIT.fullmatch(git["commit"]):
        raise _refused(name, f"commit = {git['commit']!r:.80} in its record is no commit")
    inside = [origin.rpartition(CHECKOUT)[2] for origin in origins if CHECKOUT in origin]
    for folder in (git.get("folder") or ".", *(git.get("import_paths") or ()), *inside):
        path = PurePosixPath(folder)
        if path.is_absolute() or ".." in path.parts:
            raise _refused(name, f"the folder {folder!r:.80} in its record is not within the checkout")


def _incomplete(info: RunInfo, git: Mapping[str, Any], arguments: tuple[str, ...]) -> list[Difference]:
    found = [Difference("code", entry["path"], _left_out(entry), None) for entry in git.get("left_out") or []]
    if more := git.get("left_out_count", 0) - len(found):
        found.append(Difference("code", f"{more} more files", "not recorded", None))
    if hidden := git.get("patch_redacted"):
        found.append(
            Difference(
                "code",
                f"{hidden} changed lines",
                "with a secret that was hidden",
                f"with {HIDDEN} in its place",
            )
        )
    if git.get("dirty") is None:
        found.append(Difference("code", "changes over the commit", f"unknown: {git.get('error')}", "none"))
    if any(HIDDEN in argument for argument in arguments):
        found.append(
            Difference("code", "the command", "with a secret that was hidden", f"with {HIDDEN} in its place")
        )
    place = script_at(arguments)
    if place is not None and _is_outside(git.get("folder") or ".", arguments[place]):
        found.append(
            Difference("code", arguments[place], "not in the checkout, so not recorded", "as it is there now")
        )
    for number, start in info.starts.items():
        later = (start.get("provenance") or {}).get("git") or {}
        if (later.get("commit"), later.get("patch")) != (git.get("commit"), git.get("patch")):
            found.append(
                Difference(
                    "code",
                    f"attempt {number}",
                    f"of commit {later.get('commit')}, or of other changes",
                    "of attempt 1",
                )
            )
    return [*found, *resized_attempts(info)]


def _left_out(entry: Mapping[str, Any]) -> str:
    repository = entry["path"].endswith("/")
    return (
        "a repository with changes of its own, not recorded"
        if repository
        else f"{entry['bytes']} bytes, not recorded"
    )


def _is_outside(folder: str, script: str) -> bool:
    return PurePosixPath(script).is_absolute() or os.path.normpath(f"{folder}/{script}").split("/")[0] == ".."


def _refused(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"run {name} cannot be trained again: {why}")
