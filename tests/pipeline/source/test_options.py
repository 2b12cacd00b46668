"""The source's options: what they stand for, and what is said about those that cannot be."""

from __future__ import annotations

import pytest

from raftlog.pipeline.given import BadOption
from raftlog.pipeline.source.offsets import parse_numbers, read, write
from raftlog.pipeline.source.options import SourceOptions, parse_columns, parse_source

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parse(streaming: bool = False, **options: str) -> SourceOptions:
    return parse_source({**BASE, **options}, streaming=streaming)


def refused(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(BadOption) as caught:
        parse_source(options, streaming=streaming)
    return str(caught.value)


def test_a_batch_read_goes_from_the_earliest_to_the_latest_offset() -> None:
    options = parse()
    assert (options.starting.kind, options.ending.kind) == ("earliest", "latest")
    assert options.topics == ("orders",) and options.where == "orders"
    assert options.fail_on_data_loss and options.read_committed


def test_a_stream_begins_at_the_latest_offset() -> None:
    assert parse(streaming=True).starting.kind == "latest"


def test_names_are_taken_in_any_case_and_lists_may_have_spaces() -> None:
    options = parse_source(
        {"KAFKA.bootstrap.Servers": "h:1", "SUBSCRIBE": " a, b ,a", "FailOnDataLoss": "FALSE"}, streaming=False
    )
    assert options.topics == ("a", "b") and not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "exactly one of subscribe, subscribePattern and assign says what to read; given: none of them"),
        ({"subscribe": "a", "subscribePattern": "b"}, "given: subscribe and subscribePattern"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "a("}, "subscribePattern='a('"),
        ({"assign": '{"a": "0"}'}, "the partitions of 'a' are '0'; write JSON like"),
        ({"assign": "{}"}, "assign names no partition"),
        ({"assign": '{"a": [true]}'}, "the partitions of 'a' are [True]"),
    ],
)
def test_what_to_read_is_said_exactly_once(given: dict[str, str], says: str) -> None:
    assert says in refused({"kafka.bootstrap.servers": "h:1", **given})


def test_brokers_have_to_be_named() -> None:
    assert "kafka.bootstrap.servers is missing" in refused({"subscribe": "a"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"something": "else"}, "there is no option 'something' here: leave it out"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets instead"),
        ({"kafka.enable.auto.commit": "true"}, "commitOffsets=true"),
        ({"kafka.isolation.levl": "x"}, "did you mean kafka.isolation.level?"),
        ({"kafka.isolation.level": "serializable"}, "it can be read_committed or read_uncommitted"),
        ({"kafka.security.protocol": "SASL_SSL"}, "SASL and TLS are not there yet"),
        ({"minPartitions": "many"}, "is no whole number"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"failOnDataLoss": "maybe"}, "it can be true or false"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "-1 (latest) would read nothing"),
        ({"startingOffsets": "yesterday"}, "write earliest, committed or JSON like"),
        ({"startingOffsets": '{"orders": [0]}'}, "topic 'orders' has no partitions"),
        ({"startingOffsets": '{"orders": {"0": "5"}}'}, "is no partition and number"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders[0] cannot be -3"),
        ({"startingOffsets": "[1]"}, "write earliest"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "-2 (earliest) would read nothing"),
        ({"startingOffsets": "committed"}, "need kafka.group.id"),
        ({"commitOffsets": "true"}, "commitOffsets is for streams"),
        ({"columns": "key,worth"}, "there is no 'worth', there are key, value, topic"),
        ({"columns": "headers"}, "set includeHeaders=true"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(given: dict[str, str], says: str) -> None:
    assert says in refused({**BASE, **given})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endingOffsets": "latest"}, "trigger(availableNow=True)"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for batch reads"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is more than maxOffsetsPerTrigger=5"),
        ({"pushFilters": "true"}, "pushFilters is for batch reads"),
        ({"maxTriggerDelay": "soon"}, "write it like 15m"),
        ({"commitOffsets": "true"}, "need kafka.group.id"),
    ],
)
def test_what_a_stream_cannot_have_is_refused(given: dict[str, str], says: str) -> None:
    assert says in refused({**BASE, **given}, streaming=True)


def test_what_only_a_stream_makes_use_of_is_passed_over_in_a_batch_read() -> None:
    given = {**BASE, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "1m"}
    assert parse_source(given, streaming=False).max_offsets == 5, "as Spark's own source does"


def test_a_timestamp_goes_before_offsets() -> None:
    by_time = '{"orders": {"0": 8}}'
    options = parse(startingTimestamp="7", startingOffsetsByTimestamp=by_time, startingOffsets="earliest")
    assert (options.starting.kind, options.starting.timestamp) == ("timestamp", 7)
    options = parse(startingOffsetsByTimestamp=by_time, startingOffsets="earliest")
    assert options.starting.values == {("orders", 0): 8}


def test_lengths_of_time_are_written_as_in_spark() -> None:
    assert parse(True, maxTriggerDelay="2m").max_trigger_delay_ms == 120_000
    assert parse(True, maxTriggerDelay="500").max_trigger_delay_ms == 500
    assert parse(True).max_trigger_delay_ms == 900_000


def test_columns_keep_the_order_of_the_schema() -> None:
    assert parse_columns({"columns": "value, KEY"}) == ("key", "value")
    assert "headers" not in parse_columns({})
    assert parse_columns({"includeHeaders": "true"})[-1] == "headers"


def test_offsets_are_written_sorted_whatever_their_order() -> None:
    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 2): 3}
    written = write(offsets)
    assert written == {"a": {"2": 3, "10": 2}, "b": {"0": 1}}
    assert [list(written), list(written["a"])] == [["a", "b"], ["2", "10"]]
    assert read(written) == offsets


def test_numbers_of_partitions_are_read_from_json() -> None:
    assert parse_numbers("x", '{"a": {"0": 23, "1": -2}}') == {("a", 0): 23, ("a", 1): -2}
