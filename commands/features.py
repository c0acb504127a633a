"""``halving features``; its commands on views are in :mod:`commands.feature_views`."""

import argparse
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commands.dagster_events import report_events
from commands.feature_views import add_view_commands
from commands.shared import answer, backend_of
from halving.cli.output import print_pairs
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput, NotFound
from halving.text import parse_time

if TYPE_CHECKING:
    import dagster as dg
    from rich.console import Console

    from halving import Store
    from resources.features.online import Pushed


def add_features_commands(commands: Any) -> None:
    """Add ``halving features`` with its own commands."""
    description = "feature views: list, materialize, push, get, delete"
    inner = add_group(commands, "features", description)
    add_view_commands(inner)
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
                    f"; the online features of {of_view['withdrawn']:,} were withdrawn, because the days "
                    "that were made again no longer have them"
                )
            console.print(line, highlight=False)

    answer(arguments, data, show)
    return 1 if is_refused else 0


def _report_push(store: "Store", pushed: "Mapping[str, Pushed]") -> None:
    """Report what a command has pushed to Dagster."""

    def make() -> "list[dg.AssetMaterialization]":
        from assets.features import pushed_event

        if not pushed:
            return []
        return [pushed_event(pushed)]

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
    title = ", ".join("=".join(pair) for pair in arguments.entity)
    return answer(arguments, values, lambda console: print_pairs(console, title, values))


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


def _entity(texts: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The entity's columns with the types of the views: whole numbers or texts."""
    entity: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in kinds:
            raise InvalidInput(
                f"--entity {name}={text} is not accepted: the views' entity has {', '.join(kinds)}"
            )
        entity[name] = text
        if kinds[name] != "int64":
            continue
        try:
            entity[name] = int(text)
        except ValueError:
            raise InvalidInput(f"--entity {name}={text} is not accepted: give a whole number") from None
    return entity


def _time(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give a time, for example 2026-03-01T12:00"
        ) from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give COLUMN=VALUE, for example user_id=3"
        )
    return name, value
