"""The manifest of a model's version: a blob, named by its digest, with all that the version is made of.

It is written when the version's training is judged.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from halving.errors import InvalidInput, StoreError
from halving.store.json_files import to_json
from halving.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything that is needed to use a checkpoint, and to say where it comes from.

    Attributes:
        checkpoint: its digest, ``sha256:…``.
        predictor, exporter: ``module:function``; without a predictor the version answers no tables.
        dataset, snapshot: the name and the digest of what it was trained on.
        train_on: the splits of it that were its train split.
        input_schema: Arrow types by column; ``complete`` are the columns that had neither null nor NaN.
        output_schema: ``type``, and ``classes`` where it has some.
        code: the sources of the predictor and the exporter by path, as they were when it was judged.
            Installed packages are in ``requirements`` instead.
        report: the digest of the evaluation report.
    """

    model: str
    run: str
    checkpoint: str
    params: dict[str, Any]
    predictor: str | None
    exporter: str | None
    dataset: str
    snapshot: str
    input_schema: dict[str, str]
    complete: list[str]
    output_schema: dict[str, Any]
    framework: str
    python: str
    requirements: list[str]
    code: dict[str, str]
    metrics: dict[str, float | None]
    report: str
    features: list[str] = field(default_factory=list)
    train_on: list[str] = field(default_factory=lambda: ["train"])

    def write(self, store: Store) -> str:
        """Put the manifest into the store, and return its digest."""
        return store.put_blob(to_json(asdict(self)))

    @property
    def answered_by(self) -> str:
        """The predictor that answers for this version, as ``module:function``.

        Raises:
            InvalidInput: it has none.
        """
        if self.predictor is None:
            raise InvalidInput(
                f"model {self.model} of run {self.run} answers no tables: the spec of its sweep has no "
                "predictor. The version of a sweep with one can be loaded and exported"
            )
        return self.predictor

    @classmethod
    def read(cls, store: Store, digest: str) -> "Manifest":
        """Read the manifest of a digest.

        Raises:
            NotFound: there is none.
            StoreError: it is damaged, or another version of Halving has written it.
        """
        subject = f"the manifest {digest} in {store.root}"
        return cls.parse(json.loads(store.get_blob(digest)), subject)

    @classmethod
    def parse(cls, data: Any, subject: str) -> "Manifest":
        """Parse the JSON that :meth:`write` made of a manifest.

        Raises:
            StoreError: it is none that this version of Halving reads, or its code would be written outside of
                a folder of modules.
        """
        try:
            manifest = cls(**data)
        except TypeError as error:
            raise StoreError(f"{subject} is not one that this version of Halving reads: {error}") from None
        code: Any = manifest.code
        if not isinstance(code, dict) or not all(isinstance(text, str) for text in code.values()):
            raise StoreError(
                f"{subject} is not one that this version of Halving reads: its code is no text by path"
            )
        for path in code:
            if not _is_module(path):
                raise StoreError(
                    f"{subject} is refused: code {path!r} is not accepted; a path is relative and of a "
                    "module, as in package/module.py"
                )
        return manifest


def _is_module(path: str) -> bool:
    """Whether a path is that of a module below a folder.

    The SDK's own package is refused, because an export adds it itself.
    """
    parts = path.removesuffix(".py").split("/")
    return path.endswith(".py") and all(part.isidentifier() for part in parts) and parts[0] != "halving"
