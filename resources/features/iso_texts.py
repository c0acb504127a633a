"""Patterns of ISO 8601 times, the same for labels, which Arrow reads, and for views, which DuckDB reads.

Both match by RE2.
"""

DAY = r"\d{4}-\d{2}-\d{2}"
TIME = DAY + r"[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
ZONED_TIME = TIME + r"(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)"

FINER = r"(\.\d{6})\d+"
"""A fraction finer than microseconds; its first group is the microseconds."""

EXAMPLE = "2026-04-03T10:00:00Z"
