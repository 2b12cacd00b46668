"""The jobs, each as `raftlog pipeline run` starts it, on real flights and in one session: make spark-jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli.failure import CommandFailed
from raftlog.client import SyncClient
from raftlog.client.producer import Outgoing
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.formats.jsonl import read_history, write_history
from raftlog.linearizability.checker.history import History, Operation, Outcome
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.page.plain import plain_verdict
from tests.conftest import Broker
from tests.pipeline.conftest import Topic, fill, needs_spark

try:
    from raftlog.pipeline.jobs import audit, delays, enrich, feed, load, mirror, running, verify
    from raftlog.pipeline.jobs.lake import Lake
    from raftlog.pipeline.verify.distributed import Budget, check_on_spark
except ImportError:
    pass  # without PySpark the tests are skipped

pytestmark = [pytest.mark.slow, *needs_spark]
FLIGHTS = 600
Run = Callable[..., Any]


@pytest.fixture
def run(spark: Any, broker: Broker) -> Run:
    """`run(job, *arguments)` is its summary."""

    def start(job: Any, *arguments: str, brokers: str | None = None, watcher: running.Watcher | None = None) -> Any:
        given = ["-b", brokers or broker.bootstrap_servers, *arguments] if job is not verify else list(arguments)
        told: list[str] = []
        options = job.build_parser().parse(given)
        options.watcher = watcher
        summary = running.perform(job, spark, options, told.append)
        summary.told = told
        return summary

    return start


@pytest.fixture(scope="module")
def fed(broker: Broker) -> str:
    """What the names of topics begin with that have flights in them, and all around them."""
    options = feed.build_parser().parse(
        ["-b", broker.bootstrap_servers, "--prefix", "job-", "--rows", str(FLIGHTS), "--partitions", "2"]
    )
    assert feed.run(None, options, lambda _: None).facts["flights"] == FLIGHTS
    return "job-"


def everything(client: SyncClient, topic: str) -> list[Any]:
    """All committed records of a topic."""
    partitions = [(topic, each.partition_index) for each in client.admin.topic(topic).partitions]
    ends = client.admin.offsets_at(partitions, -1)
    found: list[Any] = []
    with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        while any(consumer.positions.get(each, 0) < end for each, end in ends.items()):
            found += consumer.poll(5000, timeout=1)
    return found


def rows_of(records: list[Any]) -> list[int]:
    return sorted(json.loads(record.value)["row"] for record in records)


def test_what_was_loaded_into_the_lake_is_there_once_and_comes_back(
    run: Run, fed: str, client: SyncClient, tmp_path: Path
) -> None:
    lake, state = str(tmp_path / "lake"), str(tmp_path / "state")
    given = ("--topics", f"{fed}flights", "--lake", lake, "--checkpoint", state)
    assert run(load, *given, "--max-offsets", "400").facts["rows"] == FLIGHTS
    # As if the driver had died before the last micro-batch was told: it comes again, and replaces what is there.
    last = max((tmp_path / "state" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc"), tmp_path / "lake/_manifest" / f"{int(last.name):08d}.json"):
        path.unlink(missing_ok=True)
    summary = run(load, *given)
    assert summary.facts["rows"] == FLIGHTS and summary.facts["rows_in"] < FLIGHTS
    ends = client.admin.offsets_at([(f"{fed}flights", 0), (f"{fed}flights", 1)], -1)
    assert all(summary.facts["offsets"][topic][str(at)] <= end for (topic, at), end in ends.items())
    named = {each.path for manifest in Lake(lake).manifests() for each in manifest.files}
    assert {str(path.relative_to(lake)) for path in Path(lake).rglob("*.parquet")} == named
    assert any(name.startswith(f"topic={fed}flights/date=2013-01-01/hour=10/") for name in named)
    for _ in range(2):  # what was replayed before is left out
        run(load, "--lake", lake, "--replay", f"{fed}again", "--until", "2013-01-01T18")
    again, first = everything(client, f"{fed}again"), everything(client, f"{fed}flights")
    early = [one for one in first if one.timestamp < 1_357_063_200_000]
    assert 0 < len(early) < FLIGHTS and rows_of(again) == rows_of(early)
    assert {(one.partition, one.key, one.timestamp, one.value) for one in again} == {
        (one.partition, one.key, one.timestamp, one.value) for one in early
    }


def test_a_lake_is_filled_with_one_checkpoint_and_replayed_once_wherever_it_lies(
    run: Run, topic: Topic, client: SyncClient, tmp_path: Path
) -> None:
    high = topic([Outgoing(b"%d" % at, partition=4 + at % 2) for at in range(6)], partitions=6)
    lake, other = str(tmp_path / "lake"), topic([b"lost?"])
    run(load, "--topics", high, "--lake", lake, "--checkpoint", str(tmp_path / "one"))
    with pytest.raises(CommandFailed, match="is filled with another checkpoint"):
        run(load, "--topics", other, "--lake", lake, "--checkpoint", str(tmp_path / "two"))
    again, long = f"{high}-again", high + "x" * 100
    for target in (again, f"{long}-1", f"{long}-2"):
        run(load, "--lake", lake, "--replay", target)
        run(load, "--lake", f"{lake}/../lake", "--replay", target)  # the same files by another name
        found = [(one.partition, one.value) for one in everything(client, target)]
        assert sorted(found) == sorted((4 + at % 2, b"%d" % at) for at in range(6))


def test_what_spark_complains_of_is_told_in_a_line(run: Run, topic: Topic, tmp_path: Path, name: str) -> None:
    given = ("--flights", topic(), "--to", f"{name}-to", "--checkpoint", str(tmp_path))
    with pytest.raises(CommandFailed, match="Unable to parse 'nonsense'"):
        run(delays, *given, "--window", "nonsense")
    with pytest.raises(CommandFailed, match=f"there is no topic '{name}-trail'"):
        run(audit, "--trail", f"{name}-trail")


def test_flights_get_their_airline_plane_and_weather_once(
    run: Run, fed: str, client: SyncClient, tmp_path: Path
) -> None:
    given = ("--flights", f"{fed}flights", "--prefix", fed, "--to", f"{fed}rich", "--checkpoint", str(tmp_path))
    assert run(enrich, *given, "--max-offsets", "350").facts["rows_in"] == FLIGHTS
    run(enrich, *given)
    found = everything(client, f"{fed}rich")
    assert rows_of(found) == list(range(FLIGHTS))
    first = next(json.loads(one.value) for one in found if json.loads(one.value)["row"] == 0)
    assert first["airline"] == "United Air Lines Inc." and first["manufacturer"] == "BOEING" and first["built"] == 1999
    assert first["temp"] == 39.02 and first["dep_delay"] == 2 and first["tailnum"] == "N14228"


def test_the_tables_that_flights_are_joined_with_are_those_of_the_first_start(
    run: Run, fed: str, client: SyncClient, tmp_path: Path, name: str
) -> None:
    for table, key in (("airlines", b"UA"), ("planes", b"N1"), ("weather", b"JFK|x")):
        client.admin.create_topic(f"{name}{table}", partitions=1)
        row = {"carrier": "UA", "name": "before", "tailnum": "N1", "origin": "JFK", "time_hour": "x"}
        fill(client, f"{name}{table}", [Outgoing(json.dumps(row).encode(), key=key)])
    flights, to = f"{name}flights", f"{name}rich"
    client.admin.create_topic(flights, partitions=1)
    given = ("--flights", flights, "--prefix", name, "--to", to, "--checkpoint", str(tmp_path))
    for at in range(2):
        fill(client, flights, [b'{"row": %d, "carrier": "UA"}' % at])
        run(enrich, *given)
        # As if compaction had taken what was the newest record then.
        client.admin.delete_records({(f"{name}airlines", 0): 1})
        client.admin.create_partitions(f"{name}airlines", 2 + at)
    assert [json.loads(one.value).get("airline") for one in everything(client, to)] == ["before", "before"]


def test_what_is_no_flight_is_not_enriched_but_counted(
    run: Run, fed: str, topic: Topic, client: SyncClient, tmp_path: Path, name: str
) -> None:
    flights = topic([b"no JSON", Outgoing(None, key=b"k"), b'{"other": 4}', b'{"row": 7, "carrier": "UA"}'])
    facts = run(enrich, "--flights", flights, "--prefix", fed, "--to", name, "--checkpoint", str(tmp_path)).facts
    assert facts["left_out"] == 3 and rows_of(everything(client, name)) == [7]


def test_what_is_no_flight_is_left_out_of_the_delays(
    run: Run, topic: Topic, client: SyncClient, tmp_path: Path, name: str
) -> None:
    flights = topic([b"no JSON", Outgoing(None, key=b"k"), b'{"dep_delay": 4}', b'{"origin": "JFK", "dep_delay": 3}'])
    facts = run(delays, "--flights", flights, "--to", name, "--checkpoint", str(tmp_path)).facts
    assert facts["left_out"] == 3 and len(everything(client, name)) == 1


def test_delays_are_kept_up_to_date_by_airport_and_hour(
    run: Run, fed: str, client: SyncClient, tmp_path: Path, name: str
) -> None:
    flights, to = f"{name}-flights", f"{name}-delays"
    client.admin.create_topic(flights, partitions=1, configs={"retention.ms": "-1"})
    hour, day = 3_600_000, 24 * 3_600_000

    def fly(at: int, delay: int | None) -> None:
        fill(client, flights, [Outgoing(json.dumps({"origin": "JFK", "dep_delay": delay}).encode(), timestamp=at)])

    def delay_of(start: str) -> Any:
        values = [json.loads(one.value) for one in everything(client, to) if one.key == f"JFK|{start}".encode()]
        return [(each["flights"], each["departed"], each.get("delay")) for each in values]

    given = ("--flights", flights, "--to", to, "--checkpoint", str(tmp_path), "--watermark", "1 day")
    fly(0, 10), fly(hour // 2, None)
    assert run(delays, *given).facts["rows_in"] == 2
    fly(hour // 4, 30), fly(3 * day, 5)  # late, and in time
    assert run(delays, *given).facts["too_late"] == 0
    assert delay_of("1970-01-01T00:00:00Z") == [(2, 1, 10.0), (3, 2, 20.0)]
    fly(hour // 4, 99)  # behind the watermark
    assert run(delays, *given).facts["too_late"] == 1
    assert delay_of("1970-01-01T00:00:00Z")[-1] == (3, 2, 20.0) and delay_of("1970-01-04T00:00:00Z") == [(1, 1, 5.0)]


def test_the_audit_agrees_with_what_is_there_and_shows_what_is_not(
    run: Run, fed: str, client: SyncClient, broker: Broker, name: str
) -> None:
    given = ("--trail", f"{fed}audit-trail", "--topics", f"{fed}flights")
    agreed = run(audit, *given)
    assert agreed.ok and agreed.facts["topics"][f"{fed}flights"]["arrived"] == FLIGHTS
    client.admin.create_topic(name, partitions=1, configs={"retention.ms": "-1"})
    rows = everything(client, f"{fed}flights")
    lost, twice = rows[0], rows[-1]
    fill(client, name, [Outgoing(one.value, timestamp=one.timestamp) for one in [*rows[1:], twice]])
    wrong = run(audit, *given, "--arrived", name)
    told = wrong.facts["topics"][f"{fed}flights"]
    assert not wrong.ok and (told["missing"], told["too_many"]) in ((1, 1), (0, 0)), told
    assert lost.timestamp // 3_600_000 != twice.timestamp // 3_600_000 and "difference" in wrong.told[-1]


def test_the_audit_leaves_out_what_is_no_trail_and_asks_for_one_of_each_topic(run: Run, topic: Topic) -> None:
    counted = topic([Outgoing(b"x", timestamp=1000)], retention_ms="-1")
    told = {"producer": "p", "topic": counted, "window": 0, "window_ms": 3_600_000, "count": 1}
    values = [json.dumps(told), json.dumps({**told, "window_ms": 0}), json.dumps({**told, "count": None}), "no JSON"]
    trail = topic([Outgoing(None, key=b"k"), *(each.encode() for each in values)])
    agreed = run(audit, "--trail", trail)
    assert agreed.ok and agreed.told[0].startswith("4 records of")
    with pytest.raises(CommandFailed, match="tells nothing of other"):
        run(audit, "--trail", trail, "--topics", f"{counted},other")


@pytest.mark.parametrize("bad", [(), ("key-7", "key-3", "key-22")])
def test_a_history_has_the_verdict_and_the_witness_on_spark_that_it_has_in_one_process(
    spark: Any, run: Run, tmp_path: Path, bad: tuple[str, ...]
) -> None:
    written: dict[str, int | None] = {}
    operations, time = [], 0
    for at in range(600):
        key, time = f"key-{at % 40}", time + 10
        if at % 3 == 0:
            written[key] = at
            operations.append(Operation(at % 7, "write", at, None, key, time, time + 5, Outcome.OK))
        else:
            output = -1 if key in bad and at > 300 else written.get(key)
            operations.append(Operation(at % 7, "read", None, output, key, time, time + 5, Outcome.OK))
    operations.append(Operation(9, "write", 5, None, "key-0", 100, None, Outcome.INFO))  # open in every piece
    path = tmp_path / "history.jsonl"
    with path.open("w") as stream:
        write_history(History.of(operations), stream)
    here = plain_verdict(check(read_history(str(path)), Register()))
    verdict, _ = check_on_spark(spark, str(path), Register(), Budget(), lambda _: None, chunk_bytes=20_000)
    there = plain_verdict(verdict)
    for each in (here, there):
        del each["seconds"]
    assert there == here and here["status"] == ("invalid" if bad else "valid")
    summary = run(verify, str(path), "--model", "register")
    assert summary.ok is not bool(bad) and summary.facts["invalid"] == len(bad)


def test_a_mirror_has_the_same_records_and_groups_find_their_place(
    run: Run, fed: str, client: SyncClient, broker: Broker, tmp_path: Path, name: str
) -> None:
    source = f"{name}-source"
    client.admin.create_topic(source, partitions=2, configs={"retention.ms": "-1"})
    with client.producer(transactional_id=name) as producer:
        for at in range(6):  # markers leave gaps, so that no offset is the copy's
            with producer.transaction() as transaction:
                for index in range(5):
                    value = b"%d-%d" % (at, index)
                    transaction.send(source, value, key=b"k", headers=[("h", b"1")], partition=at % 2, timestamp=at)
    client.admin.commit_offsets(name, {(source, 0): 7, (source, 1): 6})
    given = ("--topics", source, "--prefix", "copy-", "--target", broker.bootstrap_servers, "--mapping", f"{name}-map")
    state = ("--checkpoint", str(tmp_path), "--groups", name)
    run(mirror, *given, *state, "--max-offsets", "20")
    run(mirror, *given, *state)
    first, copy = everything(client, source), everything(client, f"copy-{source}")

    def told(records: list[Any]) -> Counter[Any]:
        return Counter((one.partition, one.key, one.value, tuple(one.headers), one.timestamp) for one in records)

    assert told(copy) == told(first) and len(copy) == 30
    committed = client.admin.committed_offsets(name)
    for index in (0, 1):
        (at_first,) = [one for one in first if (one.partition, one.offset) == (index, committed[source, index])]
        (at_copy,) = [one for one in copy if (one.partition, one.offset) == (index, committed[f"copy-{source}", index])]
        assert at_first.value == at_copy.value
    # The group goes on with the copies, and a mirror that runs once more does not send it back.
    ahead = {(f"copy-{source}", 0): committed[f"copy-{source}", 0] + 2}
    client.admin.commit_offsets(name, ahead)
    run(mirror, *given, *state)
    assert client.admin.committed_offsets(name).items() >= ahead.items()


def test_a_job_stops_at_records_that_are_gone_until_it_is_told_to_go_on(
    run: Run, topic: Topic, client: SyncClient, broker: Broker, tmp_path: Path, name: str
) -> None:
    source = topic([b"0", b"1"])
    given = ("--topics", source, "--prefix", "copy-", "--target", broker.bootstrap_servers, "--mapping", f"{name}-map")
    given += ("--checkpoint", str(tmp_path))
    run(mirror, *given)
    fill(client, source, [b"2", b"3"])
    client.admin.delete_records({(source, 0): 3})
    with pytest.raises(CommandFailed, match="the first one that is left is 3") as refused:
        run(mirror, *given)
    assert refused.value.hint == "--accept-data-loss does that"
    run(mirror, *given, "--accept-data-loss")
    assert [one.value for one in everything(client, f"copy-{source}")] == [b"0", b"1", b"3"]


class AddsAPartition:
    """Looks on at a mirror. When the first micro-batch is copied, it adds a partition to the topic, with a record."""

    def __init__(self, client: SyncClient, topic: str) -> None:
        self.client, self.topic, self.batches = client, topic, 0

    def note(self, progress: Any) -> None:
        self.batches += 1
        if self.batches == 1:
            self.client.admin.create_partitions(self.topic, 2)
            with self.client.producer() as producer:
                producer.send(self.topic, b"new", partition=1)

    def ends(self) -> bool:
        return self.batches > 1


def test_a_mirror_follows_when_a_topic_gets_partitions(
    run: Run, topic: Topic, client: SyncClient, broker: Broker, tmp_path: Path, name: str
) -> None:
    source = topic([b"old"])
    arguments = ["--topics", source, "--prefix", "copy-", "--target", broker.bootstrap_servers, "--follow"]
    arguments += ["--every", "0 seconds", "--mapping", f"{name}-map", "--checkpoint", str(tmp_path)]
    summary = run(mirror, *arguments, watcher=AddsAPartition(client, source))
    copied = [(one.partition, one.value) for one in everything(client, f"copy-{source}")]
    assert sorted(copied) == [(0, b"old"), (1, b"new")] and summary.facts["rows_in"] == 2
    assert f"topic copy-{source}: now with 2 partitions" in summary.told


def test_copies_keep_the_times_of_records_and_groups_go_by_their_own_mirror(
    run: Run, topic: Topic, client: SyncClient, broker: Broker, tmp_path: Path, name: str
) -> None:
    source = topic([b"one", b"two"], message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="3600000")
    given = ("--topics", source, "--target", broker.bootstrap_servers, "--mapping", f"{name}-map")
    with pytest.raises(CommandFailed, match="--prefix"):
        run(mirror, *given, "--checkpoint", str(tmp_path / "refused"))
    run(mirror, *given, "--prefix", "copy-", "--checkpoint", str(tmp_path / "state"))
    first, copy = everything(client, source), everything(client, f"copy-{source}")
    assert [(one.value, one.timestamp) for one in copy] == [(one.value, one.timestamp) for one in first]
    # Another cluster has a topic of that name, and its mirror tells the same topic.
    other = {"topic": source, "partition": 0, "to_topic": f"b-{source}", "to_partition": 0, "runs": [[0, 70, 9]]}
    fill(client, f"{name}-map", [json.dumps(other).encode()])
    assert mirror.read_mapping(client, f"{name}-map", "copy-") == {(source, 0): [(0, 0, 2)]}
    assert mirror.read_mapping(client, f"{name}-map", "b-") == {(source, 0): [(0, 70, 9)]}
