"""``halving features``: list feature views, materialise days, and push, get and delete online features."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from commands.dagster_events import report_events
from commands.shared import answer, backend_of
from halving.cli.output import NONE, print_pairs, print_table, size
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput, NotFound

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
    push = add_command(
        inner,
        "push",
        "push the latest known features of each entity to the online store (HALVING_ONLINE)",
        run_push,
    )
    push.add_argument("views", nargs="*", metavar="NAME@VERSION", help="default: all views with online: true")
    push.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        help="only what was known by then, 2026-03-10T12:00 (UTC; default: now)",
    )
    get = add_command(inner, "get", "look an entity's features up in the online store", run_get)
    get.add_argument("features", nargs="+", metavar="NAME@VERSION:FEATURE", help="for example clicks@1:ctr")
    get.add_argument(
        "--entity",
        action="append",
        required=True,
        type=_pair,
        metavar="COLUMN=VALUE",
        help="may be given several times",
    )
    get.add_argument(
        "--at",
        type=_time,
        metavar="TIME",
        help="the time against which a view's ttl is measured (UTC; default: now)",
    )
    delete = add_command(
        inner,
        "delete",
        "delete an entity's features from the online store; a push does not bring them back",
        run_delete,
    )
    delete.add_argument("view", metavar="NAME@VERSION", help="for example clicks@1")
    delete.add_argument(
        "entity", nargs="+", type=_pair, metavar="COLUMN=VALUE", help="each column of the view's entity"
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
                "sweeps": consumers.sweeps,
                "models": consumers.models,
            }
        )

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


def run_push(arguments: argparse.Namespace) -> int:
    """Push views online.

    JSON: ``[{"view", "entities", "taken", "withdrawn"}]``. ``entities`` counts the entities that have
    features, ``taken`` those whose features were newer than the online ones, and ``withdrawn`` those whose
    online features are in no day any more. A view that was refused, or has not been materialised, has
    ``{"view", "error"}``, and the others are pushed all the same. The exit status is 1 if one was refused.
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
    """Report the days that a command has made to Dagster."""

    def make() -> "list[dg.AssetMaterialization]":
        from assets.features import materialized_day

        return [materialized_day(store, day).event() for day in days]

    report_events(store, make, "the days are made, and could not be shown in Dagster")


def _report_push(store: "Store", pushed: "Mapping[str, Pushed]") -> None:
    """Report what a command has pushed to Dagster."""

    def make() -> "list[dg.AssetMaterialization]":
        from assets.features import pushed_event

        return [pushed_event(pushed)] if pushed else []

    report_events(store, make, "the features are pushed, which could not be shown in Dagster")


def run_get(arguments: argparse.Namespace) -> int:
    """Look features up. JSON: their values by name; null where there is none, or it is too old."""
    from halving.features import OnlineFeatures
    from resources.features.wanted import online_address

    with OnlineFeatures(online_address(backend_of(arguments).store), arguments.features) as online:
        kinds = {
            name: kind
            for definition in online.definitions.values()
            for name, kind in definition.entity.items()
        }
        values = online.get(_entity(dict(arguments.entity), kinds), now=arguments.at)
    pairs = {name: NONE if value is None else value for name, value in values.items()}
    title = ", ".join("=".join(pair) for pair in arguments.entity)
    return answer(arguments, values, lambda console: print_pairs(console, title, pairs))


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete an entity's features online.

    JSON: ``{"view", "entity", "deleted"}``; ``deleted`` says whether there were some.
    """
    from resources.features.online import delete, pushed_definition
    from resources.features.wanted import online_address

    address = online_address(backend_of(arguments).store)
    entity = _entity(dict(arguments.entity), pushed_definition(arguments.view, address).entity)
    data = {"view": arguments.view, "entity": entity, "deleted": delete(arguments.view, entity, address)}
    whose = ", ".join("=".join(pair) for pair in arguments.entity)

    def show(console: "Console") -> None:
        outcome = f"there were no features of {whose}"
        if data["deleted"]:
            outcome = f"the features of {whose} are deleted"
        console.print(
            f"{arguments.view}: {outcome}; what happened until now is not pushed again",
            highlight=False,
            markup=False,
        )
        console.print(
            "days in the store and snapshots have them as before: delete them at the source, and "
            "materialize its days again"
        )

    return answer(arguments, data, show)


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
    features = ", ".join(f"{name} {kind}" for name, kind in view["features"].items())
    days = f"{view['days']} days, {view['first']} to {view['last']}" if view["days"] else NONE
    return [
        view["key"] if view["defined"] else f"{view['key']} (not in this project)",
        ", ".join(view["entity"]),
        features,
        "yes" if view["online"] else "no",
        days,
        ", ".join(view["sweeps"]) or NONE,
        ", ".join(view["models"]) or NONE,
    ]


def _entity(texts: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The entity's columns with the types of the views: whole numbers or texts."""
    entity: dict[str, Any] = {}
    for name, text in texts.items():
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


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give a time, for example 2026-03-01T12:00"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give COLUMN=VALUE, for example user_id=3"
        )
    return name, value
