"""`raftlog group reset-offsets`: plan where a group shall go on reading, show the plan, carry it out."""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

from raftlog.cli.arguments import Parser, add_connection, add_json, partition_list
from raftlog.cli.connected import connected, find_topic, no_such_group
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import notice, print_json, table
from raftlog.cli.positions import parse_duration, parse_time
from raftlog.client.core.errors import Rejected
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.offsets import EARLIEST, LATEST
from raftlog.client.sync import SyncClient
from raftlog.wire.errors import ErrorCode

EPILOG = """\
examples:
  raftlog group reset-offsets billing --topic orders --to-earliest            shows the plan
  raftlog group reset-offsets billing --topic orders --to-earliest --execute  does it
  raftlog group reset-offsets billing --all-topics --by-duration 2h --execute
  raftlog group reset-offsets billing --topic orders:0,3-5 --shift-by -100 --execute
"""


class Move(NamedTuple):
    """Where one partition's offset is and where it would go; `why` tells when that is not what was asked."""

    partition: TopicPartition
    now: int | None
    then: int | None
    why: str


def build_parser() -> Parser:
    parser = Parser(
        prog="raftlog group reset-offsets",
        description="Move a group to other offsets. Without --execute it only shows what it would do.",
        epilog=EPILOG,
    )
    parser.add_argument("name", metavar="GROUP")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC[:0,3-5]", help="these partitions; may be repeated"
    )
    parser.add_argument("--all-topics", action="store_true", help="every partition the group has committed")
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="the first record there is")
    to.add_argument("--to-latest", action="store_true", help="only what comes from now on")
    to.add_argument("--to-offset", type=int, metavar="N", help="this offset")
    to.add_argument(
        "--to-datetime", metavar="TIME", help="the first record at or after 2026-01-31T12:00:00Z (or ms since 1970)"
    )
    to.add_argument("--by-duration", metavar="DURATION", help="the first record of the last 90m, 2h, 7d or PT2H")
    to.add_argument("--shift-by", type=int, metavar="N", help="forward, or back if negative")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--execute", action="store_true", help="do it")
    how.add_argument("--dry-run", action="store_true", help="show the plan only (the default)")
    add_json(parser)
    add_connection(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = build_parser().parse(arguments)
    if bool(options.topic) == options.all_topics:
        raise UsageError("say which partitions", "give --topic TOPIC (may be repeated) or --all-topics")
    with connected(options) as client:
        state = state_of(client, options.name)
        active = state not in ("Empty", "Dead", "none")
        if active and options.execute:
            raise CommandFailed(
                f"group {options.name!r} is active ({state}): its members would overwrite the offsets",
                f"stop its consumers first; `raftlog group describe {options.name}` lists them",
                code=ErrorCode.NON_EMPTY_GROUP.name,
            )
        moves = plan(client, options)
        if options.execute:
            offsets = {move.partition: move.then for move in moves if move.then is not None}
            client.admin.commit_offsets(options.name, offsets)
    show(options, moves)
    if active:
        notice(f"raftlog: --execute would be refused now: the group is active ({state}); stop its consumers first")
    return 0


def state_of(client: SyncClient, name: str) -> str:
    """The group's state, `none` when nobody knows it: offsets may be set before its first start."""
    try:
        return client.admin.describe_group(name).state
    except Rejected as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return "none"


def plan(client: SyncClient, options: argparse.Namespace) -> list[Move]:
    committed = client.admin.committed_offsets(options.name)
    if options.all_topics:
        if not committed:
            raise no_such_group([each.group_id for each in client.admin.list_groups()], options.name)
        partitions = sorted(committed)
    else:
        partitions = [each for text in options.topic for each in chosen(client, text)]
    first = client.admin.offsets_at(partitions, EARLIEST)
    last = client.admin.offsets_at(partitions, LATEST)
    wanted = targets(client, options, partitions, committed)
    moves = []
    for each in partitions:
        target = wanted[each]
        if target is None:
            moves.append(Move(each, None, None, "nothing committed to shift"))
            continue
        within = min(max(target, first[each]), last[each])
        why = "" if within == target else f"{target} is outside {first[each]} to {last[each]}"
        moves.append(Move(each, committed.get(each), within, why))
    return moves


def chosen(client: SyncClient, text: str) -> list[TopicPartition]:
    name, colon, indexes = text.partition(":")
    known = sorted(each.partition_index for each in find_topic(client, name).partitions)
    if not colon:
        return [(name, index) for index in known]
    wanted = partition_list(indexes)
    missing = [index for index in wanted if index not in known]
    if missing:
        raise CommandFailed(f"topic {name!r} has no partition {missing[0]}", f"it has {known[0]} to {known[-1]}")
    return [(name, index) for index in wanted]


def targets(
    client: SyncClient,
    options: argparse.Namespace,
    partitions: list[TopicPartition],
    committed: dict[TopicPartition, int],
) -> dict[TopicPartition, int | None]:
    if options.shift_by is not None:
        return {each: committed[each] + options.shift_by if each in committed else None for each in partitions}
    if options.to_offset is not None:
        return dict.fromkeys(partitions, options.to_offset)
    if options.to_earliest:
        timestamp = EARLIEST
    elif options.to_latest:
        timestamp = LATEST
    elif options.to_datetime is not None:
        timestamp = parse_time(options.to_datetime)
    else:
        timestamp = max(0, time.time_ns() // 1_000_000 - parse_duration(options.by_duration))
    return dict(client.admin.offsets_at(partitions, timestamp))


def show(options: argparse.Namespace, moves: list[Move]) -> None:
    if options.json:
        offsets = [
            {"topic": move.partition[0], "partition": move.partition[1], "committed": move.now, "new": move.then}
            for move in moves
        ]
        print_json({"group": options.name, "executed": options.execute, "offsets": offsets})
        return
    rows = [[*move.partition, move.now, move.then, move.why] for move in moves]
    print(table(["TOPIC", "PARTITION", "NOW", "NEW OFFSET" if options.execute else "WOULD BE", "NOTE"], rows))
    if not options.execute:
        notice("this was a dry run; --execute does it")
