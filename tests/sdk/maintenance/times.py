"""Times in the future, from which files are old."""

from datetime import UTC, datetime, timedelta


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)
