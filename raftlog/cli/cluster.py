"""`raftlog cluster`: how the brokers and their partitions are, and forgetting a broker that is gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from raftlog.cli.arguments import Verbs, not_negative
from raftlog.cli.connected import connected
from raftlog.cli.output import plural, print_json, table
from raftlog.cli.reach import ailing_partitions, look_at, settings_of, state_of, why_fenced
from raftlog.client.core.addresses import Address, parse_address
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.sync import SyncClient
from raftlog.wire.messages.describe_cluster import DescribeClusterBroker
from raftlog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition

VERBS = Verbs("cluster", "The cluster as a whole: its brokers, and whether every partition is well.")
VERBS.add("status", "show brokers, quorum, and partitions that are not well")
VERBS.add("unregister", "forget a broker that will not come back")

LOOK_SECONDS_MAX = 3.0
"""For each broker, all at once."""

AILMENTS = {
    "offline": "offline",
    "below min.insync.replicas, so that producers with acks=all are refused": "below_min_isr",
    "under-replicated": "under_replicated",
}
"""What ailing partitions are shown under, the worst first."""

SHOWN_PARTITIONS_MAX = 20
"""How many ailing partitions are shown to people; --json has all."""


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return {"status": status, "unregister": unregister}[verb](rest)


def status(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "status",
        "Show brokers, quorum, and partitions that are not well. The exit code is 1 while not all can be used: the"
        " quorum has no leader, or partitions are offline or below their min.insync.replicas.",
        "raftlog cluster status --json",
    )
    options = parser.parse(arguments)
    with connected(options) as client:
        described = describe(client)
        look_at_brokers(client, described, min(options.timeout, LOOK_SECONDS_MAX))
    if options.json:
        print_json(described)
    else:
        print(text_of(described))
    return 0 if is_usable(described) else 1


def is_usable(described: dict[str, Any]) -> bool:
    """Whether clients can do with the cluster what they want. A broker that is missing is made up for by others."""
    partitions = described["partitions"]
    return described["quorum"]["leader"] >= 0 and not (partitions["offline"] or partitions["below_min_isr"])


def describe(client: SyncClient) -> dict[str, Any]:
    """All that `status` says, as one document."""
    brokers = client.admin.describe_cluster()
    quorum = client.admin.describe_quorum()
    metadata = client.admin.metadata()
    members = {member.node_id: member for member in quorum.members}
    led, held, in_sync = counts(metadata)

    def broker(each: DescribeClusterBroker) -> dict[str, Any]:
        member = members.get(each.broker_id)
        is_leader = each.broker_id == quorum.leader
        return {
            "id": each.broker_id,
            "address": str(Address(each.host, each.port)),
            "rack": each.rack,
            "fenced": each.is_fenced,
            "leaders": led[each.broker_id],
            "replicas": held[each.broker_id],
            "in_sync": in_sync[each.broker_id],
            "quorum": None if member is None else "leader" if is_leader else "voter" if member.is_voter else "observer",
            "metadata_lag": None if member is None or member.log_end < 0 else max(0, quorum.committed - member.log_end),
        }

    ailing = ailing_partitions(client, metadata)
    partitions = [
        ailment(topic.name or "", each, ailing.offline_logs) for topic in metadata.topics for each in topic.partitions
    ]

    def among(chosen: frozenset[TopicPartition]) -> list[dict[str, Any]]:
        return [each for each in partitions if (each["topic"], each["partition"]) in chosen]

    return {
        "cluster_id": brokers.cluster_id,
        "quorum": {
            "leader": quorum.leader,
            "term": quorum.term,
            "committed": quorum.committed,
            "voters": [member.node_id for member in quorum.voters],
            "observers": [member.node_id for member in quorum.members if not member.is_voter],
        },
        "brokers": [broker(each) for each in sorted(brokers.brokers, key=lambda each: each.broker_id)],
        "partitions": {
            "total": len(partitions),
            "under_replicated": among(ailing.under_replicated),
            "below_min_isr": among(ailing.below_min_isr),
            "offline": [each for each in partitions if each["leader"] is None or each["log_offline"]],
        },
    }


def look_at_brokers(client: SyncClient, described: dict[str, Any], seconds: float) -> None:
    """Put into each broker how its disks are, and what `why_fenced` says of it; None if it is not fenced."""
    brokers = described["brokers"]
    looks = look_at([parse_address(each["address"]) for each in brokers], seconds)
    leader = described["quorum"]["leader"]
    for each, look in zip(brokers, looks, strict=True):
        settings = settings_of(client, each["id"]) if look.disks else {}
        each["why_fenced"] = why_fenced(look, each["metadata_lag"], leader) if each["fenced"] else None
        each["disks"] = [
            {"path": disk.path, "free_percent": disk.free_percent, "state": state_of(disk, settings)}
            for disk in look.disks
        ]


def counts(metadata: MetadataResponse) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """How many partitions each broker leads, holds, and holds in sync."""
    led: Counter[int] = Counter()
    held: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in metadata.topics:
        for partition in topic.partitions:
            led[partition.leader_id] += 1
            held.update(partition.replica_nodes)
            in_sync.update(partition.isr_nodes)
    return led, held, in_sync


def ailment(topic: str, partition: MetadataResponsePartition, offline: frozenset[TopicPartition]) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition.partition_index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "replicas": partition.replica_nodes,
        "isr": partition.isr_nodes,
        "log_offline": (topic, partition.partition_index) in offline,
    }


def text_of(described: dict[str, Any]) -> str:
    quorum, partitions = described["quorum"], described["partitions"]
    headless = quorum["leader"] < 0
    leader = "NO LEADER" if headless else f"broker {quorum['leader']} leads"
    columns = ["BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS", "IN SYNC", "QUORUM", "METADATA LAG"]
    rows = [
        [
            each["id"],
            each["address"],
            each["rack"] or "",
            "fenced" if each["fenced"] else "up",
            each["leaders"],
            each["replicas"],
            each["in_sync"],
            each["quorum"] or "not in it",
            each["metadata_lag"],
        ]
        for each in described["brokers"]
    ]
    fenced = [f"broker {each['id']} is fenced: {each['why_fenced']}" for each in described["brokers"] if each["fenced"]]
    told = [*fenced, *(line for each in described["brokers"] for line in disk_lines(each))]
    lines = [
        f"cluster {described['cluster_id']}",
        f"quorum: {leader}, term {quorum['term']}, committed {quorum['committed']}",
        *(["nobody decides meanwhile: brokers and partitions are shown as they were last known"] if headless else []),
        "",
        table(columns, rows),
        "",
        *([*told, ""] if told else []),
        f"{plural(partitions['total'], 'partition')}, {len(partitions['under_replicated'])} under-replicated, "
        f"{len(partitions['offline'])} offline, {len(partitions['below_min_isr'])} below min.insync.replicas",
    ]
    for title, name in AILMENTS.items():
        ailing = partitions[name]
        if ailing:
            lines += ["", f"{title}:", ailing_table(ailing[:SHOWN_PARTITIONS_MAX])]
        if len(ailing) > SHOWN_PARTITIONS_MAX:
            lines.append(f"  and {len(ailing) - SHOWN_PARTITIONS_MAX:,} more: --json shows all")
    return "\n".join(lines)


def disk_lines(broker: dict[str, Any]) -> list[str]:
    """What is to be said of a broker's disks."""
    return [
        f"broker {broker['id']}: {each['path']} is offline: the broker's log says why"
        if each["state"] == "offline"
        else f"broker {broker['id']}: {each['path']} has {each['free_percent']:.1f} % of its disk left"
        for each in broker["disks"]
        if each["state"] != "ok"
    ]


def ailing_table(ailing: list[dict[str, Any]]) -> str:
    def leader(each: dict[str, Any]) -> Any:
        return f"{each['leader']}, its log is offline" if each["log_offline"] else each["leader"]

    rows = [
        [each["topic"], each["partition"], leader(each), commas(each["replicas"]), commas(each["isr"])]
        for each in ailing
    ]
    return table(["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"], rows, indent="  ")


def commas(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def unregister(arguments: list[str]) -> int:
    parser = VERBS.parser("unregister", "Forget a broker that will not come back.", "raftlog cluster unregister 4")
    parser.add_argument("broker", type=not_negative, metavar="ID", help="its number")
    options = parser.parse(arguments)
    with connected(options) as client:
        client.admin.unregister(options.broker)
    if options.json:
        print_json({"unregistered": options.broker})
    else:
        print(f"broker {options.broker} is forgotten")
    return 0
