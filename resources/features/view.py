"""The feature view of ``features/NAME.yaml``, checked field by field before anything is read."""

import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from halving.errors import InvalidInput
from halving.features.definition import NESTED_REMEDY, TYPES, Definition
from halving.features.reference import IDENTIFIER, IDENTIFIER_RULE, Reference
from halving.text import comma_list, did_you_mean
from halving.trial.import_string import import_function
from resources.project_code import code_digest
from resources.sweep_spec.base import MAX_COUNT, MAX_VALUES, FunctionPath, Strict, TimeZone, must
from resources.sweep_spec.parsing import problems_of_model
from resources.sweep_spec.yaml_text import read_yaml_file

EVENT = "_event"
KNOWN_AT = "_known"
"""Columns of a materialised view: when a row's event happened, and from when on the row was known.

No other column's name begins with an underscore.
"""

_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION = re.compile(r"(\d{1,9})(us|ms|s|m|h|d)", re.ASCII)
_MAX_DURATION = 36_525 * _UNITS["d"]
_NOT_NULL = " not null"
_NESTED = re.compile(r"(large_|fixed_size_)?(list|array|vector|struct|map)|.*\[\d*\]$", re.IGNORECASE)


def _duration(value: str) -> str:
    match = _DURATION.fullmatch(value)
    if match is None or int(match[1]) * _UNITS[match[2]] > _MAX_DURATION:
        raise ValueError(
            f"give a whole number and a unit of {comma_list(_UNITS)}, for example 7d, and at most 36525d"
        )
    return value


def _feature_type(value: str) -> str:
    kind = value.removesuffix(_NOT_NULL)
    if _NESTED.match(kind):
        raise ValueError(f"give one of {comma_list(TYPES)}; {NESTED_REMEDY}")
    if kind not in TYPES:
        raise ValueError(
            f"give one of {comma_list(TYPES)}{did_you_mean(kind, TYPES)}; after it may be said: not null"
        )
    return value


Identifier = Annotated[str, must(IDENTIFIER.fullmatch, IDENTIFIER_RULE)]
Column = Annotated[str, Field(min_length=1, max_length=250)]
Duration = Annotated[str, AfterValidator(_duration)]
FeatureType = Annotated[str, AfterValidator(_feature_type)]


class Source(Strict):
    """Where the rows come from: files, a version of a Delta table, or a function."""

    files: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Path or glob of Parquet files, or a folder of them; folders called country=de give a column "
            "country."
        ),
    )
    delta: str | None = Field(default=None, min_length=1, description="Path of a Delta table (extra lake).")
    version: int | None = Field(
        default=None, ge=0, le=MAX_COUNT, description="The Delta table's version, which is required for one."
    )
    function: FunctionPath | None = Field(
        default=None,
        description=(
            "module:function that returns a pyarrow.Table or RecordBatchReader; a parameter `day` gets the "
            "date, or None."
        ),
    )

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        places = [name for name in ("files", "delta", "function") if getattr(self, name) is not None]
        if len(places) != 1:
            raise ValueError(f"give exactly one of files, delta, function; got {comma_list(places)}")
        if (self.delta is None) != (self.version is None):
            raise ValueError(
                "give version with delta, and only with it: the table's version that is read, so that it "
                "stays the same"
            )
        return self

    @property
    def place(self) -> str:
        """What is read, whichever version of it."""
        return next(
            f"{name}: {value}"
            for name in ("files", "delta", "function")
            if (value := getattr(self, name)) is not None
        )


class FeatureView(Strict):
    """One version of a feature view."""

    name: Identifier = Field(
        description="The view's name; its features are referred to as NAME@VERSION:FEATURE."
    )
    version: int = Field(ge=1, lt=10**9, description="Counts changes of what the features mean.")
    entity: list[Column] = Field(
        min_length=1, max_length=16, description="The columns that say whose the features are."
    )
    event_time: Column = Field(description="The column that says when it happened.")
    created: Column | None = Field(
        default=None, description="The column that says when the row was known; or give delay."
    )
    delay: Duration | None = Field(
        default=None, description="How long after its event a row is known, for example 1h; or give created."
    )
    timezone: TimeZone | None = Field(
        default=None, description="What times without a time zone are in (default: such times are refused)."
    )
    ttl: Duration | None = Field(
        default=None,
        description="For how long after its event a row counts, for example 7d (default: for ever).",
    )
    source: Source = Field(description="Where the rows come from.")
    transform: FunctionPath | None = Field(
        default=None,
        description=(
            "module:function from a pyarrow.Table of the source's rows to one of their features, row by row."
        ),
    )
    features: dict[Identifier, FeatureType] = Field(
        alias="schema",
        min_length=1,
        max_length=MAX_VALUES,
        description=f"The features by name, each with a type of {comma_list(TYPES)}.",
    )
    start: date | None = Field(
        default=None, description="The first day that Dagster offers to materialise (default: 2024-01-01)."
    )
    online: bool = Field(
        default=False, description="Whether the latest known features are pushed to the online store."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.created is None) == (self.delay is None):
            raise ValueError(
                "give created (the column that says when a row was known) or delay (how long after its "
                "event it is, for example 1h), and not both: without them a join would use what was not "
                "known yet"
            )
        if self.ttl is not None and micros_of(self.ttl) == 0:
            raise ValueError("ttl = 0 is not accepted: no row would ever count; give for example 7d")
        if reserved := [name for name in self.entity if name.startswith("_")]:
            raise ValueError(
                f"entity = {reserved[0]} is not accepted: names that begin with _ are the store's own"
            )
        names = [*self.entity, *self.features]
        counts = Counter(map(str.lower, names))  # SQL takes names that differ by case alone for one
        if twice := sorted({name for name in names if counts[name.lower()] > 1}):
            raise ValueError(
                f"entity and schema have {comma_list(twice)} twice, whatever the case: give each another name"
            )
        return self

    @property
    def key(self) -> str:
        """The view and its version: ``clicks@1``."""
        return f"{self.name}@{self.version}"

    @property
    def types(self) -> dict[str, str]:
        """The features' types, without whether they may be null."""
        return {name: kind.removesuffix(_NOT_NULL) for name, kind in self.features.items()}

    @property
    def required(self) -> list[str]:
        """The features that must not be null."""
        return [name for name, kind in self.features.items() if kind.endswith(_NOT_NULL)]

    @property
    def ttl_micros(self) -> int | None:
        """How long after its event a row counts, in µs; None: for ever."""
        if self.ttl is None:
            return None
        return micros_of(self.ttl)

    def definition(self, entity: dict[str, str], inputs: str = "") -> Definition:
        """The part of the view that serving needs.

        Args:
            entity: the types of its columns when it was materialised.
            inputs: the schema of the source's rows (:func:`halving.features.definition.schema_text`).
        """
        return Definition(
            self.name, self.version, entity, self.types, self.ttl_micros, self.transform, inputs
        )

    def as_dict(self) -> dict[str, Any]:
        """The spec as it would be written in YAML, without fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def parse_view(data: Any, name: str = "") -> FeatureView:
    """Check a feature view.

    Args:
        name: the file that it is from, for the message.

    Raises:
        InvalidInput: naming every wrong field by its path, the value given and what is accepted.
    """
    try:
        return FeatureView.model_validate(data)
    except ValidationError as error:
        problems = "\n".join(f"  - {problem}" for problem in problems_of_model(error, FeatureView))
        subject = "the feature view"
        if name:
            subject = f"the feature view in {name}"
        raise InvalidInput(f"{subject} is not accepted:\n{problems}") from None


def load_view(path: str | Path) -> FeatureView:
    """Read a feature view from a YAML file.

    Raises:
        InvalidInput: there is no such file, it is not YAML, or the view is wrong.
    """
    return parse_view(read_yaml_file("feature view", path), str(path))


def load_views(folder: str | Path) -> dict[str, FeatureView]:
    """Load all views of a folder's YAML files, by ``name@version``; a missing folder has none.

    Raises:
        InvalidInput: one is wrong, or two are the same version.
    """
    views: dict[str, FeatureView] = {}
    for path in sorted(Path(folder).glob("*.yaml")):
        view = load_view(path)
        if view.key in views:
            raise InvalidInput(
                f"feature view {str(path)!r} is not accepted: another file in its folder has {view.key}, too"
            )
        views[view.key] = view
    return views


def view_of(reference: Reference, views: dict[str, FeatureView]) -> FeatureView:
    """Find the view of a reference.

    Raises:
        InvalidInput: there is no such view, or it has no such feature.
    """
    view = views.get(reference.key)
    if view is None:
        keys = sorted(views)
        hint = did_you_mean(reference.key, keys)
        raise InvalidInput(
            f"feature {str(reference)!r} is not accepted: there is no feature view {reference.key}{hint}; "
            f"there are {', '.join(keys) or 'none: define one in features/NAME.yaml'}"
        )
    if reference.feature not in view.features:
        hint = did_you_mean(reference.feature, view.features)
        raise InvalidInput(
            f"feature {str(reference)!r} is not accepted: {view.key} has no such feature{hint}; it has "
            f"{comma_list(view.features)}"
        )
    return view


def check_functions(view: FeatureView) -> None:
    """Import the functions that a view names.

    Raises:
        InvalidInput: naming the field, what is missing and what there is instead.
    """
    if view.transform is not None:
        import_function("transform", view.transform)
    if view.source.function is not None:
        import_function("source.function", view.source.function)


def code_of_view(view: FeatureView) -> dict[str, str]:
    """The digests of the code that a view stands on, by the field that names its function.

    Raises:
        InvalidInput: there is no such function.
    """
    functions = {"transform": view.transform, "source.function": view.source.function}
    return {field: code_digest(field, path) for field, path in functions.items() if path is not None}


def micros_of(duration: str) -> int:
    """A duration such as ``7d`` in microseconds."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise InvalidInput(
            f"{duration!r} is not accepted: give a whole number and a unit of {comma_list(_UNITS)}, for "
            "example 7d"
        )
    return int(match[1]) * _UNITS[match[2]]
