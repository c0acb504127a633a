"""A run's files in the store: its start, how each attempt ended, its checkpoints and artifacts.

They are ``runs/project=P/RUN/record.json``, ``start-ATTEMPT.json`` for resumes, ``end-ATTEMPT.json``,
``image-ATTEMPT.json``, ``checkpoints/EPOCH-ATTEMPT-SEQ.json`` and ``artifacts/NAME.json``
(:func:`halving.identifiers.artifact_record`), and all are written once.
"""

import contextlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from halving.errors import AlreadyExists, NotFound
from halving.identifiers import artifact_record
from halving.records.amendments import REMOVED, newest_amendment
from halving.store.json_files import now, to_json
from halving.store.store import Store


class SavedCheckpoint(NamedTuple):
    """One checkpoint in a run's history.

    Attributes:
        digest: its blob.
        reported: the results reported in its epoch.
        tallies: the objectives' tallies so far, in a trial.
        weights: the digest of its state, by which trainings are compared
            (:mod:`halving.checkpoints.weights_digest`).
        sharded: whether the blob is a manifest of others (:mod:`halving.checkpoints.sharded`), which are kept
            for as long as it is.
        missed: the checkpoints before it that the store did not take
            (:class:`halving.checkpoints.misses.Misses`); None without any.
    """

    epoch: int
    attempt: int
    digest: str
    reported: dict[str, float]
    tallies: dict[str, Any] | None = None
    weights: str | None = None
    sharded: bool = False
    missed: dict[str, Any] | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "SavedCheckpoint":
        """The checkpoint that a record's content describes."""
        return cls(**{field: entry[field] for field in cls._fields if field in entry})


class RunRecords:
    """The create-once files of one run."""

    def __init__(self, store: Store, project: str, run: str) -> None:
        self.store = store
        self.project = project
        self.run = run
        self.folder = f"runs/project={project}/{run}"

    def start(
        self, params: Mapping[str, Any], parent: Mapping[str, Any], attempt: int | None, began: dict[str, Any]
    ) -> int:
        """Write ``record.json``, or ``start-ATTEMPT.json`` on later attempts, and return the attempt.

        Args:
            began: its ``token`` is unique, and a second call with it returns the same attempt. Without one,
                each call is another attempt.

        Raises:
            AlreadyExists: the run exists with other params or is being removed, or another process took this
                very attempt.
        """
        recorded = json.loads(to_json(params))
        began = {"token": secrets.token_hex(8), **began}
        record = {
            "project": self.project,
            "run": self.run,
            "params": recorded,
            "parent": dict(parent),
            "attempt": attempt or 1,
            **began,
        }
        try:
            self.store.create(f"{self.folder}/record.json", to_json(record))
        except AlreadyExists:
            opened = self.read()
        else:
            # A process that removed a run of this id may have been killed after it had deleted the record.
            # The next retention then removes this record with the rest.
            self._check_not_removed()
            return attempt or 1
        first = opened["params"]
        # As values, NaN differs from itself; as texts, 1 differs from 1.0.
        if to_json(first) != to_json(recorded) and first != recorded:
            raise AlreadyExists(
                f"run {self.run!r} already has the params {first}; params never change, so start another run"
            )
        self._check_not_removed()
        if opened.get("token") == began["token"]:
            return int(opened["attempt"])
        if attempt == opened["attempt"]:
            raise AlreadyExists(f"attempt {attempt} of run {self.run!r} was taken by another process")
        number = attempt or int(opened["attempt"]) + 1
        while True:
            name = f"{self.folder}/start-{number:04d}.json"
            try:
                self.store.create(name, to_json({"attempt": number, **began}))
                return number
            except AlreadyExists:
                if json.loads(self.store.read(name)).get("token") == began["token"]:
                    return number
                if attempt is not None:
                    raise
                number += 1

    def _check_not_removed(self) -> None:
        amendment = newest_amendment(self.store, self.folder, self.store.names(self.folder))
        if amendment.get("lifecycle") == REMOVED:
            raise AlreadyExists(
                f"run {self.run!r} was deleted and its files are being removed: give the new run another id"
            )

    def read(self) -> dict[str, Any]:
        """The record that the run was started with.

        Raises:
            NotFound: no such run.
        """
        try:
            record: dict[str, Any] = json.loads(self.store.read(f"{self.folder}/record.json"))
        except NotFound:
            raise NotFound(f"no run {self.run!r} in project {self.project!r} of {self.store.root}") from None
        return record

    def began(self, attempt: int) -> str:
        """When an attempt was started, ISO 8601 in UTC.

        Raises:
            NotFound: no such run, or no such attempt.
        """
        record = self.read()
        if attempt != record["attempt"]:
            record = json.loads(self.store.read(f"{self.folder}/start-{attempt:04d}.json"))
        return str(record["started"])

    def end(self, attempt: int, ended: Mapping[str, Any]) -> None:
        """Write ``end-ATTEMPT.json``: how an attempt ended, and when (now, unless ``ended`` has a ``time``).

        Raises:
            AlreadyExists: the attempt's end is recorded already.
        """
        self.store.create(
            f"{self.folder}/end-{attempt:04d}.json", to_json({"time": now(), **ended}), sole=True
        )

    def add_checkpoint(self, saved: SavedCheckpoint) -> None:
        """Append to the history; a later save of the same epoch follows the earlier one."""
        prefix = f"{saved.epoch:08d}-{saved.attempt:04d}-"
        sequence = sum(name.startswith(prefix) for name in self._checkpoint_names())
        name = f"{prefix}{sequence:06d}.json"
        self.store.create(
            f"{self.folder}/checkpoints/{name}", to_json({**saved._asdict(), "time": now()}), sole=True
        )

    def latest_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint of the most trained epoch, or None."""
        names = self._checkpoint_names()
        if not names:
            return None
        return self._checkpoint(names[-1])

    def checkpoints(self) -> list[SavedCheckpoint]:
        """All checkpoints by epoch; within an epoch an earlier attempt comes before a later one."""
        return [self._checkpoint(name) for name in self._checkpoint_names()]

    def add_artifact(self, name: str, digest: str, size: int, record: str | None = None) -> None:
        """Attach a blob under a name; ``record`` is the name of its file (default: made of the name)."""
        self.store.create(
            f"{self.folder}/artifacts/{record or artifact_record(name)}.json",
            to_json({"name": name, "digest": digest, "bytes": size}),
        )

    def add_image_digest(self, attempt: int, digest: str) -> None:
        """Record the digest of an attempt's image, because a tag may mean another image tomorrow.

        Args:
            digest: such as ``sha256:12…``.
        """
        with contextlib.suppress(AlreadyExists):
            self.store.create(
                f"{self.folder}/image-{attempt:04d}.json", to_json({"digest": digest}), sole=True
            )

    def _checkpoint_names(self) -> list[str]:
        return self.store.names(f"{self.folder}/checkpoints")

    def _checkpoint(self, name: str) -> SavedCheckpoint:
        return SavedCheckpoint.of(json.loads(self.store.read(f"{self.folder}/checkpoints/{name}")))
