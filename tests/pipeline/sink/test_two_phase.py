"""The two-phase sink without Spark: tasks prepare, the driver decides; it dies at every step and comes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from raftlog.client import SyncClient
from raftlog.client.admin import Admin
from raftlog.client.core.errors import ProducerFenced, Rejected
from raftlog.client.producer import Producer
from raftlog.pipeline.session import session
from raftlog.pipeline.sink import two_phase
from raftlog.pipeline.sink.decision import ProtocolChanged, TransactionLost, driver_id, group_of
from raftlog.pipeline.sink.marker import SinkInUse
from raftlog.pipeline.sink.options import SinkOptions, parse_sink
from raftlog.pipeline.sink.tasks import TaskId, write_rows
from raftlog.pipeline.sink.two_phase import Written
from tests.conftest import Broker
from tests.pipeline.conftest import Topic
from tests.waiting import wait_until


class Dies(Exception):
    """On purpose."""


class Sink:
    """A query's sink with one micro-batch after the other, each over as many tasks as there are lists of rows."""

    def __init__(self, broker: Broker, topic: str, run: str = "aaaa", query: str = "q") -> None:
        self.bootstrap, self.topic, self.run, self.query = broker.bootstrap_servers, topic, run, query
        self.sink_id = f"sink-{topic}"
        self.slot = 0

    def options(self, protocol: str = "two-phase", **more: str) -> SinkOptions:
        given = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, "commitProtocol": protocol}
        return parse_sink({**given, **more}, [("value", "binary")], streaming=True)

    def prepare(self, batch: int, *tasks: list[bytes], protocol: str = "two-phase", **more: str) -> Written:
        options, results = self.options(protocol, **more), []
        for partition, values in enumerate(tasks):
            self.slot += 1
            task = TaskId(self.sink_id, self.query, batch, partition, self.run, self.slot)
            rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
            results.append(write_rows(options, task, iter([rows])))
        return Written(self.sink_id, self.query, batch, self.run, results)

    def write(self, batch: int, *tasks: list[bytes]) -> None:
        two_phase.commit(self.options(), self.prepare(batch, *tasks))

    def again(self, run: str) -> Sink:
        """The same query, started anew."""
        started = Sink.__new__(Sink)
        started.__dict__.update(self.__dict__, run=run)
        return started


def committed(client: SyncClient, topic: str) -> list[bytes | None]:
    """What a reader of committed records sees, up to the end of the log: nothing is left open."""

    def end(*, read_committed: bool) -> int:
        (offset,) = client.admin.offsets_at([(topic, 0)], -1, read_committed=read_committed).values()
        return offset

    # Markers of a transaction that has ended may come later than the answer.
    wait_until(lambda: end(read_committed=True) == end(read_committed=False), "no transaction is open")
    last = end(read_committed=True)
    found: list[bytes | None] = []
    with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        while consumer.positions.get((topic, 0), 0) < last:
            found += [record.value for record in consumer.poll(timeout=5)]
    return found


def test_rows_of_all_tasks_are_seen_when_the_driver_has_decided(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic()
    sink = Sink(broker, name)
    written = sink.prepare(0, [b"a"], [b"b"], [])
    with client.consumer(name, auto_offset_reset="earliest") as consumer:
        assert not consumer.poll(timeout=0.3)
        two_phase.commit(sink.options(), written)
        assert {record.value for record in consumer.poll(timeout=10)} <= {b"a", b"b"}
    sink.write(1, [b"c"])
    assert sorted(committed(client, name), key=str) == [b"a", b"b", b"c"]


def test_a_batch_that_comes_again_is_written_once_though_its_rows_are_divided_otherwise(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic()
    sink = Sink(broker, name)
    sink.write(0, [b"a", b"b"], [b"c"])
    sink.again("bbbb").write(0, [b"c"], [b"b"], [b"a"])
    assert committed(client, name) == [b"a", b"b", b"c"]


def test_what_is_left_of_attempts_that_were_given_up_is_aborted(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic()
    sink = Sink(broker, name)
    sink.prepare(0, [b"of an attempt whose answer was lost"])
    sink.again("bbbb").write(0, [b"a"])
    assert committed(client, name) == [b"a"]


@pytest.mark.long
def test_a_job_that_fails_takes_back_what_its_tasks_have_prepared(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic()
    sink = Sink(broker, name)
    two_phase.abort(sink.options(), sink.prepare(0, [b"a"]))
    assert committed(client, name) == []
    sink.write(0, [b"b"])
    two_phase.abort(sink.options(), sink.prepare(0, [b"c"]))
    assert committed(client, name) == [b"b"]


STEPS: list[tuple[type, str, int]] = [
    (Producer, "begin", 1),
    (Admin, "list_transactions", 1),
    (Producer, "send_positions", 1),
    (Producer, "commit", 1),
    (Admin, "complete_transaction", 1),
    (Admin, "complete_transaction", 2),
    (Admin, "abort_transaction", 1),
    (Admin, "abort_transaction", 2),
]


def dying(owner: type, name: str, calls: int, *, before: bool) -> Callable[..., Any]:
    """The method, which raises at that call, before it has done anything or after."""
    method, left = getattr(owner, name), [calls]

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and before:
            raise Dies
        result = await method(self, *args, **kwargs)
        if left[0] == 0:
            raise Dies
        return result

    return call


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "step", "call"), STEPS, ids=[f"{step}-{call}" for _, step, call in STEPS])
def test_a_driver_that_dies_at_a_step_is_followed_by_one_that_ends_what_it_began(
    owner: type, step: str, call: int, before: bool,
    broker: Broker, topic: Topic, client: SyncClient, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name = topic()
    sink = Sink(broker, name)
    sink.prepare(0, [b"given up"], [b"given up, too"])
    written = sink.prepare(0, [b"a"], [b"b"])
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, dying(owner, step, call, before=before))
        with pytest.raises(Dies):
            two_phase.commit(sink.options(), written)
    following = sink.again("bbbb")
    following.write(0, [b"b"], [b"a"])
    following.write(1, [b"c"])
    found = committed(client, name)
    assert sorted(found, key=str) == [b"a", b"b", b"c"] and found[-1] == b"c"


def test_a_driver_that_was_followed_by_another_decides_nothing_more(
    broker: Broker, topic: Topic, client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    old = Sink(broker, name)
    written = old.prepare(0, [b"a"])
    decide = two_phase.Driver._decide

    running = session(old.options().connection)
    newer_written: list[Written] = [old.again("bbbb").prepare(0, [b"a"])]

    async def meanwhile(self: Any, producer: Any, decision: Any) -> None:
        monkeypatch.setattr(two_phase.Driver, "_decide", decide)
        await two_phase.Driver(running, old.options(), newer_written[0]).commit()
        await decide(self, producer, decision)

    monkeypatch.setattr(two_phase.Driver, "_decide", meanwhile)
    with pytest.raises(ProducerFenced):
        two_phase.commit(old.options(), written)
    assert committed(client, name) == [b"a"]


def test_nothing_is_decided_when_a_task_has_lost_its_transaction(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic()
    sink = Sink(broker, name)
    written = sink.prepare(0, [b"a"], [b"b"])
    client.admin.abort_transaction(sorted(written.prepared)[0])
    with pytest.raises(TransactionLost, match="Nothing of this batch was written"):
        two_phase.commit(sink.options(), written)
    sink.again("bbbb").write(0, [b"a"], [b"b"])
    assert sorted(committed(client, name), key=str) == [b"a", b"b"]


def test_a_decided_transaction_that_was_ended_by_somebody_else_is_told_and_not_passed_over(
    broker: Broker, topic: Topic, client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    sink = Sink(broker, name)
    written = sink.prepare(0, [b"a"])
    with monkeypatch.context() as patched:
        patched.setattr(Admin, "complete_transaction", dying(Admin, "complete_transaction", 1, before=True))
        with pytest.raises(Dies):
            two_phase.commit(sink.options(), written)
    client.admin.abort_transaction(*written.prepared)
    with pytest.raises(TransactionLost, match="Rows of batch 0 are missing"):
        sink.again("bbbb").write(0, [b"a"])


def test_the_protocol_is_changed_between_batches_and_not_in_one(
    broker: Broker, topic: Topic, client: SyncClient
) -> None:
    name = topic()
    sink = Sink(broker, name)
    sink.prepare(0, [b"0"], protocol="task")
    with pytest.raises(ProtocolChanged):
        sink.write(0, [b"0"])
    sink.again("bbbb").write(1, [b"1"])
    with pytest.raises(ProtocolChanged):
        sink.again("cccc").prepare(1, [b"1"], protocol="task")
    sink.again("dddd").prepare(2, [b"2"], protocol="task")
    assert committed(client, name) == [b"0", b"1", b"2"]


def test_a_sink_of_another_query_is_refused(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic()
    Sink(broker, name).write(0, [b"a"])
    with pytest.raises(SinkInUse, match="belongs to query q"):
        Sink(broker, name, query="other").write(1, [b"b"])


def test_without_rows_nothing_is_decided(broker: Broker, topic: Topic, client: SyncClient) -> None:
    name = topic()
    sink = Sink(broker, name)
    sink.write(0, [], [])
    assert client.admin.committed_offsets(group_of(sink.sink_id)) == {}
    with pytest.raises(Rejected, match="does not know this transactional id"):
        client.admin.describe_transaction(driver_id(sink.sink_id))
