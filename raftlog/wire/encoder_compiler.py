"""Writes the encoder of one message at one version, from its definition, as a straight-line Python function.

The function is `encode(message, parts, output) -> output`: it appends to the bytearray `output`, and returns
the bytearray that takes what follows. Large byte fields are not copied: what was written so far and the field
become `parts`, and a new bytearray begins. Neighbouring fields of a fixed width are packed by one `pack`,
arrays of numbers among them and the length of what follows included.

An error message that is too long for a string is cut: it may quote what a client sent, and its reply must leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from raftlog.wire import primitives
from raftlog.wire.errors import NotEncodable, UnsupportedVersionField
from raftlog.wire.schema import Field, Kind, Message, Struct
from raftlog.wire.source import Source, join_paths
from raftlog.wire.varint import ONE_BYTE, encode_unsigned_varint

_NAMES: dict[str, Any] = {
    "NotEncodable": NotEncodable,
    "ONE_BYTE": ONE_BYTE,
    "UnsupportedVersionField": UnsupportedVersionField,
    "byte_length": primitives.byte_length,
    "encode_string_length": primitives.encode_string_length,
    "encode_varint": encode_unsigned_varint,
    "splice": primitives.splice,
}
_ZERO = "x"  # a zero byte, which takes no value


class _Write(NamedTuple):
    """A value in the run that is about to be packed; with `array_count`, all values of an array."""

    format: str
    expression: str
    path: str
    array_count: str = ""


def compile_encoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """`in_steps`: a generator function that does the same, and gives way now and then."""
    return _EncoderCompiler(cls, version, in_steps=in_steps).compile()


def encoder_source(cls: type[Message], version: int) -> str:
    """The text of the encoder, for a person who wants to read it."""
    compiler = _EncoderCompiler(cls, version)
    compiler.compile()
    return compiler.source.text()


def differs_from_default(field: Field, expression: str) -> str:
    """A condition in Python: the expression is not the default of the field."""
    if field.default is None:
        return f"{expression} is not None"
    or_null = f"{expression} is None or " if field.nullable.last >= 0 else ""
    if field.kind is Kind.STRUCT:
        assert field.struct is not None
        inner = [differs_from_default(each, f"{expression}.{each.name}") for each in field.struct.__fields__]
        return f"({or_null}{' or '.join(inner) or 'False'})"
    if field.kind in (Kind.ARRAY, Kind.BYTES):
        return f"({or_null}len({expression}) != 0)"
    return f"{expression} != {field.default!r}"


class _EncoderCompiler:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.source = Source("encode(message, parts, output)", _NAMES)
        self.run: list[_Write] = []
        self.in_tagged_field = False

    def compile(self) -> Callable[..., Any]:
        if self.in_steps:
            self.source.begin_steps()
        self.struct(self.cls, "message")
        self.flush()
        self.source.line("return output", "")
        return self.source.build("encode", f"encoder of {self.cls.__name__} v{self.version}")

    # The run of values that are packed together.

    def write(self, format: str, expression: str, count: str = "") -> None:
        self.run.append(_Write(format, expression, ".".join(self.source.path), count))

    def flush(self) -> None:
        """Writes the packing of the run, if there is one."""
        if not self.run:
            return
        path = join_paths([write.path for write in self.run])
        self.source.line(f"output += {self._packed(self.run)}", path)
        self.run = []

    def flush_with_length(self, length: str, encode_long: str) -> None:
        """The same, followed by a length that is a varint."""
        path = join_paths([*(write.path for write in self.run), ".".join(self.source.path)])
        if not self.run or any(write.array_count for write in self.run):
            self.flush()
            short, long = f"ONE_BYTE[{length}]", f"{encode_long}({length})"
        else:
            short = self._packed([*self.run, _Write("B", length, "")])
            long = f"{self._packed(self.run)} + {encode_long}({length})"
            self.run = []
        self.source.line(f"output += {short} if {length} < 128 else {long}", path)

    def _packed(self, run: list[_Write]) -> str:
        """An expression for the bytes of the run."""
        values = ", ".join(write.expression for write in run if write.format != _ZERO)
        counts = [write.array_count for write in run if write.array_count]
        if counts:
            formats = [""]
            elements = []
            for write in run:
                if write.array_count:
                    elements.append(write.format)
                    formats.append("")
                else:
                    formats[-1] += write.format
            table = primitives.ArrayWriters(tuple(formats), tuple(elements), self.flexible)
            return f"{self.source.constant('arrays', table)}[{', '.join(counts)}]({values})"
        formats_together = "".join(write.format for write in run)
        if not values:
            return repr(bytes(len(formats_together)))
        return f"{self.source.packing('pack', formats_together)}({values})"

    # Structs and fields.

    def struct(self, struct: type[Struct], variable: str) -> None:
        tagged = []
        for field in struct.__fields__:
            with self.source.field(field.name):
                expression = f"{variable}.{field.name}"
                if not field.versions.hold(self.version):
                    self.absent(field, expression)
                elif field.tag is not None:
                    tagged.append((field, expression))
                else:
                    self.field(field, expression)
        if self.flexible:
            self.tagged_fields(tagged)

    def absent(self, field: Field, expression: str) -> None:
        """A field that this version does not have: nobody may lose a value that matters."""
        if not field.ignorable:
            text = f"{self.cls.__name__} v{self.version} has no {'.'.join(self.source.path)}"
            condition = differs_from_default(field, expression)
            self.source.line(f"if {condition}: raise UnsupportedVersionField({text!r})")

    def field(self, field: Field, expression: str) -> None:
        nullable = field.nullable.hold(self.version)
        if field.kind is Kind.ARRAY:
            self.array(field, expression, nullable)
        elif field.kind is Kind.STRUCT:
            self.nested(field, expression, nullable)
        elif field.kind is Kind.STRING:
            self.string(expression, nullable, is_explanation=field.name.endswith("error_message"))
        else:
            self.value(field.kind, expression, nullable)

    def value(self, kind: Kind, expression: str, nullable: bool) -> None:
        if kind is Kind.UUID:
            # struct would pad or cut silently.
            self.source.line(f"if len({expression}) != 16: raise NotEncodable('an id has 16 bytes')")
            self.write(kind.format, expression)
        elif kind.size:
            self.write(kind.format, expression)
        elif kind is Kind.STRING:
            self.string(expression, nullable)
        else:
            self.bytes(expression, nullable)

    def string(self, expression: str, nullable: bool, is_explanation: bool = False) -> None:
        text, size = self.source.fresh("text"), self.source.fresh("size")
        line = self.source.line
        one_more = " + 1" if self.flexible else ""
        cut = f"[:{primitives.ERROR_MESSAGE_CHARACTERS_MAX}]" if is_explanation else ""
        if nullable:
            line(f"{text} = {expression}")
            line(f"if {text} is None: {text}, {size} = b'', {0 if self.flexible else -1}")
            with self.source.block("else:"):
                line(f"{text} = {text}{cut}.encode()")
                line(f"{size} = len({text}){one_more}")
        else:
            line(f"{text} = {expression}.encode()")
            line(f"{size} = len({text}){one_more}")
        self.length("h", size, "encode_string_length")
        line(f"output += {text}")

    def bytes(self, expression: str, nullable: bool) -> None:
        value, size = self.source.fresh("value"), self.source.fresh("size")
        line = self.source.line
        line(f"{value} = {expression}")
        if nullable:
            line(f"{size} = -1 if {value} is None else byte_length({value})")
        else:
            line(f"{size} = byte_length({value})")
        length = size
        if self.flexible:
            length = self.source.fresh("length")
            line(f"{length} = {size} + 1")
        self.length("i", length, "encode_varint")
        condition = f"if {size} > 0: " if nullable else ""
        # Inside a tagged field, whose size has to be known, nothing can become a part of its own.
        add = f"output += {value}" if self.in_tagged_field else f"output = splice(parts, output, {value}, {size})"
        line(condition + add)

    def length(self, plain_format: str, variable: str, encode_long: str) -> None:
        """Flushes the run with a length at its end."""
        if self.flexible:
            self.flush_with_length(variable, encode_long)
        else:
            self.write(plain_format, variable)
            self.flush()

    def nested(self, field: Field, expression: str, nullable: bool) -> None:
        assert field.struct is not None
        variable = self.source.fresh("struct")
        self.source.line(f"{variable} = {expression}")
        if not nullable:
            self.struct(field.struct, variable)
            return
        # A struct that may be null has a byte in front: -1 for null (in a tagged field 0), 1 otherwise (KIP-893).
        self.flush()
        with self.source.block(f"if {variable} is None:"):
            null = b"\xff" if field.tag is None else b"\0"
            self.source.line(f"output += {null!r}")
        with self.source.block("else:"):
            self.write("b", "1")
            self.struct(field.struct, variable)
            self.flush()

    # Arrays.

    def array(self, field: Field, expression: str, nullable: bool) -> None:
        array, count = self.source.fresh("array"), self.source.fresh("count")
        self.source.line(f"{array} = {expression}")
        if not nullable:
            self.elements(field, array, count)
            return
        self.flush()
        with self.source.block(f"if {array} is None:"):
            null = b"\0" if self.flexible else b"\xff\xff\xff\xff"
            self.source.line(f"output += {null!r}")
        with self.source.block("else:"):
            self.elements(field, array, count)
            self.flush()

    def elements(self, field: Field, array: str, count: str) -> None:
        element = field.element
        assert element is not None
        line = self.source.line
        line(f"{count} = len({array})")
        if element.size and element is not Kind.UUID:
            if self.flexible:
                self.write("B", f"{count} + 1")
            else:
                self.write("i", count)
            self.write(element.format, f"*{array}", count)
            return
        if self.flexible:
            line(f"{count} += 1")
        self.length("i", count, "encode_varint")
        item = self.source.fresh("item")
        with self.source.block(f"for {item} in {array}:"):
            if element is Kind.STRUCT:
                assert field.struct is not None
                self.struct(field.struct, item)
            else:
                self.value(element, item, nullable=False)
            self.flush()
            if self.in_steps:
                self.source.step()

    # Tagged fields.

    def tagged_fields(self, tagged: list[tuple[Field, str]]) -> None:
        """The section at the end of a flexible struct: the tagged fields that do not hold their default."""
        if not tagged:
            with self.source.field("tagged fields"):
                self.write(_ZERO, "")
            return
        self.flush()
        conditions = [differs_from_default(field, expression) for field, expression in tagged]
        line = self.source.line
        outer_field, self.in_tagged_field = self.in_tagged_field, True
        with self.source.block(f"if {' or '.join(conditions)}:"):
            count, section, outer = (self.source.fresh(name) for name in ("tags", "section", "outer"))
            line(f"{count}, {section}, {outer} = 0, bytearray(), output")
            ordered = sorted(zip(tagged, conditions, strict=True), key=lambda entry: entry[0][0].tag or 0)
            for (field, expression), condition in ordered:
                with self.source.field(field.name), self.source.block(f"if {condition}:"):
                    line("output = bytearray()")
                    self.field(field, expression)
                    self.flush()
                    line(f"{section} += encode_varint({field.tag}) + encode_varint(len(output)) + output")
                    line(f"{count} += 1")
            line(f"output = {outer}")
            line(f"output += encode_varint({count}) + {section}")
        with self.source.block("else:"):
            line("output += b'\\0'")
        self.in_tagged_field = outer_field
