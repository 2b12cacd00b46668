"""The four codecs: what clients write is read, and what lies about its size costs no memory."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from cramjam import snappy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftlog.wire import compression
from raftlog.wire.compression import Compression, CorruptCompression, DecompressionLimit, compress, decompress
from tests.effort import examples

LIMIT = 1 << 20
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]

payloads = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=40), st.integers(0, 9000)),
)


@pytest.mark.parametrize("codec", list(Compression))
@settings(max_examples=examples(40))
@given(data=payloads)
@example(data=b"")
def test_what_is_compressed_comes_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT) == data


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: Compression, kind: type) -> None:
    data = b"abc" * 30_000
    assert decompress(codec, kind(compress(codec, kind(data))), LIMIT) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Compression.GZIP, level) for level in (-1, 1, 9)]
    + [(Compression.LZ4, level) for level in (1, 9, 17)]
    + [(Compression.ZSTD, level) for level in (-131072, 1, 22)],
)
def test_every_level_that_kafka_allows_is_accepted(codec: Compression, level: int) -> None:
    data = bytes(range(256)) * 500
    assert decompress(codec, compress(codec, data, level), LIMIT) == data


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30))
@given(data=payloads, cut=st.integers(1, 1000))
def test_a_stream_that_is_cut_short_is_corrupt_and_never_a_shorter_answer(
    codec: Compression, data: bytes, cut: int
) -> None:
    packed = compress(codec, data)
    short = packed[: max(0, len(packed) - cut)]
    try:
        unpacked = decompress(codec, short, LIMIT)
    except CorruptCompression:
        return
    # snappy's stream framing has no end mark: at a block boundary less is simply less, and the batch's own
    # record count notices.
    assert codec is Compression.SNAPPY
    assert data.startswith(unpacked)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(150))
@given(garbage=st.binary(max_size=200), keep=st.integers(0, 30))
def test_garbage_is_refused_with_one_kind_of_error(codec: Compression, garbage: bytes, keep: int) -> None:
    packed = compress(codec, b"some text, some text, some more text")[:keep] + garbage
    try:
        decompress(codec, packed, 1 << 16)
    except CorruptCompression:
        pass


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, LIMIT, LIMIT + 1])
def test_the_limit_is_exact(codec: Compression, size: int) -> None:
    packed = compress(codec, bytes(size))
    if size > LIMIT:
        with pytest.raises(DecompressionLimit):
            decompress(codec, packed, LIMIT)
    else:
        assert len(decompress(codec, packed, LIMIT)) == size


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_stopped_before_it_fills_the_memory(codec: Compression) -> None:
    bomb = compress(codec, bytes(40 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimit):
            decompress(codec, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 6 * LIMIT
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_four_gigabytes_is_not_believed() -> None:
    with pytest.raises(DecompressionLimit):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100), LIMIT)
    with pytest.raises(CorruptCompression, match="cannot unfold"):
        decompress(Compression.SNAPPY, b"\xff\xff\x3f" + bytes(100), LIMIT)


def test_an_lz4_frame_that_claims_a_huge_content_is_read_by_what_is_there() -> None:
    context = lz4.frame.create_compression_context()
    header = lz4.frame.compress_begin(context, source_size=1 << 40, return_bytearray=True)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptCompression):
            decompress(Compression.LZ4, bytes(header) + bytes(8), LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 2 * LIMIT
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_with_a_window_above_the_limit_is_refused() -> None:
    # Frame header by hand: magic, no single segment, window descriptor for 2 GiB, then an empty last block.
    frame = bytes.fromhex("28b52ffd00") + bytes([21 << 3]) + b"\x01\x00\x00"
    with pytest.raises(CorruptCompression):
        decompress(Compression.ZSTD, frame, LIMIT)


def test_snappy_is_written_in_the_stream_framing_of_the_java_client() -> None:
    data = bytes(range(256)) * 400
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert aiokafka_codec.snappy_decode(packed) == data
    assert decompress(Compression.SNAPPY, aiokafka_codec.snappy_encode(data), LIMIT) == data


def test_a_bare_snappy_block_as_librdkafka_writes_it_is_read() -> None:
    data = b"key and value " * 5000
    assert decompress(Compression.SNAPPY, bytes(snappy.compress_raw(data)), LIMIT) == data


def test_concatenated_streams_are_read_as_one() -> None:
    for codec in CODECS:
        assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), LIMIT) == b"one two"
    assert decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), LIMIT) == b"one two"


def test_many_small_gzip_members_cost_what_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies what follows a member: of a megabyte of empty ones that was 25 gigabytes."""
    copied = 0
    begin = zlib.decompressobj

    class Counting:
        def __init__(self, bits: int) -> None:
            self._inflate = begin(bits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal copied
            unpacked = self._inflate.decompress(data, max_length)
            copied += len(self._inflate.unused_data) + len(self._inflate.unconsumed_tail)
            return unpacked

        def __getattr__(self, name: str) -> object:
            return getattr(self._inflate, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    costs = []
    for count in (2000, 8000):
        copied = 0
        assert decompress(Compression.GZIP, gzip.compress(b"") * count + gzip.compress(b"last"), LIMIT) == b"last"
        costs.append(copied)
    assert costs[1] < 5 * costs[0]


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_end_are_corrupt(codec: Compression) -> None:
    with pytest.raises(CorruptCompression):
        decompress(codec, compress(codec, b"text") + b"\xffrest", LIMIT)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_frames_of_every_block_mode_are_read(
    linked: bool, block_size: int, checksums: bool, store_size: bool
) -> None:
    data = bytes(range(251)) * 3000
    frame = lz4.frame.compress(
        data,
        block_size=block_size,
        block_linked=linked,
        content_checksum=checksums,
        block_checksum=checksums,
        store_size=store_size,
    )
    assert decompress(Compression.LZ4, frame, LIMIT) == data


def test_lz4_is_written_in_independent_blocks_because_the_java_client_reads_no_others() -> None:
    for level in (None, 1, 9, 17):
        info = lz4.frame.get_frame_info(compress(Compression.LZ4, bytes(500_000), level))
        assert not info["block_linked"]
        assert info["block_size"] == 64 * 1024


@pytest.mark.parametrize("known_size", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("level", [1, 12])
def test_zstd_frames_with_and_without_their_size_are_read(
    known_size: bool, checksum: bool, level: int
) -> None:
    data = zlib.compress(bytes(300_000), 0)
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=known_size, write_checksum=checksum)
    packed = compressor.compress(data)
    assert decompress(Compression.ZSTD, packed, LIMIT) == data
    writer = zstandard.ZstdCompressor(level=level, write_checksum=checksum).compressobj()
    streamed = writer.compress(data) + writer.flush()
    assert decompress(Compression.ZSTD, streamed, LIMIT) == data
    for end in range(len(packed) - 1, 0, -max(1, len(packed) // 50)):
        with pytest.raises(CorruptCompression):
            decompress(Compression.ZSTD, packed[:end], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_no_codec_reaches_more_than_its_greatest_ratio(codec: Compression) -> None:
    data = bytes(4 << 20)
    assert len(data) <= compression.MAX_RATIO[codec] * len(compress(codec, data))


def test_codec_names_are_those_of_the_configuration() -> None:
    names = ("none", "uncompressed", "gzip", "snappy", "lz4", "zstd")
    assert [Compression.parse(name) for name in names] == [0, 0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="producer"):
        Compression.parse("producer")
