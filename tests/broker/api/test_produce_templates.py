"""A produce request that is known by its beginning says what the parser says, and is answered as any other."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.broker.api import produce_templates
from raftlog.broker.api.produce_encoding import encode_outcome, parse
from raftlog.broker.api.produce_templates import ProduceTemplate, TemplateCache
from raftlog.broker.core.connection.reply import frame
from raftlog.broker.core.log.results import AppendResult
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
HEADER = 6


def one_batch(version: int, index: int, records: bytes, *, topic: str = "topic", producer: str | None = None) -> bytes:
    """A request of one batch for one partition, behind a header of six bytes."""
    named: dict[str, Any] = {"topic_id": topic.encode().ljust(16)} if version >= 13 else {"name": topic}
    topics = [TopicProduceData(partition_data=[PartitionProduceData(index=index, records=records)], **named)]
    request = ProduceRequest(transactional_id=producer, acks=-1, timeout_ms=9, topic_data=topics)
    return b"header" + encode(request, version)


def learn(templates: TemplateCache, request: bytes, version: int) -> None:
    view = memoryview(request)
    templates.learn(view, HEADER, version, parse(view, HEADER, version))


def find(templates: TemplateCache, request: bytes, version: int) -> tuple[ProduceTemplate, int, memoryview] | None:
    return templates.find(memoryview(request), HEADER, version)


def is_learned(request: bytes, version: int) -> bool:
    templates = TemplateCache()
    learn(templates, request, version)
    return find(templates, request, version) is not None


@given(
    st.integers(3, 13),
    *(int32s, st.binary(max_size=40_000), int32s, st.binary(max_size=300)),
    st.one_of(st.none(), st.text(alphabet="ab", max_size=100)),
)
def test_a_request_like_an_earlier_one_is_known_by_its_beginning(
    version: int, first: int, records: bytes, then: int, others: bytes, producer: str | None
) -> None:
    templates = TemplateCache()
    learn(templates, one_batch(version, first, records, producer=producer), version)
    for index, batch in ((first, records), (then, others), (then, records)):
        found = find(templates, one_batch(version, index, batch, producer=producer), version)
        assert found is not None and found[1:] == (index, batch)
    assert find(templates, one_batch(version, first, records, topic="other", producer=producer), version) is None
    assert find(templates, one_batch(version, first, records, producer="another"), version) is None
    if version != 13:
        assert find(templates, one_batch(version + 1, first, records, producer=producer), version + 1) is None


@given(st.data(), st.integers(3, 13))
def test_what_is_found_in_a_damaged_request_is_what_the_parser_finds(data: st.DataObject, version: int) -> None:
    request = bytearray(one_batch(version, 1, b"x" * 50))
    templates = TemplateCache()
    learn(templates, bytes(request), version)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(HEADER, len(request)))
        request[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    request = request[: data.draw(st.integers(HEADER, len(request)))] if data.draw(st.booleans()) else request
    try:
        found = find(templates, bytes(request), version)
    except (RemoteProtocolError, IndexError, struct.error):
        return
    if found is not None:
        template, *partition = found
        parsed = parse(memoryview(request), HEADER, version)
        terms = template.transactional_id, template.acks, template.timeout_ms
        assert parsed == (*terms, [(template.key, [tuple(partition)])])


@pytest.mark.parametrize("version", range(3, 14))
def test_only_a_request_of_one_batch_and_nothing_else_is_learned(version: int) -> None:
    whole = one_batch(version, 1, b"x" * 50)
    assert is_learned(whole, version)
    assert not is_learned(whole + b"behind", version)
    if version < 13:
        assert not is_learned(one_batch(version, 1, b"x", topic="t" * 300), version)
    if version >= 9:
        assert not is_learned(whole[:-1] + b"\x01\x07\x02ab", version), "a tagged field of the request"
    named: dict[str, Any] = {"topic_id": b"i" * 16} if version >= 13 else {"name": "topic"}
    for partitions in (0, 2):
        data = [PartitionProduceData(index=n, records=b"x") for n in range(partitions)]
        topics = [TopicProduceData(partition_data=data, **named)]
        request = b"header" + encode(ProduceRequest(acks=1, timeout_ms=9, topic_data=topics), version)
        assert not is_learned(request, version)
    topics = [TopicProduceData(partition_data=[PartitionProduceData(index=1, records=None)], **named)]
    request = b"header" + encode(ProduceRequest(acks=1, timeout_ms=9, topic_data=topics), version)
    assert not is_learned(request, version)


@pytest.mark.parametrize("version", range(3, 14))
def test_what_is_unusual_does_not_cost_others_their_template(version: int) -> None:
    templates = TemplateCache()
    whole = one_batch(version, 1, b"x" * 50)
    learn(templates, whole, version)
    learn(templates, whole + b"behind", version)
    learn(templates, whole, version)
    assert find(templates, whole, version) is not None
    assert templates._count == 1


@pytest.mark.parametrize("version", range(3, 14))
def test_requests_to_many_topics_in_turn_are_all_known(version: int) -> None:
    templates = TemplateCache()
    requests = [one_batch(version, 1, b"x" * 50, topic=f"topic{n}") for n in range(500)]
    for request in requests:
        assert find(templates, request, version) is None
        learn(templates, request, version)
    for request in requests * 2:
        found = find(templates, request, version)
        assert found is not None
        assert found[0].key == parse(memoryview(request), HEADER, version)[3][0][0]


def test_a_client_with_more_topics_than_there_is_room_for_still_finds_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_templates, "PRODUCE_TEMPLATES_MAX", 40)
    templates = TemplateCache()
    requests = [one_batch(12, 1, b"x" * 50, topic=f"topic{n}") for n in range(50)]
    found = 0
    for request in requests * 20:
        if find(templates, request, 12) is not None:
            found += 1
        else:
            learn(templates, request, 12)
    assert found > 0.7 * len(requests) * 19
    assert sum(map(len, templates._templates)) == templates._count == 40


@given(st.integers(3, 13), int32s, int32s, int64s, int64s, int64s)
def test_a_templates_response_is_the_one_that_the_general_form_gives(
    version: int, correlation_id: int, index: int, base_offset: int, time: int, start: int
) -> None:
    template = ProduceTemplate(version, None, -1, 9, b"t" * 16)
    done = AppendResult(ErrorCode.NONE, base_offset, base_offset, time, start)
    pieces = frame(correlation_id, encode_outcome([(template.key, [(index, done)])], version), flexible=version >= 9)
    assert [template.response(correlation_id, index, done)] == pieces
