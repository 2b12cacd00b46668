"""Writes the decoder of one message at one version, from its definition, as a straight-line Python function.

The function is `decode(data, pos, exact, left) -> message`; `left` is how many elements all arrays may have together,
tagged fields among them.
What makes it fast: everything that depends on the version is decided here and not there; neighbouring fields of a
fixed width, with the length of what follows them, are read by one `unpack_from` and unpacked straight into attributes,
an array of numbers by another; objects are made without a constructor. What makes it safe: no length and no count is
believed before it is compared with the bytes that are left, an array's count times the least size of its elements
included.

While the source is written, the position in the data is `pos + self.shift`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from raftlog.wire import primitives
from raftlog.wire.errors import Malformed
from raftlog.wire.schema import Field, Kind, Message, Struct
from raftlog.wire.source import Source, join_paths
from raftlog.wire.varint import finish_unsigned_varint, read_unsigned_varint

_BYTES_KINDS = (Kind.BYTES, Kind.RECORDS)
_NAMES: dict[str, Any] = {
    "Malformed": Malformed,
    "array_reader": primitives.array_reader,
    "finish_varint": finish_unsigned_varint,
    "new": object.__new__,
    "null_or_negative": primitives.null_or_negative,
    "overrun": primitives.overrun,
    "read_varint": read_unsigned_varint,
    "skip_tagged_fields": primitives.skip_tagged_fields,
    "too_many": primitives.too_many,
    "too_many_together": primitives.too_many_together,
}


class _Read(NamedTuple):
    """One fixed-width value in the run that is about to be read."""

    format: str
    size: int
    target: str
    path: str


def compile_decoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """`in_steps`: a generator function that does the same, and gives way now and then."""
    return _DecoderCompiler(cls, version, in_steps=in_steps).compile()


def decoder_source(cls: type[Message], version: int) -> str:
    """The text of the decoder, for a person who wants to read it."""
    compiler = _DecoderCompiler(cls, version)
    compiler.compile()
    return compiler.source.text()


def least_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that a field, present and not tagged, takes in this version."""
    if field.kind.size:
        return field.kind.size
    if field.kind is Kind.STRUCT:
        assert field.struct is not None
        return 1 if field.nullable.hold(version) else least_struct_size(field.struct, version, flexible)
    return _least_length_size(field.kind, flexible)


def _least_length_size(kind: Kind, flexible: bool) -> int:
    """The size of the shortest length in front of a string, of bytes or of an array."""
    if flexible:
        return 1
    return 2 if kind is Kind.STRING else 4


def least_struct_size(struct: type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that a struct takes in this version."""
    fields = (field for field in struct.__fields__ if field.tag is None and field.versions.hold(version))
    return sum(least_size(field, version, flexible) for field in fields) + (1 if flexible else 0)


def has_bytes(struct: type[Struct], version: int) -> bool:
    """Whether a decoded struct may refer to the data it came from."""
    for field in struct.__fields__:
        if field.versions.hold(version) and (
            field.kind in _BYTES_KINDS
            or field.element in _BYTES_KINDS
            or (field.struct is not None and has_bytes(field.struct, version))
        ):
            return True
    return False


class _DecoderCompiler:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.keeps_data = has_bytes(cls, version)
        self.source = Source("decode(data, pos, exact, left)", _NAMES)
        self.run: list[_Read] = []
        self.shift = 0

    def compile(self) -> Callable[..., Any]:
        line = self.source.line
        if self.keeps_data:
            line("view = memoryview(data)")
        else:
            # Bytes are quicker to index and to slice than a memoryview, and nothing will refer to the data.
            line("if type(data) is not bytes: data = bytes(data)")
        line("end = len(data)")
        if self.in_steps:
            self.source.begin_steps()
        message = self.struct(self.cls)
        self.advance()
        # The path is that of no field.
        if not self.cls.open_ended:
            line("if pos < end and exact: raise Malformed(f'{end - pos} bytes too many')")
        line("if pos > end: raise Malformed('the message ends too early')")
        line(f"return {message}")
        return self.source.build("decode", f"decoder of {self.cls.__name__} v{self.version}")

    # The run of fixed-width values.

    def read(self, format: str, size: int, target: str) -> None:
        self.run.append(_Read(format, size, target, ".".join(self.source.path)))

    def flush(self) -> None:
        """Writes the read of the run, if there is one."""
        if not self.run:
            return
        formats = "".join(read.format for read in self.run)
        path = join_paths([read.path for read in self.run])
        if formats == "B":
            self.source.line(f"{self.run[0].target} = data[{self.position()}]", path)
        else:
            targets = ", ".join(read.target for read in self.run)
            comma = "," if len(self.run) == 1 else ""
            unpack = self.source.packing("unpack_from", formats)
            self.source.line(f"{targets}{comma} = {unpack}(data, {self.position()})", path)
        self.shift += sum(read.size for read in self.run)
        self.run = []

    def position(self) -> str:
        return f"pos + {self.shift}" if self.shift > 0 else f"pos - {-self.shift}" if self.shift else "pos"

    def advance(self) -> None:
        """Writes what makes `pos` the position itself, as it is at both ends of a branch or a loop."""
        self.flush()
        if self.shift:
            self.source.line(f"pos += {self.shift}")
            self.shift = 0

    # Structs and fields.

    def struct(self, struct: type[Struct]) -> str:
        """Writes the read of a struct; returns the variable that holds it."""
        variable = self.source.fresh("struct")
        cls = self.source.constant("Struct", struct)
        self.source.line(f"{variable} = new({cls})")
        tagged = []
        for field in struct.__fields__:
            with self.source.field(field.name):
                target = f"{variable}.{field.name}"
                if not field.versions.hold(self.version):
                    self.default(field, target)
                elif field.tag is not None:
                    self.default(field, target)
                    tagged.append((field, target))
                else:
                    self.field(field, target)
        if self.flexible:
            self.tagged_fields(tagged)
        return variable

    def default(self, field: Field, target: str) -> None:
        if field.kind is Kind.ARRAY and field.default is not None:
            value = "[]"
        elif field.kind is Kind.STRUCT and field.default is not None:
            value = f"{self.source.constant('Struct', field.struct)}()"
        else:
            value = repr(field.default)
        self.source.line(f"{target} = {value}")

    def field(self, field: Field, target: str) -> None:
        nullable = field.nullable.hold(self.version)
        if field.kind is Kind.ARRAY:
            self.array(field, target, nullable)
        elif field.kind is Kind.STRUCT:
            assert field.struct is not None
            self.nested(field, target, nullable)
        else:
            self.value(field.kind, target, nullable)

    def value(self, kind: Kind, target: str, nullable: bool) -> None:
        if kind.size:
            self.read(kind.format, kind.size, target)
        elif kind is Kind.STRING:
            text = 'str(data[start:pos], "utf-8")' if self.keeps_data else "data[start:pos].decode()"
            self.sized(target, nullable, text, is_string=True)
        else:
            self.sized(target, nullable, "view[start:pos]", is_string=False)

    def sized(self, target: str, nullable: bool, expression: str, is_string: bool) -> None:
        """A value with its length in bytes in front; `expression` takes it from data[start:pos]."""
        line = self.source.line
        self.length("h" if is_string else "i")
        line(f"start = {self.position()}")
        self.shift = 0
        if self.flexible:
            with self.source.block("if size > 127:"):
                line("size, start = finish_varint(data, start, size)")
                if is_string:
                    line(f"if size > {primitives.STRING_BYTES_MAX + 1}: raise overrun(size - 1, start, end)")
        is_null = "not size" if self.flexible else "size < 0"
        if nullable:
            # Most strings that may be null are null or empty.
            with self.source.block(f"if size < {self.flexible + is_string}:"):
                line("pos = start")
                line(f"{target} = None if {is_null} else ''" if is_string else f"{target} = None")
            opening = "else:"
        else:
            line(f"if {is_null}: raise null_or_negative(size{' - 1' if self.flexible else ''})")
            opening = ""
        with self.source.block(opening) if opening else nullcontext():
            size = "size - 1" if self.flexible else "size"
            line(f"pos = start + {size}")
            line(f"if pos > end: raise overrun({size}, start, end)")
            line(f"{target} = {expression}")

    def length(self, plain_format: str, variable: str = "size") -> None:
        """Reads the first byte of a varint, or the whole of a plain length, as the last value of the run."""
        if self.flexible:
            self.read("B", 1, variable)
        else:
            self.read(plain_format, {"h": 2, "i": 4}[plain_format], variable)
        self.flush()

    def nested(self, field: Field, target: str, nullable: bool) -> None:
        struct = field.struct
        assert struct is not None
        if not nullable:
            variable = self.struct(struct)
            self.source.line(f"{target} = {variable}")
            return
        # A struct that may be null has a byte in front: negative for null (KIP-893), in a tagged field zero.
        self.read("b", 1, "marker")
        self.advance()
        self.source.line(f"{target} = None")
        with self.source.block(f"if marker >= {0 if field.tag is None else 1}:"):
            variable = self.struct(struct)
            self.source.line(f"{target} = {variable}")
            self.advance()

    # Arrays.

    def array(self, field: Field, target: str, nullable: bool) -> None:
        count = self.source.fresh("count")
        self.length("i", count)
        self.advance()
        if not nullable:
            self.elements(field, count, target)
            return
        self.source.line(f"{target} = None")
        with self.source.block(f"if {count}:" if self.flexible else f"if {count} >= 0:"):
            self.elements(field, count, target)
            self.advance()

    def elements(self, field: Field, count: str, target: str) -> None:
        """The elements of an array that is not null. `count` is as on the wire: one more if compact."""
        element = field.element
        assert element is not None
        if element.size and element is not Kind.UUID:
            self.numbers(element, count, target)
            return
        self.check_count(count, self.least_element_size(field))
        items = self.source.fresh("items")
        self.source.line(f"{target} = {items} = []")
        with self.source.block(f"for _ in range({self.number(count)}):"):
            if element is Kind.STRUCT:
                assert field.struct is not None
                item = self.struct(field.struct)
            else:
                item = "item"
                self.value(element, item, nullable=False)
            self.advance()
            self.source.line(f"{items}.append({item})")
            if self.in_steps:
                self.source.step()

    def numbers(self, kind: Kind, count: str, target: str) -> None:
        """An array of fixed-width values: one `unpack_from`, which itself checks the size of small ones."""
        bias = 1 if self.flexible else 0
        table = f"small_arrays_{kind.value}"
        self.source.names[table] = primitives.small_array_readers(kind.format, bias)
        with self.source.block(f"if {bias} <= {count} < {primitives.SMALL_ARRAY}:"):
            self.source.line(f"{target} = [*{table}[{count}](data, pos)]")
            self.count_elements(self.number(count))
        with self.source.block("else:"):
            self.check_count(count, kind.size)
            self.source.line(f"{target} = [*array_reader({kind.format!r}, {self.number(count)})(data, pos)]")
        self.source.line(f"pos += {count} * {kind.size}")
        self.shift = -bias * kind.size

    def number(self, count: str) -> str:
        """How many elements there are, by the count on the wire."""
        return f"{count} - 1" if self.flexible else count

    def check_count(self, count: str, least: int) -> None:
        number = self.number(count)
        if self.flexible:
            self.source.line(f"if {count} > 127: {count}, pos = finish_varint(data, pos, {count})")
            condition = f"not {count} or ({number}) * {least} > end - pos"
        else:
            condition = f"{count} < 0 or {count} * {least} > end - pos"
        self.source.line(f"if {condition}: raise too_many({number}, pos, end)")
        self.count_elements(number)

    def count_elements(self, number: str) -> None:
        self.source.line(f"left -= {number}")
        self.source.line("if left < 0: raise too_many_together()")

    def least_element_size(self, field: Field) -> int:
        if field.element is Kind.STRUCT:
            assert field.struct is not None
            # At least one byte, so that a count cannot be a long loop over nothing.
            return max(1, least_struct_size(field.struct, self.version, self.flexible))
        assert field.element is not None
        return field.element.size or _least_length_size(field.element, self.flexible)

    # Tagged fields.

    def tagged_fields(self, tagged: list[tuple[Field, str]]) -> None:
        """The section at the end of a flexible struct (KIP-482).

        As in Kafka, tags may come in any order, the last of several equal ones counts, and unknown ones are
        skipped.
        """
        line = self.source.line
        with self.source.field("tagged fields"):
            self.read("B", 1, "tags")
            if not tagged:
                self.advance()
                line("if tags: pos, left = skip_tagged_fields(data, pos, end, tags, left)")
                return
            self.advance()
            tags, stop = self.source.fresh("tags"), self.source.fresh("stop")
            line(f"{tags} = tags")
            with self.source.block(f"if {tags}:"):
                line(f"if {tags} > 127: {tags}, pos = finish_varint(data, pos, {tags})")
                self.count_elements(tags)
                with self.source.block(f"for _ in range({tags}):"):
                    line("tag, pos = read_varint(data, pos)")
                    line("size, pos = read_varint(data, pos)")
                    line(f"{stop} = pos + size")
                    line(f"if {stop} > end: raise overrun(size, pos, end)")
                    self.known_tags(tagged, stop)

    def known_tags(self, tagged: list[tuple[Field, str]], stop: str) -> None:
        line = self.source.line
        keyword = "if"
        outer = self.source.path
        for field, target in tagged:
            self.source.path = (*outer[:-1], field.name)
            with self.source.block(f"{keyword} tag == {field.tag}:"):
                self.field(field, target)
                self.advance()
                line(f"if pos != {stop}: raise Malformed(f'tagged field ends {{pos - {stop}:+}} bytes off')")
            keyword = "elif"
        self.source.path = outer
        with self.source.block("else:"):
            line(f"pos = {stop}")
