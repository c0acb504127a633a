"""``halving features``: list views, materialise days, push what is known online, look features up there, and
delete an entity's.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from halving.cli.output import NONE, print_pairs, print_table, size
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput, NotFound
from pipelines.cli_views import answer, backend_of
from pipelines.dagster_events import report_events

if TYPE_CHECKING:
    import dagster as dg
    from rich.console import Console

    from halving import Store
    from resources.features.materialize import Backfill, Materialized
    from resources.features.online import Pushed


def add_features_commands(commands: Any) -> None:
    """Add ``halving features`` with its own commands."""
    description = "feature views: list, materialize, push, get, delete"
    inner = add_group(commands, "features", description)

    add_command(
        inner, "list", "list the views of this project and of the catalog, with who uses them", run_list
    )
    one = add_command(
        inner,
        "materialize",
        "compute a view's features day by day; a day that is as it was is left alone",
        run_materialize,
    )
    one.add_argument("view", metavar="NAME@VERSION", help="for example clicks@1")
    one.add_argument(
        "--from",
        dest="first",
        type=_day,
        metavar="DAY",
        help="the first day, 2026-03-01 (default: all days that have rows)",
    )
    one.add_argument(
        "--to",
        dest="last",
        type=_day,
        metavar="DAY",
        help="the last day, which is included (default: the first)",
    )
    one.add_argument(
        "--late",
        action="store_true",
        help="the rows of new days really became known as late as their created times say",
    )
    one.add_argument(
        "--accept-same-values",
        metavar="REASON",
        help=(
            "why the view's code, which changed, gives the same values; kept with the view's version "
            "(features list)"
        ),
    )
    one = add_command(
        inner,
        "push",
        "push the latest known features of each entity to the online store (HALVING_ONLINE)",
        run_push,
    )
    one.add_argument("views", nargs="*", metavar="NAME@VERSION", help="default: all views with online: true")
    one.add_argument(
        "--until",
        type=_moment,
        metavar="TIME",
        help="only what was known by then, 2026-03-10T12:00 (UTC; default: now)",
    )
    one = add_command(inner, "get", "look an entity's features up in the online store", run_get)
    one.add_argument("features", nargs="+", metavar="NAME@VERSION:FEATURE", help="for example clicks@1:ctr")
    one.add_argument(
        "--entity",
        action="append",
        required=True,
        type=_pair,
        metavar="COLUMN=VALUE",
        help="may be given several times",
    )
    one.add_argument(
        "--at",
        type=_moment,
        metavar="TIME",
        help="the time against which a view's ttl is measured (UTC; default: now)",
    )
    one = add_command(
        inner,
        "delete",
        "delete an entity's features from the online store; a push does not bring them back",
        run_delete,
    )
    one.add_argument("view", metavar="NAME@VERSION", help="for example clicks@1")
    one.add_argument(
        "entity", nargs="+", type=_pair, metavar="COLUMN=VALUE", help="each column of the view's entity"
    )


def run_list(arguments: argparse.Namespace) -> int:
    """List views.

    JSON: ``[{"key", "name", "version", "entity", "features", "online", "days", "first", "last", "defined",
    "registered_at", "sweeps", "accepted", "models"}]``; ``features`` are types by name, ``defined`` whether
    the project has it, ``registered_at`` null until it is materialised; ``accepted`` is when and why (``at``,
    ``reason``) changed code of it was said to give the same values.
    """
    from resources.features.partitions import partitions
    from resources.features.registry import Consumers, all_consumers, registered_views
    from resources.features.wanted import project_views

    backend = backend_of(arguments)
    views = project_views()
    registered = registered_views(backend.catalog)
    used = all_consumers(backend.catalog)
    data: list[dict[str, Any]] = []
    for key, view in sorted(({key: one.view for key, one in registered.items()} | views).items()):
        days = partitions(backend.store, view.name, view.version)
        by = used.get(key, Consumers())
        data.append(
            {
                "key": key,
                "name": view.name,
                "version": view.version,
                "entity": view.entity,
                "features": view.features,
                "online": view.online,
                "days": len(days),
                "first": days[0].day.isoformat() if days else None,
                "last": days[-1].day.isoformat() if days else None,
                "defined": key in views,
                "registered_at": registered[key].created_at.isoformat() if key in registered else None,
                "accepted": registered[key].accepted if key in registered else [],
                "sweeps": by.sweeps,
                "models": by.models,
            }
        )

    def show(console: "Console") -> None:
        if not data:
            console.print("there is no feature view yet: define one in features/NAME.yaml (docs/data.md)")
            return
        columns = ("view", "entity", "features", "online", "materialised", "used by sweeps", "models")
        print_table(console, columns, [_row(one) for one in data], first=True)
        for one in data:
            for entry in one["accepted"]:
                line = (
                    f"{one['key']}: the code of {', '.join(entry['changed'])} changed by {entry['at']}, "
                    f"same values: {entry['reason']}"
                )
                console.print(line, style="dim", highlight=False, markup=False)

    return answer(arguments, data, show)


def run_materialize(arguments: argparse.Namespace) -> int:
    """Materialise days of a view. The status is 1 if one was refused.

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
            "rows": one.partition.rows,
            "bytes": one.partition.bytes,
            "digest": f"sha256:{one.partition.sha256}",
            "new": one.new,
        }
        for day, one in sorted(done.days.items())
    ]
    failed = [{"day": day.isoformat(), "error": str(error)} for day, error in sorted(done.failed.items())]

    def show(console: "Console") -> None:
        new = sum(one["new"] for one in days)
        rows, stored = (sum(one[field] for one in days) for field in ("rows", "bytes"))
        console.print(
            f"{view.key}: {len(days)} days, {new} of them new or changed; {rows:,} rows, {size(stored)}",
            highlight=False,
        )
        for one in failed:
            console.print(
                f"{one['day']} was refused: {one['error']}", style="red", highlight=False, markup=False
            )

    answer(arguments, {"view": view.key, "days": days, "failed": failed}, show)
    return 1 if failed else 0


def run_push(arguments: argparse.Namespace) -> int:
    """Push views online.

    JSON: ``[{"view", "entities", "taken", "withdrawn"}]``: how many entities have features, of how many these
    were newer than what was online, and of how many what was online is in no day any more. Of a view that was
    refused, or has not been materialised, it is ``{"view", "error"}``; the others are pushed all the same.
    The status is 1 if one was refused.
    """
    from resources.features.online import push
    from resources.features.registry import check_registered
    from resources.features.wanted import online_address, project_view, project_views

    if arguments.views:
        views = [project_view(key) for key in arguments.views]
    elif not (views := [view for view in project_views().values() if view.online]):
        raise InvalidInput("no view has online: true, so nothing is pushed by itself; name the views")
    backend = backend_of(arguments)
    address = online_address(backend.store)
    data: list[dict[str, Any]] = []
    done: dict[str, Pushed] = {}
    is_refused = False
    for view in views:
        try:
            check_registered(backend.catalog, view)
            pushed = push(backend.store, view, address, until=arguments.until)
        except (InvalidInput, NotFound) as error:
            if len(views) == 1:
                raise
            is_refused |= isinstance(error, InvalidInput)
            data.append({"view": view.key, "error": str(error)})
        else:
            done[view.key] = pushed
            data.append(
                {
                    "view": view.key,
                    "entities": pushed.entities,
                    "taken": pushed.taken,
                    "withdrawn": pushed.withdrawn,
                }
            )
    _report_push(backend.store, done)

    def show(console: "Console") -> None:
        for of_view in data:
            if "error" in of_view:
                console.print(
                    f"{of_view['view']} was not pushed: {of_view['error']}",
                    style="red",
                    highlight=False,
                    markup=False,
                )
                continue
            line = f"{of_view['view']}: {of_view['entities']:,} entities have features that still count, "
            line += f"{of_view['taken']:,} are newer than before"
            if of_view["withdrawn"]:
                line += (
                    f"; of {of_view['withdrawn']:,} what was online was withdrawn, since the days that "
                    "were made again have it no more"
                )
            console.print(line, highlight=False)

    answer(arguments, data, show)
    return 1 if is_refused else 0


def _report_days(store: "Store", days: "Iterable[Materialized]") -> None:
    """Have Dagster show the days that a command has made."""

    def make() -> "list[dg.AssetMaterialization]":
        from assets.features import materialized_day

        return [materialized_day(store, day).event() for day in days]

    report_events(store, make, "the days are made, and could not be shown in Dagster")


def _report_push(store: "Store", pushed: "Mapping[str, Pushed]") -> None:
    """Have Dagster show what a command has pushed."""

    def make() -> "list[dg.AssetMaterialization]":
        from assets.features import pushed_event

        return [pushed_event(pushed)] if pushed else []

    report_events(store, make, "the features are pushed, which could not be shown in Dagster")


def run_get(arguments: argparse.Namespace) -> int:
    """Look features up. JSON: their values by name; null where nothing is known, or too long ago."""
    from halving.features import OnlineFeatures
    from resources.features.wanted import online_address

    with OnlineFeatures(online_address(backend_of(arguments).store), arguments.features) as online:
        kinds = {
            name: kind
            for definition in online.definitions.values()
            for name, kind in definition.entity.items()
        }
        found = online.get(_entity(dict(arguments.entity), kinds), now=arguments.at)
    shown = {name: NONE if value is None else value for name, value in found.items()}
    return answer(
        arguments,
        found,
        lambda console: print_pairs(console, ", ".join("=".join(pair) for pair in arguments.entity), shown),
    )


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete an entity's features online.

    JSON: ``{"view", "entity", "deleted"}``: whether there were some.
    """
    from resources.features.online import delete, pushed_definition
    from resources.features.wanted import online_address

    address = online_address(backend_of(arguments).store)
    entity = _entity(dict(arguments.entity), pushed_definition(arguments.view, address).entity)
    data = {"view": arguments.view, "entity": entity, "deleted": delete(arguments.view, entity, address)}
    whose = ", ".join("=".join(pair) for pair in arguments.entity)

    def show(console: "Console") -> None:
        what = (
            f"the features of {whose} are deleted"
            if data["deleted"]
            else f"there were no features of {whose}"
        )
        console.print(
            f"{arguments.view}: {what}; what happened until now is not pushed again",
            highlight=False,
            markup=False,
        )
        console.print(
            "days in the store and snapshots have them as before: delete them at the source, and "
            "materialize its days again"
        )

    return answer(arguments, data, show)


def _materialize_days(store: Any, view: Any, first: date, last: date, late: bool) -> "Backfill":
    """Each day by itself: one that is refused keeps no other from being made."""
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


def _row(one: Mapping[str, Any]) -> list[Any]:
    features = ", ".join(f"{name} {kind}" for name, kind in one["features"].items())
    days = f"{one['days']} days, {one['first']} to {one['last']}" if one["days"] else NONE
    view = one["key"] if one["defined"] else f"{one['key']} (not in this project)"
    return [
        view,
        ", ".join(one["entity"]),
        features,
        "yes" if one["online"] else "no",
        days,
        *(", ".join(one[field]) or NONE for field in ("sweeps", "models")),
    ]


def _entity(given: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The entity's columns as the views have them: whole numbers where they are such."""
    entity: dict[str, Any] = {}
    for name, text in given.items():
        if name not in kinds:
            raise InvalidInput(
                f"--entity {name}={text} is not accepted: the views' entity has {', '.join(kinds)}"
            )
        try:
            entity[name] = int(text) if kinds[name] == "int64" else text
        except ValueError:
            raise InvalidInput(f"--entity {name}={text} is not accepted: give a whole number") from None
    return entity


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give a day, for example 2026-03-01"
        ) from None


def _moment(text: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give a time, for example 2026-03-01T12:00"
        ) from None
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give COLUMN=VALUE, for example user_id=3"
        )
    return name, value
