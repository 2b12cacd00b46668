"""`raftlog config`: the settings of a topic, a group or a broker, where they come from, and changing them."""

from __future__ import annotations

import argparse

from raftlog.cli.arguments import Parser, Verbs, key_values
from raftlog.cli.connected import connected, find_topic
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.output import notice, print_json, table
from raftlog.client.sync import SyncClient
from raftlog.client.topics import ConfigSource, ResourceType
from raftlog.wire.errors import ErrorCode

VERBS = Verbs("config", "Settings of topics, groups and brokers.")
VERBS.add("list", "show settings and where they come from")
VERBS.add("set", "change settings while the broker runs")
VERBS.add("unset", "take settings back to their default")


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return list_(rest) if verb == "list" else change(verb, rest)


def resource_parser(verb: str, description: str, example: str) -> Parser:
    parser = VERBS.parser(verb, description, example)
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument("--topic", metavar="NAME", help="a topic's settings")
    of.add_argument("--group", metavar="ID", help="a consumer group's settings, whether it is there yet or not")
    of.add_argument("--broker", metavar="ID", help="a broker's settings; `default` for all brokers")
    of.add_argument("--logger", metavar="ID", help="the levels of a broker's loggers, until it stops")
    return parser


def resource(client: SyncClient, options: argparse.Namespace) -> tuple[ResourceType, str]:
    if options.topic is not None:
        find_topic(client, options.topic)
        return ResourceType.TOPIC, options.topic
    if options.group is not None:
        return ResourceType.GROUP, options.group
    if options.logger is not None and options.logger.isdecimal():
        return ResourceType.BROKER_LOGGER, known_broker(client, options.logger)
    if options.logger is not None:
        raise UsageError(f"--logger {options.logger!r} is not a broker's number", "write --logger 1")
    if options.broker == "default":
        return ResourceType.BROKER, ""
    if not options.broker.isdecimal():
        raise UsageError(
            f"--broker {options.broker!r} is not a broker's number", "write --broker 1 or --broker default"
        )
    return ResourceType.BROKER, known_broker(client, options.broker)


def known_broker(client: SyncClient, number: str) -> str:
    """As brokers write it. Whoever is asked in place of a broker that is not there only wonders why."""
    known = sorted(each.node_id for each in client.admin.metadata().brokers)
    if int(number) not in known:
        hint = f"there are {', '.join(map(str, known))}; `raftlog cluster status` shows those that are fenced, too"
        raise CommandFailed(f"there is no broker {number}", hint, code=ErrorCode.BROKER_ID_NOT_REGISTERED.name)
    return str(int(number))


def list_(arguments: list[str]) -> int:
    parser = resource_parser(
        "list", "Show settings and where they come from.", "raftlog config list --topic orders --all"
    )
    parser.add_argument("-a", "--all", action="store_true", help="also those that have their default value")
    parser.add_argument("--docs", action="store_true", help="say what each is for")
    options = parser.parse(arguments)
    with connected(options) as client:
        (result,) = client.admin.describe_configs(*one(resource(client, options)))
    shown = [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": source_name(each.config_source),
            "read_only": each.read_only,
            "documentation": each.documentation,
        }
        for each in sorted(result.configs, key=lambda each: each.name)
        if options.all or each.config_source != ConfigSource.DEFAULT
    ]
    if options.json:
        print_json({"configs": shown})
    elif not shown:
        notice("every setting has its default value; --all shows them")
    elif options.docs:
        print(
            "\n".join(
                f"{each['name']}={each['value']}  ({each['source']})\n    {each['documentation']}" for each in shown
            )
        )
    else:
        rows = [[str(each["name"]), str(each["value"]), str(each["source"])] for each in shown]
        print(table(["CONFIG", "VALUE", "FROM"], rows))
    return 0


def one(kind_and_name: tuple[ResourceType, str]) -> tuple[ResourceType, list[str]]:
    return kind_and_name[0], [kind_and_name[1]]


def source_name(number: int) -> str:
    try:
        return ConfigSource(number).name.lower().replace("_", " ")
    except ValueError:
        return f"source {number}"


def logger_name(name: str) -> str:
    return name if name == "root" or name.startswith("raftlog.") else f"raftlog.{name}"


def refuse_unknown(client: SyncClient, kind: ResourceType, name: str, keys: list[str]) -> None:
    """Brokers, Kafka's too, take back the value of a setting that does not exist without a word; it was a slip."""
    if not keys:
        return
    # All brokers together tell what was set on them, and any of them what can be.
    asked = name or str(client.admin.metadata().brokers[0].node_id)
    (result,) = client.admin.describe_configs(kind, [asked])
    known = [each.name for each in result.configs]
    for key in keys:
        if key not in known:
            close = nearest(key, known)
            raise CommandFailed(
                f"there is no {kind.name.lower()} config {key!r}",
                f"did you mean {close}?" if close else "`raftlog config list --all` shows what can be set",
                code=ErrorCode.INVALID_CONFIG.name,
            )


def change(verb: str, arguments: list[str]) -> int:
    example = "set --topic orders retention.ms=3600000" if verb == "set" else "unset --topic orders retention.ms"
    parser = resource_parser(verb, "Change settings while the broker runs.", f"raftlog config {example}")
    parser.add_argument("pairs", nargs="+", metavar="KEY=VALUE" if verb == "set" else "KEY")
    parser.add_argument("--dry-run", action="store_true", help="check only")
    options = parser.parse(arguments)
    changes: dict[str, str | None] = (
        dict(key_values(options.pairs, "the setting")) if verb == "set" else dict.fromkeys(options.pairs)
    )
    with connected(options) as client:
        kind, name = resource(client, options)
        if kind == ResourceType.BROKER_LOGGER:
            # The broker's log names them without what they all begin with.
            changes = {logger_name(key): value for key, value in changes.items()}
        refuse_unknown(client, kind, name, [key for key, value in changes.items() if value is None])
        client.admin.alter_configs(kind, name, changes, validate_only=options.dry_run)
    if options.json:
        print_json({"changed": changes, "dry_run": options.dry_run})
        return 0
    for key, value in changes.items():
        print(f"{key} {'would be' if options.dry_run else 'is'} {'its default' if value is None else value}")
    return 0
