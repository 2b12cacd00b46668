"""The four codecs a record batch may be compressed with (KIP-110 adds zstd), and how far each may be trusted.

Decompression never believes a length that the sender wrote. Output is produced in chunks, or bounded by the
greatest ratio the codec can reach, and stops at the caller's limit. The libraries are imported when first
used, because a broker passes compressed batches through untouched and may never need them.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from raftlog.wire.checksum import Buffer

CHUNK_BYTES = 256 * 1024
"""How much output one step of an incremental decompression may produce: bounds what a lying frame makes us
allocate."""

ZSTD_MAX_WINDOW_BYTES = 1 << 27
"""The largest zstd window accepted: what level 22 without a known size writes, and the limit of zstd's own
decoder."""

SNAPPY_MAX_RATIO = 22
"""Snappy's densest element is a copy of 64 bytes in 3, so a claim of more than 21.4 times the input is a
lie."""

MAX_RATIO = (1, 1032, SNAPPY_MAX_RATIO, 255, 32768)
"""Greatest output/input ratio by codec id: deflate 1032, lz4 255, zstd 128 KiB from a run-length block of 4
bytes."""

_GZIP_PIECE_BYTES = 16 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024

_LZ4_KAFKA_DEFAULT_LEVEL = 9
_LZ4_MAX_LEVEL = 12

_ZSTD_FRAME_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50


class Compression(IntEnum):
    """The codec ids of a batch's attributes, bits 0-2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> Compression:
        """The codec called `name` in a configuration; `uncompressed` is how topics say `none`. Raises
        ValueError."""
        if name == "uncompressed":
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"unknown compression type {name!r}") from None


class CorruptCompression(ValueError):
    """The bytes are not what the codec writes: truncated, garbled, or with something after the end."""


class DecompressionLimit(CorruptCompression):
    """The bytes unfold to more than the caller allows."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress as Kafka's Java client does, so that every known client can read the result.

    `level` has the meaning of `compression.<codec>.level` (KIP-390); None is the codec's default. Snappy has
    no levels.
    """
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return deflate.compress(data) + deflate.flush()
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            import zstandard

            compressor = zstandard.ZstdCompressor(level=3 if level is None else level)
            return bytes(compressor.compress(data))


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """Decompress at most `max_bytes` of output.

    Raises DecompressionLimit if there is more, CorruptCompression if the data is damaged, cut short, or
    followed by anything else. Memory used stays within a small constant of what is really there, whatever the
    headers claim.
    """
    if codec is Compression.NONE:
        if len(data) > max_bytes:
            raise DecompressionLimit(f"{len(data)} bytes where {max_bytes} are allowed")
        return bytes(data)
    output = _Output(max_bytes)
    _CODECS[codec](data, output)
    return output.join()


def decompress_in_pieces(codec: Compression, data: Buffer, max_bytes: int) -> memoryview:
    """The same for a thread beside others: they wait for one piece at most, for what becomes of the pieces is never
    copied as a whole.
    """
    output = _Pages(max_bytes)
    if codec is Compression.NONE:
        output.add(data)
    else:
        _CODECS[codec](data, output)
    return output.view()


class _Output:
    """Chunks collected under a limit."""

    __slots__ = ("chunks", "max_bytes", "size")

    def __init__(self, max_bytes: int) -> None:
        self.chunks: list[Buffer] = []
        self.max_bytes = max_bytes
        self.size = 0

    def room(self) -> int:
        """How much to ask for next: one byte more than is allowed at most, so that excess shows."""
        return min(CHUNK_BYTES, self.max_bytes - self.size + 1)

    def add(self, chunk: Buffer) -> None:
        self.size += len(chunk)
        if self.size > self.max_bytes:
            raise DecompressionLimit(f"the data unfolds to more than {self.max_bytes} bytes")
        self.keep(chunk)

    def keep(self, chunk: Buffer) -> None:
        """Put it behind what is there; it is counted."""
        self.chunks.append(chunk)

    def join(self) -> bytes:
        if len(self.chunks) == 1 and isinstance(self.chunks[0], bytes):
            return self.chunks[0]
        return b"".join(self.chunks)


class _Pages(_Output):
    """Chunks put one behind the other in memory of which only what is filled is there."""

    __slots__ = ("_pages",)

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._pages = mmap(-1, max(1, max_bytes), flags=MAP_PRIVATE | MAP_ANONYMOUS)

    def keep(self, chunk: Buffer) -> None:
        self._pages[self.size - len(chunk) : self.size] = chunk

    def view(self) -> memoryview:
        return memoryview(self._pages)[: self.size]


# gzip


def _decompress_gzip(data: Buffer, output: _Output) -> None:
    """One gzip member or several: Java's GZIPInputStream reads on after the first.

    In pieces, because zlib copies what it leaves over: members may be as small as 20 bytes.
    """
    view = memoryview(data)
    inflate = zlib.decompressobj(31)
    position = 0
    while position < len(view):
        if inflate.eof:
            inflate = zlib.decompressobj(31)
        piece = view[position : position + _GZIP_PIECE_BYTES]
        try:
            output.add(inflate.decompress(piece, output.room()))
        except zlib.error as error:
            raise CorruptCompression(f"gzip: {error}") from error
        position += len(piece) - len(inflate.unconsumed_tail) - len(inflate.unused_data)
    if not inflate.eof:
        raise CorruptCompression("gzip: the data ends before the stream does")


# snappy


def _compress_snappy(data: Buffer) -> bytes:
    """snappy-java's stream framing: the one every client reads (Java reads a bare block too, but not all
    others do)."""
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, output: _Output) -> None:
    """Either framing: librdkafka writes one bare block, the Java client a stream of blocks behind a magic
    header."""
    view = memoryview(data)
    max_bytes = output.max_bytes
    if view[:8] != _XERIAL_MAGIC:
        output.add(_snappy_block(view, max_bytes))
        return
    position, end = 0, len(view)
    while position < end:
        # Concatenated streams repeat the header, as snappy-java allows.
        if view[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise CorruptCompression("snappy: the stream header is cut short")
            continue
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > end - position:
            raise CorruptCompression(
                f"snappy: a block of {size} bytes where {max(0, end - position)} are left"
            )
        output.add(_snappy_block(view[position : position + size], max_bytes - output.size))
        position += size


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    """A bare snappy block. It begins with its unpacked length, which is bounded before it is believed."""
    from cramjam import DecompressionError, snappy

    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CorruptCompression("snappy: no block length")
    if claimed > max_bytes:
        raise DecompressionLimit(
            f"snappy: a block says it unfolds to {claimed} bytes where {max_bytes} are allowed"
        )
    if claimed > SNAPPY_MAX_RATIO * len(block):
        raise CorruptCompression(f"snappy: {len(block)} bytes cannot unfold to {claimed}")
    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptCompression(str(error)) from error


# lz4


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """An LZ4 frame of independent 64 KiB blocks: the Java client refuses linked ones.

    Level 9 is Kafka's default and stands for the fast compressor there, so it does here.
    """
    from lz4 import frame

    packed = frame.compress(
        data,
        compression_level=0 if level in (None, _LZ4_KAFKA_DEFAULT_LEVEL) else min(level, _LZ4_MAX_LEVEL),
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return bytes(packed)


def _decompress_lz4(data: Buffer, output: _Output) -> None:
    """Frames of any block size and mode, with or without checksums and content size."""
    from lz4 import frame

    view = memoryview(data)
    position, end = 0, len(view)
    if end == 0:
        raise CorruptCompression("lz4: no frame")
    while position < end:
        context = frame.create_decompression_context()
        finished = False
        while not finished:
            try:
                chunk, consumed, finished = frame.decompress_chunk(
                    context, view[position:], max_length=output.room()
                )
            except RuntimeError as error:
                raise CorruptCompression(f"lz4: {error}") from error
            output.add(chunk)
            position += consumed
            if not finished and not chunk and position >= end:
                raise CorruptCompression("lz4: the data ends before the frame does")


# zstd


def _decompress_zstd(data: Buffer, output: _Output) -> None:
    """One frame or several. The frames are walked first, because the stream reader is silent about a missing
    end."""
    import zstandard

    view = memoryview(data)
    position, end = 0, len(view)
    if end == 0:
        raise CorruptCompression("zstd: no frame")
    while position < end:
        position = _zstd_frame_end(view, position)
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(view, read_across_frames=True) as reader:
            while chunk := reader.read(output.room()):
                output.add(chunk)
    except zstandard.ZstdError as error:
        raise CorruptCompression(f"zstd: {error}") from error


_CODECS: Final = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}


def _zstd_frame_end(view: memoryview, position: int) -> int:
    """Where the frame at `position` ends (RFC 8878, section 3.1), or CorruptCompression if that is past the
    data."""
    end = len(view)
    magic = int.from_bytes(view[position : position + 4], "little")
    if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
        frame_end = position + 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        if frame_end > end:
            raise CorruptCompression("zstd: a skippable frame is cut short")
        return frame_end
    if magic != _ZSTD_FRAME_MAGIC or position + 5 > end:
        raise CorruptCompression("zstd: no frame where one should begin")
    descriptor = view[position + 4]
    single_segment = descriptor >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
    last = 0
    while not last:
        if position + 3 > end:
            raise CorruptCompression("zstd: the data ends before the frame does")
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last = block & 1
        # A run-length block holds one byte, however long the run is.
        position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    position += 4 * (descriptor >> 2 & 1)
    if position > end:
        raise CorruptCompression("zstd: the last block is cut short")
    return position
