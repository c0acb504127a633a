"""What a model's version is made of: one blob, written when its winner was judged, and named by its
digest.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from halving.errors import InvalidInput, StoreError
from halving.store.json_files import to_json
from halving.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that it takes to use a checkpoint, and to say where it comes from.

    Attributes:
        checkpoint: its digest, ``sha256:…``.
        predictor, exporter: ``module:function``; without a predictor the version answers no tables.
        dataset, snapshot: the name and the digest of what it was trained on.
        train_on: the splits of it that were its train split.
        input_schema: Arrow types by column; ``complete`` are the columns that had neither null nor NaN.
        output_schema: ``type``, and ``classes`` where it has some.
        code: the predictor's and the exporter's own sources by path, by which it was judged; what is
            installed is in ``requirements``.
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
        """Put it into the store; gives its digest."""
        return store.put_blob(to_json(asdict(self)))

    @property
    def answered_by(self) -> str:
        """The predictor.

        Raises:
            InvalidInput: it has none.
        """
        if self.predictor is None:
            raise InvalidInput(
                f"model {self.model} of run {self.run} answers no tables: the spec of its sweep has no "
                "predictor. The version of a sweep "
                "with one can be loaded and exported"
            )
        return self.predictor

    @classmethod
    def read(cls, store: Store, digest: str) -> "Manifest":
        """The manifest of a digest.

        Raises:
            NotFound: there is none.
            StoreError: it is damaged, or another version of Halving has written it.
        """
        named = f"the manifest {digest} in {store.root}"
        return cls.parse(json.loads(store.get_blob(digest)), named)

    @classmethod
    def parse(cls, data: Any, named: str) -> "Manifest":
        """The manifest that :meth:`write` made this JSON of.

        Raises:
            StoreError: it is none that this version of Halving reads, or its code would be written outside of
                a folder of modules.
        """
        try:
            manifest = cls(**data)
        except TypeError as error:
            raise StoreError(f"{named} is not one that this version of Halving reads: {error}") from None
        code: Any = manifest.code
        if not isinstance(code, dict) or not all(isinstance(text, str) for text in code.values()):
            raise StoreError(
                f"{named} is not one that this version of Halving reads: its code is no text by path"
            )
        for path in code:
            if not _is_module(path):
                raise StoreError(
                    f"{named} is refused: code {path!r} is not accepted; a path is relative and of a "
                    "module, as in package/module.py"
                )
        return manifest


def _is_module(path: str) -> bool:
    """Whether it is the path of a module below a folder, of another package than the SDK, which an export
    adds itself.
    """
    parts = path.removesuffix(".py").split("/")
    return path.endswith(".py") and all(part.isidentifier() for part in parts) and parts[0] != "halving"
