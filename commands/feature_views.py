"""``halving features list`` and ``materialize``: the feature views of project and catalog, and their days."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from commands.dagster_events import report_events
from commands.shared import answer, backend_of
from halving.cli.output import print_table
from halving.cli.parser import add_command
from halving.errors import InvalidInput
from halving.text import NONE, size

if TYPE_CHECKING:
    import dagster as dg
    from rich.console import Console

    from halving import Store
    from resources.features.materialize import Backfill, Materialized


def add_view_commands(inner: Any) -> None:
    """Add the commands that list views and materialise their days."""
    add_command(
        inner, "list", "list the views of this project and of the catalog, with who uses them", run_list
    )
    materialize = add_command(
        inner,
        "materialize",
        "compute a view's features day by day; a day that is as it was is left alone",
        run_materialize,
    )
    materialize.add_argument("view", metavar="NAME@VERSION", help="for example clicks@1")
    materialize.add_argument(
        "--from",
        dest="first",
        type=_day,
        metavar="DAY",
        help="the first day, 2026-03-01 (default: all days that have rows)",
    )
    materialize.add_argument(
        "--to",
        dest="last",
        type=_day,
        metavar="DAY",
        help="the last day, which is included (default: the first)",
    )
    materialize.add_argument(
        "--late",
        action="store_true",
        help="the rows of new days really became known as late as their created times say",
    )
    materialize.add_argument(
        "--accept-same-values",
        metavar="REASON",
        help=(
            "why the view's code, which changed, gives the same values; kept with the view's version "
            "(features list)"
        ),
    )


def run_list(arguments: argparse.Namespace) -> int:
    """List views.

    JSON: ``[{"key", "name", "version", "entity", "features", "online", "days", "first", "last", "defined",
    "registered_at", "sweeps", "accepted", "models"}]``. ``features`` are types by name, ``defined`` says
    whether the project has the view, and ``registered_at`` is null until it is materialised. ``accepted``
    says when and why (``at``, ``reason``) somebody accepted that changed code gives the same values.
    """
    from resources.features.partitions import partitions
    from resources.features.registry import Consumers, all_consumers, registered_views
    from resources.features.wanted import project_views

    backend = backend_of(arguments)
    views = project_views()
    registered = registered_views(backend.catalog)
    used = all_consumers(backend.catalog)
    data: list[dict[str, Any]] = []
    all_views = {key: entry.view for key, entry in registered.items()} | views
    for key, view in sorted(all_views.items()):
        days = partitions(backend.store, view.name, view.version)
        consumers = used.get(key, Consumers())
        row: dict[str, Any] = {
            "key": key,
            "name": view.name,
            "version": view.version,
            "entity": view.entity,
            "features": view.features,
            "online": view.online,
            "days": len(days),
            "first": None,
            "last": None,
            "defined": key in views,
            "registered_at": None,
            "accepted": [],
            "sweeps": consumers.sweeps,
            "models": consumers.models,
        }
        if days:
            row["first"] = days[0].day.isoformat()
            row["last"] = days[-1].day.isoformat()
        if key in registered:
            row["registered_at"] = registered[key].created_at.isoformat()
            row["accepted"] = registered[key].accepted
        data.append(row)

    def show(console: "Console") -> None:
        if not data:
            console.print("there is no feature view yet: define one in features/NAME.yaml (docs/data.md)")
            return
        columns = ("view", "entity", "features", "online", "materialised", "used by sweeps", "models")
        print_table(console, columns, [_row(view) for view in data], first=True)
        for view in data:
            for entry in view["accepted"]:
                line = (
                    f"{view['key']}: the code of {', '.join(entry['changed'])} changed by {entry['at']}, "
                    f"same values: {entry['reason']}"
                )
                console.print(line, style="dim", highlight=False, markup=False)

    return answer(arguments, data, show)


def run_materialize(arguments: argparse.Namespace) -> int:
    """Materialise days of a view. The exit status is 1 if a day was refused.

    JSON: ``{"view", "days": [{"day", "rows", "bytes", "digest", "new"}], "failed": [{"day", "error"}]}``.
    """
    from resources.features.materialize import materialize_all
    from resources.features.registry import check_registered, register
    from resources.features.wanted import project_view

    if arguments.first is None and arguments.last is not None:
        raise InvalidInput("--to needs --from: give the first day, too")
    last = arguments.last or arguments.first
    if last is not None and last < arguments.first:
        raise InvalidInput(f"--to = {last} is not accepted: it is before --from = {arguments.first}")
    view = project_view(arguments.view)
    backend = backend_of(arguments)
    check_registered(backend.catalog, view, arguments.accept_same_values)
    if arguments.first is None:
        done = materialize_all(backend.store, view, late=arguments.late)
    else:
        done = _materialize_days(backend.store, view, arguments.first, last, arguments.late)
    if done.days:
        register(backend.catalog, view, arguments.accept_same_values)
        _report_days(backend.store, done.days.values())
    days: list[dict[str, Any]] = [
        {
            "day": day.isoformat(),
            "rows": made.partition.rows,
            "bytes": made.partition.bytes,
            "digest": f"sha256:{made.partition.sha256}",
            "new": made.new,
        }
        for day, made in sorted(done.days.items())
    ]
    failed = [{"day": day.isoformat(), "error": str(error)} for day, error in sorted(done.failed.items())]

    def show(console: "Console") -> None:
        new = sum(day["new"] for day in days)
        rows = sum(day["rows"] for day in days)
        stored = sum(day["bytes"] for day in days)
        console.print(
            f"{view.key}: {len(days)} days, {new} of them new or changed; {rows:,} rows, {size(stored)}",
            highlight=False,
        )
        for day in failed:
            console.print(
                f"{day['day']} was refused: {day['error']}", style="red", highlight=False, markup=False
            )

    answer(arguments, {"view": view.key, "days": days, "failed": failed}, show)
    return 1 if failed else 0


def _report_days(store: "Store", days: "Iterable[Materialized]") -> None:
    """Report the days that a command has made to Dagster."""

    def make() -> "list[dg.AssetMaterialization]":
        from assets.features import materialized_day

        return [materialized_day(store, day).event() for day in days]

    report_events(store, make, "the days are made, and could not be shown in Dagster")


def _materialize_days(store: Any, view: Any, first: date, last: date, late: bool) -> "Backfill":
    """Materialise each day by itself: a day that is refused keeps no other from being made."""
    from resources.features.materialize import Backfill, materialize_day

    done = Backfill()
    for day in _days(first, last):
        try:
            done.days[day] = materialize_day(store, view, day, late=late)
        except InvalidInput as error:
            done.failed[day] = error
    return done


def _days(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=number) for number in range((last - first).days + 1))


def _row(view: Mapping[str, Any]) -> list[Any]:
    name = view["key"]
    if not view["defined"]:
        name += " (not in this project)"
    online = "no"
    if view["online"]:
        online = "yes"
    days = NONE
    if view["days"]:
        days = f"{view['days']} days, {view['first']} to {view['last']}"
    entity = ", ".join(view["entity"])
    features = ", ".join(f"{name} {kind}" for name, kind in view["features"].items())
    consumers = [", ".join(view["sweeps"]) or NONE, ", ".join(view["models"]) or NONE]
    return [name, entity, features, online, days, *consumers]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give a day, for example 2026-03-01"
        ) from None
