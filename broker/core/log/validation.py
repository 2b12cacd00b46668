"""What a leader checks of a batch before it takes it, and the few cases in which it has to change it.

The rules are those of Kafka's brokers for a produce payload (KIP-32, KIP-98, KIP-467, KIP-724, KIP-937).

`check_batch` is the hot path: one unpacking of the header, a dozen comparisons and one checksum, however many
records there are. A batch is unpacked only where the topic asks for it (another compression, keys for
compaction) or where its header cannot be taken as it is (a timestamp out of bounds, a bit that is not the
client's to set).

Two things Kafka finds by reading every record are therefore not found here: records that do not match the
header of their batch, and a timestamp that is out of bounds in the middle of a batch. Readers notice the
first.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin, RecordError
from raftlog.wire.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_OFFSET,
    HEADER_LAYOUT,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_OFFSET,
    MAX_DECOMPRESSED_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecord,
    assemble_batch,
    unpack_in_pieces,
    unpack_payload,
)
from raftlog.wire.checksum import Buffer, crc32c
from raftlog.wire.compression import MAX_RATIO, Compression, DecompressionLimit, compress
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.records import MIN_RECORD_BYTES, RecordScan, RecordSpan, check_headers

MAX_RECORD_ERRORS: Final = 1000
"""How many refused records are listed one by one. A batch can hold a hundred thousand, and the list goes into
a reply; clients fail the whole batch whatever its length."""

# By codec id; the undefined ids 5 to 7 can hold nothing, so that the plausibility check refuses them too.
_RATIO: Final = (*MAX_RATIO, 0, 0, 0)

_SMALLEST_BATCH: Final = 14
"""Kafka's least length of any message format: below it the length field itself is damaged."""

RECORDS_AT_A_TIME: Final = 4096
"""How many records are looked at together: a compressed batch of 1 MiB can hold a million, each taking 300 bytes."""

QUICK_BYTES_MAX: Final = 64 * 1024
"""So much is unpacked, or compressed, beside nothing else: some milliseconds at the slowest codec's slowest level."""

QUICK_UNPACKED_BYTES_MAX: Final = 256 * 1024
"""And so much may come of it, where it is only looked at."""

QUICK_RECORDS_MAX: Final = 10_000
"""So many records are looked at beside nothing else: 10 ms."""

_ZSTD_FROM_VERSION: Final = 7

_CLIENT: Final = AppendOrigin.CLIENT
# A named tuple without the function that NamedTuple puts around this.
_new: Final = tuple.__new__
_INT16: Final = Struct(">h")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_ATTRIBUTES_END: Final = ATTRIBUTES_OFFSET + 2
_MAX_TIMESTAMP_OFFSET: Final = 35
_PRODUCER_OFFSET: Final = 43
_PRODUCER: Final = Struct(">qhi")
_NO_PRODUCER: Final = (ProducerId(-1), ProducerEpoch(-1), -1)

WritableBatch: TypeAlias = "memoryview | bytearray"


class BatchRules:
    """The part of a topic's settings that appending needs, worked out once. Make a new one when settings
    change."""

    __slots__ = (
        "compacted",
        "compression",
        "level",
        "log_append_time",
        "max_message_bytes",
        "max_unpacked_bytes",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, config: LogConfig, *, max_unpacked_bytes: int = MAX_DECOMPRESSED_BYTES) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.log_append_time = config.log_append_time
        self.compacted = config.compact
        self.max_unpacked_bytes = max_unpacked_bytes
        self.compression: Compression | None = None
        self.level: int | None = None
        if config.compression_type != "producer":
            self.compression = Compression.parse(config.compression_type)
            self.level = {
                Compression.GZIP: config.compression_gzip_level,
                Compression.LZ4: config.compression_lz4_level,
                Compression.ZSTD: config.compression_zstd_level,
            }.get(self.compression)


class Checked(NamedTuple):
    """A batch that may be appended: `batch` is what came or its replacement, and can be written into.

    `header` is the header of `batch`. `log_append_time_ms` is -1 under CreateTime.
    """

    header: BatchHeader
    batch: WritableBatch
    log_append_time_ms: int


class TakesLong(Exception):
    """To check a batch takes so long that others would notice: it is to be done where nobody waits for it."""


class Refusal(NamedTuple):
    """Why nothing of it may be appended."""

    error: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()


BatchVerdict: TypeAlias = Checked | Refusal


def check_batch(
    records: Buffer, rules: BatchRules, now_ms: int, origin: AppendOrigin = _CLIENT, *, may_take_long: bool = True
) -> Checked | Refusal:
    """Check what one partition gets from a produce request (or from a coordinator), which must be one whole
    batch.

    `now_ms` is the wall clock in ms since 1970. Whatever is wrong is a Refusal with the error code that Kafka 4.3
    gives. Unless it `may_take_long`, raises TakesLong where the records have to be looked at and are many: nothing has
    been changed then.
    """
    view = records if type(records) is memoryview else memoryview(records)
    size = len(view)
    try:
        header = _new(BatchHeader, HEADER_LAYOUT.unpack_from(view))
    except StructError:
        return _refuse_shape(view)
    base, length, _, magic, crc, attributes, delta, first_time, last_time, producer, epoch, sequence, count = header
    if magic != MAGIC or length + LENGTH_END != size:
        return _refuse_shape(view)
    if base != 0 and origin is _CLIENT:
        return Refusal(ErrorCode.INVALID_RECORD, f"a batch from a client has base offset 0, not {base}")
    if size > rules.max_message_bytes:
        return _too_large(size, rules)
    if crc32c(view[ATTRIBUTES_OFFSET:]) != crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
    if (
        count <= 0
        or delta + 1 != count
        or count * MIN_RECORD_BYTES > (size - HEADER_SIZE) * _RATIO[attributes & CODEC_MASK]
        or (producer >= 0 and (sequence < 0 or epoch < 0))
        or attributes & CONTROL_BIT
        or (producer < 0 and attributes & TRANSACTIONAL_BIT)
    ):
        refusal = _refuse_header(header, origin)
        if refusal is not None:
            return refusal
    if view.readonly:
        view = memoryview(bytearray(view))
    looks = (rules.compacted and origin is _CLIENT) or attributes & LOG_APPEND_TIME_BIT
    if not looks and not rules.log_append_time:
        # A header whose times are in order and in bounds is believed; behind any other the records are looked at.
        lowest, highest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
        looks = not lowest <= first_time <= last_time <= highest
        if not looks and rules.compression is None and size <= rules.segment_bytes:
            return _new(Checked, (header, view, NO_TIMESTAMP))
    try:
        # A control batch, which only a coordinator sends, has a key that is not for compaction, and stays as it is.
        has_payload = not attributes & CONTROL_BIT and (looks or _is_converted(header, rules))
        payload = _unpack(view, header, rules, may_take_long) if has_payload else b""
        if looks and has_payload:
            return _check_records(view, header, rules, now_ms, payload)
    except CorruptRecord as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    if rules.log_append_time:
        return _stamp_time(view, header, rules, now_ms, payload)
    return _convert(view, header, rules, NO_TIMESTAMP, payload)


def check_api_version(records: Buffer, api_version: int) -> Refusal | None:
    """What only old produce requests may be refused for: zstd before v7 (KIP-110)."""
    if api_version >= _ZSTD_FROM_VERSION or _attributes(records) & CODEC_MASK != Compression.ZSTD:
        return None
    return Refusal(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"zstd needs Produce v{_ZSTD_FROM_VERSION} or later, not v{api_version}",
    )


def is_transactional(records: Buffer) -> bool:
    """Whether a produce payload says it belongs to a transaction, before anything else of it is checked."""
    return _attributes(records) & TRANSACTIONAL_BIT != 0


def producer_of(records: Buffer) -> tuple[ProducerId, ProducerEpoch, int]:
    """Producer id, epoch and first sequence of a produce payload, before anything else of it is checked; the id is -1
    where there is none, or no whole header.
    """
    if len(records) < HEADER_SIZE:
        return _NO_PRODUCER
    found: tuple[ProducerId, ProducerEpoch, int] = _PRODUCER.unpack_from(records, _PRODUCER_OFFSET)
    return found


def _attributes(records: Buffer) -> int:
    """The low byte of the attributes, 0 where there are none: older formats have part of a timestamp there."""
    if len(records) < _ATTRIBUTES_END or records[MAGIC_OFFSET] != MAGIC:
        return 0
    return records[_ATTRIBUTES_END - 1]


def _refuse_shape(view: memoryview) -> Refusal:
    """Why the bytes are not exactly one batch of format 2; the order of questions is Kafka's."""
    size = len(view)
    length = int.from_bytes(view[8:LENGTH_END], "big", signed=True) if size >= LENGTH_END else None
    if length is not None and length < _SMALLEST_BATCH:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch says that it has {length} bytes")
    if length is None or size <= MAGIC_OFFSET:
        return Refusal(ErrorCode.INVALID_RECORD, f"there is no batch in {size} bytes")
    magic = view[MAGIC_OFFSET]
    if magic > MAGIC:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"there is no message format {magic}")
    if length + LENGTH_END > size:
        return Refusal(ErrorCode.INVALID_RECORD, f"a batch of {length + LENGTH_END} bytes is cut off after {size}")
    if magic < MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"message format {magic} is no longer accepted, only 2 (KIP-724)")
    if length + LENGTH_END < HEADER_SIZE:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch of {length + LENGTH_END} bytes has no room for its header")
    return Refusal(
        ErrorCode.INVALID_RECORD,
        f"{size - length - LENGTH_END} bytes follow the batch, and a partition takes one batch at a time",
    )


def _refuse_header(header: BatchHeader, origin: AppendOrigin) -> Refusal | None:
    """Why a client may not send this header; None for what only a client may not."""
    count, delta, producer = header.records_count, header.last_offset_delta, header.producer_id
    codec = header.attributes & CODEC_MASK
    if count <= 0:
        reason = f"a batch of {count} records"
    elif delta + 1 != count:
        reason = f"{count} records do not fill the offsets 0 to {delta}"
    elif codec > max(Compression):
        reason = f"there is no compression codec {codec}"
    elif origin is not _CLIENT:
        return None
    elif header.is_control:
        reason = "clients do not write control records"
    elif producer >= 0 and header.base_sequence < 0:
        reason = f"producer {producer} sent sequence {header.base_sequence}"
    elif producer >= 0 and header.producer_epoch < 0:
        reason = f"producer {producer} sent epoch {header.producer_epoch}"
    elif producer < 0 and header.is_transactional:
        reason = "a transactional batch has a producer id"
    else:
        reason = f"{count} records do not fit in {header.size - HEADER_SIZE} bytes"
    return Refusal(ErrorCode.INVALID_RECORD, reason)


def _too_large(size: int, rules: BatchRules) -> Refusal:
    return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes where {rules.max_message_bytes} are allowed")


def _unpack(view: memoryview, header: BatchHeader, rules: BatchRules, may_take_long: bool) -> Buffer:
    """The records of the batch. Raises CorruptRecord, TakesLong."""
    if may_take_long:
        return unpack_in_pieces(view, header, rules.max_unpacked_bytes)
    if header.records_count > QUICK_RECORDS_MAX or (header.attributes & CODEC_MASK and header.size > QUICK_BYTES_MAX):
        raise TakesLong
    most = min(QUICK_BYTES_MAX if _is_converted(header, rules) else QUICK_UNPACKED_BYTES_MAX, rules.max_unpacked_bytes)
    try:
        return unpack_payload(view, header, most)
    except CorruptRecord as error:
        if isinstance(error.__cause__, DecompressionLimit) and most < rules.max_unpacked_bytes:
            raise TakesLong from None
        raise


def _is_converted(header: BatchHeader, rules: BatchRules) -> bool:
    """Whether the topic has a codec of its own that is not that of the batch. Another level of the same is left
    alone."""
    target = rules.compression
    return target is not None and header.attributes & CODEC_MASK != target


def _check_records(
    view: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int, payload: Buffer
) -> Checked | Refusal:
    """Look at each record: for keys, or because the header's times were not good enough to go by. Raises
    CorruptRecord."""
    look = _Look(header, rules, now_ms)
    scan = RecordScan(payload, header.records_count)
    while scan.remaining:
        spans = scan.take(RECORDS_AT_A_TIME)
        check_headers(payload, spans)
        look.at(spans)
    if look.last_offset_delta != header.last_offset_delta:
        return Refusal(ErrorCode.INVALID_RECORD, "the records do not have the offsets that their batch says")
    if look.refused:
        message = f"{look.refused} of {look.seen} records are refused, the first because: {look.errors[0].message}"
        return Refusal(look.code, message, tuple(look.errors))
    if rules.log_append_time:
        return _stamp_time(view, header, rules, now_ms, payload)
    if look.largest_time != header.max_timestamp or header.attributes & LOG_APPEND_TIME_BIT:
        header = _set_time(view, header, header.attributes & ~LOG_APPEND_TIME_BIT, look.largest_time)
    return _convert(view, header, rules, NO_TIMESTAMP, payload)


class _Look:
    """What the records of a batch turn out to be. Takes them piece by piece: a small batch may hold a million."""

    __slots__ = (
        "_append_time",
        "_base_timestamp",
        "_check_times",
        "_claims_append_time",
        "_compacted",
        "_highest",
        "_lowest",
        "code",
        "errors",
        "largest_time",
        "last_offset_delta",
        "refused",
        "seen",
    )

    def __init__(self, header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
        has_append_time = header.attributes & LOG_APPEND_TIME_BIT != 0
        self._append_time = header.max_timestamp if has_append_time else None
        self._base_timestamp = header.base_timestamp
        self._claims_append_time = rules.log_append_time and has_append_time
        self._check_times = not rules.log_append_time
        self._compacted = rules.compacted
        self._lowest = now_ms - rules.timestamp_before_max_ms
        self._highest = now_ms + rules.timestamp_after_max_ms
        self.seen = 0
        self.last_offset_delta = -1
        self.largest_time = -(2**63)
        # The records that may not be appended, each with its reason; a bad time outweighs a missing key in the code.
        self.refused = 0
        self.errors: list[RecordError] = []
        self.code = ErrorCode.INVALID_RECORD

    def at(self, spans: list[RecordSpan]) -> None:
        """The next records."""
        for offset_delta, timestamp_delta, key, *_ in spans:
            time = self._base_timestamp + timestamp_delta if self._append_time is None else self._append_time
            if time > self.largest_time:
                self.largest_time = time
            if self._compacted and key is None:
                self._refuse("a compacted topic takes no record without a key")
            elif self._claims_append_time:
                self.code = ErrorCode.INVALID_TIMESTAMP
                self._refuse("only the broker sets timestamps of type LogAppendTime")
            elif self._check_times and time != NO_TIMESTAMP and not self._lowest <= time <= self._highest:
                self.code = ErrorCode.INVALID_TIMESTAMP
                self._refuse(f"timestamp {time} is not between {self._lowest} and {self._highest}")
            self.last_offset_delta = offset_delta
            self.seen += 1

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        if len(self.errors) < MAX_RECORD_ERRORS:
            self.errors.append(RecordError(self.seen, reason))


def _stamp_time(
    view: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int, payload: Buffer
) -> Checked | Refusal:
    """Give the batch the broker's time (message.timestamp.type=LogAppendTime)."""
    header = _set_time(view, header, header.attributes | LOG_APPEND_TIME_BIT, now_ms)
    return _convert(view, header, rules, now_ms, payload)


def _set_time(view: memoryview, header: BatchHeader, attributes: int, max_timestamp: int) -> BatchHeader:
    _INT16.pack_into(view, ATTRIBUTES_OFFSET, attributes)
    _INT64.pack_into(view, _MAX_TIMESTAMP_OFFSET, max_timestamp)
    crc = crc32c(view[ATTRIBUTES_OFFSET:])
    _UINT32.pack_into(view, CRC_OFFSET, crc)
    return header._replace(crc=crc, attributes=attributes, max_timestamp=max_timestamp)


def _convert(
    view: memoryview, header: BatchHeader, rules: BatchRules, log_append_time_ms: int, payload: Buffer
) -> Checked | Refusal:
    """Bring the batch into the topic's own codec if it has another one; `payload` are its records then."""
    batch: WritableBatch = view
    target = rules.compression
    if target is not None and _is_converted(header, rules) and not header.is_control:
        if header.records_count * MIN_RECORD_BYTES > len(payload):
            return Refusal(
                ErrorCode.INVALID_RECORD, f"{header.records_count} records do not fit in {len(payload)} bytes"
            )
        if target is Compression.NONE and len(payload) > rules.max_message_bytes:
            return _too_large(HEADER_SIZE + len(payload), rules)
        header = header._replace(attributes=header.attributes & ~CODEC_MASK | target)
        batch = bytearray(assemble_batch(header, compress(target, payload, rules.level)))
        header = BatchHeader._make(HEADER_LAYOUT.unpack_from(batch))
    if len(batch) > rules.max_message_bytes:
        return _too_large(len(batch), rules)
    if len(batch) > rules.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {len(batch)} bytes does not fit in a segment of {rules.segment_bytes}",
        )
    return Checked(header, batch, log_append_time_ms)
