"""`raftlog group`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

from typing import Any

from raftlog.cli.arguments import Verbs
from raftlog.cli.connected import connected, no_such_group
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.output import notice, plural, print_json, table, utc
from raftlog.client import groups
from raftlog.client.core.assignment import Assignment
from raftlog.client.core.errors import Rejected
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.offsets import LATEST
from raftlog.client.sync import SyncClient
from raftlog.wire.errors import ErrorCode

NOTHING_COMMITTED = -1
STATES = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),
)
"""Of groups of all protocols; brokers take them in any case, and know of no group in any other."""

VERBS = Verbs("group", "Consumer groups: who reads what together, and how far they are.")
VERBS.add("list", "name all groups, with members and lag")
VERBS.add("describe", "show members, offsets, lag and the last rebalances")
VERBS.add("reset-offsets", "move a group that does not run to other offsets")
VERBS.add("delete", "forget groups and their offsets")


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    if verb == "reset-offsets":
        from raftlog.cli import group_reset

        return group_reset.run(rest)
    return {"list": list_, "describe": describe, "delete": delete}[verb](rest)


def list_(arguments: list[str]) -> int:
    parser = VERBS.parser("list", "Name all groups.", "raftlog group list --state Stable")
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only groups that are Stable, Empty, ..."
    )
    options = parser.parse(arguments)
    refuse_unknown_states(options.state)
    with connected(options) as client:
        found = client.admin.list_groups(options.state, with_lag=True)
        leaderless = client.admin.leaderless_partitions()
    shown = [
        {
            "group": each.group_id,
            "state": each.group_state,
            "type": each.group_type,
            "protocol": each.protocol_type,
            "members": told(each.members),
            "lag": told(each.lag),
            "lag_seconds": seconds(told(each.lag_ms)),
        }
        for each in found
    ]
    if options.json:
        print_json({"groups": shown})
    elif shown:
        columns = ["GROUP", "STATE", "TYPE", "PROTOCOL", "MEMBERS", "LAG", "LAG SECONDS"]
        print(table(columns, [list(each.values()) for each in shown]))
    elif not leaderless:
        notice("there are no groups" + (" in that state" if options.state else ""))
    if leaderless:
        raise CommandFailed(
            f"{plural(len(leaderless), 'partition')} of {groups.GROUP_TOPIC} without a leader: groups in there are not"
            " listed",
            f"`raftlog topic describe {groups.GROUP_TOPIC}` shows where its replicas are",
            code=ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
        )
    return 0


def refuse_unknown_states(states: list[str]) -> None:
    known = {each.lower(): each for each in STATES}
    for state in states:
        if state.lower() not in known:
            close = nearest(state.lower(), known)
            hint = f"did you mean {known[close]}?" if close else f"there are {', '.join(STATES)}"
            raise UsageError(f"groups have no state {state!r}", hint)


def describe(arguments: list[str]) -> int:
    parser = VERBS.parser("describe", "Show members, offsets and lag.", "raftlog group describe billing")
    parser.add_argument("names", nargs="+", metavar="NAME", help="which groups")
    options = parser.parse(arguments)
    with connected(options) as client:
        shown = [describe_group(client, name) for name in options.names]
    if options.json:
        print_json({"groups": shown})
    else:
        print("\n\n".join(described(each) for each in shown))
    return 0


def find_group(client: SyncClient, name: str) -> groups.GroupDescription:
    """State and members of a group; for a name nobody knows the failure offers the nearest one."""
    try:
        return client.admin.describe_group(name)
    except Rejected as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    raise no_such_group([each.group_id for each in client.admin.list_groups()], name)


def describe_group(client: SyncClient, name: str) -> dict[str, Any]:
    group = find_group(client, name)
    owners = {
        (topic, index): member
        for member in group.members
        for topic, indexes in member.assignment.items()
        for index in indexes
    }
    known, rebalances = client.admin.group_progress(name)
    partitions = sorted({*known, *owners})
    # A broker that is not ours, or a leader that is away: the ends are asked for one by one.
    ends = end_offsets(client, [each for each in partitions if each not in known or known[each].end_offset is None])
    return {
        "group": name,
        "state": group.state,
        "type": group.group_type,
        "protocol": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": client.admin.coordinator(name),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": member.assignment,
            }
            for member in group.members
        ],
        "offsets": [
            offset_of(partition, known.get(partition), ends.get(partition), owners.get(partition))
            for partition in partitions
        ],
        "rebalances": [
            {"time": utc(each.timestamp_ms), "generation": each.generation, "reason": each.reason}
            for each in rebalances
        ],
    }


def offset_of(
    partition: TopicPartition,
    known: groups.Progress | None,
    end: int | None,
    owner: groups.MemberDescription | None,
) -> dict[str, Any]:
    """One partition; `end` is used when the coordinator has told none."""
    if known is None:
        known = groups.Progress(NOTHING_COMMITTED, end, None, None)
    elif known.end_offset is None:
        known = known._replace(end_offset=end)
    committed = None if known.committed == NOTHING_COMMITTED else known.committed
    return {
        "topic": partition[0],
        "partition": partition[1],
        "committed": committed,
        "end_offset": known.end_offset,
        "stable_offset": known.stable_offset,
        "lag": lag(committed, known.end_offset),
        "stable_lag": lag(committed, known.stable_offset),
        "lag_seconds": seconds(known.lag_ms),
        "member_id": None if owner is None else owner.member_id,
    }


def end_offsets(client: SyncClient, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those partitions that still are there."""
    topics = client.admin.metadata(sorted({topic for topic, _ in partitions})).topics
    led = {
        (topic.name or "", each.partition_index) for topic in topics for each in topic.partitions if each.leader_id >= 0
    }
    return client.admin.offsets_at([each for each in partitions if each in led], LATEST)


def lag(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)


def told(value: int) -> int | None:
    return None if value < 0 else value


def seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def described(group: dict[str, Any]) -> str:
    members, offsets = group["members"], group["offsets"]
    state = f"{group['group']}  {group['state']}, {plural(len(members), 'member')}, coordinator {group['coordinator']}"
    if group["assignor"]:
        state += f", assignor {group['assignor']}"
    lags = [each["lag"] for each in offsets if each["lag"] is not None]
    lines = [state + (f", lag {sum(lags):,}" if lags else "")]
    if offsets:
        columns = ["TOPIC", "PARTITION", "COMMITTED", "END OFFSET", "LAG", "STABLE LAG", "LAG SECONDS", "MEMBER"]
        rows = [
            [
                *(each[key] for key in ("topic", "partition", "committed", "end_offset", "lag")),
                # Told where an open transaction makes it another one.
                None if each["stable_lag"] == each["lag"] else each["stable_lag"],
                each["lag_seconds"],
                each["member_id"],
            ]
            for each in offsets
        ]
        lines.append(table(columns, rows, indent="  "))
    if members:
        columns = ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"]
        rows = [
            [each["member_id"], each["instance_id"], each["client_id"], each["host"], runs(each["assignment"])]
            for each in members
        ]
        lines.append(table(columns, rows, indent="  "))
    if group["rebalances"]:
        rows = [[each["time"], each["generation"], each["reason"]] for each in group["rebalances"]]
        lines.append(table(["LAST REBALANCES", "GENERATION", "REASON"], rows, indent="  "))
    return "\n".join(lines)


def runs(assignment: Assignment) -> str:
    """`orders[0-2,5]`"""
    texts = []
    for topic, indexes in sorted(assignment.items()):
        spans: list[list[int]] = []
        for index in sorted(indexes):
            if spans and spans[-1][1] == index - 1:
                spans[-1][1] = index
            else:
                spans.append([index, index])
        inside = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
        texts.append(f"{topic}[{inside}]")
    return " ".join(texts) or "none"


def delete(arguments: list[str]) -> int:
    parser = VERBS.parser("delete", "Forget groups and their offsets.", "raftlog group delete billing --dry-run")
    parser.add_argument("names", nargs="+", metavar="NAME", help="which groups")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and leave it")
    options = parser.parse(arguments)
    shown = []
    names = dict.fromkeys(options.names)
    with connected(options) as client:
        for name in names:
            group = find_group(client, name)
            offsets = len(client.admin.committed_offsets(name))
            shown.append({"group": name, "state": group.state, "offsets": offsets})
        if not options.dry_run:
            for name in names:
                client.admin.delete_group(name)
    if options.json:
        print_json({"would_delete" if options.dry_run else "deleted": shown})
        return 0
    for each in shown:
        what = f"{each['group']} with {plural(int(each['offsets']), 'committed offset')}"
        print(f"{what} would be deleted (it is {each['state']})" if options.dry_run else f"{what} deleted")
    return 0
