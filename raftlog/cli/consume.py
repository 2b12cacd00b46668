"""`raftlog consume`: print the records of topics, with kcat's options."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from raftlog.cli.arguments import Parser, add_connection, not_negative, partition_list, positive_count
from raftlog.cli.connected import connected, find_topic
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import notice
from raftlog.cli.positions import OFFSETS_HELP, Range, Start, parse_offsets, resolve
from raftlog.cli.record_format import DIRECTIVES_HELP, compile_format, to_json, unescape
from raftlog.cli.signals import StopRequested, StopSignals, stop_signals_raise
from raftlog.client.consumer import EARLIEST, LATEST, Consumer, Fetched, TopicPartition
from raftlog.client.errors import Rejected
from raftlog.client.groups import committed_offsets
from raftlog.client.membership import Membership
from raftlog.client.router import Client
from raftlog.wire.errors import ErrorCode

EPILOG = f"""\
{OFFSETS_HELP}
{DIRECTIVES_HELP}
examples:
  raftlog consume orders                          all records, then what comes
  raftlog consume orders -o -5 -e                 the last five of each partition
  raftlog consume orders -e -f '%t[%p]@%o %k=%s\\n'
  raftlog consume orders -e --json | jq .value
  raftlog consume orders -G billing               as a member of a group that commits what it printed
"""
FOREVER = 1 << 63
LINES_MAX = 1000
"""So many records are written out together."""
IDLE_SECONDS = 0.2
"""How often a member that was given no partition looks whether that has changed."""


def build_parser() -> Parser:
    parser = Parser(prog="raftlog consume", description="Print the records of topics.", epilog=EPILOG)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="whose records to print")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="the same, as kcat has it")
    parser.add_argument("-p", "--partition", type=partition_list, metavar="N", help="only these, like 0,3-5")
    parser.add_argument(
        "-o", "--offset", action="append", default=[], metavar="OFFSET", help="where to start; see below"
    )
    parser.add_argument("--from-beginning", action="store_true", help="the same as -o beginning")
    parser.add_argument("-c", "--count", type=positive_count, metavar="N", help="stop after so many records")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end that the partitions have now")
    parser.add_argument("-G", "--group", metavar="GROUP", help="join this group and commit what was printed")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("-f", "--format", metavar="FORMAT", help="how to print a record; see below")
    shown.add_argument("-J", "--json", action="store_true", help="one line of JSON a record")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="print the key, this, then the value")
    parser.add_argument(
        "-D", "--delimiter", default="\\n", metavar="TEXT", help="what follows a record (default %(default)s)"
    )
    parser.add_argument("-Z", "--null", action="store_true", help="print NULL for a key or value that is not there")
    parser.add_argument("-u", "--unbuffered", action="store_true", help="write out each record at once")
    parser.add_argument("-q", "--quiet", action="store_true", help="no notices on standard error")
    parser.add_argument(
        "--isolation-level",
        choices=["read_committed", "read_uncommitted"],
        default="read_committed",
        help="whether records of open and aborted transactions are left out (default %(default)s)",
    )
    parser.add_argument("--wait-ms", type=not_negative, default=500, help=argparse.SUPPRESS)
    add_connection(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = build_parser().parse(arguments)
    topics = list(dict.fromkeys([*options.topics, *options.topic]))
    if not topics:
        raise UsageError("no topic is given", "raftlog consume TOPIC; `raftlog topic list` shows the topics there are")
    if options.group == "":
        raise UsageError("-G is empty", "name a group, or leave -G out to read without one")
    if options.group and options.partition is not None:
        raise UsageError("-G and -p exclude each other", "a group divides the partitions among its members itself")
    wanted = parse_offsets(options.offset + (["beginning"] if options.from_beginning else []))
    if wanted.start is not None and wanted.start.kind == "stored" and not options.group:
        raise UsageError("-o stored needs a group", "name it with -G GROUP")
    with stop_signals_raise() as stops, connected(options) as client:
        printer = Printer(choose_format(options), options.unbuffered, stops)
        consumer = Consumer(client, read_committed=options.isolation_level == "read_committed")
        reading = Reading(consumer, printer, options, wanted)
        try:
            if options.group:
                read_in_group(client, reading, topics)
            else:
                read_partitions(client, reading, topics)
        except StopRequested:
            pass  # the ordinary end of following a topic
        printer.flush()
    return 0


def choose_format(options: argparse.Namespace) -> Callable[[Fetched], bytes]:
    if options.json:
        return to_json
    null = b"NULL" if options.null else b""
    if options.format is not None:
        return compile_format(options.format, null=null)
    end = unescape(options.delimiter)
    if options.key_delimiter is None:
        return lambda it: (null if it.record.value is None else it.record.value) + end
    between = unescape(options.key_delimiter)

    def with_key(it: Fetched) -> bytes:
        key, value = it.record.key, it.record.value
        return (null if key is None else key) + between + (null if value is None else value) + end

    return with_key


class Printer:
    """Standard output as bytes, and what has gone to it: the next offset after the last printed record."""

    def __init__(self, shown: Callable[[Fetched], bytes], unbuffered: bool, stops: StopSignals) -> None:
        self._shown = shown
        self._lines_max = 1 if unbuffered else LINES_MAX
        self._stops = stops
        self._out = sys.stdout.buffer
        self._lines: list[tuple[TopicPartition, int, bytes]] = []
        self.printed: dict[TopicPartition, int] = {}
        self.count = 0

    def write(self, fetched: Fetched) -> None:
        where, position = (fetched.topic, fetched.partition), fetched.record.offset + 1
        self._lines.append((where, position, self._shown(fetched)))
        self.count += 1
        if len(self._lines) >= self._lines_max:
            self.flush()

    def flush(self) -> None:
        # Somebody who saw a line may stop us at once: what was printed has to be known as printed by then.
        with self._stops.held():
            lines, self._lines = self._lines, []
            self._out.write(b"".join(text for _, _, text in lines))
            self._out.flush()
            self.printed.update((where, position) for where, position, _ in lines)


class Reading:
    """One run: positions, where each partition ends for us, and whether all is done."""

    def __init__(self, consumer: Consumer, printer: Printer, options: argparse.Namespace, wanted: Range) -> None:
        self.consumer = consumer
        self.printer = printer
        self._wanted = wanted
        self._exit = options.exit or wanted.stop_ms is not None
        self._count = options.count or FOREVER
        self._quiet = options.quiet
        self._wait_ms = options.wait_ms
        self.group: str | None = options.group
        self.chosen: list[int] | None = options.partition
        self._ends: dict[TopicPartition, int] = {}
        self._begun = False

    def begin(self, partitions: list[TopicPartition], committed: dict[TopicPartition, int]) -> None:
        """Take up these partitions, each where it stands or where the options say."""
        start = self._wanted.start or Start("beginning")
        unknown = [each for each in partitions if each not in committed]
        positions = {each: committed[each] for each in partitions if each in committed}
        if unknown:
            positions |= resolve(self.consumer, unknown, start)
        self._ends = dict.fromkeys(partitions, FOREVER)
        if self._exit and partitions:
            at = LATEST if self._wanted.stop_ms is None else self._wanted.stop_ms
            self._ends = self.consumer.offsets_at(partitions, at)
        self._begun = True
        self.consumer.positions = {each: at for each, at in positions.items() if at < self._ends[each]}

    @property
    def finished(self) -> bool:
        at_the_end = self._exit and self._begun and not self.consumer.positions
        return at_the_end or self.printer.count >= self._count

    def step(self) -> None:
        """Fetch once and print what came."""
        try:
            for fetched in self.consumer.fetch(self._wait_ms):
                if fetched.record.offset < self._ends[fetched.topic, fetched.partition]:
                    self.printer.write(fetched)
                if self.printer.count >= self._count:
                    break
        except Rejected as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._back_into_range()
        self.printer.flush()
        if self._exit:
            for partition, position in list(self.consumer.positions.items()):
                if position >= self._ends[partition]:
                    del self.consumer.positions[partition]

    def _back_into_range(self) -> None:
        partitions = list(self.consumer.positions)
        first = self.consumer.offsets_at(partitions, EARLIEST)
        last = self.consumer.offsets_at(partitions, LATEST)
        for partition, position in list(self.consumer.positions.items()):
            nearest = min(max(position, first[partition]), last[partition])
            if nearest != position:
                self.consumer.positions[partition] = nearest
                if not self._quiet:
                    name = f"{partition[0]}[{partition[1]}]"
                    notice(f"raftlog: {name} has no offset {position} (any more); going on at {nearest}")


def read_partitions(client: Client, reading: Reading, topics: list[str]) -> None:
    partitions: list[TopicPartition] = []
    chosen = reading.chosen
    for name in topics:
        known = sorted(each.partition_index for each in find_topic(client, name).partitions)
        missing = [index for index in chosen or [] if index not in known]
        if missing:
            raise CommandFailed(
                f"topic {name!r} has no partition {missing[0]}",
                f"it has {known[0]} to {known[-1]}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
            )
        partitions += [(name, index) for index in (known if chosen is None else chosen)]
    reading.begin(partitions, {})
    while not reading.finished:
        reading.step()


def read_in_group(client: Client, reading: Reading, topics: list[str]) -> None:
    assert reading.group is not None
    for name in topics:
        find_topic(client, name)
    member = Membership(client, reading.group, topics)
    try:
        while not reading.finished:
            if member.poll():
                assigned = [(topic, each) for topic, indexes in member.assignment.items() for each in indexes]
                reading.begin(assigned, committed_offsets(client, reading.group))
            elif reading.consumer.positions:
                reading.step()
                commit_printed(member, reading.printer)
            else:
                time.sleep(IDLE_SECONDS)
    except StopRequested:
        reading.printer.flush()
        commit_printed(member, reading.printer)
        raise
    finally:
        member.leave()


def commit_printed(member: Membership, printer: Printer) -> None:
    if printer.printed:
        member.commit(printer.printed)
        printer.printed = {}
