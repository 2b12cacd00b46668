"""`raftlog produce`: send lines of standard input, or of a file, to a topic, with kcat's options."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from raftlog.cli.arguments import Parser, add_connection, add_json, not_negative
from raftlog.cli.connected import connected, no_such_topic
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.output import notice, plural, print_json
from raftlog.cli.record_format import from_json, typed, unescape
from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.producer_batch import Placed
from raftlog.client.producer import Outgoing
from raftlog.client.sync import SyncClient
from raftlog.client.topics import ResourceType
from raftlog.wire.batch import MAX_DECOMPRESSED_BYTES, Record
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode

EPILOG = """\
examples:
  echo 'hello' | raftlog produce greetings
  raftlog produce orders -K: < orders.txt         each line is key:value
  raftlog produce orders -k alice -H source=shell -z zstd -l orders.txt
  raftlog consume orders -e --json | raftlog produce copy --json-in

A line is sent as soon as it is read. Records with one key go to one partition, chosen as the Java client does; those
without a key are spread. Each record is stored once, also when the broker is lost and comes back meanwhile.
"""
READ_BYTES = 512 * 1024
BATCH_BYTES = 512 * 1024
CREATION_SECONDS = 5.0
"""How long a topic that the broker creates on first use may take to appear."""
CODECS = [codec.name.lower() for codec in Compression]


def build_parser() -> Parser:
    parser = Parser(prog="raftlog produce", description="Send lines to a topic.", epilog=EPILOG)
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="where to send them")
    parser.add_argument("-t", "--topic", dest="named_topic", metavar="TOPIC", help="the same, as kcat has it")
    parser.add_argument("-p", "--partition", type=not_negative, metavar="N", help="send everything to this partition")
    parser.add_argument("-l", "--file", metavar="FILE", help="read this file instead of standard input")
    parser.add_argument(
        "-D", "--delimiter", default="\\n", metavar="TEXT", help="what ends a record (default %(default)s)"
    )
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="what stands between key and value")
    parser.add_argument("-k", "--key", metavar="TEXT", help="the key of every record")
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of every record"
    )
    parser.add_argument("-Z", "--null", action="store_true", help="an empty key or value is none at all (a tombstone)")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none", help="codec (default %(default)s)")
    parser.add_argument(
        "-J", "--json-in", action="store_true", help="lines are JSON, as `raftlog consume --json` prints them"
    )
    add_json(parser, "when done, print one line of JSON that says where the records are")
    add_connection(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = build_parser().parse(arguments)
    if options.topic and options.named_topic:
        raise UsageError("the topic is given twice", f"raftlog produce {options.topic}")
    options.topic = options.topic or options.named_topic
    if not options.topic:
        raise UsageError("no topic is given", "raftlog produce TOPIC")
    if options.key is not None and options.key_delimiter is not None:
        raise UsageError("-k and -K exclude each other", "the key is either fixed or in each line")
    reader = Reader(options)
    source = open_source(options.file)
    try:
        with connected(options) as client:
            sender = send_all(client, options, reader, source)
    finally:
        if source != sys.stdin.fileno():
            os.close(source)
    sender.summary(as_json=options.json)
    return 0


def send_all(client: SyncClient, options: argparse.Namespace, reader: Reader, source: int) -> Sender:
    with Sender(client, options) as sender:
        for pieces in split(source, unescape(options.delimiter), sender.record_bytes_max):
            sender.send([reader.record(piece) for piece in pieces if piece or not options.json_in])
    return sender


def open_source(path: str | None) -> int:
    if path is None or path == "-":
        return sys.stdin.fileno()
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error


def split(source: int, delimiter: bytes, longest: Callable[[], int]) -> Iterator[list[bytes]]:
    """Whole pieces, as many as have arrived at a time; the last one needs no delimiter.

    `longest`: how long a piece may become, in bytes; asked when one is longer than what is read at once.
    """
    if not delimiter:
        raise UsageError("-D is empty", "every byte cannot end a record")
    rest = bytearray()
    before = 0
    while chunk := read_some(source):
        # A delimiter may begin in what was there before.
        searched = max(0, len(rest) - len(delimiter) + 1)
        rest += chunk
        if rest.find(delimiter, searched) >= 0:
            *pieces, last = bytes(rest).split(delimiter)
            yield pieces
            before += len(pieces)
            rest = bytearray(last)
        if len(rest) > READ_BYTES and len(rest) > (limit := longest()):
            raise CommandFailed(
                f"record {before + 1} of the input is longer than {limit} bytes, and its end has not come yet",
                "-D says what ends a record; `raftlog topic alter NAME -c max.message.bytes=N` lets larger ones in",
                code=ErrorCode.MESSAGE_TOO_LARGE.name,
            )
    if rest:
        yield [bytes(rest)]


def read_some(source: int) -> bytes:
    """What has arrived; nothing at the end."""
    try:
        return os.read(source, READ_BYTES)
    except IsADirectoryError:
        raise CommandFailed("the input is a directory", "give a file with -l FILE") from None
    except OSError as error:
        raise CommandFailed(f"cannot read the input: {(error.strerror or str(error)).lower()}") from error


class Reader:
    """Turns pieces of input into records and the partition each asks for."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._json = options.json_in
        self._null = options.null
        self._key = typed(options.key) if options.key is not None else None
        self._between = unescape(options.key_delimiter) if options.key_delimiter is not None else None
        self._headers = tuple(header(text) for text in options.header)
        self._line = 0
        if self._between == b"":
            raise UsageError("-K is empty", "give what stands between key and value, for example -K:")

    def record(self, piece: bytes) -> tuple[Record, int | None]:
        self._line += 1
        now_ms = time.time_ns() // 1_000_000
        if self._json:
            try:
                record, partition = from_json(piece, now_ms)
            except (ValueError, RecursionError) as error:
                raise CommandFailed(
                    f"record {self._line} of the input is not right: {error}",
                    'write {"key": "k", "value": "v"}; what came before it was sent',
                ) from error
            return record._replace(headers=(*record.headers, *self._headers)), partition
        key, value = self._key, piece
        if self._between is not None and self._between in piece:
            key, _, value = piece.partition(self._between)
        empty_is_null = self._null
        return Record(
            offset=0,
            timestamp=now_ms,
            key=None if empty_is_null and not key else key,
            value=None if empty_is_null and not value else value,
            headers=self._headers,
        ), None


def header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-H {text!r} has no name", "write -H NAME=VALUE")
    return name, typed(value) if equals else None


class Sender:
    """Divides records among partitions and keeps count of where they went."""

    def __init__(self, client: SyncClient, options: argparse.Namespace) -> None:
        self._client = client
        self._topic: str = options.topic
        self._fixed: int | None = options.partition
        self._check_partition()
        self._producer = client.producer(
            compression=options.compression,
            linger=0.0,
            batch_size=BATCH_BYTES,
            max_request_size=MAX_DECOMPRESSED_BYTES,
            buffer_memory=MAX_DECOMPRESSED_BYTES,
            delivery_timeout=options.timeout,
        )
        self._placed: dict[int, list[int]] = {}
        # What is packed, or JSON, may be longer than what is stored in the end.
        is_stored_as_read = options.compression == "none" and not options.json_in
        self._record_bytes_max = 0 if is_stored_as_read else MAX_DECOMPRESSED_BYTES

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._producer.close()

    def _check_partition(self) -> None:
        count = len(find_or_create(self._client, self._topic))
        if self._fixed is not None and self._fixed >= count:
            raise CommandFailed(
                f"topic {self._topic!r} has no partition {self._fixed}",
                f"it has 0 to {count - 1}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
            )

    def record_bytes_max(self) -> int:
        """How long a record of the input may become: what the topic takes, or what readers unpack."""
        if not self._record_bytes_max:
            # Imported here: few records are so long that this matters.

            try:
                (found,) = self._client.admin.describe_configs(ResourceType.TOPIC, [self._topic])
                values = {each.name: each.value for each in found.configs}
            except Rejected:  # who may write need not be allowed to see settings
                values = {}
            self._record_bytes_max = int(values.get("max.message.bytes") or MAX_DECOMPRESSED_BYTES)
        return self._record_bytes_max

    def send(self, records: list[tuple[Record, int | None]]) -> None:
        """Raises KafkaError for the first record that failed; what came before it is stored."""
        outgoing = [
            Outgoing(
                record.value,
                key=record.key,
                headers=record.headers,
                partition=self._fixed if self._fixed is not None else wanted,
                timestamp=record.timestamp,
            )
            for record, wanted in records
        ]
        for outcome in self._producer.send_batch(self._topic, outgoing):
            if isinstance(outcome, KafkaError):
                raise outcome
            self._note(outcome)

    def _note(self, placed: Placed) -> None:
        seen = self._placed.setdefault(placed.partition, [0, placed.offset, placed.offset])
        seen[0] += 1
        seen[2] = placed.offset

    def summary(self, *, as_json: bool) -> None:
        total = sum(count for count, _, _ in self._placed.values())
        if as_json:
            partitions = [
                {"partition": partition, "records": count, "first_offset": first, "last_offset": last}
                for partition, (count, first, last) in sorted(self._placed.items())
            ]
            print_json({"topic": self._topic, "records": total, "partitions": partitions})
        elif sys.stderr.isatty():
            notice(f"{plural(total, 'record')} sent to {self._topic}")


def find_or_create(client: SyncClient, name: str) -> list[int]:
    """The topic's partitions; a missing topic is created if the broker does that, and the user is told."""
    try:
        topic = client.admin.topic(name)
    except Rejected as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    else:
        return [each.partition_index for each in topic.partitions]
    known = [each.name or "" for each in client.admin.metadata().topics]
    deadline = time.monotonic() + CREATION_SECONDS
    while True:
        try:
            topic = client.admin.topic(name, create=True)
        except Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if time.monotonic() > deadline:
                raise no_such_topic(client, name) from error
            time.sleep(0.05)
            continue
        break
    close = nearest(name, known)
    doubt = f" (there is also {close!r})" if close else ""
    notice(f"raftlog: topic {name!r} did not exist; created with {plural(len(topic.partitions), 'partition')}{doubt}")
    return [each.partition_index for each in topic.partitions]
