"""How a Kafka message is written down as a Python class: fields, their types, versions, tags and defaults.

The vocabulary is that of Kafka's message definitions (KIP-482 for flexible versions and tagged fields); classes with
`__slots__` are made out of them. How a value looks in bytes is the two compilers' business.

A message is a class, and reads like Kafka's own documentation:

    class CreatableTopic(Struct):
        name: str = string()
        num_partitions: int = int32()
        topic_id: bytes = uuid("7+", ignorable=True)

    class CreateTopicsRequest(Message, api_key=19, versions=(2, 7), flexible=5):
        topics: list[CreatableTopic] = array(CreatableTopic)

Fields stand in wire order. The first argument of a field (after the element type of an array) says in which
versions of the message it exists: "0+" (the default), "8-10" or "3". `nullable` says in which versions null
is allowed; a field with a `tag` is a tagged field in all its versions. A field that is not given, or that the
decoded version does not have, holds its default: Kafka's, which is 0, false, "", no bytes or no elements
unless the definition says otherwise (and null for records).

Names: a message has the name of its API plus `Request` or `Response`, a struct the name that Kafka gives it.
Where the request and the response of one API have different structs under one name, both carry the name of
their message in front (`DescribeQuorumRequestTopicData`, `DescribeQuorumResponseTopicData`), as Kafka's newer
definitions do. Fields have Kafka's names in snake_case.

Values: bool, int, float, str; a uuid is 16 bytes; an array is a list; `binary` and `records` take any buffer
and are decoded as a memoryview of the bytes that were given to the decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    overload,
)

__all__ = [
    "OWN_TAGS_FROM",
    "ZERO_UUID",
    "Bytes",
    "Field",
    "Kind",
    "Message",
    "Struct",
    "Versions",
    "array",
    "binary",
    "boolean",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "records",
    "string",
    "struct",
    "uint16",
    "uuid",
]

Bytes = bytes | bytearray | memoryview
T = TypeVar("T")
S = TypeVar("S", bound="Struct")
ZERO_UUID = bytes(16)
OWN_TAGS_FROM: Final = 10_000
"""Tagged fields from here on are raftlog's own, between its brokers and to its own client. Nobody gets one who has not
asked for it with another; everybody else's would skip them (KIP-482)."""
_LAST_VERSION = 0x7FFF  # versions are int16 on the wire
_SHOWN_BYTES = 32  # in a repr


class Versions(NamedTuple):
    """A range of versions, both ends included; empty if `last` < `first`."""

    first: int
    last: int

    def hold(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Versions(0, -1)


@cache
def parse_versions(text: str) -> Versions:
    """Kafka's notation: "4+", "8-10", "3"."""
    if text.endswith("+"):
        return Versions(int(text[:-1]), _LAST_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Kind(Enum):
    """The type of a field. Those of a fixed width have a `struct` format character and a size in bytes."""

    format: str
    size: int

    def __new__(cls, name: str, format: str = "", size: int = 0) -> Kind:
        member = object.__new__(cls)
        member._value_ = name
        member.format = format
        member.size = size
        return member

    BOOL = "bool", "?", 1
    INT8 = "int8", "b", 1
    INT16 = "int16", "h", 2
    UINT16 = "uint16", "H", 2
    INT32 = "int32", "i", 4
    INT64 = "int64", "q", 8
    FLOAT64 = "float64", "d", 8
    UUID = "uuid", "16s", 16
    STRING = "string", "", 0
    BYTES = "bytes", "", 0
    RECORDS = "records", "", 0
    STRUCT = "struct", "", 0
    ARRAY = "array", "", 0


class Field:
    """One field of a struct, as data. `name` is set by the class that holds it."""

    __slots__ = ("default", "element", "ignorable", "kind", "name", "nullable", "struct", "tag", "versions")

    name: str

    def __init__(
        self, kind: Kind, versions: str, default: Any, *, ignorable: bool = False, tag: int | None = None,
        nullable: str | None = None, element: Kind | None = None, struct: type[Struct] | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.versions = parse_versions(versions)
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.nullable = parse_versions(nullable) if nullable is not None else NEVER
        self.element = element
        self.struct = struct

    def __repr__(self) -> str:
        return f"<field {self.name}: {self.kind.value} {self.versions.first}-{self.versions.last}>"

    def make_default(self) -> Any:
        """A default of its own: lists and structs are never shared between messages."""
        if self.default is not None and self.kind is Kind.ARRAY:
            return []
        if self.default is not None and self.kind is Kind.STRUCT:
            assert self.struct is not None
            return self.struct()
        return self.default


class FixedWidth(Generic[T]):
    """Declares a field of a fixed width; also names the element type of an array: `array(int32)`."""

    def __init__(self, kind: Kind, zero: T) -> None:
        self.kind = kind
        self.zero = zero

    def __call__(
        self, versions: str = "0+", *, default: T | None = None, ignorable: bool = False,
        tag: int | None = None,
    ) -> T:  # fmt: skip
        value = self.zero if default is None else default
        field: Any = Field(self.kind, versions, value, ignorable=ignorable, tag=tag)
        return field  # type: ignore[no-any-return]


class VariableWidth(Generic[T]):
    """Declares a field with a length of its own, which may be null: text or bytes."""

    def __init__(self, kind: Kind, empty: T | None) -> None:
        self.kind = kind
        self.empty = empty

    @overload
    def __call__(
        self, versions: str = "0+", *, default: T = ..., ignorable: bool = False, tag: int | None = None
    ) -> T: ...

    @overload
    def __call__(
        self, versions: str = "0+", *, nullable: str, default: T | None = ..., ignorable: bool = False,
        tag: int | None = None,
    ) -> T | None: ...  # fmt: skip

    def __call__(self, versions: str = "0+", *, default: Any = ..., **options: Any) -> Any:
        return Field(self.kind, versions, self.empty if default is ... else default, **options)


boolean: Final = FixedWidth[bool](Kind.BOOL, False)
int8: Final = FixedWidth[int](Kind.INT8, 0)
int16: Final = FixedWidth[int](Kind.INT16, 0)
uint16: Final = FixedWidth[int](Kind.UINT16, 0)
int32: Final = FixedWidth[int](Kind.INT32, 0)
int64: Final = FixedWidth[int](Kind.INT64, 0)
float64: Final = FixedWidth[float](Kind.FLOAT64, 0.0)
uuid: Final = FixedWidth[bytes](Kind.UUID, ZERO_UUID)
string: Final = VariableWidth[str](Kind.STRING, "")
binary: Final = VariableWidth[Bytes](Kind.BYTES, b"")
records: Final = VariableWidth[Bytes](Kind.RECORDS, None)


@overload
def struct(of: type[S], versions: str = "0+", *, ignorable: bool = False, tag: int | None = None) -> S: ...


@overload
def struct(
    of: type[S], versions: str = "0+", *, nullable: str, default: None = ..., ignorable: bool = False,
    tag: int | None = None,
) -> S | None: ...  # fmt: skip


def struct(of: type[S], versions: str = "0+", *, default: Any = ..., **options: Any) -> Any:
    """Declares a struct inside a struct. By default one with all its fields at their defaults."""
    return Field(Kind.STRUCT, versions, default, struct=of, **options)


@overload
def array(
    of: Callable[..., T], versions: str = "0+", *, ignorable: bool = False, tag: int | None = None
) -> list[T]: ...


@overload
def array(
    of: Callable[..., T], versions: str = "0+", *, nullable: str, default: None = ...,
    ignorable: bool = False, tag: int | None = None,
) -> list[T] | None: ...  # fmt: skip


def array(of: Any, versions: str = "0+", *, default: Any = ..., **options: Any) -> Any:
    """Declares an array of structs (`array(Topic)`) or of plain values (`array(int32)`). By default empty."""
    if isinstance(of, type):
        return Field(Kind.ARRAY, versions, default, element=Kind.STRUCT, struct=of, **options)
    return Field(Kind.ARRAY, versions, default, element=of.kind, **options)


class StructType(type):
    """Turns the fields of a class body into slots, and keeps their definitions in `__fields__`."""

    def __new__(
        metaclass, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:
        fields = []
        for attribute, value in namespace.items():
            if isinstance(value, Field):
                value.name = attribute
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["__fields__"] = tuple(fields)
        return super().__new__(metaclass, name, bases, namespace, **keywords)


# No field specifiers are named: to a type checker a field is an attribute with a default, so that every
# argument of the constructor may be left out. That is what Kafka's definitions mean.
@dataclass_transform(kw_only_default=True)
class Struct(metaclass=StructType):
    """A group of fields inside a message. The constructor takes keywords only; all have defaults."""

    __fields__: ClassVar[tuple[Field, ...]]
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            # Written on the first use: a process uses few of the messages that it imports.
            cls = type(self)
            cls.__init__ = _write_constructor(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__)

    def __repr__(self) -> str:
        """The fields that do not hold their default."""
        values = ((field.name, getattr(self, field.name), field.make_default()) for field in self.__fields__)
        shown = (f"{name}={_show(value)}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request, a response, or anything else that is versioned as a whole.

    `versions` are the ones that exist, both ends included; from version `flexible` on, lengths are compact
    and structs may have tagged fields (KIP-482); None means never.
    """

    api_key: ClassVar[int | None]
    versions: ClassVar[Versions]
    flexible: ClassVar[int | None]
    open_ended: ClassVar[bool]
    # Compiled on first use, by version; raftlog.wire.codec fills them.
    __encoders__: ClassVar[dict[int, Callable[[Any, list[Any], bytearray], bytearray]]]
    __decoders__: ClassVar[dict[int, Callable[..., Any]]]
    __step_encoders__: ClassVar[dict[int, Callable[..., Any]]]
    __step_decoders__: ClassVar[dict[int, Callable[..., Any]]]

    def __init_subclass__(
        cls,
        *,
        versions: tuple[int, int],
        flexible: int | None = None,
        api_key: int | None = None,
        open_ended: bool = False,
    ) -> None:
        cls.api_key = api_key
        cls.versions = Versions(*versions)
        cls.flexible = flexible
        cls.open_ended = open_ended
        cls.__encoders__ = {}
        cls.__decoders__ = {}
        cls.__step_encoders__ = {}
        cls.__step_decoders__ = {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return cls.flexible is not None and version >= cls.flexible


def _write_constructor(cls: type[Struct]) -> Callable[..., None]:
    """`__init__` with one keyword per field, as a person would write it."""
    names: dict[str, Any] = {"MISSING": ...}
    parameters, lines = [], []
    for field in cls.__fields__:
        name = field.name
        if field.kind is Kind.ARRAY and field.default is not None:
            default, value = "MISSING", f"[] if {name} is MISSING else {name}"
        elif field.kind is Kind.STRUCT and field.default is not None:
            names[f"new_{name}"] = field.struct
            default, value = "MISSING", f"new_{name}() if {name} is MISSING else {name}"
        else:
            default, value = repr(field.default), name
        parameters.append(f", {name}={default}")
        lines.append(f"    self.{name} = {value}\n")
    star = ", *" if parameters else ""
    exec(f"def __init__(self{star}{''.join(parameters)}):\n{''.join(lines) or '    pass'}", names)
    constructor: Callable[..., None] = names["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


def _show(value: object) -> str:
    if isinstance(value, memoryview | bytearray):
        return repr(bytes(value)) if len(value) <= _SHOWN_BYTES else f"<{len(value)} bytes>"
    return repr(value)
