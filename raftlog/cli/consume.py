"""`raftlog consume`: print the records of topics, with kcat's options."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from raftlog.cli.arguments import Parser, add_connection, not_negative, partition_list, positive_count
from raftlog.cli.connected import advice_for, connected, find_topic
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.output import notice
from raftlog.cli.positions import OFFSETS_HELP, Range, Start, parse_offsets, resolve
from raftlog.cli.record_format import DIRECTIVES_HELP, compile_format, to_json, unescape
from raftlog.cli.signals import StopRequested, StopSignals, stop_signals_raise
from raftlog.client.core.errors import DamagedRecords, KafkaError, NoOffset, Rejected
from raftlog.client.core.fetched import ConsumerRecord, Slice, decode_piece
from raftlog.client.core.membership import Partitions
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.settings import ConsumerOptions
from raftlog.client.offsets import EARLIEST, LATEST
from raftlog.client.sync import SyncClient, SyncConsumer
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
RECORDS_MAX = 5000
HEARTBEAT_SECONDS = 1.0
IDLE_SECONDS_MAX = 2.0
"""A group that gives a member partitions has done so by then, unless others take their time to give them up."""
GROUP_MOVED_ON = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
"""A commit that comes too late: whoever has the partitions now prints these records again."""


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
    parser.add_argument("--skip-damaged", action="store_true", help="pass over batches that cannot be read")
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
    # To be stopped is the ordinary end of following a topic, and may come while we say goodbye to the brokers.
    with stop_signals_raise() as stops, suppress(StopRequested), connected(options) as client:
        printer = Printer(choose_format(options), options.unbuffered, stops)
        with suppress(StopRequested):
            read(client, printer, options, topics, wanted)
        printer.flush()
    return 0


def read(
    client: SyncClient, printer: Printer, options: argparse.Namespace, topics: list[str], wanted: Range
) -> None:
    for name in topics:
        find_topic(client, name)
    with make_consumer(client, options, topics) as consumer:
        reading = Reading(client, consumer, printer, options, wanted)
        if options.group:
            read_in_group(reading)
        else:
            read_partitions(reading, topics)


def choose_format(options: argparse.Namespace) -> Callable[[ConsumerRecord], bytes]:
    if options.json:
        return to_json
    null = b"NULL" if options.null else b""
    if options.format is not None:
        return compile_format(options.format, null=null)
    end = unescape(options.delimiter)
    if options.key_delimiter is None:
        return lambda it: (null if it.value is None else it.value) + end
    between = unescape(options.key_delimiter)

    def with_key(it: ConsumerRecord) -> bytes:
        key, value = it.key, it.value
        return (null if key is None else key) + between + (null if value is None else value) + end

    return with_key


class Printer:
    """Standard output as bytes, and what has gone to it: the next offset after the last printed record."""

    def __init__(self, shown: Callable[[ConsumerRecord], bytes], unbuffered: bool, stops: StopSignals) -> None:
        self._shown = shown
        self._lines_max = 1 if unbuffered else LINES_MAX
        self._stops = stops
        self._out = sys.stdout.buffer
        self._lines: list[tuple[TopicPartition, int, bytes]] = []
        self.printed: dict[TopicPartition, int] = {}
        self.count = 0

    def write(self, fetched: ConsumerRecord) -> None:
        where, position = (fetched.topic, fetched.partition), fetched.offset + 1
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


def make_consumer(client: SyncClient, options: argparse.Namespace, topics: list[str]) -> SyncConsumer:
    """It never chooses where to begin by itself, nor what to commit: that is done here."""
    settings: ConsumerOptions = {
        "isolation_level": options.isolation_level,
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "fetch_max_wait": options.wait_ms / 1000,
    }
    if not options.group:
        return client.consumer(**settings)
    settings |= {"group": options.group, "heartbeat_interval": HEARTBEAT_SECONDS}
    return client.consumer(*topics, **settings)


class Reading:
    """One run: where each partition ends for us, and whether all is done."""

    def __init__(
        self,
        client: SyncClient,
        consumer: SyncConsumer,
        printer: Printer,
        options: argparse.Namespace,
        wanted: Range,
    ) -> None:
        self.consumer = consumer
        self.printer = printer
        self.client = client
        self._wanted = wanted
        self._exit = options.exit or wanted.stop_ms is not None
        self._count = options.count or FOREVER
        self._quiet = options.quiet
        self._skips_damaged = options.skip_damaged
        self._group: str | None = options.group
        self._idle_since = time.monotonic()
        self._told_idle = False
        self._wait = options.wait_ms / 1000
        self.chosen: list[int] | None = options.partition
        self._ends: dict[TopicPartition, int] = {}
        self._begun = False
        self._timeout = options.timeout
        self._told: dict[TopicPartition, ErrorCode] = {}
        """Partitions that cannot be read, as it was said."""

    def begin(self, partitions: list[TopicPartition]) -> None:
        """Take up these partitions, which a group has given or which are read without one."""
        self._ends = dict.fromkeys(partitions, FOREVER)
        if self._exit and partitions:
            at = LATEST if self._wanted.stop_ms is None else self._wanted.stop_ms
            self._ends = self.client.admin.offsets_at(partitions, at)
        self._begun = True

    def _tell_nearest(self, partition: TopicPartition, wanted: int, nearest: int) -> None:
        if nearest > wanted:
            self._notice(f"{name_of(partition)} has no offset {wanted} any more: it begins at {nearest}, and so do we")
        elif nearest < wanted:
            self._notice(f"{name_of(partition)} has no offset {wanted} yet: it ends at {nearest}, and we go on there")

    def _notice(self, text: str) -> None:
        if not self._quiet:
            notice(f"raftlog: {text}")

    def tell_idle(self) -> None:
        """Say once that the group gives no partition, when it has given none for a while or reading ends so."""
        if self.consumer.assignment:
            self._idle_since, self._told_idle = time.monotonic(), False
        elif not self._told_idle and (self.finished or time.monotonic() - self._idle_since > IDLE_SECONDS_MAX):
            self._told_idle = True
            self._notice(
                f"group {self._group!r} has given this member no partition: others may have them all, as"
                f" `raftlog group describe {self._group}` shows; wait until one of them leaves, or read without -G"
            )

    def start_at(self, partitions: list[TopicPartition]) -> None:
        """Where nothing is committed reading begins where the options say."""
        start = self._wanted.start or Start("beginning")
        for partition, offset in resolve(self.client.admin, partitions, start).items():
            self.consumer.seek(*partition, offset)
            if start.kind == "offset":
                self._tell_nearest(partition, start.number, offset)

    @property
    def finished(self) -> bool:
        return self.printer.count >= self._count or (self._exit and self._begun and self._is_at_the_end())

    def _is_at_the_end(self) -> bool:
        positions = self.consumer.positions
        return all(positions.get(partition, -1) >= end for partition, end in self._ends.items())

    def step(self) -> None:
        """Wait for records once, and print what came."""
        try:
            batch = self.consumer.poll(min(self._count - self.printer.count, RECORDS_MAX), timeout=self._wait)
        except NoOffset as missing:
            self.start_at(missing.partitions)
            return
        except Rejected as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._back_into_range()
            return
        except DamagedRecords as damaged:
            self._pass_over(damaged)
            return
        self._tell_unavailable()
        for each in batch.slices:
            try:
                self._print(each)
            except DamagedRecords as damaged:
                self._pass_over(damaged)
        self.printer.flush()
        self.consumer.done(batch)

    def _tell_unavailable(self) -> None:
        unavailable = self.consumer.unavailable()
        for partition, code in unavailable.items():
            if self._told.get(partition) != code:
                self._notice(f"{name_of(partition)} cannot be read for now ({code.name}): {advice_for(code)}")
        self._told = unavailable
        if self._exit and unavailable:
            for partition, code in self.consumer.unavailable(self._timeout).items():
                raise Rejected(code, name_of(partition))

    def _print(self, records: Slice) -> None:
        end = self._ends.get((records.topic, records.partition), FOREVER)
        for piece in records.pieces:
            for fetched in decode_piece(records.topic, records.partition, piece):
                if fetched.offset < end:
                    self.printer.write(fetched)

    def _pass_over(self, damaged: DamagedRecords) -> None:
        self.printer.flush()
        partition, following = (damaged.topic, damaged.partition), damaged.next_offset
        if not self._skips_damaged:
            by_hand = "" if self._group else f", or begin behind it: -p {damaged.partition} -o {following}"
            raise CommandFailed(str(damaged), f"--skip-damaged passes over such batches and says so{by_hand}")
        self.consumer.seek(*partition, following)
        self._notice(f"{damaged}; going on at {following}")

    def _back_into_range(self) -> None:
        positions = self.consumer.positions
        first = self.client.admin.offsets_at(list(positions), EARLIEST)
        last = self.client.admin.offsets_at(list(positions), LATEST)
        for partition, position in positions.items():
            nearest = min(max(position, first[partition]), last[partition])
            if nearest != position:
                self.consumer.seek(*partition, nearest)
                self._tell_nearest(partition, position, nearest)


def name_of(partition: TopicPartition) -> str:
    return f"{partition[0]}[{partition[1]}]"


def read_partitions(reading: Reading, topics: list[str]) -> None:
    partitions: list[TopicPartition] = []
    chosen = reading.chosen
    for name in topics:
        known = sorted(each.partition_index for each in find_topic(reading.client, name).partitions)
        missing = [index for index in chosen or [] if index not in known]
        if missing:
            raise CommandFailed(
                f"topic {name!r} has no partition {missing[0]}",
                f"it has {known[0]} to {known[-1]}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
            )
        partitions += [(name, index) for index in (known if chosen is None else chosen)]
    reading.consumer.assign(partitions)
    reading.start_at(partitions)
    reading.begin(partitions)
    while not reading.finished:
        reading.step()


def read_in_group(reading: Reading) -> None:
    consumer, printer = reading.consumer, reading.printer

    async def commit_before_giving_up(partitions: Partitions) -> None:
        mine = {each: offset for each, offset in printer.printed.items() if each in partitions}
        with suppress(KafkaError):  # whoever has them next prints these again
            await consumer.inner.commit(mine)

    consumer.listen(revoked=commit_before_giving_up)
    seen = 0
    try:
        while not reading.finished:
            if consumer.assignments != seen:
                seen = consumer.assignments
                reading.begin(sorted(consumer.assignment))
            else:
                reading.step()
                commit_printed(consumer, printer)
            reading.tell_idle()
    except StopRequested:
        printer.flush()
        commit_printed(consumer, printer)
        raise


def commit_printed(consumer: SyncConsumer, printer: Printer) -> None:
    if printer.printed:
        assignment = consumer.assignment
        printed = {each: offset for each, offset in printer.printed.items() if each in assignment}
        printer.printed = {}
        try:
            consumer.commit(printed)
        except Rejected as error:
            if error.code not in GROUP_MOVED_ON:
                raise
