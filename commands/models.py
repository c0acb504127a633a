"""``halving models``, and the commands that change a version's stage."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import print_pairs, print_table
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput, NotFound
from halving.text import NONE

if TYPE_CHECKING:
    from rich.console import Console

    from resources.backend import Backend

_VERSION = "for example 1.0.1"
_WHY = "why; it is written down"


def add_models_commands(commands: Any) -> None:
    """Add ``halving models`` with its own commands, and the commands that change a version's stage."""
    inner = add_group(
        commands, "models", "the registry: list, show, search, describe, tag, alias, judge, export"
    )
    add_command(inner, "list", "list models' versions", run_list).add_argument(
        "model", nargs="?", help="only of this model"
    )
    add_command(
        inner,
        "show",
        "tell a model's story: its versions, and who decided what, when and why",
        run_show,
        model=None,
    )
    search = add_command(
        inner,
        "search",
        "find versions by a text in their name, description, tags, aliases, stage or run",
        run_search,
    )
    search.add_argument("text", help="all of its words, in any order")
    of = "the model, or MODEL@VERSION for one of its versions"
    add_command(
        inner, "describe", "say what a model or a version is", run_describe, model=of, text="the description"
    )
    add_command(
        inner, "tag", "tag a model or a version", run_tag, model=of, tag="NAME=VALUE; NAME= takes it away"
    )
    alias = add_command(
        inner, "alias", "let an alias mean a version", run_alias, model=None, alias="for example candidate"
    )
    alias.add_argument("version", nargs="?", help=f"{_VERSION}; without one the alias is taken away")
    judge = "evaluate a version again, against the champion of now, and keep the new report and its verdicts"
    add_command(inner, "judge", judge, run_judge, model=None, version=_VERSION)
    export = (
        "write a version as a folder that stands alone: weights, code, schemas, requirements, an example, "
        "a model card"
    )
    add_command(
        inner,
        "export",
        export,
        run_export,
        reference="MODEL@champion, MODEL@1.0.0 or MODEL@ALIAS",
        folder="that does not exist yet",
    )

    approve = add_command(
        commands, "approve", "approve a version that waits for it", run_approve, model=None, version=_VERSION
    )
    approve.add_argument("--note", required=True, help=_WHY)
    reject = add_command(
        commands, "reject", "refuse a version: it is not promoted", run_reject, model=None, version=_VERSION
    )
    reject.add_argument("--note", required=True, help=_WHY)
    version = f"{_VERSION}; with --force also a sweep whose winner its gates hold back"
    description = "make a version the champion, if its gates and people let it"
    promote = add_command(commands, "promote", description, run_promote, model=None, version=version)
    promote.add_argument("--note", help=_WHY)
    promote.add_argument(
        "--force", action="store_true", help="although something holds it back; needs --note"
    )
    rollback = add_command(commands, "rollback", "go back to the champion before", run_rollback, model=None)
    rollback.add_argument("--note", help=_WHY)
    archive = add_command(
        commands, "archive", "take a version out of use", run_archive, model=None, version=_VERSION
    )
    archive.add_argument("--note", help=_WHY)


def run_list(arguments: argparse.Namespace) -> int:
    """List versions.

    JSON: ``{"models": [{"model", "version", "number", "stage", "metrics", "project", "run", "sweep", "trial",
    "checkpoint", "snapshot", "framework", "source", "description", "tags", "created_at", "judged_against",
    "gates", "features"}]}``, newest last. A version that a client registered has no sweep, trial, checkpoint
    and snapshot, and others have no source; these are null.
    """
    from resources.catalog.models import versions_of
    from resources.registry.versions import as_dict

    backend = backend_of(arguments)
    with backend.catalog.read() as session:
        data = [as_dict(session, row) for row in versions_of(session, arguments.model)]
    if not data and arguments.model is not None:
        raise NotFound(f"there is no version of a model {arguments.model!r}; halving models list shows all")
    return _answer(arguments, backend, {"models": data}, lambda console: _print_versions(console, data))


def run_show(arguments: argparse.Namespace) -> int:
    """Show a model with its versions and events.

    JSON: ``{"model", "description", "tags", "aliases", "versions": [as in list], "events": [{"id", "version",
    "kind", "actor", "at", "before", "after", "note", "report"}]}``, oldest first.
    """
    from resources.registry.history import model_story

    backend = backend_of(arguments)
    data = model_story(backend.catalog, arguments.model)

    def show(console: "Console") -> None:
        console.print(data["model"], style="bold", highlight=False, markup=False)
        about: dict[str, Any] = {}
        if data["description"] or data["tags"]:
            about = {"description": data["description"] or None, **data["tags"]}
        print_pairs(console, "about it", about)
        print_pairs(console, "aliases", data["aliases"])
        _print_versions(console, data["versions"], first=False)
        rows = [
            [f"{event['at']:%Y-%m-%d %H:%M:%S}", event["actor"], event["summary"], event["note"]]
            for event in data["events"]
        ]
        print_table(console, ("when (UTC)", "who", "what", "why"), rows)

    return _answer(arguments, backend, data, show)


def run_search(arguments: argparse.Namespace) -> int:
    """Find versions. JSON: as ``halving models list``."""
    from resources.registry.history import search_versions

    backend = backend_of(arguments)
    data = search_versions(backend.catalog, arguments.text)
    return _answer(
        arguments,
        backend,
        {"models": data},
        lambda console: _print_versions(console, data, none="nothing was found"),
    )


def run_describe(arguments: argparse.Namespace) -> int:
    """Describe a model or a version. JSON: ``{"model", "version", "description"}``."""
    from resources.registry import annotations
    from resources.registry.by_hand import annotate, user

    text = arguments.text
    change: Any = lambda session, about: annotations.describe(session, about, text, actor=user())  # noqa: E731
    model, version = annotate(backend_of(arguments), arguments.model, change, _warn)
    data = {"model": model, "version": version, "description": text}
    return _answer_message(arguments, data, f"{_name(model, version)} is described")


def run_tag(arguments: argparse.Namespace) -> int:
    """Set or delete a tag.

    JSON: ``{"model", "version", "tag", "value"}``; the value is null where it was deleted.
    """
    from resources.registry import annotations
    from resources.registry.by_hand import annotate, user

    key, equals, value = arguments.tag.partition("=")
    if not key or not equals:
        raise InvalidInput(
            f"tag {arguments.tag!r} is not accepted: give NAME=VALUE, or NAME= to take it away"
        )

    def change(session: Any, about: Any) -> None:
        if value:
            annotations.set_tag(session, about, key, value, actor=user())
        else:
            annotations.delete_tag(session, about, key, actor=user())

    model, version = annotate(backend_of(arguments), arguments.model, change, _warn)
    name = _name(model, version)
    message = f"{name} has no tag {key}"
    if value:
        message = f"{name} is tagged {key}={value}"
    data = {"model": model, "version": version, "tag": key, "value": value or None}
    return _answer_message(arguments, data, message)


def run_alias(arguments: argparse.Namespace) -> int:
    """Set or delete an alias.

    JSON: ``{"model", "alias", "version"}``; the version is null where it was deleted.
    """
    from resources.registry.by_hand import set_alias, user

    model = arguments.model
    alias = arguments.alias
    version = arguments.version
    set_alias(backend_of(arguments), model, alias, version, _warn, actor=user())
    message = f"{model} has no alias {alias}"
    if version:
        message = f"{model}@{alias} is {model} {version}"
    return _answer_message(arguments, {"model": model, "alias": alias, "version": version}, message)


def run_judge(arguments: argparse.Namespace) -> int:
    """Judge a version again.

    JSON: the version, as in ``halving models list``. The exit status is 1 where a gate did not pass.
    """
    from resources.registry.by_hand import user
    from resources.registry.promotion import judge_again
    from resources.registry.publishing import publish
    from resources.registry.versions import as_dict

    backend = backend_of(arguments)
    row, report = judge_again(backend, arguments.model, arguments.version, actor=user())
    for problem in publish(backend.store, backend.catalog):
        _warn(problem)
    with backend.catalog.read() as session:
        data = as_dict(session, row)

    def show(console: "Console") -> None:
        rows = [[gate["name"], gate["outcome"], gate["reason"]] for gate in data["gates"]]
        print_table(console, ("gate", "verdict", "why"), rows, first=True)
        console.print(f"Report: {report.path}", highlight=False)

    answer(arguments, data, show)
    return 0 if all(gate["passed"] for gate in data["gates"]) else 1


def run_export(arguments: argparse.Namespace) -> int:
    """Export a version. JSON: ``{"reference", "folder"}``."""
    from halving.models.export import export_version
    from halving.store.store import Store

    folder = export_version(Store(arguments.root), arguments.reference, arguments.folder)
    data = {"reference": arguments.reference, "folder": str(folder)}
    message = f"{arguments.reference} is in {folder}; README.md says what it is"
    return _answer_message(arguments, data, message)


def run_approve(arguments: argparse.Namespace) -> int:
    """Approve a version. JSON: the version, as in ``halving models list``."""
    from resources.registry.by_hand import approve

    return _change(arguments, approve, arguments.version, done="approved", note=arguments.note)


def run_reject(arguments: argparse.Namespace) -> int:
    """Reject a version. JSON: the version, as in ``halving models list``."""
    from resources.registry.by_hand import reject

    return _change(arguments, reject, arguments.version, done="rejected", note=arguments.note)


def run_promote(arguments: argparse.Namespace) -> int:
    """Make a version the champion. JSON: the version, as in ``halving models list``."""
    from resources.registry.by_hand import promote

    return _change(arguments, promote, arguments.version, note=arguments.note, force=arguments.force)


def run_rollback(arguments: argparse.Namespace) -> int:
    """Go back to the champion before. JSON: that version, as in ``halving models list``."""
    from resources.registry.by_hand import rollback

    return _change(arguments, rollback, note=arguments.note)


def run_archive(arguments: argparse.Namespace) -> int:
    """Take a version out of use. JSON: the version, as in ``halving models list``."""
    from resources.registry.by_hand import archive

    return _change(arguments, archive, arguments.version, note=arguments.note)


def _change(
    arguments: argparse.Namespace,
    change: "Callable[..., Any]",
    *version: str,
    done: str | None = None,
    **more: Any,
) -> int:
    from resources.registry.by_hand import user
    from resources.registry.versions import as_dict

    backend = backend_of(arguments)
    row, _, missing = change(backend, arguments.model, *version, _warn, actor=user(), **more)
    with backend.catalog.read() as session:
        data = as_dict(session, row)
    state = row.stage
    if done:
        state = f"{done}, and {row.stage}"
    message = f"model {row.model} {row.version} is {state}"
    if done == "approved" and row.stage == "staging":
        promote = f"halving promote {row.model} {row.version} makes it the champion"
        message += f"; {'; '.join(missing) or promote}"
    return _answer_message(arguments, data, message)


def _answer(
    arguments: argparse.Namespace, backend: "Backend", data: Any, show: "Callable[[Console], None]"
) -> int:
    """Answer, and then publish what an earlier command could not publish.

    The answer comes first, so that nobody waits for it while the store is down.
    """
    from resources.registry.publishing import publish

    status = answer(arguments, data, show)
    sys.stdout.flush()
    for problem in publish(backend.store, backend.catalog):
        _warn(problem)
    return status


def _warn(problem: str) -> None:
    print(f"note: {problem}", file=sys.stderr)


def _answer_message(arguments: argparse.Namespace, data: Any, message: str) -> int:
    return answer(arguments, data, lambda console: console.print(message, highlight=False, markup=False))


def _name(model: str, version: str | None) -> str:
    if version is None:
        return f"model {model}"
    return f"model {model} {version}"


def _print_versions(
    console: "Console", versions: list[dict[str, Any]], *, first: bool = True, none: str | None = None
) -> None:
    if not versions:
        console.print(
            none or "there are no model versions yet: run [bold]halving sweep sweeps/digits.yaml[/]"
        )
        return
    rows = []
    for row in versions:
        metrics = []
        for name, value in row["metrics"].items():
            text = "not finite"
            if value is not None:
                text = f"{value:.4f}"
            metrics.append(f"{name} {text}")
        artifact = (row["checkpoint"] or row["source"] or "")[:19]
        rows.append(
            [
                row["model"],
                row["version"],
                row["stage"],
                ", ".join(metrics),
                row["run"] or "",
                artifact,
                ", ".join(row["features"]) or NONE,
            ]
        )
    print_table(
        console,
        ("model", "version", "stage", "test metrics", "run", "checkpoint", "features"),
        rows,
        first=first,
    )
