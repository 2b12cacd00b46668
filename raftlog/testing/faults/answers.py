"""The answer with which a broker refuses a request: any API, any version, any error code.

Made from the request and the definition of the response alone: what the request lists is listed again, and each entry
gets the error. Nothing of it is written for one API, but the few whose answer is more than a list of results.
"""

from __future__ import annotations

from typing import Any

from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.schema import Field, Kind, Message, Struct

ERROR_FIELDS = ("error_code", "partition_error_code")
MESSAGE = "injected by a test"
KEPT = (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
"""Read-only, and no client does without the rest of the answer: it is given with the error put in."""

_SYNONYMS = {
    "partition_index": ("partition", "index"),
    "partition_id": ("partition",),
    "index": ("partition_index", "partition"),
    "topic": ("name",),
    "name": ("topic",),
    "topic_name": ("name", "topic"),
}
_KEYS = ("name", "topic", "key", "group_id", "transactional_id", "resource_name")
_NUMBERS = ("partition_index", "partition_id", "index")
_ABSENT = ("base_offset", "offset", "committed_offset", "high_watermark", "last_stable_offset", "log_start_offset",
           "log_append_time_ms")  # fmt: skip
_OF_THE_WHOLE = ("COORDINATOR_", "NOT_COORDINATOR", "GROUP_", "FETCH_SESSION", "INVALID_FETCH_SESSION", "CLUSTER_",
                 "NOT_CONTROLLER", "REBOOTSTRAP", "STALE_MEMBER", "FENCED_MEMBER", "UNKNOWN_MEMBER", "ILLEGAL_GEN",
                 "UNSUPPORTED_VERSION")  # fmt: skip
"""Codes that are about a request, or a group, and not about one of the partitions in it."""


def refusal(request: Message, response: type[Message], version: int, code: ErrorCode) -> Message | None:
    """The answer to `request` in which everything fails with `code`; None when it has no place for an error."""
    answer = response()
    return answer if _fill(answer, request, version, code, is_top=True) else None


def put_in(answer: Message, version: int, code: ErrorCode) -> bool:
    """Have everything fail that an answer tells; whether it has a place for that."""
    return _put(answer, version, code)


def _is_of_the_whole(code: ErrorCode) -> bool:
    return code.name.startswith(_OF_THE_WHOLE)


def _fields(struct: Struct, version: int) -> list[Field]:
    return [each for each in struct.__fields__ if each.versions.hold(version)]


def _put(struct: Struct, version: int, code: ErrorCode) -> bool:
    fields = _fields(struct, version)
    own = [each for each in fields if each.name in ERROR_FIELDS]
    deep = False
    if not (own and _is_of_the_whole(code)):
        lists = [each for each in fields if each.kind is Kind.ARRAY and each.struct is not None]
        for entry in [entry for each in lists for entry in getattr(struct, each.name) or ()]:
            deep = _put(entry, version, code) or deep
    if own and not deep:
        _set_error(struct, own[0], fields, code)
    return bool(own) or deep


def _set_error(struct: Struct, field: Field, fields: list[Field], code: ErrorCode) -> None:
    setattr(struct, field.name, int(code))
    for each in fields:
        if each.name == "error_message":
            setattr(struct, each.name, MESSAGE)


def _fill(answer: Struct, asked: Any, version: int, code: ErrorCode, *, is_top: bool = False) -> bool:
    """Fill an answer, or an entry of one, for what was asked; whether an error is in it."""
    fields = _fields(answer, version)
    if not is_top:
        _take_keys(answer, asked, fields, version)
    for each in fields:
        if each.name in _ABSENT and each.kind is Kind.INT64:
            setattr(answer, each.name, -1)
        elif each.kind is Kind.RECORDS:
            setattr(answer, each.name, b"")
    own = [each for each in fields if each.name in ERROR_FIELDS]
    deep = False
    if not (own and _is_of_the_whole(code)) and isinstance(asked, Struct):
        deep = _fill_lists(answer, asked, version, code)
    if own and not deep:
        _set_error(answer, own[0], fields, code)
    return bool(own) or deep


def _fill_lists(answer: Struct, asked: Struct, version: int, code: ErrorCode) -> bool:
    lists = [each for each in _fields(asked, version) if each.kind is Kind.ARRAY and getattr(asked, each.name)]
    filled = False
    for each in _fields(answer, version):
        if each.kind is not Kind.ARRAY or each.struct is None or not lists or not _has_error(each.struct, version):
            continue
        entries = []
        for one in getattr(asked, lists.pop(0).name):
            entry = each.struct()
            filled = _fill(entry, one, version, code) or filled
            entries.append(entry)
        setattr(answer, each.name, entries)
    return filled


def _has_error(struct: type[Struct], version: int) -> bool:
    fields = [each for each in struct.__fields__ if each.versions.hold(version)]
    return any(
        each.name in ERROR_FIELDS or (each.struct is not None and _has_error(each.struct, version)) for each in fields
    )


def _take_keys(answer: Struct, asked: Any, fields: list[Field], version: int) -> None:
    """Say which entry of the request this one answers."""
    if not isinstance(asked, Struct):
        names = _KEYS if isinstance(asked, str) else _NUMBERS
        for each in fields:
            if each.name in names:
                setattr(answer, each.name, asked)
                return
        return
    theirs = {each.name: each.kind for each in _fields(asked, version)}
    for each in fields:
        for name in (each.name, *_SYNONYMS.get(each.name, ())):
            if theirs.get(name) is each.kind and each.kind not in (Kind.ARRAY, Kind.STRUCT, Kind.RECORDS):
                setattr(answer, each.name, getattr(asked, name))
                break
