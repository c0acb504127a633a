"""The ``dataset`` of a spec: where the rows come from, and which split each belongs to."""

import math
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from halving.errors import InvalidInput
from halving.features.reference import REFERENCE_RULE, parse_reference, parse_references
from halving.text import comma_list, parse_time, with_zone
from resources.sweep_spec.base import (
    MAX_TEXT_LENGTH,
    MAX_VALUES,
    Bounds,
    FunctionPath,
    Name,
    Strict,
    TimeZone,
    is_import_path,
)

REQUIRED_SPLITS = ("test", "train", "validation")
"""The winner is judged on the first, a trial trains on the second, and compares itself on the third."""

TEXT_FORMATS = ("csv", "json")
"""Formats of files that are texts, in some encoding."""

_MIB = 2**20
_MAX_FOLDS = 100
_MAX_COLUMNS = 100
Column = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)]
Location = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)]


def _check_encoding(value: str) -> str:
    try:
        "".encode(value)
    except (LookupError, ValueError):
        raise ValueError(
            f"{value!r} is not known; give one that Python knows, such as utf-8, latin-1, cp1252 or utf-16"
        ) from None
    return value


Encoding = Annotated[str, AfterValidator(_check_encoding)]


class Source(Strict):
    """Rows that no code of yours loads: files, a folder of files, a query, or a table of a lake."""

    files: Location | list[Location] | None = Field(
        default=None,
        description=(
            "Parquet, CSV or JSON files, or WebDataset's tars: paths, s3://… addresses, or patterns of "
            "them with * and ?."
        ),
    )
    format: Literal["parquet", "csv", "json", "tar"] | None = Field(
        default=None, description="Of the files (default: as their names end)."
    )
    encoding: Encoding | None = Field(
        default=None,
        description=(
            "Of CSV and JSON files, as Python names it: latin-1, cp1252 (default: what a byte order mark "
            "says, else UTF-8)."
        ),
    )
    folder: Location | None = Field(
        default=None,
        description=(
            "A folder or an s3://… address; each file is a row: path, label (its first folder), content."
        ),
    )
    reference: Literal["digest", "etag", "version"] | None = Field(
        default=None,
        description="With folder: the files stay where they are, and in place of their content rows have "
        "what tells whether one is still the same: its digest (each is read once), or what S3 says without "
        "reading it, its etag, or its version in a versioned bucket.",
    )
    sql: Location | None = Field(
        default=None, description="A SELECT for DuckDB, for example over read_parquet('data/*.parquet')."
    )
    delta: Location | None = Field(
        default=None, description="A Delta table's path or address; needs version."
    )
    version: int | None = Field(default=None, ge=0, description="The Delta table's version.")
    iceberg: Location | None = Field(
        default=None, description="An Iceberg table's name, for example lake.clicks; needs snapshot."
    )
    snapshot: int | None = Field(default=None, ge=0, description="The Iceberg table's snapshot id.")
    catalog: Name | None = Field(
        default=None,
        description="The Iceberg catalog, as PyIceberg's configuration names it (default: default).",
    )

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        kinds = [
            kind for kind in ("files", "folder", "sql", "delta", "iceberg") if getattr(self, kind) is not None
        ]
        if len(kinds) != 1:
            raise ValueError(
                f"give exactly one of files, folder, sql, delta, iceberg; got {comma_list(kinds)}"
            )
        for field, owner in (
            ("format", "files"),
            ("encoding", "files"),
            ("reference", "folder"),
            ("version", "delta"),
            ("snapshot", "iceberg"),
            ("catalog", "iceberg"),
        ):
            if field in self.model_fields_set and getattr(self, field) is not None and owner != kinds[0]:
                raise ValueError(f"{field} belongs to {owner}, not to {kinds[0]}; leave it out")
        if self.encoding is not None and self.format not in (None, *TEXT_FORMATS):
            raise ValueError(
                f"encoding belongs to files of {comma_list(TEXT_FORMATS)}, not of {self.format}; leave it out"
            )
        for field, owner in (("version", "delta"), ("snapshot", "iceberg")):
            if kinds[0] == owner and getattr(self, field) is None:
                raise ValueError(
                    f"{owner} needs {field}: what a snapshot is taken of must not change; give the {field} "
                    "to read"
                )
        if (
            self.folder is not None
            and self.reference in ("etag", "version")
            and not self.folder.startswith("s3://")
        ):
            raise ValueError(
                f"reference = {self.reference} belongs to a folder on S3 (s3://…), not to {self.folder}; "
                "give digest"
            )
        return self

    def __str__(self) -> str:
        """For people: ``delta s3://lake/clicks version 418``."""
        fields = self.model_dump(exclude_none=True, exclude_defaults=True)
        if isinstance(self.files, list):
            fields["files"] = comma_list(self.files)
        return " ".join(f"{name} {value}" for name, value in fields.items())


def _parse_source(value: Any) -> Any:
    if isinstance(value, str):
        if not is_import_path(value):
            raise ValueError(
                "give module:function, for example examples.digits:load, or one of files, folder, sql, "
                "delta, iceberg"
            )
        return value
    if isinstance(value, Source):
        return value
    try:
        return Source.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        message = str(problem["msg"]).removeprefix("Value error, ")
        if place:
            message = f"{place}: {message}"
        raise ValueError(message) from None


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    return value


def parse_instant(value: Any) -> datetime:
    """A point in time of a spec; without a time zone it is in UTC.

    Raises:
        ValueError: it is no date and no time.
    """
    if isinstance(value, str):
        try:
            value = parse_time(value)
        except ValueError:
            raise ValueError(
                f"{value!r} is no moment: give a date or a time, for example 2026-01-31 or "
                "2026-01-31T12:00:00Z"
            ) from None
    if isinstance(value, datetime):
        return with_zone(value).astimezone(UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise ValueError(
        f"{value!r} is no moment: give a date or a time, for example 2026-01-31 or 2026-01-31T12:00:00Z"
    )


Instant = Annotated[datetime, BeforeValidator(parse_instant)]


class SplitTimes(Strict):
    """Splits by time: train is before ``validation``, which is before ``test``.

    What is earlier than ``validation`` is train, and what is not earlier than ``test`` is test.
    """

    column: Column = Field(
        description="A column of dates or timestamps; without a time zone they are of UTC."
    )
    validation: Instant = Field(description="The first moment of the validation split.")
    test: Instant = Field(description="The first moment of the test split.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.test <= self.validation:
            raise ValueError(
                f"test = {self.test.isoformat()} must be later than validation = "
                f"{self.validation.isoformat()}"
            )
        return self


Severity = Literal["block", "warn", "off"]
"""What a failed data check does: block the sweep, or warn; off: the check is not made."""

_BOUNDS = {"nulls": "{age: 0.1}", "ranges": "{age: {min: 0, max: 120}}"}
"""Checks whose field holds bounds, with an example; their severity has a field of its own."""


class DataChecks(Strict):
    """The checks of a snapshot before anything is trained on it."""

    schema_as_before: Severity = Field(
        default="warn", description="Its columns and types are those of the snapshot before."
    )
    nulls: dict[Column, Annotated[float, Field(ge=0, le=1)]] = Field(
        default={},
        description=(
            "The share of null and NaN that a column may have; the target none, unless it is given here."
        ),
    )
    nulls_severity: Severity = Field(
        default="block", description="No column has more null and NaN than it may."
    )
    ranges: dict[Column, Bounds] = Field(default={}, description="The values that a column may have.")
    ranges_severity: Severity = Field(default="block", description="No column leaves its range.")
    identity: (
        Annotated[list[Column], BeforeValidator(_as_list), Field(min_length=1, max_length=_MAX_COLUMNS)]
        | None
    ) = Field(
        default=None,
        description="A column or several: rows that have them in common are one row to the checks of "
        "duplicates and leaked_rows, and to the gate leakage (default: rows that have all columns in "
        "common). Leave out what only numbers rows, such as an id.",
    )
    duplicates: Severity = Field(default="warn", description="No row is there twice in a split.")
    leaked_rows: Severity = Field(default="block", description="No row is in two splits.")
    leaked_groups: Severity = Field(default="block", description="No group is in two splits.")
    time_column: Column | None = Field(
        default=None, description="A column of dates or timestamps, for the check of time_order."
    )
    time_order: Severity = Field(
        default="warn", description="No row of train is later than the first of test, by time_column."
    )
    lone_predictor: Severity = Field(
        default="warn", description="No feature predicts the target by itself: it may have been made of it."
    )
    small_classes: Severity = Field(
        default="warn", description="Each class has at least min_class_rows rows in each split."
    )
    min_class_rows: int = Field(default=5, ge=1, description="For the check of small_classes.")

    @field_validator(*_BOUNDS, mode="before")
    @classmethod
    def _refuse_severity(cls, value: Any, info: ValidationInfo) -> Any:
        severity = value
        if value is False:  # YAML reads an unquoted off as false.
            severity = "off"
        if not isinstance(severity, str) or severity not in get_args(Severity):
            return value
        bounds = f"{info.field_name} has the bounds of columns, such as {_BOUNDS[str(info.field_name)]}"
        raise ValueError(f'{bounds}; give {info.field_name}_severity: "{severity}"')

    def severity(self, check: str) -> Severity:
        """The severity of a failure of this check."""
        field = check
        if check in _BOUNDS:
            field = f"{check}_severity"
        severity: Severity = getattr(self, field)
        return severity


def _check_reference(text: str) -> str:
    try:
        parse_reference(text)
    except InvalidInput:
        raise ValueError(REFERENCE_RULE) from None
    return text


FeatureReference = Annotated[str, AfterValidator(_check_reference)]


class DatasetSource(Strict):
    """Where the data comes from and how it is split; its content becomes an immutable snapshot.

    A row's split depends on the row alone: it stays where it is when others are added, removed or reordered.
    """

    name: Name = Field(description="The dataset's name; its snapshots are named NAME@HASH.")
    source: Annotated[FunctionPath | Source, BeforeValidator(_parse_source)] | None = Field(
        default=None,
        description=(
            "module:function that returns a pyarrow.Table, record batches or a folder; or files, folder, "
            "sql, delta, iceberg."
        ),
    )
    labels: Annotated[FunctionPath | Source, BeforeValidator(_parse_source)] | None = Field(
        default=None,
        description=(
            "In place of source: rows to which features are joined, as they were known at the time of "
            "each; given like source."
        ),
    )
    features: Annotated[list[FeatureReference], Field(min_length=1, max_length=MAX_VALUES)] | None = Field(
        default=None,
        description="Of feature views, for the labels: VIEW@VERSION:FEATURE, for example clicks@1:ctr.",
    )
    label_time: Column | None = Field(
        default=None,
        description="The labels' column of timestamps at which features are wanted (default: ts).",
    )
    timezone: TimeZone | None = Field(
        default=None,
        description="What label_time is in where it has no time zone (default: such labels are refused).",
    )
    transform: FunctionPath | None = Field(
        default=None,
        description="module:function, pyarrow.Table to pyarrow.Table, applied to the rows part by part "
        "as they are read; to labels with their features.",
    )
    target: str = Field(max_length=MAX_TEXT_LENGTH, description="The column to predict.")
    splits: dict[Name, float] = Field(
        default={"train": 0.6, "validation": 0.2, "test": 0.2},
        description="Share of the rows in each split; train, validation and test are required, and the "
        "shares must add up to 1. A row is dealt by a hash of its group, or of the columns, without the "
        "target, that the dataset's first snapshot had.",
    )
    group: (
        Annotated[list[Column], BeforeValidator(_as_list), Field(min_length=1, max_length=_MAX_COLUMNS)]
        | None
    ) = Field(
        default=None,
        description="A column or several, for example user_id: rows that have them in common are in one "
        "split. With split_column or split_times that is only checked.",
    )
    redeal: Annotated[bool | None, AfterValidator(lambda value: value or None)] = Field(
        default=None,
        description="Without group, deal all rows anew by all columns that there are now, though the "
        "snapshot before was dealt by others: rows of its test split may be trained on then.",
    )
    folds: int | None = Field(
        default=None,
        ge=2,
        le=_MAX_FOLDS,
        description="Deal what is not test into so many folds, for run.dataset.read('train', fold=0).",
    )
    split_column: Column | None = Field(
        default=None, description="A column that names each row's split, in place of shares."
    )
    split_times: SplitTimes | None = Field(default=None, description="Split by time, in place of shares.")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the hash that deals rows into splits.")
    checks: DataChecks = Field(
        default=DataChecks(), description="What is looked at before anything is trained on it."
    )
    schema_sha256: Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")] | None = Field(
        default=None,
        description=(
            "Run on data of this schema only: the first digits of its hash, as `halving datasets show` has "
            "it."
        ),
    )
    shard_mib: int = Field(
        default=128, ge=1, le=2**12, description="About how large each file of the snapshot is, in MiB."
    )

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        if self.features is None and self.labels is None and self.source is not None:
            if unused := [field for field in ("label_time", "timezone") if getattr(self, field) is not None]:
                raise ValueError(f"{comma_list(unused)} would have no effect without features; leave it out")
        elif self.features is not None and self.labels is not None and self.source is None:
            parse_references(self.features, [self.target])  # Each becomes a column of its own.
        else:
            fields = [field for field in ("source", "labels", "features") if getattr(self, field) is not None]
            raise ValueError(
                f"give source, or labels with the features that are joined to them; got {comma_list(fields)}"
            )
        return self

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        if missing := set(REQUIRED_SPLITS) - set(self.splits):
            raise ValueError(
                f"splits has {comma_list(self.splits)}, but must have {comma_list(sorted(missing))} too"
            )
        shares = comma_list(f"{name} {share:g}" for name, share in self.splits.items())
        if any(share <= 0 for share in self.splits.values()) or not math.isclose(
            sum(self.splits.values()), 1, abs_tol=1e-9
        ):
            raise ValueError(
                f"splits = {shares} must be above 0 and add up to 1, not {sum(self.splits.values()):g}"
            )
        ways = [way for way in ("split_column", "split_times") if getattr(self, way) is not None]
        if len(ways) == 2:
            raise ValueError("split_column and split_times are two ways to split; give one of them")
        if ways and (unused := [field for field in ("splits", "folds", "seed") if _differs(self, field)]):
            raise ValueError(
                f"{ways[0]} says each row's split, so {comma_list(unused)} would have no effect; leave it out"
            )
        if self.redeal and (
            way := next(
                (name for name in ("group", "split_column", "split_times") if getattr(self, name)), None
            )
        ):
            raise ValueError(f"{way} says each row's split, so redeal would have no effect; leave it out")
        if self.folds and len(self.splits) > len(REQUIRED_SPLITS):
            raise ValueError(
                f"folds = {self.folds} deals what is not test, so splits must be train, validation and "
                f"test, not {shares}"
            )
        if self.split_column and self.split_column in (self.checks.identity or []):
            raise ValueError(
                f"checks.identity names {self.split_column}, which says each row's split, so no row could "
                "be in two splits; leave it out"
            )
        return self

    @property
    def origin(self) -> tuple[str, str | Source]:
        """The field that says where rows come from, and its value.

        It is ``source``, or ``labels`` if features are joined to them.
        """
        if self.labels is not None:
            return "labels", self.labels
        assert self.source is not None  # _check_rows makes sure of it.
        return "source", self.source

    @property
    def described(self) -> str:
        """Where the rows come from, for people.

        For example ``files data/*.parquet``, or ``my_project:labels with clicks@1:ctr``.
        """
        rows = str(self.origin[1])
        if self.features:
            return f"{rows} with {comma_list(self.features)}"
        return rows

    @property
    def shard_bytes(self) -> int:
        """The size of a shard in bytes."""
        return self.shard_mib * _MIB


def _differs(source: DatasetSource, field: str) -> bool:
    """Whether a field differs from its default; a stored spec has its defaults, too."""
    return bool(getattr(source, field) != DatasetSource.model_fields[field].default)
