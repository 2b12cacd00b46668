"""`raftlog txn`: list, describe and end transactions, and find those that nobody will end."""

from __future__ import annotations

import argparse
import time
from typing import Any

from raftlog.cli.arguments import Verbs, not_negative, not_negative_long
from raftlog.cli.connected import connected
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.output import Cell, notice, plural, print_json, table
from raftlog.cli.positions import parse_duration
from raftlog.client.core.errors import Rejected
from raftlog.client.sync import SyncClient
from raftlog.client.transaction_admin import NO_TIME, ONGOING, OpenTransaction
from raftlog.wire.errors import ErrorCode

VERBS = Verbs("txn", "Transactions: which there are, how far they are, and how to end those that block readers.")
VERBS.add("list", "name transactional ids, or with --hanging transactions that nobody will end")
VERBS.add("describe", "show what a transactional id is doing, and where")
VERBS.add("abort", "end a transaction, by its id or in one partition")
VERBS.add("commit", "end a transaction in a partition that did not learn that it was committed")

LONGEST_TRANSACTION = "15m"
"""The default of transaction.max.timeout.ms."""
COMMITTED, ABORTED = "committed", "aborted"


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    return {"list": list_, "describe": describe, "abort": abort, "commit": commit}[verb](rest)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- list


def list_(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "list",
        "Name transactional ids. With --hanging: the transactions that are open in a partition and that no coordinator"
        " knows of any more. Nobody will end those, and readers of committed records wait behind them for ever.",
        "raftlog txn list --state Ongoing --longer-than 5m\n  raftlog txn list --hanging",
    )
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only ids that are Ongoing, CompleteCommit, ..."
    )
    parser.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=not_negative_long,
        metavar="N",
        help="only of this producer id",
    )
    parser.add_argument(
        "--longer-than", metavar="TIME", help="only transactions that began longer ago, like 90s or 5m; with --hanging"
        f" how long a transaction may take at the most (default {LONGEST_TRANSACTION})",
    )  # fmt: skip
    parser.add_argument("--id", metavar="REGEX", help="only ids that match as a whole")
    parser.add_argument("--hanging", action="store_true", help="transactions that nobody will end")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC", help="with --hanging: only in this topic"
    )
    options = parser.parse(arguments)
    return list_hanging(options) if options.hanging else list_ids(options)


def list_ids(options: argparse.Namespace) -> int:
    if options.topic:
        raise UsageError("--topic goes with --hanging", "an id has partitions: `raftlog txn describe ID` shows them")
    longer_than_ms = parse_duration(options.longer_than) if options.longer_than else -1
    with connected(options) as client:
        found = client.admin.list_transactions(
            states=options.state,
            producer_ids=options.producer_id,
            longer_than_ms=longer_than_ms,
            pattern=options.id,
        )
    if options.json:
        print_json({"transactions": [each._asdict() for each in found]})
    elif found:
        print(table(["TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"], found))
    else:
        filtered = options.state or options.producer_id or options.longer_than or options.id
        notice("no transactional id passes" if filtered else "there are no transactional ids")
    return 0


def list_hanging(options: argparse.Namespace) -> int:
    if options.state or options.producer_id or options.id:
        raise UsageError("--hanging goes with --topic and --longer-than only", "no coordinator knows more about them")
    longer_than_ms = parse_duration(options.longer_than or LONGEST_TRANSACTION)
    now = now_ms()
    with connected(options) as client:
        hanging = client.admin.hanging_transactions(options.topic or None, now_ms=now, longer_than_ms=longer_than_ms)
        found = [(each, decided(client, each)) for each in hanging]
    if options.json:
        print_json({"hanging": [{**each._asdict(), "decided": word} for each, word in found]})
    elif found:
        where = ["TOPIC", "PARTITION", "START OFFSET"]
        columns = [*where, "PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "LAST WRITE", "DECIDED"]
        rows: list[list[Cell]] = [
            [
                each.topic,
                each.partition,
                each.start_offset,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                ago(each.last_timestamp_ms, now),
                word or "-",
            ]
            for each, word in found
        ]
        print(table(columns, rows))
        first, word = found[0]
        verb = "commit" if word == COMMITTED else "abort"
        notice(f"`raftlog txn {verb} {place_of(first)}` ends the first of them")
    else:
        notice("no transaction hangs")
    return 0


def decided(client: SyncClient, transaction: OpenTransaction) -> str | None:
    """What its coordinator says of it; None: nothing."""
    decision = client.admin.decision(transaction)
    return None if decision is None else COMMITTED if decision else ABORTED


def place_of(transaction: OpenTransaction) -> str:
    """As options."""
    where = f"--topic {transaction.topic} --partition {transaction.partition}"
    return f"{where} --start-offset {transaction.start_offset}"


def ago(moment_ms: int, now: int) -> str:
    seconds = max(0, now - moment_ms) // 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"


# --- describe


def describe(arguments: list[str]) -> int:
    parser = VERBS.parser("describe", "Show what an id is doing, and where.", "raftlog txn describe billing")
    parser.add_argument("ids", nargs="+", metavar="ID", help="which transactional ids")
    options = parser.parse(arguments)
    with connected(options) as client:
        shown = [describe_id(client, each) for each in options.ids]
    if options.json:
        print_json({"transactions": shown})
    else:
        print("\n\n".join(described(each) for each in shown))
    return 0


def describe_id(client: SyncClient, transactional_id: str) -> dict[str, Any]:
    try:
        found, coordinator = client.admin.describe_transaction(transactional_id)
    except Rejected as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise no_such_id(client, transactional_id) from error
    began = found.transaction_start_time_ms
    is_open = found.transaction_state in (ONGOING, "PrepareCommit", "PrepareAbort")
    return {
        "transactional_id": transactional_id,
        "state": found.transaction_state,
        "coordinator": coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "start_ms": began if began != NO_TIME else None,
        "open_for_ms": max(0, now_ms() - began) if is_open else None,
        "partitions": [
            {"topic": topic.topic, "partition": partition} for topic in found.topics for partition in topic.partitions
        ],
    }


def no_such_id(client: SyncClient, transactional_id: str) -> CommandFailed:
    close = nearest(transactional_id, [each.transactional_id for each in client.admin.list_transactions()])
    return CommandFailed(
        f"there is no transactional id {transactional_id!r}",
        f"did you mean {close!r}?" if close else "`raftlog txn list` shows the ids there are",
        code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name,
    )


def described(each: dict[str, Any]) -> str:
    line = (
        f"{each['transactional_id']}  {each['state']}, producer {each['producer_id']} epoch {each['producer_epoch']},"
        f" coordinator {each['coordinator']}, time-out {each['timeout_ms'] / 1000:g} s"
    )
    if each["open_for_ms"] is not None:
        line += f", open for {each['open_for_ms'] / 1000:.1f} s"
    lines = [line]
    if each["partitions"]:
        rows = [list(partition.values()) for partition in each["partitions"]]
        lines.append(table(["TOPIC", "PARTITION"], rows, indent="  "))
    return "\n".join(lines)


# --- abort, commit


def abort(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "abort",
        "End a transaction. By its id: the transaction is aborted in all its partitions and its producer is fenced. In"
        " one partition, by the offset at which it begins there: for a transaction that no coordinator knows"
        " (`raftlog txn list --hanging`).",
        "raftlog txn abort billing\n  raftlog txn abort --topic orders --partition 3 --start-offset 118",
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="a transactional id")
    add_place(parser, required=False)
    options = parser.parse(arguments)
    place = (options.topic, options.partition, options.start_offset)
    if options.id is not None and any(each is not None for each in place):
        raise UsageError("an id, or a place in a partition", "`raftlog txn describe ID` shows the partitions of an id")
    if options.id is None and all(each is None for each in place):
        raise UsageError("which transaction?", "name an id, or --topic, --partition and --start-offset")
    if options.id is None and any(each is None for each in place):
        raise UsageError("--topic, --partition and --start-offset go together")
    return abort_id(options) if options.id is not None else end_at(options, committed=False)


def commit(arguments: list[str]) -> int:
    parser = VERBS.parser(
        "commit",
        "End a transaction in a partition that did not learn that it was committed, though its coordinator says so:"
        " `raftlog txn list --hanging` shows it.",
        "raftlog txn commit --topic orders --partition 3 --start-offset 118",
    )
    add_place(parser, required=True)
    return end_at(parser.parse(arguments), committed=True)


def add_place(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--topic", required=required, metavar="TOPIC")
    parser.add_argument("--partition", required=required, type=not_negative, metavar="N")
    parser.add_argument("--start-offset", required=required, type=not_negative_long, metavar="OFFSET")
    parser.add_argument("--dry-run", action="store_true", help="say what would be ended, and leave it")


def abort_id(options: argparse.Namespace) -> int:
    with connected(options) as client:
        found = describe_id(client, options.id)
        is_ongoing = found["state"] == ONGOING
        aborted = is_ongoing and not options.dry_run and client.admin.abort_transaction(options.id)
    if options.json:
        print_json({"would_abort" if options.dry_run else "aborted": found if is_ongoing else None})
    elif not is_ongoing:
        notice(f"{options.id} has no transaction to abort: it is {found['state']}")
    else:
        what = f"{options.id} with {plural(len(found['partitions']), 'partition')}"
        print(f"{what} would be aborted" if not aborted else f"{what} aborted, its producer is fenced")
    return 0


def end_at(options: argparse.Namespace, *, committed: bool) -> int:
    verb, word, other = ("commit", COMMITTED, "abort") if committed else ("abort", ABORTED, "commit")
    with connected(options) as client:
        found = open_at(client, options)
        where = f"{found.topic}[{found.partition}] from offset {found.start_offset} on, of producer {found.producer_id}"
        if (decided(client, found) == COMMITTED) is not committed:
            if committed:
                reason = f"no coordinator says that the transaction in {where}, is committed"
            else:
                reason = f"the transaction in {where}, is committed, says its coordinator: its records would be lost"
            hint = f"`raftlog txn {other} {place_of(found)}` ends it"
            raise CommandFailed(reason, hint, code=ErrorCode.INVALID_TXN_STATE.name)
        if not options.dry_run:
            client.admin.end_in_partition(found, committed=committed)
    if options.json:
        print_json({f"would_{verb}" if options.dry_run else word: found._asdict()})
    else:
        print(f"the transaction in {where}, {'would be' if options.dry_run else 'is'} {word} there")
    return 0


def open_at(client: SyncClient, options: argparse.Namespace) -> OpenTransaction:
    found = client.admin.open_transactions([options.topic])
    for each in found:
        if (each.partition, each.start_offset) == (options.partition, options.start_offset):
            return each
    begins = [str(each.start_offset) for each in found if each.partition == options.partition]
    raise CommandFailed(
        f"no open transaction begins at offset {options.start_offset} of {options.topic}[{options.partition}]",
        f"some begin at {', '.join(begins)}" if begins else "`raftlog txn list --hanging` shows those that nobody ends",
        code="NOT_FOUND",
    )
