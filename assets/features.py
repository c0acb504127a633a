"""``feature_view/clicks_v1``, an asset for each view with a partition for each day; ``online_features``."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.events import Materialized, expected_failures
from halving import Store
from halving.errors import InvalidInput, NotFound
from halving.text import comma_list
from resources.backend import Backend
from resources.features.registry import check_registered, register
from resources.features.view import FeatureView
from resources.features.wanted import online_address, project_views

if TYPE_CHECKING:
    from resources.features.materialize import Materialized as MaterializedDay
    from resources.features.online import Pushed

GROUP = "features"
ONLINE = "online_features"
_FIRST_DAY = date(2024, 1, 1)
# They wait until the store or the database is available again.
_RETRIES = dg.RetryPolicy(max_retries=5, delay=10, backoff=dg.Backoff.EXPONENTIAL)


class DayConfig(dg.Config):
    """Settings for the days that a run materialises."""

    late: bool = Field(
        default=False,
        description=(
            "The rows of new days really became known long after their events, as their created times say."
        ),
    )
    accept_same_values: str | None = Field(
        default=None,
        description=(
            "Why the view's code, which changed, gives the same values: the reason is kept with the view's "
            "version."
        ),
    )


def feature_assets() -> list[dg.AssetsDefinition]:
    """The assets of this project's views; none if there are none.

    If a view is not accepted, the log of the code location says so, and there are no feature assets; sweeps
    are not affected. Running sweeps load this again and again, perhaps while somebody edits a view.
    """
    try:
        views = list(project_views().values())
    except InvalidInput as error:
        dg.get_dagster_logger("halving.features").error(
            f"no feature view has an asset, because one is not accepted: {error}"
        )
        return []
    online = [view for view in views if view.online]
    assets = [feature_view(view) for view in views]
    if online:
        assets.append(online_features(online))
    return assets


def asset_key(view: str) -> dg.AssetKey:
    """``feature_view/clicks_v1`` for ``clicks@1``, because Dagster's keys have no ``@``."""
    return dg.AssetKey(["feature_view", view.replace("@", "_v")])


def feature_view(view: FeatureView) -> dg.AssetsDefinition:
    """The asset of a version of a view.

    A day's run materialises the rows whose events are of that day, in UTC.
    """

    @dg.asset(
        key=asset_key(view.key),
        description=(
            f"The features {comma_list(view.features)} of {comma_list(view.entity)}, by the day of their "
            f"events; of {view.source.place}."
        ),
        group_name=GROUP,
        partitions_def=dg.DailyPartitionsDefinition(start_date=(view.start or _FIRST_DAY).isoformat()),
        kinds={"duckdb", "parquet"},
        metadata={"view": dg.MetadataValue.json(view.as_dict())},
        retry_policy=_RETRIES,
    )
    def of_a_day(
        context: dg.AssetExecutionContext, config: DayConfig, backend: Backend
    ) -> dg.MaterializeResult:
        from resources.features.materialize import materialize_day

        with expected_failures():
            check_registered(backend.catalog, view, config.accept_same_values)
            materialized = materialize_day(
                backend.store, view, date.fromisoformat(context.partition_key), late=config.late
            )
            register(backend.catalog, view, config.accept_same_values)
        event = materialized_day(backend.store, materialized)
        context.log.info(
            f"{view.key} of {context.partition_key}: {materialized.partition.rows} rows, "
            f"{event.metadata['change']}"
        )
        return event.result()

    return of_a_day


def materialized_day(store: Store, done: "MaterializedDay") -> Materialized:
    """The materialization of a day of a view, whoever made it."""
    day = done.partition
    change = "unchanged"
    if done.new:
        change = "new"
    metadata = {
        "dagster/row_count": day.rows,
        "bytes": day.bytes,
        "digest": f"sha256:{day.sha256}",
        "change": change,
        "generation": day.generation,
        "file": store.address(day.name),
    }
    asset = asset_key(day.definition.key).to_user_string()
    return Materialized(
        asset, partition=day.day.isoformat(), version=f"sha256:{day.sha256}", metadata=metadata
    )


def online_features(views: Sequence[FeatureView]) -> dg.AssetsDefinition:
    """The asset of the online store, for every view with ``online: true``.

    A run pushes what is newer than what is there.
    """

    @dg.asset(
        name=ONLINE,
        description="The latest known features of each entity, for serving (HALVING_ONLINE).",
        group_name=GROUP,
        deps=[asset_key(view.key) for view in views],
        retry_policy=_RETRIES,
    )
    def latest(context: dg.AssetExecutionContext, backend: Backend) -> dg.MaterializeResult:
        from resources.features.online import push

        metadata: dict[str, dg.MetadataValue] = {}
        refused: list[InvalidInput] = []
        with expected_failures():
            address = online_address(backend.store)
            for view in views:
                try:
                    check_registered(backend.catalog, view)
                    pushed = push(backend.store, view, address)
                except NotFound as error:
                    if len(views) == 1:
                        raise
                    context.log.warning(str(error))
                    metadata[view.key] = dg.MetadataValue.text("not materialised yet")
                except InvalidInput as error:  # The other views are pushed all the same.
                    context.log.error(str(error))
                    refused.append(error)
                else:
                    metadata[view.key] = pushed_metadata(pushed)
                    context.log.info(f"{view.key}: {metadata[view.key].value}")
            if refused:
                raise InvalidInput("; ".join(map(str, refused)))
        return dg.MaterializeResult(metadata=metadata)

    return latest


def pushed_event(pushed: "Mapping[str, Pushed]") -> dg.AssetMaterialization:
    """The event of a push of views, by ``clicks@1``, that no Dagster run has made."""
    return dg.AssetMaterialization(
        ONLINE, metadata={view: pushed_metadata(of_view) for view, of_view in pushed.items()}
    )


def pushed_metadata(pushed: "Pushed") -> dg.TextMetadataValue:
    """The outcome of a push, for Dagster's UI."""
    withdrawn = ""
    if pushed.withdrawn:
        withdrawn = f", {pushed.withdrawn} withdrawn"
    return dg.MetadataValue.text(f"{pushed.entities} entities, {pushed.taken} of them newer{withdrawn}")
