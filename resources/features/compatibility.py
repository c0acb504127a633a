"""What may change in a version of a feature view, and what needs a new one."""

from collections.abc import Mapping
from typing import Any

from halving.errors import InvalidInput
from resources.features.view import FeatureView
from resources.sweep_spec.base import listed

_MEANING = ("entity", "event_time", "created", "delay", "timezone", "ttl", "transform")


def check_change(
    known: FeatureView,
    given: FeatureView,
    known_code: Mapping[str, str] | None = None,
    given_code: Mapping[str, str] | None = None,
    *,
    same_values: bool = False,
) -> list[str]:
    """Compare two definitions of the same version; the features that are new in ``given``.

    A new feature that may be null keeps the version: of partitions that were materialised before, it is null.
    So do ``online``, which changes no value, and the pinned version of the same Delta table, which is where
    new days come from. Everything else would make the same reference mean something else in training and in
    serving.

    Args:
        known_code, given_code: :func:`resources.features.view.code_of_view` of each, as far as it is known.
        same_values: whether somebody has said that other code of the same functions gives the same values:
            then it is no reason.

    Raises:
        InvalidInput: something else changed; the message says what, and which version to give.
    """
    if known.key != given.key:
        raise InvalidInput(
            f"the feature views {known.key} and {given.key} are not accepted: compare two definitions of "
            "one version"
        )
    reasons = [
        _changed(name, getattr(known, name), getattr(given, name))
        for name in _MEANING
        if getattr(known, name) != getattr(given, name)
    ]
    if known.source.place != given.source.place:
        reasons.append(_changed("source", known.source.place, given.source.place))
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
    code = (
        []
        if same_values
        else [
            f"the code that {field} stands on changed"
            for field in changed_code(known_code or {}, given_code or {})
        ]
    )
    if reasons or code:
        hint = "a new feature that may be null would keep the version"
        if not reasons:
            hint = (
                f"if it gives the same values, say why: halving features materialize {given.key} "
                '--accept-same-values "REASON"'
            )
        raise InvalidInput(
            f"the feature view {given.key} is not accepted, because it was registered with another "
            "definition: "
            f"{'; '.join([*reasons, *code])}. Give version: {given.version + 1} ({hint})"
        )
    return added


def changed_code(known: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """The fields of which the code is known of both, and differs."""
    return [field for field, digest in given.items() if known.get(field, digest) != digest]


def _changed(name: str, before: Any, after: Any) -> str:
    return f"{name} was {_shown(before)} and is {_shown(after)}"


def _shown(value: Any) -> str:
    return listed(value) if isinstance(value, list) else "not given" if value is None else str(value)
