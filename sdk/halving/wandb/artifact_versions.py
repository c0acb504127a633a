"""The versions of a project's artifacts in the store, by name.

``artifact-versions/project=P/NAME/`` has, each written once:

- ``vNNNNNN.json``: a version: its manifest's digest, the run that logged it, when;
- ``change-NNNNNN.json``: what was changed afterwards: aliases, metadata, description; later ones win;
- ``use-VVVVVV-RUN.json``: a run used a version.

The files themselves are artifacts of the run that logged them, so they stay and go with that run.
"""

import contextlib
import json
import re
from typing import Any, NamedTuple

from halving.errors import AlreadyExists, NotFound
from halving.query.runs import in_threads
from halving.store.json_files import now, to_json
from halving.store.store import Store

LATEST = "latest"
_VERSION = re.compile(r"v(\d{6,})\.json")
_CHANGE = re.compile(r"change-(\d{6,})\.json")
_USE = re.compile(r"use-(\d{6,})-(.+)\.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Version(NamedTuple):
    """A version of an artifact.

    Attributes:
        content: the digest of its paths and contents, in hex.
        manifest: the digest of its manifest in the store.
        run: that logged it.
        created: ISO 8601 in UTC.
    """

    number: int
    type: str
    content: str
    manifest: str
    size: int
    run: str
    created: str


class Collection:
    """All versions of one artifact.

    Raises:
        ValueError: the name is none that an artifact may have.
    """

    def __init__(self, store: Store, project: str, name: str) -> None:
        check_artifact(name)
        self.store = store
        self.project = project
        self.name = name
        self.folder = f"artifact-versions/project={project}/{name}"

    def versions(self) -> list[Version]:
        """All versions, in order."""
        return in_threads(self.version, self.numbers())

    def numbers(self) -> list[int]:
        """The numbers of all versions, in order; no version is read."""
        names = (_VERSION.fullmatch(name) for name in self.store.names(self.folder))
        return sorted(int(match[1]) for match in names if match)

    def version(self, number: int) -> Version:
        """One version.

        Raises:
            NotFound: there is none of this number.
        """
        fields = json.loads(self.store.read(f"{self.folder}/v{number:06d}.json"))
        return Version(**{field: fields[field] for field in Version._fields})

    def add(self, type_name: str, content: str, manifest: str, size: int, run: str) -> Version:
        """Add a version. Two processes never get one number.

        Raises:
            ValueError: the artifact has versions of another type.
        """
        while True:
            number = max(self.numbers(), default=-1) + 1
            if number > 0:
                self.check_type(type_name, self.version(number - 1))
            version = Version(number, type_name, content, manifest, size, run, now())
            try:
                self.store.create(f"{self.folder}/v{number:06d}.json", to_json(version._asdict()))
                return version
            except AlreadyExists:
                continue  # Another process has just taken the number.

    def check_type(self, type_name: str, newest: Version) -> None:
        """Refuse another type than the newest version has.

        Raises:
            ValueError: with both.
        """
        if newest.type != type_name:
            raise ValueError(
                f"Artifact {self.name} already exists with type {newest.type!r}; cannot create another "
                f"with type {type_name!r}"
            )

    def aliases(self) -> dict[str, int]:
        """The number of the version that each alias names; ``latest`` is the newest one."""
        named: dict[str, int] = {}
        for change in self._changes():
            for alias in change.get("aliases", ()):
                named[alias] = change["version"]
            for alias in change.get("removed", ()):
                if named.get(alias) == change["version"]:
                    del named[alias]
        if numbers := self.numbers():
            named[LATEST] = numbers[-1]
        return named

    def changed_facts(self, number: int) -> dict[str, Any]:
        """The metadata and description that a version was given after it was logged."""
        facts: dict[str, Any] = {}
        for change in self._changes():
            if change["version"] == number:
                facts |= {name: change[name] for name in ("metadata", "description") if name in change}
        return facts

    def change(self, number: int, **fields: Any) -> None:
        """Note a change of a version: ``aliases``, ``removed``, ``metadata``, ``description``."""
        content = to_json({"version": number, "time": now(), **fields})
        taken = sum(bool(_CHANGE.fullmatch(name)) for name in self.store.names(self.folder))
        while True:
            try:
                self.store.create(f"{self.folder}/change-{taken:06d}.json", content, sole=True)
                return
            except AlreadyExists:
                taken += 1

    def find(self, reference: str) -> Version | None:
        """The version that ``v3`` or an alias names; None: there is none."""
        number = self.aliases().get(reference)
        if match := re.fullmatch(r"v(\d{1,9})", reference):
            number = int(match[1])
        if number is None:
            return None
        with contextlib.suppress(NotFound):
            return self.version(number)
        return None

    def note_use(self, number: int, run: str) -> None:
        """Note that a run used a version."""
        name = f"{self.folder}/use-{number:06d}-{run}.json"
        if not self.store.exists(name):
            with contextlib.suppress(AlreadyExists):
                self.store.create(name, to_json({"version": number, "run": run, "time": now()}))

    def users(self, number: int) -> list[str]:
        """The runs that used a version."""
        uses = (_USE.fullmatch(name) for name in self.store.names(self.folder))
        return sorted(use[2] for use in uses if use and int(use[1]) == number)

    def _changes(self) -> list[dict[str, Any]]:
        names = sorted(name for name in self.store.names(self.folder) if _CHANGE.fullmatch(name))
        return in_threads(lambda name: json.loads(self.store.read(f"{self.folder}/{name}")), names)


def check_artifact(name: str) -> None:
    """Refuse a name that no artifact may have.

    Raises:
        ValueError: with the name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"Artifact name {name!r:.200} is not accepted: give 1-128 letters, digits or . _ -, beginning "
            "with a letter or digit"
        )


def read_manifest(store: Store, version: Version, name: str) -> bytes:
    """A version's manifest as it is stored.

    Raises:
        NotFound: its run was deleted, and what it had with it.
    """
    try:
        return store.get_blob(version.manifest)
    except NotFound:
        raise NotFound(
            f"artifact {name}:v{version.number} is no longer in the store: run {version.run!r}, which logged "
            "it, was deleted"
        ) from None
