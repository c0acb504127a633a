"""What may change in a version of a feature view, and what needs a new one."""

from collections.abc import Mapping
from typing import Any

from halving.errors import InvalidInput
from halving.text import comma_list
from resources.features.view import FeatureView

_MEANING = ("entity", "event_time", "created", "delay", "timezone", "ttl", "transform")


def check_change(
    before: FeatureView,
    after: FeatureView,
    code_before: Mapping[str, str] | None = None,
    code_after: Mapping[str, str] | None = None,
    *,
    same_values: bool = False,
) -> list[str]:
    """Compare two definitions of the same version; give the features that are new in ``after``.

    A new feature that may be null keeps the version: it is null in partitions that were materialised before.
    So do ``online``, which changes no value, and the pinned version of the same Delta table, from which new
    days come. Everything else would make the same reference mean something else in training and in serving.

    Args:
        code_before, code_after: :func:`resources.features.view.code_of_view` of each, as far as it is known.
        same_values: whether somebody has declared that the new code of the same functions gives the same
            values; then it is no reason to refuse.

    Raises:
        InvalidInput: something else changed; the message says what, and which version to give.
    """
    if before.key != after.key:
        raise InvalidInput(
            f"the feature views {before.key} and {after.key} are not accepted: compare two definitions of "
            "one version"
        )
    reasons = [
        _describe_change(name, getattr(before, name), getattr(after, name))
        for name in _MEANING
        if getattr(before, name) != getattr(after, name)
    ]
    if before.source.place != after.source.place:
        reasons.append(_describe_change("source", before.source.place, after.source.place))
    for name, kind in before.features.items():
        if name not in after.features:
            reasons.append(f"schema.{name} is gone")
        elif after.features[name] != kind:
            reasons.append(_describe_change(f"schema.{name}", kind, after.features[name]))
    added = [name for name in after.features if name not in before.features]
    reasons += [
        f"schema.{name} is new and must not be null, which it is in what was materialised before"
        for name in added
        if name in after.required
    ]
    code = []
    if not same_values:
        fields = changed_code(code_before or {}, code_after or {})
        code = [f"the code that {field} stands on changed" for field in fields]
    if reasons or code:
        hint = "a new feature that may be null would keep the version"
        if not reasons:
            hint = (
                f"if it gives the same values, say why: halving features materialize {after.key} "
                '--accept-same-values "REASON"'
            )
        raise InvalidInput(
            f"the feature view {after.key} is not accepted, because it was registered with another "
            f"definition: {'; '.join([*reasons, *code])}. Give version: {after.version + 1} ({hint})"
        )
    return added


def changed_code(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The fields whose code is known for both, and differs."""
    return [field for field, digest in after.items() if before.get(field, digest) != digest]


def _describe_change(name: str, before: Any, after: Any) -> str:
    return f"{name} was {_value_text(before)} and is {_value_text(after)}"


def _value_text(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, list):
        return comma_list(value)
    return str(value)
