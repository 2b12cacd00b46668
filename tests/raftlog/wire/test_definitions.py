"""Our definitions of messages and errors say what Apache Kafka 4.3.1's say.

Kafka's are read from `../shared/kafka-protocol` beside the checkout; without that folder there is nothing to compare.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.schema import OWN_TAGS_FROM, ZERO_UUID, Field, Kind, Message, Struct, parse_versions
from tests.paths import KAFKA_PROTOCOL
from tests.raftlog.wire.message_values import API_MESSAGES, INTERNAL, name_of

pytestmark = pytest.mark.skipif(
    not KAFKA_PROTOCOL.is_dir(), reason="Kafka's definitions (../shared/kafka-protocol) are not there"
)

# Kafka 4 split the oldest key and value off; their layout is that of a version of ours.
INTERNAL_FILES = {cls.__name__: "messages" if "Protocol" in cls.__name__ else "internal-records" for cls in INTERNAL}
ZEROS: dict[str, object] = {"bool": False, "float64": 0.0, "uuid": ZERO_UUID, "string": "", "bytes": b""}


@cache
def reference(path: str) -> Any:
    return json.loads((KAFKA_PROTOCOL / path).read_text())


def definition_of(cls: type[Message]) -> dict[str, Any]:
    definition: dict[str, Any] = reference(f"{INTERNAL_FILES.get(cls.__name__, 'messages')}/{cls.__name__}.json")
    return definition


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def expected_default(field: dict[str, Any]) -> object:
    """The default in Kafka's notation, or the one that Kafka implies."""
    kind, text = field["type"], field.get("default", "")
    if text in ("null", None) or kind == "records":
        return None
    if kind.startswith("[]") or kind[0].isupper():
        return ...
    if "default" not in field:
        return ZEROS.get(kind, 0)
    if kind == "bool":
        return str(text).lower() == "true"
    return int(str(text), 0) if "int" in kind else text


def compare_fields(
    cls: type[Struct], definition: dict[str, Any], common: dict[str, Any], message: type[Message]
) -> None:
    expected = [field for field in definition["fields"] if exists(field, message)]
    shared = [field for field in cls.__fields__ if field.tag is None or field.tag < OWN_TAGS_FROM]
    assert [field.name for field in shared] == [snake_case(field["name"]) for field in expected]
    for ours, theirs in zip(shared, expected, strict=True):
        where = f"{message.__name__}: {cls.__name__}.{ours.name}"
        compare_field(ours, theirs, where, message)
        if ours.struct is not None:
            name = theirs["type"].removeprefix("[]")
            assert ours.struct.__name__ in (name, message.__name__.removeprefix("ConsumerProtocol") + name), where
            inner = theirs if "fields" in theirs else common[name]
            compare_fields(ours.struct, inner, common, message)


def exists(field: dict[str, Any], message: type[Message]) -> bool:
    """Fields of versions that Kafka does not serve yet (unstable ones) are not defined here."""
    if message.__name__.endswith("Key"):  # their versions count from 0 for each kind of key, ours say the kind
        return True
    versions = parse_versions(field.get("versions") or field["taggedVersions"])
    return versions.first <= message.versions.last and versions.last >= message.versions.first


def compare_field(ours: Field, theirs: dict[str, Any], where: str, message: type[Message]) -> None:
    kind = theirs["type"].removeprefix("[]")
    kind = "struct" if kind[0].isupper() else kind
    if theirs["type"].startswith("[]"):
        assert (ours.kind, ours.element) == (Kind.ARRAY, Kind(kind)), where
    else:
        assert ours.kind is Kind(kind), where
    assert ours.default == expected_default(theirs), where
    assert ours.ignorable == theirs.get("ignorable", False), where
    assert ours.tag == theirs.get("tag"), where
    versions = parse_versions(theirs.get("versions") or theirs["taggedVersions"])
    nullable = theirs.get("nullableVersions")
    tagged = theirs.get("taggedVersions")
    for version in () if message.__name__.endswith("Key") else range(message.versions.first, message.versions.last + 1):
        assert ours.versions.hold(version) == versions.hold(version), where
        expected = nullable is not None and parse_versions(nullable).hold(version)
        assert ours.nullable.hold(version) == expected, where
        if tagged is not None:
            assert ours.versions.hold(version) == parse_versions(tagged).hold(version), where


@pytest.mark.parametrize("cls", (*API_MESSAGES, *INTERNAL), ids=name_of)
def test_a_message_has_the_fields_that_kafka_gives_it(cls: type[Message]) -> None:
    definition = definition_of(cls)
    common = {struct["name"]: struct for struct in definition.get("commonStructs", [])}
    compare_fields(cls, definition, common, cls)


@pytest.mark.parametrize("cls", API_MESSAGES, ids=name_of)
def test_a_message_has_the_key_and_the_versions_that_kafka_gives_it(cls: type[Message]) -> None:
    definition = definition_of(cls)
    valid = parse_versions(definition["validVersions"])
    last = valid.last - 1 if definition.get("latestVersionUnstable") else valid.last
    request = reference(f"messages/{cls.__name__.replace('Response', 'Request')}.json")
    if request.get("latestVersionUnstable"):
        last = valid.last - 1
    assert (cls.versions.first, cls.versions.last) == (valid.first, last)
    assert cls.api_key == definition["apiKey"]
    flexible = definition["flexibleVersions"]
    assert cls.flexible == (None if flexible == "none" else parse_versions(flexible).first)


@pytest.mark.parametrize("cls", INTERNAL, ids=name_of)
def test_an_internal_record_has_the_versions_that_kafka_gives_it(cls: type[Message]) -> None:
    definition = definition_of(cls)
    # What the key of a record begins with is its API key to Kafka 4, its version to us.
    versions = str(definition["apiKey"]) if definition["type"] == "coordinator-key" else definition["validVersions"]
    assert cls.versions.last == parse_versions(versions).last
    flexible = definition["flexibleVersions"]
    assert cls.flexible == (None if flexible == "none" else parse_versions(flexible).first)


@pytest.mark.parametrize("suffix, cls", [("Key", "OffsetCommitKey"), ("Value", "OffsetCommitValue")])
def test_the_oldest_committed_offsets_have_the_layout_of_our_version_zero(suffix: str, cls: str) -> None:
    legacy = reference(f"internal-records/Legacy{cls}.json")
    ours = next(message for message in INTERNAL if message.__name__ == cls)
    assert ours.versions.first == 0
    assert legacy["apiKey" if suffix == "Key" else "validVersions"] in (0, "0")
    expected = [(snake_case(field["name"]), field["type"]) for field in legacy["fields"]]
    assert [(field.name, field.kind.value) for field in ours.__fields__ if field.versions.hold(0)] == expected


def test_the_table_of_apis_is_what_kafka_advertises() -> None:
    advertised = {api["key"]: api for api in reference("api-versions.json")}
    for key, api in APIS.items():
        theirs = advertised[key]
        assert (api.name, api.advertised_min, api.max_version) == (theirs["name"], theirs["min"], theirs["max"])


def test_the_table_of_apis_agrees_with_the_messages() -> None:
    for key, api in APIS.items():
        for cls in (api.request, api.response):
            assert cls.api_key == key == ApiKey(key)
            assert cls.versions == (api.min_version, api.max_version)
            assert cls.flexible == api.flexible_from


def test_the_error_codes_are_kafkas() -> None:
    theirs = {(error["code"], error["name"], error["retriable"]) for error in reference("errors.json")}
    assert {(code.value, code.name, code.retriable) for code in ErrorCode} == theirs
