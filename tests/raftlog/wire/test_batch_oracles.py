"""Other people's readers and builders of record batches, in both directions.

kafka-python and aiokafka in this process; the Java client's own classes in one JVM, where Java and the jars
are.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from raftlog.wire.batch import Record, decode_batch, encode_batch, iterate_batches, parse_header
from raftlog.wire.compression import Compression
from tests.effort import examples
from tests.paths import KAFKA_JARS

JAVA_ORACLE = Path(__file__).with_name("BatchOracle.java")

# kafka-python needs the package python-snappy, which is another binding of the same library.
KAFKA_PYTHON_CODECS = [Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD]

optional_bytes = st.none() | st.binary(max_size=60)
records_from_zero = st.lists(
    st.tuples(
        st.integers(0, 2**42),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
).map(lambda fields: [Record(offset, *rest) for offset, rest in enumerate(fields)])


def as_record(message: Any) -> Record:
    """A record of either library; both give headers as a list of pairs."""
    return Record(message.offset, message.timestamp, message.key, message.value, tuple(message.headers))


@settings(max_examples=examples(60))
@given(records=records_from_zero, codec=st.sampled_from(KAFKA_PYTHON_CODECS))
def test_kafka_python_reads_our_batches(records: list[Record], codec: Compression) -> None:
    batch = encode_batch(records, compression=codec, producer_id=4, producer_epoch=1, base_sequence=9)
    theirs = MemoryRecords(batch).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (4, 1, 9)
    assert [as_record(message) for message in theirs] == records


@settings(max_examples=examples(60))
@given(records=records_from_zero, codec=st.sampled_from(KAFKA_PYTHON_CODECS), transactional=st.booleans())
def test_we_read_the_batches_of_kafka_python(
    records: list[Record], codec: Compression, transactional: bool
) -> None:
    builder = MemoryRecordsBuilder(
        2, int(codec), 1 << 20, transactional=transactional, producer_id=4, producer_epoch=1, base_sequence=9
    )
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    batch = bytes(builder.buffer())
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 9)
    assert header.is_transactional == transactional
    assert decode_batch(batch) == records


@settings(max_examples=examples(60))
@given(records=records_from_zero, codec=st.sampled_from(Compression))
def test_aiokafka_reads_our_batches(records: list[Record], codec: Compression) -> None:
    theirs = AiokafkaBatch(encode_batch(records, compression=codec))
    assert theirs.validate_crc()
    assert [as_record(message) for message in theirs] == records


@settings(max_examples=examples(60))
@given(records=records_from_zero, codec=st.sampled_from(Compression))
def test_we_read_the_batches_of_aiokafka(records: list[Record], codec: Compression) -> None:
    builder = AiokafkaBuilder(
        magic=2, compression_type=int(codec), is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    assert decode_batch(bytes(builder.build())) == records


def sample(size: int) -> list[Record]:
    """Records that make several blocks in every codec's framing."""
    return [
        Record(
            index,
            1_700_000_000_000 + index,
            b"key-%d" % index,
            bytes(range(256)) * 3,
            (("h", b"v"), ("n", None)),
        )
        for index in range(size)
    ]


@pytest.mark.java
def test_the_java_client_reads_our_batches_and_we_read_its(tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None or not KAFKA_JARS.is_dir():
        pytest.skip("needs Java 17 and the jars of Kafka's client")
    records = sample(400)
    cases: list[tuple[Compression, int | None]] = [
        (Compression.NONE, None), (Compression.GZIP, None), (Compression.GZIP, 9), (Compression.SNAPPY, None),
        (Compression.LZ4, None), (Compression.LZ4, 17), (Compression.ZSTD, None), (Compression.ZSTD, 19),
    ]  # fmt: skip
    ours = b"".join(
        encode_batch(
            [record._replace(offset=record.offset + 1000 * number) for record in records],
            base_offset=1000 * number, compression=codec, level=level,
        )
        for number, (codec, level) in enumerate(cases)
    )  # fmt: skip
    (tmp_path / "ours").write_bytes(ours)
    finished = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_JARS}/*", str(JAVA_ORACLE), "ours", "theirs"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    theirs = (tmp_path / "theirs").read_bytes()
    rewritten = [
        (header.codec, decode_batch(theirs[position : position + header.size]))
        for position, header in iterate_batches(theirs)
    ]
    # The Java side reads every record of every batch of ours and writes them all again with each codec.
    expected = [
        record._replace(offset=record.offset + 1000 * number)
        for number in range(len(cases))
        for record in records
    ]
    assert [codec for codec, _ in rewritten] == list(Compression)
    assert all(read == expected for _, read in rewritten)
