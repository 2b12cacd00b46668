from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli import produce
from raftlog.cli.consume import Printer, Reading, build_parser, make_consumer
from raftlog.cli.positions import Range
from raftlog.cli.record_format import to_json
from raftlog.cli.signals import StopSignals
from raftlog.client.core.addresses import parse_addresses
from raftlog.client.sync import SyncClient
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.core.log.produce_cases import reheaded
from tests.conftest import Broker
from tests.raftlog.cli.conftest import Run
from tests.system.traps.raw import RawConnection
from tests.waiting import wait_until


def test_an_empty_group_is_not_taken_for_none_at_all(run: Run) -> None:
    """As with -G "$GROUP" where that is not set: everything would be printed, and nothing committed."""
    outcome = run("consume", "orders", "-G", "")
    assert outcome.code == 2 and "-G is empty" in outcome.err


def test_keys_and_headers_may_be_bytes_that_are_no_text(on_broker: Run, topic: str) -> None:
    # What Python makes of the bytes FF and FE of a command line.
    assert on_broker("produce", topic, "-k", "\udcff", "-H", "h=\udcfe", stdin="v").code == 0
    read = on_broker("consume", topic, "-e", "--json").json
    assert (read["key"], read["headers"]) == ({"base64": "/w=="}, [["h", {"base64": "/g=="}]])


def test_json_that_is_nested_without_an_end_is_refused_in_words(on_broker: Run, topic: str) -> None:
    refused = on_broker("produce", topic, "--json-in", stdin='{"value":' + "[" * 100_000)
    assert refused.code == 1 and refused.err.startswith("raftlog: record 1 of the input is not right: ")


def test_who_is_stopped_while_it_says_goodbye_ends_as_at_any_other_moment(
    on_broker: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = SyncClient.close

    def stopped_meanwhile(client: SyncClient) -> None:
        close(client)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SyncClient, "close", stopped_meanwhile)
    outcome = on_broker("consume", topic, "-e")
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
def test_what_the_protocol_cannot_say_is_told_in_words(on_broker: Run, name: str, option: str) -> None:
    outcome = on_broker("topic", "create", name, option, "99999999999", "--json")
    assert (outcome.code, outcome.error["code"]) == (2, "USAGE")
    assert "too large" in outcome.error["hint"]


def test_lines_go_in_and_come_out_in_order(on_broker: Run, topic: str) -> None:
    sent = on_broker("produce", topic, "-p", "1", "--json", stdin="one\ntwo\n\nfour")
    assert sent.json == {
        "topic": topic,
        "records": 4,
        "partitions": [{"partition": 1, "records": 4, "first_offset": 0, "last_offset": 3}],
    }
    assert on_broker("consume", topic, "-e").out == "one\ntwo\n\nfour\n"


def test_success_is_silent(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, stdin="x\n") == on_broker("produce", topic, stdin="x\n")
    assert on_broker("produce", topic, stdin="x\n").out == ""


def test_the_format_shows_every_part_of_a_record(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, "-p", "2", "-K:", "-H", "a=1", "-H", "b", stdin="k:v\n").code == 0
    shown = on_broker("consume", topic, "-e", "-f", "%t[%p]@%o %k=%s %h %K %S\\n")
    assert shown.out == f"{topic}[2]@0 k=v a=1,b=NULL 1 1\n"


def test_records_with_one_key_stay_together_and_a_fixed_key_is_for_all(on_broker: Run, topic: str) -> None:
    lines = "".join(f"key-{number % 7}:{number}\n" for number in range(70))
    assert on_broker("produce", topic, "-K:", stdin=lines).code == 0
    shown = on_broker("consume", topic, "-e", "-f", "%k %p\\n").out.splitlines()
    assert len(shown) == 70 and len(set(shown)) == 7
    assert on_broker("produce", topic, "-k", "fixed", stdin="a\nb\n").code == 0
    assert on_broker("consume", topic, "-e", "-K", "|").out.count("fixed|") == 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(on_broker: Run, topic: str, codec: str) -> None:
    assert on_broker("produce", topic, "-p", "0", "-z", codec, stdin="compressed " * 100).code == 0
    assert on_broker("consume", topic, "-e").out == "compressed " * 100 + "\n"


def test_empty_keys_and_values_can_mean_none(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, "-p", "0", "-K:", "-Z", stdin=":v\nk:\n").code == 0
    assert on_broker("consume", topic, "-e", "-f", "%k|%s|%K|%S\\n", "-Z").out == "NULL|v|-1|1\nk|NULL|1|-1\n"


def test_delimiters_may_be_escapes(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, "-p", "0", "-D", "\\x00", "-K", "\\t", stdin="a\t1\0b\t2").code == 0
    assert on_broker("consume", topic, "-e", "-K", "=", "-D", ";").out == "a=1;b=2;"


def test_a_file_is_read_instead_of_standard_input(on_broker: Run, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("from a file\n")
    assert on_broker("produce", topic, "-l", str(source)).code == 0
    assert on_broker("consume", topic, "-e").out == "from a file\n"
    missing = on_broker("produce", topic, "-l", str(tmp_path / "none"))
    assert missing.code == 1 and "no such file" in missing.err


def test_what_consume_prints_as_json_produce_takes(on_broker: Run, topic: str, name: str) -> None:
    assert on_broker("produce", topic, "-p", "1", "-K:", "-H", "h=1", stdin="k:ä\nk:b\n").code == 0
    first = on_broker("consume", topic, "-e", "--json").out
    copy = f"{name}-copy"
    assert on_broker("topic", "create", copy, "-p", "3").code == 0
    assert on_broker("produce", copy, "--json-in", stdin=first).code == 0
    second = on_broker("consume", copy, "-e", "--json").out
    assert [{**json.loads(line), "topic": ""} for line in second.splitlines()] == [
        {**json.loads(line), "topic": ""} for line in first.splitlines()
    ]


def test_bad_json_names_the_record_and_what_came_before_it_is_kept(on_broker: Run, topic: str) -> None:
    outcome = on_broker("produce", topic, "--json-in", stdin='{"value": "ok"}\nnonsense\n')
    assert outcome.code == 1 and "record 2" in outcome.err


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (["beginning"], "0123456789"),
        (["7"], "789"),
        (["-2"], "89"),
        (["-100"], "0123456789"),
        (["100"], ""),
        (["end"], ""),
        (["s@1005"], "56789"),
        (["s@1003", "e@1006"], "345"),
        (["s@5000"], ""),
    ],
)
def test_reading_starts_and_stops_where_it_is_told(on_broker: Run, topic: str, offset: list[str], shown: str) -> None:
    lines = "".join(json.dumps({"value": str(n), "timestamp": 1000 + n, "partition": 0}) + "\n" for n in range(10))
    on_broker("topic", "alter", topic, "-c", "retention.ms=-1")
    assert on_broker("produce", topic, "-J", stdin=lines).code == 0
    options = [word for each in offset for word in ("-o", each)]
    outcome = on_broker("consume", topic, "-e", "-D", "", *options)
    assert (outcome.code, outcome.out) == (0, shown)


def test_a_count_ends_reading(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, "-p", "0", stdin="1\n2\n3\n").code == 0
    assert on_broker("consume", topic, "-c", "2").out == "1\n2\n"


def test_only_the_chosen_partitions_are_read(on_broker: Run, topic: str) -> None:
    for partition in ("0", "1", "2"):
        assert on_broker("produce", topic, "-p", partition, stdin=f"in {partition}\n").code == 0
    # Order is only promised within a partition.
    assert sorted(on_broker("consume", topic, "-e", "-p", "1-2").out.splitlines()) == ["in 1", "in 2"]
    missing = on_broker("consume", topic, "-e", "-p", "1,7")
    assert missing.code == 1 and "has no partition 7" in missing.err and "0 to 2" in missing.err
    assert on_broker("produce", topic, "-p", "7", stdin="x").code == 1


def test_a_missing_topic_is_created_by_producing_and_the_user_is_told(on_broker: Run, name: str) -> None:
    sent = on_broker("produce", name, stdin="first\n")
    assert sent.code == 0 and f"topic {name!r} did not exist" in sent.err
    assert on_broker("consume", name, "-e").out == "first\n"


def test_a_missing_topic_cannot_be_read(on_broker: Run, topic: str) -> None:
    missing = on_broker("consume", topic + "x", "-e")
    assert missing.code == 1 and f"there is no topic '{topic}x'" in missing.err and "did you mean" in missing.err


def test_a_record_that_is_too_large_is_refused_with_advice(on_broker: Run, topic: str) -> None:
    outcome = on_broker("produce", topic, "--json", stdin="x" * 2_000_000)
    assert outcome.code == 1
    assert outcome.error["code"] == "MESSAGE_TOO_LARGE" and "max.message.bytes" in outcome.error["hint"]


def test_input_whose_records_never_end_is_refused_as_soon_as_none_could_be_so_long(
    on_broker: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def count(source: int) -> bytes:
        chunk = os.read(source, produce.READ_BYTES)
        read.append(len(chunk))
        return chunk

    monkeypatch.setattr(produce, "read_some", count)
    assert on_broker("topic", "alter", topic, "-c", "max.message.bytes=1000000").code == 0
    outcome = on_broker("produce", topic, "--json", "-p", "0", stdin="first\n" + "x" * 20_000_000)
    assert outcome.code == 1 and outcome.error["code"] == "MESSAGE_TOO_LARGE"
    assert "record 2 of the input is longer than 1000000 bytes" in outcome.error["message"]
    assert sum(read) < 2_000_000, "the rest is not read"
    assert on_broker("consume", topic, "-e").out == "first\n", "what came before is sent"


def test_a_long_record_that_is_small_when_packed_is_sent(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, "-z", "zstd", stdin="x" * 3_000_000).code == 0
    assert len(on_broker("consume", topic, "-e").out) == 3_000_001


@pytest.mark.parametrize("delimiter", [b"\n", b"--", b"-+-"])
@pytest.mark.parametrize("at_a_time", [1, 2, 3, 1000])
def test_input_is_divided_alike_however_it_arrives(
    delimiter: bytes, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"a-b\n--+-+--c---\n\n-+d"
    chunks = [data[at : at + at_a_time] for at in range(0, len(data), at_a_time)] + [b""]
    monkeypatch.setattr(produce, "read_some", lambda _: chunks.pop(0))
    pieces = [piece for some in produce.split(0, delimiter, lambda: 100) for piece in some]
    assert pieces == [*data.split(delimiter)[:-1], *filter(None, data.split(delimiter)[-1:])]


def test_a_long_record_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of what is not whole yet were copied with every read: forty times those that came."""

    class Counted(bytearray):
        copied = 0

        def __iadd__(self, other: object) -> Counted:
            Counted.copied += len(other)  # type: ignore[arg-type]
            return super().__iadd__(other)  # type: ignore[arg-type, return-value]

        def find(self, *arguments: Any) -> int:
            Counted.copied += len(self) - arguments[1]
            return super().find(*arguments)

    monkeypatch.setattr(produce, "bytearray", Counted, raising=False)
    chunks = [b"x" * 1000] * 80 + [b"\n", b""]
    monkeypatch.setattr(produce, "read_some", lambda _: chunks.pop(0))
    assert list(produce.split(0, b"\n", lambda: 1 << 20)) == [[b"x" * 80_000]]
    assert Counted.copied <= 2 * 80_001, "looked at once and taken once"


def test_records_that_are_too_many_for_one_batch_go_as_several(on_broker: Run, topic: str) -> None:
    assert on_broker("topic", "alter", topic, "-c", "max.message.bytes=2000").code == 0
    sent = on_broker("produce", topic, "-p", "0", "--json", stdin="some text\n" * 1000)
    assert sent.code == 0 and sent.json["records"] == 1000
    assert on_broker("consume", topic, "-e").out == "some text\n" * 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume"],
        ["consume", "t", "-o", "stored"],
        ["consume", "t", "-G", "g", "-p", "1"],
        ["consume", "t", "-f", "%q"],
        ["produce"],
        ["produce", "t", "-t", "u"],
        ["produce", "t", "-k", "a", "-K:"],
        ["produce", "t", "-z", "rar"],
        ["produce", "t", "-b", "host:port"],
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_done(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2 and outcome.err.startswith("raftlog: ")


def test_a_position_that_is_not_in_the_log_any_more_is_moved_and_told(
    on_broker: Run, broker: Broker, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert on_broker("produce", topic, "-p", "0", stdin="1\n2\n3\n").code == 0
    options = build_parser().parse([topic])
    with (
        SyncClient(parse_addresses(broker.bootstrap_servers)) as client,
        make_consumer(client, options, [topic]) as consumer,
    ):
        reading = Reading(client, consumer, Printer(to_json, False, StopSignals()), options, Range(None, None))
        consumer.assign([(topic, 0)])
        consumer.seek(topic, 0, 99)
        wait_until(lambda: reading.step() or consumer.positions == {(topic, 0): 3})
    assert "has no offset 99 yet: it ends at 3, and we go on there" in capfd.readouterr().err


def produce_unreadable(broker: Broker, topic: str, values: list[bytes]) -> None:
    """A batch whose checksum is right and whose records nobody can unpack, as a broken producer writes it."""
    batch = encode_batch([Record(number, 0, None, value) for number, value in enumerate(values)])
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=reheaded(batch, attributes=1))]
    )
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.ask(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("group", [(), ("-G", "readers")])
def test_a_batch_that_cannot_be_read_is_told_with_the_way_on_and_passed_over_if_wanted(
    on_broker: Run, broker: Broker, topic: str, group: tuple[str, ...]
) -> None:
    assert on_broker("produce", topic, "-p", "0", stdin="1\n2\n").code == 0
    produce_unreadable(broker, topic, [b"x", b"y", b"z"])
    assert on_broker("produce", topic, "-p", "0", stdin="6\n").code == 0
    if group:
        group = ("-G", f"of-{topic}")
    stopped = on_broker("consume", topic, "-e", *group)
    assert (stopped.code, stopped.out) == (1, "1\n2\n")
    assert f"{topic}[0]: the batch at offset 2 is damaged: " in stopped.err and "--skip-damaged" in stopped.err
    assert ("begin behind it: -p 0 -o 5" in stopped.err) == (not group)
    passed = on_broker("consume", topic, "-e", "--skip-damaged", *group)
    assert passed.code == 0 and passed.out.splitlines()[-1] == "6"
    assert "going on at 5" in passed.err
    if not group:
        assert passed.out == "1\n2\n6\n"
        assert on_broker("consume", topic, "-e", "-p", "0", "-o", "5").out == "6\n"


def test_who_begins_behind_the_end_is_told_so(on_broker: Run, topic: str) -> None:
    assert on_broker("produce", topic, "-p", "0", stdin="1\n2\n").code == 0
    behind = on_broker("consume", topic, "-o", "999", "-e", "-p", "0")
    assert (behind.code, behind.out) == (0, "")
    assert behind.err == f"raftlog: {topic}[0] has no offset 999 yet: it ends at 2, and we go on there\n"
    assert on_broker("consume", topic, "-o", "999", "-e", "-q", "-p", "0").err == ""
    assert on_broker("consume", topic, "-o", "2", "-e", "-p", "0").err == ""
