"""A run's files in the store: what it started with, how each attempt ended, its checkpoints and artifacts.

``runs/project=P/RUN/record.json``, ``start-ATTEMPT.json`` for resumes, ``end-ATTEMPT.json``,
``image-ATTEMPT.json``, ``checkpoints/EPOCH-ATTEMPT-SEQ.json`` and ``artifacts/NAME.json``
(:func:`halving.identifiers.artifact_record`): all written once.
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
    """One checkpoint in a run's history: its blob, what was reported in its epoch, and in a trial the
    objectives' tallies so far.

    ``weights`` is the digest of the state in it, by which trainings are compared
    (:mod:`halving.checkpoints.weights_digest`). ``sharded``: the blob is a manifest of others
    (:mod:`halving.checkpoints.sharded`), which are kept for as long as it is. ``missed``: the checkpoints
    before it that the store did not take (:class:`halving.checkpoints.misses.Misses`); None where there are
    none.
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
        """Write ``record.json`` on the first attempt and ``start-ATTEMPT.json`` on later ones; give the
        attempt.

        Args:
            began: its ``token`` is unique: calling again with it gives the same attempt. Without one, each
                call is another attempt.

        Raises:
            AlreadyExists: the run exists with other params or is being removed, or another process took this
                very attempt.
        """
        plain = json.loads(to_json(params))
        began = {"token": secrets.token_hex(8), **began}
        record = {
            "project": self.project,
            "run": self.run,
            "params": plain,
            "parent": dict(parent),
            "attempt": attempt or 1,
            **began,
        }
        try:
            self.store.create(f"{self.folder}/record.json", to_json(record))
        except AlreadyExists:
            opened = self.read()
        else:
            # Who removed a run of this id may have been killed behind its record: the next retention removes
            # this one with the rest.
            self._check_not_removed()
            return attempt or 1
        first = opened["params"]
        if to_json(first) != to_json(plain) and first != plain:  # NaN differs from itself, 1 and 1.0 as text
            raise AlreadyExists(
                f"run {self.run!r} already has the params {first}; params never change, so start another run"
            )
        self._check_not_removed()
        if opened.get("token") == began["token"]:
            return int(opened["attempt"])
        if attempt == opened["attempt"]:
            raise AlreadyExists(f"attempt {attempt} of run {self.run!r} was taken by another process")
        number = int(opened["attempt"]) + 1 if attempt is None else attempt
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
        if (
            newest_amendment(self.store, self.folder, self.store.names(self.folder)).get("lifecycle")
            == REMOVED
        ):
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
        self.store.create(
            f"{self.folder}/end-{attempt:04d}.json", to_json({"time": now(), **ended}), sole=True
        )

    def add_checkpoint(self, saved: SavedCheckpoint) -> None:
        """Append to the history; a later save of the same epoch follows the earlier one."""
        sequence = len(
            [
                name
                for name in self._checkpoint_names()
                if name.startswith(f"{saved.epoch:08d}-{saved.attempt:04d}-")
            ]
        )
        name = f"{saved.epoch:08d}-{saved.attempt:04d}-{sequence:06d}.json"
        self.store.create(
            f"{self.folder}/checkpoints/{name}", to_json({**saved._asdict(), "time": now()}), sole=True
        )

    def latest_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint of the most trained epoch, or None."""
        names = self._checkpoint_names()
        return self._checkpoint(names[-1]) if names else None

    def checkpoints(self) -> list[SavedCheckpoint]:
        """All checkpoints by epoch; within an epoch an earlier attempt comes before a later one."""
        return [self._checkpoint(name) for name in self._checkpoint_names()]

    def add_artifact(self, name: str, digest: str, size: int, record: str | None = None) -> None:
        """Attach a blob under a name; ``record`` is what its file is called (default: as the name is, or is
        made of it).
        """
        self.store.create(
            f"{self.folder}/artifacts/{record or artifact_record(name)}.json",
            to_json({"name": name, "digest": digest, "bytes": size}),
        )

    def add_image_digest(self, attempt: int, digest: str) -> None:
        """Write down which image an attempt runs in, as its cluster knows it: a tag, which its record has,
        may mean another one tomorrow.

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
