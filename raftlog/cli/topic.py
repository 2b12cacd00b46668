"""`raftlog topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftlog.cli.arguments import Verbs, key_values, positive_count
from raftlog.cli.config import refuse_unknown
from raftlog.cli.connected import connected, find_topic
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import notice, plural, print_json, table
from raftlog.cli.reach import under_replicated
from raftlog.client.core.errors import Rejected
from raftlog.client.offsets import EARLIEST, LATEST
from raftlog.client.sync import SyncClient
from raftlog.client.topics import ConfigSource, ResourceType
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from raftlog.wire.uuids import uuid_to_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

VERBS = Verbs("topic", "Topics: named, partitioned logs of records.")
VERBS.add("create", "make topics")
VERBS.add("list", "name all topics")
VERBS.add("describe", "show partitions, leaders, offsets and settings")
VERBS.add("alter", "add partitions, change settings")
VERBS.add("delete", "remove topics and their records")


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return {"create": create, "list": list_, "describe": describe, "alter": alter, "delete": delete}[verb](rest)


def create(arguments: list[str]) -> int:
    parser = VERBS.parser("create", "Make topics.", "raftlog topic create orders -p 6 -c retention.ms=86400000")
    parser.add_argument("names", nargs="+", metavar="NAME", help="which topics")
    parser.add_argument(
        "-p",
        "--partitions",
        type=positive_count,
        default=-1,
        metavar="N",
        help="how many (default: the broker's num.partitions)",
    )
    parser.add_argument(
        "-r",
        "--replication-factor",
        "--replicas",
        type=positive_count,
        default=-1,
        metavar="N",
        help="copies of each partition (default: the broker's default.replication.factor)",
    )
    parser.add_argument("-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a topic config")
    parser.add_argument("--if-not-exists", action="store_true", help="succeed when the topic is there already")
    parser.add_argument("--dry-run", action="store_true", help="check only")
    options = parser.parse(arguments)
    configs = key_values(options.config, "--config")
    made: list[dict[str, Any]] = []
    with connected(options) as client:
        try:
            for name in options.names:
                made.append(create_one(client, name, options, configs))
        finally:
            # Also when a later one is refused.
            if made:
                tell_created(made, options)
    return 0


def tell_created(made: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """What became of each, in lines or as JSON."""
    if options.json:
        print_json({"topics": made})
        return
    for each in made:
        print(created_line(each, dry_run=options.dry_run))


def create_one(client: SyncClient, name: str, options: argparse.Namespace, configs: dict[str, str]) -> dict[str, Any]:
    """What became of one topic. Raises Rejected."""
    try:
        topic = client.admin.create_topic(
            name,
            partitions=options.partitions,
            replication_factor=options.replication_factor,
            configs=configs,
            validate_only=options.dry_run,
        )
    except Rejected as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not options.if_not_exists:
            raise
        return {"name": name, "created": False}
    return {
        "name": name,
        "created": not options.dry_run,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
    }


def created_line(topic: dict[str, Any], *, dry_run: bool) -> str:
    if "partitions" not in topic:
        return f"{topic['name']} is there already"
    has = f"{plural(topic['partitions'], 'partition')} and {plural(topic['replication_factor'], 'replica')}"
    return f"{topic['name']} would be created with {has}" if dry_run else f"{topic['name']} created with {has}"


def list_(arguments: list[str]) -> int:
    parser = VERBS.parser("list", "Name all topics.", "raftlog topic list --json")
    parser.add_argument("--internal", action="store_true", help="also the brokers' own topics")
    options = parser.parse(arguments)
    with connected(options) as client:
        topics = all_topics(client, internal=options.internal)
    shown = [
        {"name": topic.name, "partitions": len(topic.partitions), "replication_factor": replicas_of(topic)}
        for topic in topics
    ]
    if options.json:
        print_json({"topics": shown})
    elif shown:
        print(table(["TOPIC", "PARTITIONS", "REPLICAS"], [list(each.values()) for each in shown]))
    else:
        notice("there are no topics; `raftlog topic create NAME` makes one")
    return 0


def all_topics(client: SyncClient, *, internal: bool) -> list[MetadataResponseTopic]:
    topics = client.admin.metadata().topics
    return sorted((each for each in topics if internal or not each.is_internal), key=lambda each: each.name or "")


def replicas_of(topic: MetadataResponseTopic) -> int:
    return len(topic.partitions[0].replica_nodes) if topic.partitions else 0


def describe(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "describe", "Show partitions, leaders, offsets and settings.", "raftlog topic describe orders"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all but the brokers' own")
    parser.add_argument("--under-replicated-partitions", action="store_true", help="only those that miss replicas")
    options = parser.parse(arguments)
    with connected(options) as client:
        if options.names:
            topics = [find_topic(client, name) for name in options.names]
        else:
            topics = all_topics(client, internal=False)
        configs = overrides(client, [topic.name or "" for topic in topics])
        shown = [describe_topic(client, topic, configs.get(topic.name or "", {})) for topic in topics]
        behind = under_replicated(client, topics) if options.under_replicated_partitions else frozenset()
    if options.under_replicated_partitions:
        for each in shown:
            each["partitions"] = [one for one in each["partitions"] if (each["name"], one["partition"]) in behind]
        shown = [each for each in shown if each["partitions"]]
    if options.json:
        print_json({"topics": shown})
        return 0
    print("\n\n".join(described(each) for each in shown)) if shown else notice("there is nothing to show")
    return 0


def overrides(client: SyncClient, names: list[str]) -> dict[str, dict[str, str | None]]:
    """The configs that were set on the topics themselves."""
    if not names:
        return {}
    results = client.admin.describe_configs(ResourceType.TOPIC, names)
    return {
        result.resource_name: {
            each.name: each.value for each in result.configs if each.config_source == ConfigSource.TOPIC
        }
        for result in results
    }


def describe_topic(client: SyncClient, topic: MetadataResponseTopic, configs: dict[str, str | None]) -> dict[str, Any]:
    name = topic.name or ""
    led = [(name, each.partition_index) for each in topic.partitions if each.leader_id >= 0]
    starts = client.admin.offsets_at(led, EARLIEST, read_committed=False)
    ends = client.admin.offsets_at(led, LATEST, read_committed=False)

    def partition(each: MetadataResponsePartition) -> dict[str, Any]:
        start, end = starts.get((name, each.partition_index)), ends.get((name, each.partition_index))
        return {
            "partition": each.partition_index,
            "leader": each.leader_id if each.leader_id >= 0 else None,
            "leader_epoch": each.leader_epoch,
            "replicas": each.replica_nodes,
            "isr": each.isr_nodes,
            "offline": each.offline_replicas,
            "start_offset": start,
            "end_offset": end,
        }

    partitions = [partition(each) for each in sorted(topic.partitions, key=lambda each: each.partition_index)]
    return {
        "name": name,
        "id": uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "replication_factor": replicas_of(topic),
        "configs": configs,
        "partitions": partitions,
    }


def described(topic: dict[str, Any]) -> str:
    columns = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE", "START OFFSET", "END OFFSET"]
    rows = [
        [
            each["partition"],
            each["leader"],
            each["leader_epoch"],
            commas(each["replicas"]),
            commas(each["isr"]),
            commas(each["offline"]),
            each["start_offset"],
            each["end_offset"],
        ]
        for each in topic["partitions"]
    ]
    count = plural(len(topic["partitions"]), "partition")
    lines = [f"{topic['name']}  {count}, {plural(topic['replication_factor'], 'replica')}, id {topic['id']}"]
    lines += [f"  {key}={value}" for key, value in sorted(topic["configs"].items())]
    return "\n".join([*lines, table(columns, rows, indent="  ")])


def commas(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


def alter(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "alter", "Add partitions, change settings.", "raftlog topic alter orders -c retention.ms=3600000"
    )
    parser.add_argument("name", metavar="NAME", help="which topic")
    parser.add_argument("-p", "--partitions", type=positive_count, metavar="N", help="how many it shall have in all")
    parser.add_argument("-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="set a topic config")
    parser.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="take a topic config back to its default"
    )
    parser.add_argument("--dry-run", action="store_true", help="check only")
    options = parser.parse(arguments)
    changes: dict[str, str | None] = dict(key_values(options.config, "--config"))
    if contradicted := changes.keys() & set(options.delete_config):
        raise UsageError(f"{min(contradicted)} cannot be set and taken back at once", "leave out one of the two")
    changes |= dict.fromkeys(options.delete_config)
    if not changes and options.partitions is None:
        raise UsageError("there is nothing to alter", "give --partitions, --config or --delete-config")
    with connected(options) as client:
        find_topic(client, options.name)
        refuse_unknown(client, ResourceType.TOPIC, options.name, options.delete_config)
        # Check all of it before any of it is done.
        passes = (True,) if options.dry_run else (True, False)
        for validate_only in passes:
            if options.partitions is not None:
                client.admin.create_partitions(options.name, options.partitions, validate_only=validate_only)
            if changes:
                client.admin.alter_configs(ResourceType.TOPIC, options.name, changes, validate_only=validate_only)
    if options.json:
        done = {"name": options.name, "partitions": options.partitions, "configs": changes, "dry_run": options.dry_run}
        print_json(done)
    else:
        print(f"{options.name} {'could be' if options.dry_run else 'is'} altered")
    return 0


def delete(arguments: list[str]) -> int:
    parser = VERBS.parser("delete", "Remove topics and all their records.", "raftlog topic delete orders --dry-run")
    parser.add_argument("names", nargs="+", metavar="NAME", help="which topics")
    parser.add_argument("--if-exists", action="store_true", help="succeed when the topic is not there")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and leave it")
    options = parser.parse(arguments)
    with connected(options) as client:
        names = dict.fromkeys(options.names)
        found = [find_one(client, name, may_miss=options.if_exists) for name in names]
        gone = [describe_topic(client, topic, {}) for topic in found if topic is not None]
        for each in gone if not options.dry_run else ():
            client.admin.delete_topic(each["name"])
    shown = [{"name": each["name"], "records": records_in(each)} for each in gone]
    if options.json:
        print_json({"deleted" if not options.dry_run else "would_delete": shown})
        return 0
    for one in shown:
        what = f"{one['name']} with up to {plural(one['records'], 'record')}"
        print(f"{what} would be deleted" if options.dry_run else f"{what} deleted")
    return 0


def find_one(client: SyncClient, name: str, *, may_miss: bool) -> MetadataResponseTopic | None:
    """The topic; None if it is not there and need not be. Raises CommandFailed."""
    try:
        return find_topic(client, name)
    except CommandFailed:
        if not may_miss:
            raise
        return None


def records_in(topic: dict[str, Any]) -> int:
    return sum((each["end_offset"] or 0) - (each["start_offset"] or 0) for each in topic["partitions"])
