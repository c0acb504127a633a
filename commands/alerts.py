"""``halving alerts``: what was told to whom, where alerts are sent to, and what did not arrive."""

import argparse
import getpass
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import names_of, print_table
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput, NotFound
from halving.text import NONE, comma_list, count_of, duration, local_time, parse_duration

if TYPE_CHECKING:
    from rich.console import Console


def add_alerts_commands(commands: Any) -> None:
    """Add ``halving alerts`` with its own commands."""
    inner = add_group(
        commands, "alerts", "what people are told when something happens, and where it is sent to"
    )
    listed = add_command(inner, "list", "list alerts, newest first, and whether they arrived", run_list)
    listed.add_argument("--project", "-p", metavar="NAME", help="only alerts of this project")
    listed.add_argument("--event", metavar="EVENT", help="only alerts of this event, such as crashed")
    listed.add_argument("--limit", "-n", type=int, default=30, metavar="N", help="at most N (default 30)")
    add_command(inner, "events", "list the events that alerts tell of", run_events)
    add_command(inner, "channels", "list where alerts are sent to", run_channels)
    add = add_command(
        inner,
        "add",
        "add a channel that alerts are sent to",
        run_add,
        channel="its name",
    )
    add.add_argument("kind", help="webhook, slack, discord, teams or email")
    add.add_argument(
        "address",
        help="https://…, as the service gives it; smtps://USER@HOST?from=…&to=… for email; - reads it",
    )
    add.add_argument("--project", "-p", metavar="NAME", action="append", help="only its alerts; repeatable")
    add.add_argument("--events", metavar="A,B", help="only these events (halving alerts events)")
    add.add_argument(
        "--secret",
        metavar="TEXT",
        help="the key of a webhook (default: a new one), or the password of a mailbox",
    )
    add_command(inner, "remove", "remove a channel", run_remove, channel="its name")
    test = add_command(inner, "test", "send a message to a channel now", run_test, channel="its name")
    test.add_argument(
        "--network", metavar="NETWORK", action="append", default=[], help="a private network it may be in"
    )
    add_command(inner, "rules", "list how long runs may be silent, and bounds of their metrics", run_rules)
    rule = add_command(
        inner,
        "rule",
        "set a project's rule: what of its runs is told",
        run_rule,
        project="its name; * is all others",
    )
    rule.add_argument(
        "--silent-after", metavar="TIME", help="tell of runs that log nothing for so long: 90s, 15m, 2h"
    )
    rule.add_argument(
        "--bound",
        metavar="TEXT",
        action="append",
        default=[],
        help="tell of a metric that passes it: 'val_loss > 10' or 'accuracy < 0.1'; repeatable",
    )
    rule.add_argument("--remove", action="store_true", help="remove the project's rule")
    add_command(inner, "dead", "list messages that did not arrive, and why", run_dead)
    retry = add_command(inner, "retry", "send messages again that did not arrive", run_retry)
    retry.add_argument("messages", nargs="+", metavar="MESSAGE", help="msg_…, or all")


def run_list(arguments: argparse.Namespace) -> int:
    """List alerts. JSON: ``{"alerts": [{"id", "at", "event", "level", "title", …, "deliveries"}]}``."""
    from resources.alerts.alert import check_event
    from resources.alerts.listing import MAX_ALERTS, list_alerts

    if not 1 <= arguments.limit <= MAX_ALERTS:
        raise InvalidInput(f"limit = {arguments.limit} is not accepted: give 1 to {MAX_ALERTS}")
    if arguments.event is not None:
        check_event(arguments.event)
    projects = None
    backend = backend_of(arguments)
    with backend.catalog.read() as session:
        if arguments.project is not None:
            projects = _all_names(session, arguments.project)
        alerts = list_alerts(session, projects=projects, event=arguments.event, limit=arguments.limit)

    def show(out: "Console") -> None:
        if not alerts:
            out.print("no alerts: none since a server (halving serve) first looked at this store")
            return
        rows = [
            (
                local_time(alert["at"]),
                alert["event"],
                alert["title"],
                _describe_deliveries(alert["deliveries"]),
            )
            for alert in alerts
        ]
        print_table(out, ("time", "event", "what happened", "told"), rows, first=True)

    return answer(arguments, {"alerts": alerts}, show)


def run_events(arguments: argparse.Namespace) -> int:
    """List the events. JSON: ``{"events": {NAME: MEANING}}``."""
    from resources.alerts.alert import EVENTS

    return answer(
        arguments,
        {"events": EVENTS},
        lambda out: print_table(out, ("event", "when"), list(EVENTS.items()), first=True),
    )


def run_channels(arguments: argparse.Namespace) -> int:
    """List channels. JSON: ``{"channels": [{"name", "kind", "host", "projects", "events", …}]}``."""
    from resources.alerts.channels import channel_as_dict, list_channels

    with backend_of(arguments).catalog.read() as session:
        channels = [channel_as_dict(row) for row in list_channels(session)]

    def show(out: "Console") -> None:
        if not channels:
            out.print("no channels: add one with halving alerts add NAME slack https://hooks.slack.com/…")
            return
        rows = [
            (
                channel["name"],
                channel["kind"],
                channel["host"],
                comma_list(channel["projects"] or ["all"]),
                comma_list(channel["events"] or ["all"]),
            )
            for channel in channels
        ]
        print_table(out, ("channel", "kind", "host", "projects", "events"), rows, first=True)

    return answer(arguments, {"channels": channels}, show)


def run_add(arguments: argparse.Namespace) -> int:
    """Add a channel. JSON: ``{"name", "secret"}``; the secret is null where it is no webhook's."""
    import sys

    from resources.alerts.channels import add_channel

    address = arguments.address
    if address == "-":
        address = sys.stdin.readline().strip()
    with backend_of(arguments).catalog.write() as session:
        row = add_channel(
            session,
            arguments.channel,
            arguments.kind,
            address,
            actor=getpass.getuser(),
            secret=arguments.secret,
            projects=arguments.project,
            events=names_of(arguments.events),
        )
        secret = row.secret
    if row.kind != "webhook":
        secret = None

    def show(out: "Console") -> None:
        out.print(f"alerts are sent to {arguments.channel} while a server runs (halving serve)")
        if secret is not None:
            out.print(f"its messages are signed with {secret}", markup=False)
        out.print(f"try it: halving alerts test {arguments.channel}")

    return answer(arguments, {"name": arguments.channel, "secret": secret}, show)


def run_remove(arguments: argparse.Namespace) -> int:
    """Remove a channel. JSON: ``{"removed": NAME}``."""
    from resources.alerts.channels import remove_channel

    with backend_of(arguments).catalog.write() as session:
        remove_channel(session, arguments.channel)
    return answer(
        arguments,
        {"removed": arguments.channel},
        lambda out: out.print(f"{arguments.channel} is removed; what waited for it is not sent"),
    )


def run_test(arguments: argparse.Namespace) -> int:
    """Send a message now. JSON: ``{"channel", "error"}``; the exit status is 1 if it did not arrive."""
    from resources.alerts.addresses import parse_networks
    from resources.alerts.channels import find_channel
    from resources.alerts.delivery import send_test

    catalog = backend_of(arguments).catalog
    with catalog.read() as session:
        channel = find_channel(session, arguments.channel)
    outcome = send_test(catalog, channel, parse_networks(arguments.network))
    text = f"{channel.name} has taken the message"
    if outcome.error is not None:
        text = f"{channel.name} has not taken the message: {outcome.error}"
    answer(
        arguments,
        {"channel": channel.name, "error": outcome.error},
        lambda out: out.print(text, markup=False),
    )
    return int(outcome.error is not None)


def run_rules(arguments: argparse.Namespace) -> int:
    """List rules. JSON: ``{"rules": [{"project", "silent_after", "bounds"}]}``."""
    from resources.watch.rules import list_rules

    with backend_of(arguments).catalog.read() as session:
        rules = list_rules(session)

    def show(out: "Console") -> None:
        if not rules:
            out.print("no rules: set one with halving alerts rule PROJECT --silent-after 15m")
            return
        rows = [
            (rule.project, duration(rule.silent_after), comma_list(rule.bounds or [NONE])) for rule in rules
        ]
        print_table(out, ("project", "silent after", "bounds"), rows, first=True)

    return answer(arguments, {"rules": [rule.as_dict() for rule in rules]}, show)


def run_rule(arguments: argparse.Namespace) -> int:
    """Set or remove a rule. JSON: ``{"project", "silent_after", "bounds"}``, or ``{"removed": PROJECT}``."""
    from resources.watch.rules import parse_bound, remove_rule, set_rule

    project = arguments.project
    catalog = backend_of(arguments).catalog
    if arguments.remove:
        with catalog.write() as session:
            remove_rule(session, project)
        return answer(
            arguments, {"removed": project}, lambda out: out.print(f"the rule of {project} is removed")
        )
    if arguments.silent_after is None and not arguments.bound:
        raise InvalidInput("the rule is empty: give --silent-after, --bound or --remove")
    seconds = None
    if arguments.silent_after is not None:
        seconds = parse_duration("silent-after", arguments.silent_after)
    bounds = [parse_bound(text) for text in arguments.bound]
    with catalog.write() as session:
        rule = set_rule(session, project, seconds, bounds, actor=getpass.getuser())
    parts = list(map(str, bounds))
    if seconds is not None:
        parts.insert(0, f"{duration(seconds)} of silence")
    line = f"{project}: people are told of {comma_list(parts)}"
    return answer(arguments, rule.as_dict(), lambda out: out.print(line, markup=False))


def run_dead(arguments: argparse.Namespace) -> int:
    """List dead letters. JSON: ``{"messages": [{"message", "channel", "error", "tries", "alerts"}]}``."""
    from resources.alerts.listing import list_dead_letters

    with backend_of(arguments).catalog.read() as session:
        messages = list_dead_letters(session)

    def show(out: "Console") -> None:
        if not messages:
            out.print("every message has arrived, or is still tried")
            return
        rows = [
            (
                message["message"],
                message["channel"],
                local_time(message["created"]),
                f"{message['error']} (tried {message['tries']} times)",
                "; ".join(message["alerts"]),
            )
            for message in messages
        ]
        print_table(out, ("message", "channel", "written", "why", "what it tells"), rows, first=True)
        out.print("send them again: halving alerts retry all")

    return answer(arguments, {"messages": messages}, show)


def run_retry(arguments: argparse.Namespace) -> int:
    """Send dead letters again. JSON: ``{"messages": NUMBER}``."""
    from resources.alerts.listing import list_dead_letters
    from resources.alerts.outbox import send_again

    catalog = backend_of(arguments).catalog
    with catalog.write() as session:
        messages = arguments.messages
        if messages == ["all"]:
            messages = [message["message"] for message in list_dead_letters(session, limit=10_000)]
        count = send_again(session, messages, catalog.now())
    if arguments.messages != ["all"] and count < len(set(messages)):
        raise NotFound(
            f"no dead letter for {len(set(messages)) - count} of message = {comma_list(messages)}: give one "
            "that halving alerts dead lists, or all"
        )
    return answer(
        arguments,
        {"messages": count},
        lambda out: out.print(f"{count_of(count, 'message')} will be tried again by the server"),
    )


def _all_names(session: Any, project: str) -> list[str]:
    from resources.tenancy.projects import names_of as project_names

    return list(project_names(session, project))


def _describe_deliveries(deliveries: list[dict[str, Any]]) -> str:
    if not deliveries:
        return "nobody"
    return comma_list(f"{delivery['channel']}: {delivery['state']}" for delivery in deliveries)
