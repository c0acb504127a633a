"""What serving knows of a feature view: its entity, features and time to live.

The definition is kept in the online store, beside the values.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.features.reference import Reference

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = ("binary", "bool", "double", "float", "int32", "int64", "string", "timestamp")
"""Types of features, as Arrow prints them; a timestamp is of microseconds in UTC."""

NESTED_REMEDY = (
    "a list is kept as one column for each value, or as binary: numpy.asarray(values, "
    "'float32').tobytes(), read by numpy.frombuffer"
)

ENTITY_TYPES = ("int64", "string")
"""Types of entity columns.

Other integers become int64, and so do floats and decimals that are whole numbers, as pandas makes of ids
beside NaN.
"""


@dataclass(frozen=True)
class Definition:
    """A version of a feature view.

    Attributes:
        entity: name to type (:data:`ENTITY_TYPES`) of the columns that identify an entity, in order.
        features: name to type (:data:`TYPES`), in the order in which values are packed: new ones come last.
        ttl: microseconds after its event for which a row counts; None for ever.
        transform: ``module:function`` that computes the features of a row, or None where the source has them.
        inputs: the schema of the rows that the transform gets, as Arrow's IPC message in base64; empty where
            it is not known.
    """

    name: str
    version: int
    entity: Mapping[str, str]
    features: Mapping[str, str]
    ttl: int | None = None
    transform: str | None = None
    inputs: str = field(default="", repr=False)

    @property
    def key(self) -> str:
        """The view and its version: ``clicks@1``."""
        return f"{self.name}@{self.version}"

    def to_json(self) -> str:
        """The definition as JSON, for :meth:`from_json`."""
        return json.dumps(asdict(self))  # keeps the order of the features, in which values are packed

    @staticmethod
    def from_json(text: str | bytes) -> "Definition":
        """Read what :meth:`to_json` wrote; fields that a newer version added are left out."""
        fields: dict[str, Any] = json.loads(text)
        return Definition(
            **{name: fields[name] for name in Definition.__dataclass_fields__ if name in fields}
        )

    def merged_into(self, older: "Definition") -> "Definition":
        """This definition with its features in the order in which ``older`` packs them, and new ones last.

        Raises:
            InvalidInput: more than new features differs, so that this has to be another version.
        """
        changed = [name for name, kind in self.features.items() if older.features.get(name, kind) != kind]
        if changed or (self.ttl, list(self.entity.items())) != (older.ttl, list(older.entity.items())):
            raise InvalidInput(
                f"the feature view {self.key} is not accepted: online it has the entity "
                f"{dict(older.entity)}, the ttl {older.ttl} µs and the features {dict(older.features)}; "
                "give it another version"
            )
        return replace(self, features={**older.features, **self.features})

    def input_schema(self) -> "pa.Schema | None":
        """The schema of the rows that the transform gets; None where it is not known."""
        import pyarrow as pa

        if not self.inputs:
            return None
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.inputs)))

    def check(self, reference: Reference) -> None:
        """Check that the view has a feature.

        Raises:
            InvalidInput: it has not; the message names those that it has.
        """
        if reference.feature not in self.features:
            raise InvalidInput(
                f"feature {str(reference)!r} is not accepted: {self.key} has {', '.join(self.features)}"
            )


def schema_text(schema: "pa.Schema") -> str:
    """Convert an Arrow schema to the text that :attr:`Definition.inputs` keeps."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def arrow_type(name: str) -> "pa.DataType":
    """The Arrow type of one of :data:`TYPES`."""
    import pyarrow as pa

    if name == "timestamp":
        return pa.timestamp("us", tz="UTC")
    kind: pa.DataType = pa.type_for_alias(name)
    return kind
