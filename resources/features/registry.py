"""The registry of feature views in the catalog: which definition each version has, and who uses it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.features.reference import parse_reference
from halving.store.json_files import now
from resources.catalog import Catalog, FeatureViewRow, ModelVersionRow, SweepRow, utcnow
from resources.features.compatibility import changed_code, check_change
from resources.features.view import FeatureView, code_of_view, parse_view

_FEATURES = SweepRow.spec[("dataset", "features")]


@dataclass(frozen=True)
class RegisteredView:
    """A version of a view as the catalog knows it.

    Attributes:
        view: its newest definition.
        code: :func:`resources.features.view.code_of_view` of it.
        accepted: when and why (``at``, ``reason``) somebody declared that new code of the fields ``changed``
            gives the same values.
        created_at: when the version was registered.
    """

    view: FeatureView
    code: dict[str, str]
    accepted: list[dict[str, Any]]
    created_at: datetime


@dataclass(frozen=True)
class Consumers:
    """The users of a version of a view: sweeps by id, and the model versions from them, ``ctr 1.0.0``."""

    sweeps: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


def check_registered(catalog: Catalog, view: FeatureView, same_values: str | None = None) -> None:
    """Refuse a definition that its version cannot have, before anything is done with it.

    Args:
        same_values: why new code of the same functions gives the same values; it is accepted then.

    Raises:
        InvalidInput: the version is registered with another definition, which needs a version of its own; the
            message says why. Or the reason is empty, or was the reason for an earlier change.
    """
    _check_not_empty(same_values)
    with catalog.read() as session:
        row = session.get(FeatureViewRow, (view.name, view.version))
        if row is not None:
            _check_row(row, view, code_of_view(view), same_values)


def register(catalog: Catalog, view: FeatureView, same_values: str | None = None) -> RegisteredView:
    """Record a version of a view once it is materialised; until then its author may change it.

    The same definition again changes nothing.

    Args:
        same_values: as for :func:`check_registered`; if code changed it is kept with the version.

    Raises:
        InvalidInput: as :func:`check_registered`.
    """
    _check_not_empty(same_values)
    code = code_of_view(view)
    definition = view.as_dict()
    with catalog.read() as session:
        row = session.get(FeatureViewRow, (view.name, view.version))
        if row is not None and (row.definition, row.code) == (definition, code):
            return _from_row(row)
    with catalog.write(exclusive=True) as session:
        row = session.get(FeatureViewRow, (view.name, view.version))
        if row is None:
            row = FeatureViewRow(name=view.name, version=view.version, accepted=[], created_at=utcnow())
            session.add(row)
        else:
            _check_row(row, view, code, same_values)
            if changed := changed_code(row.code, code):
                row.accepted = [*row.accepted, {"at": now(), "reason": same_values, "changed": changed}]
        row.definition = definition
        row.code = code
        session.flush()
        return _from_row(row)


def registered_views(catalog: Catalog) -> dict[str, RegisteredView]:
    """All versions that were registered, by ``clicks@1``."""
    query = select(FeatureViewRow).order_by(FeatureViewRow.name, FeatureViewRow.version)
    with catalog.read() as session:
        views = [_from_row(row) for row in session.scalars(query)]
    return {registered.view.key: registered for registered in views}


def consumers(catalog: Catalog, name: str, version: int) -> Consumers:
    """The sweeps whose spec names features of a version of a view, and the models promoted from them."""
    return all_consumers(catalog).get(f"{name}@{version}", Consumers())


def all_consumers(catalog: Catalog) -> Mapping[str, Consumers]:
    """The consumers of each version that has some, by ``clicks@1``, the oldest first."""
    promoted = (
        select(ModelVersionRow).where(ModelVersionRow.sweep.is_not(None)).order_by(ModelVersionRow.created_at)
    )
    consumers_of: dict[str, Consumers] = defaultdict(Consumers)
    with catalog.read() as session:
        sweeps = session.execute(select(SweepRow.id, _FEATURES).order_by(SweepRow.created_at))
        wanted = {sweep: _by_view(features) for sweep, features in sweeps if features}
        for sweep, views in wanted.items():
            for view in views:
                consumers_of[view].sweeps.append(sweep)
        for row in session.scalars(promoted):
            for view in wanted.get(str(row.sweep), ()):
                consumers_of[view].models.append(f"{row.model} {row.version}")
    return consumers_of


def views_of_model(catalog: Catalog, model: str, version: str) -> dict[str, list[str]]:
    """The features that a model's version was trained with, by view (``clicks@1``), as in its sweep's spec.

    All of them in this order are what :class:`halving.features.OnlineFeatures` has to serve the model.

    Raises:
        NotFound: there is no such version.
    """
    with catalog.read() as session:
        row = session.get(ModelVersionRow, (model, version))
        if row is None:
            raise NotFound(
                f"no version {version!r} of model {model!r}; `halving models list` lists those that there are"
            )
        return _by_view(features_of(session, row))


def features_of(session: Session, version: ModelVersionRow) -> list[str]:
    """The features that a model's version was trained with, as in its sweep's spec.

    A version that a client registered has none.
    """
    return session.scalar(select(_FEATURES).where(SweepRow.id == version.sweep)) or []


def _check_not_empty(same_values: str | None) -> None:
    if same_values is not None and not same_values.strip():
        raise InvalidInput("accept_same_values is empty: say why the changed code gives the same values")


def _check_row(
    row: FeatureViewRow, view: FeatureView, code: Mapping[str, str], same_values: str | None
) -> None:
    """Refuse a definition that a registered version cannot get.

    A reason counts for one change only: in a schedule it would otherwise accept every later change, too.
    """
    check_change(parse_view(row.definition), view, row.code, code, same_values=same_values is not None)
    earlier = [entry["at"] for entry in row.accepted if entry["reason"] == same_values]
    if earlier and changed_code(row.code, code):
        raise InvalidInput(
            f"accept_same_values = {same_values!r} is not accepted: it was the reason for a change on "
            f"{earlier[-1]}, and the code of {view.key} has changed since; say why this change gives the "
            "same values"
        )


def _by_view(features: list[str]) -> dict[str, list[str]]:
    views: dict[str, list[str]] = defaultdict(list)
    for feature in features:
        views[parse_reference(feature).key].append(feature)
    return dict(views)


def _from_row(row: FeatureViewRow) -> RegisteredView:
    return RegisteredView(parse_view(row.definition), row.code, row.accepted, row.created_at)
