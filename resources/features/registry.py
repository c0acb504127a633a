"""What may change in a version of a feature view, and what needs a new one."""

from typing import Any

from halving.errors import InvalidInput
from resources.features.view import FeatureView
from resources.sweep_spec.base import listed

_MEANING = ("entity", "event_time", "created", "delay", "timezone", "ttl", "transform")


def check_change(
    known: FeatureView, given: FeatureView, known_transform: str | None = None, given_transform: str | None = None
) -> list[str]:
    """Compare two definitions of the same version; the features that are new in ``given``.

    A new feature that may be null keeps the version: of partitions that were materialised before, it is null. So do ``online``, which
    changes no value, and the pinned version of the same Delta table, which is where new days come from. Everything else would make
    the same reference mean something else in training and in serving.

    Args:
        known_transform, given_transform: :func:`resources.features.view.transform_digest` of each, where it is known.

    Raises:
        InvalidInput: something else changed; the message says what, and which version to give.
    """
    if known.key != given.key:
        raise InvalidInput(f"the feature views {known.key} and {given.key} are not accepted: compare two definitions of one version")
    reasons = [
        _changed(name, getattr(known, name), getattr(given, name)) for name in _MEANING if getattr(known, name) != getattr(given, name)
    ]
    if known.source.place != given.source.place:
        reasons.append(_changed("source", known.source.place, given.source.place))
    if known.transform == given.transform and known_transform and given_transform and known_transform != given_transform:
        reasons.append(f"the code of transform {given.transform} changed")
    for name, kind in known.features.items():
        if name not in given.features:
            reasons.append(f"schema.{name} is gone")
        elif given.features[name] != kind:
            reasons.append(_changed(f"schema.{name}", kind, given.features[name]))
    added = [name for name in given.features if name not in known.features]
    reasons += [
        f"schema.{name} is new and must not be null, which it is in what was materialised before"
        for name in added
        if name in given.required
    ]
    if reasons:
        raise InvalidInput(
            f"the feature view {given.key} is not accepted, because it was registered with another definition: {'; '.join(reasons)}. "
            f"Give version: {given.version + 1} (a new feature that may be null would keep the version)"
        )
    return added


def _changed(name: str, before: Any, after: Any) -> str:
    return f"{name} was {_shown(before)} and is {_shown(after)}"


def _shown(value: Any) -> str:
    return listed(value) if isinstance(value, list) else "not given" if value is None else str(value)
