"""Messages are classes that are pleasant to use: keywords, defaults, equality, a short repr; and little else."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from raftlog.wire.codec import encode
from raftlog.wire.decoder_compiler import decoder_source
from raftlog.wire.encoder_compiler import encoder_source
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from raftlog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from raftlog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from raftlog.wire.messages.metadata import MetadataRequest
from raftlog.wire.schema import ZERO_UUID, Versions, parse_versions
from raftlog.wire.uuids import uuid_from_text, uuid_to_text


def test_fields_that_are_not_given_hold_kafkas_defaults() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 2**31 - 1, -1)
    assert (request.cluster_id, request.rack_id, request.topics) == (None, "", [])
    assert request.replica_state.replica_epoch == -1
    assert PartitionData().records is None
    assert MetadataRequest().topics == []
    assert DescribeTopicPartitionsRequest().cursor is None


def test_defaults_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(None)  # type: ignore[arg-type]
    first.replica_state.replica_id = 9
    assert second == FetchRequest()


def test_messages_are_equal_by_value_and_by_type() -> None:
    assert CreatableTopic(name="a") == CreatableTopic(name="a")
    assert CreatableTopic(name="a") != CreatableTopic(name="b")
    assert CreatableTopic(name="a") != CreatableTopicConfig(name="a")
    assert PartitionData(records=b"abc") == PartitionData(records=memoryview(b"abc"))
    with pytest.raises(TypeError):
        hash(CreatableTopic())


def test_a_repr_shows_what_is_not_a_default() -> None:
    topic = CreatableTopic(name="t", configs=[CreatableTopicConfig(name="retention.ms", value=None)])
    assert repr(topic) == "CreatableTopic(name='t', configs=[CreatableTopicConfig(name='retention.ms', value=None)])"
    assert repr(PartitionData(records=memoryview(bytes(100)))) == "PartitionData(records=<100 bytes>)"


def test_a_misspelt_field_is_an_error() -> None:
    misspelt: dict[str, Any] = {"nmae": "t"}
    with pytest.raises(TypeError):
        CreatableTopic(**misspelt)
    topic = CreatableTopic()
    with pytest.raises(AttributeError):
        topic.nmae = "t"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        CreatableTopic("t")  # type: ignore[misc]


def test_messages_can_be_copied_and_pickled() -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t")], timeout_ms=5)
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_versions_are_written_as_in_kafkas_definitions() -> None:
    assert parse_versions("3-5") == Versions(3, 5)
    assert parse_versions("4") == Versions(4, 4)
    assert parse_versions("2+").hold(2)
    assert not parse_versions("2+").hold(1)


def test_the_generated_functions_can_be_read() -> None:
    assert "unpack_from" in decoder_source(FetchResponse, 12)
    assert "pack_" in encoder_source(FetchResponse, 12)


def test_an_error_code_takes_the_place_of_a_number() -> None:
    with_code = encode(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 12)
    assert with_code == encode(FetchResponse(error_code=70), 12)


def test_error_codes_know_their_message_and_newer_ones_are_unknown_errors() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.INVALID_RECORD.retriable
    assert ErrorCode.of(29_999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(87) is ErrorCode.INVALID_RECORD
    messages = [code.message for code in ErrorCode]
    assert all(message.endswith(".") for message in messages)
    assert len(set(messages)) == len(messages)


def test_ids_have_one_text_form() -> None:
    identifier = bytes(range(240, 256))
    assert uuid_to_text(identifier) == "8PHy8_T19vf4-fr7_P3-_w"
    assert uuid_from_text("8PHy8_T19vf4-fr7_P3-_w") == identifier
    assert uuid_to_text(ZERO_UUID) == "A" * 22
    assert uuid_from_text("A" * 22) == ZERO_UUID


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 20 + "==", "A" * 21 + "+", "ä" * 22])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)


def test_an_id_of_another_length_has_no_text() -> None:
    with pytest.raises(ValueError):
        uuid_to_text(bytes(15))


def test_the_table_of_apis_loads_no_message_definitions() -> None:
    program = (
        "import sys, raftlog.wire.apis, raftlog.wire.headers, raftlog.wire.codec\n"
        "loaded = [name for name in sys.modules if name.startswith('raftlog.wire.messages.')]\n"
        "assert not loaded, loaded\n"
        "assert raftlog.wire.apis.APIS[3].request.__name__ == 'MetadataRequest'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
