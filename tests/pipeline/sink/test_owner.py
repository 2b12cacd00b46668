"""A sinkId belongs to the first query that writes under it; on raftlog, and on Apache Kafka in make spark-kills."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from raftlog.client import SyncClient
from raftlog.client.admin import Admin
from raftlog.client.producer import Producer
from raftlog.pipeline.session import session
from raftlog.pipeline.sink import two_phase
from raftlog.pipeline.sink.decision import group_of
from raftlog.pipeline.sink.marker import SinkInUse
from raftlog.pipeline.sink.options import TASK, TWO_PHASE, SinkOptions, parse_sink
from raftlog.pipeline.sink.owner import Owner
from raftlog.pipeline.sink.tasks import TaskId, write_rows
from raftlog.pipeline.sink.two_phase import Written
from tests.client.conftest import Servers, kafka, servers  # noqa: F401
from tests.pipeline.sink.test_two_phase import Dies, committed, dying

PROTOCOLS = pytest.mark.parametrize("protocol", [TASK, TWO_PHASE])


@pytest.fixture
def client(servers: Servers) -> Iterator[SyncClient]:  # noqa: F811
    with SyncClient(servers.bootstrap) as made:
        yield made


class Query:
    """One that writes to `topic` under `sink_id`."""

    def __init__(self, servers: Servers, topic: str, name: str, protocol: str = TASK) -> None:  # noqa: F811
        self.bootstrap, self.topic, self.name, self.protocol = servers.bootstrap, topic, name, protocol
        self.sink_id = f"sink-{topic}"

    @property
    def options(self) -> SinkOptions:
        given = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, "commitProtocol": self.protocol}
        return parse_sink({**given, "sinkId": self.sink_id}, [("value", "binary")], streaming=True)

    def task(self, batch: int, partition: int, values: list[bytes], then: Callable[[], None] = lambda: None) -> Any:
        """Its result. `then` comes when its rows are sent."""
        rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows
            then()

        task = TaskId(self.sink_id, self.name, batch, partition, self.name[:8], partition)
        return write_rows(self.options, task, batches())

    def commit(self, batch: int, results: list[Any]) -> None:
        if self.protocol == TWO_PHASE:
            two_phase.commit(self.options, Written(self.sink_id, self.name, batch, self.name[:8], results))

    def write(self, batch: int, *tasks: list[bytes]) -> None:
        self.commit(batch, [self.task(batch, partition, values) for partition, values in enumerate(tasks)])


@pytest.fixture
def query(servers: Servers, client: SyncClient) -> Callable[..., Query]:  # noqa: F811
    """`query(name, protocol)` writes to the test's topic."""
    topic = f"owner-{uuid.uuid4().hex}"
    client.admin.create_topic(topic, partitions=1)
    return lambda name, protocol=TASK: Query(servers, topic, name, protocol)


def refused(query: Query, batch: int, tasks: int) -> None:
    """Each of a batch's tasks is."""
    for partition in range(tasks):
        with pytest.raises(SinkInUse, match="belongs to query owner"):
            query.task(batch, partition, [b"of the other"])


@PROTOCOLS
@pytest.mark.parametrize("other", [TASK, TWO_PHASE])
def test_a_query_with_more_tasks_is_refused_in_each_of_them(
    query: Callable[..., Query], client: SyncClient, protocol: str, other: str
) -> None:
    owner = query("owner", protocol)
    owner.write(0, [b"a"])
    refused(query("other", other), 0, 3)
    refused(query("other", other), 5, 2)
    owner.write(1, [b"b"], [b"c"])
    assert committed(client, owner.topic) == [b"a", b"b", b"c"]


def test_a_query_that_is_refused_fences_no_task_of_the_owner(query: Callable[..., Query], client: SyncClient) -> None:
    owner = query("owner")
    owner.task(0, 0, [b"a"], then=lambda: refused(query("other"), 0, 3))
    assert committed(client, owner.topic) == [b"a"]


@PROTOCOLS
def test_of_two_queries_that_begin_at_once_one_writes(
    query: Callable[..., Query], client: SyncClient, protocol: str
) -> None:
    sides = [query("one", protocol), query("other", protocol)]

    def attempt(side: Query, partition: int) -> Any:
        for _ in range(10):
            try:
                return side.task(0, partition, [b"%s-%d" % (side.name.encode(), partition)])
            except SinkInUse:
                return None
            except Exception:  # noqa: BLE001 - fenced by the other query's task: Spark tries it again
                continue
        raise AssertionError(f"task {partition} of {side.name} was fenced again and again")

    with ThreadPoolExecutor(16) as pool:
        wrote = [[pool.submit(attempt, side, partition) for partition in range(8)] for side in sides]
    results = [[each.result() for each in tasks] for tasks in wrote]
    (winner,) = [at for at, tasks in enumerate(results) if any(tasks)]
    assert all(results[winner])
    sides[winner].commit(0, results[winner])
    name = sides[winner].name.encode()
    assert sorted(committed(client, sides[0].topic), key=str) == [b"%s-%d" % (name, at) for at in range(8)]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", ["begin", "send_positions", "commit"])
def test_whoever_dies_while_it_claims_a_sink_is_in_nobodys_way(
    query: Callable[..., Query], client: SyncClient, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    owner, write = query("owner"), Owner._write

    async def dies(self: Owner, topic: str) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Producer, step, dying(Producer, step, 1, before=before))
            await write(self, topic)

    with monkeypatch.context() as patched:
        patched.setattr(Owner, "_write", dies)
        with pytest.raises(Dies):
            owner.task(0, 0, [b"lost"])
    owner.write(0, [b"a"])
    refused(query("other"), 0, 2)
    assert committed(client, owner.topic) == [b"a"]


def test_a_claim_that_comes_too_late_is_fenced_and_its_query_refused(
    query: Callable[..., Query], client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = query("owner"), query("other")
    list_groups = Admin.list_groups

    async def meanwhile(self: Admin, *args: Any, **kwargs: Any) -> Any:
        """The owner claims while the other is about to."""
        monkeypatch.setattr(Admin, "list_groups", list_groups)
        await Owner(session(owner.options.connection), owner.options, owner.sink_id, "owner", 0).claim(owner.topic)
        return await list_groups(self, *args, **kwargs)

    monkeypatch.setattr(Admin, "list_groups", meanwhile)
    refused(other, 0, 2)
    owner.write(0, [b"a"])
    assert committed(client, owner.topic) == [b"a"]


@PROTOCOLS
def test_a_record_that_has_expired_is_written_anew_by_the_query_whose_markers_are_there(
    query: Callable[..., Query], client: SyncClient, protocol: str
) -> None:
    owner = query("owner")
    owner.write(0, [b"a"])
    client.admin.delete_group(group_of(owner.sink_id))
    refused(query("other", protocol), 1, 3)
    owner.write(1, [b"b"], [b"c"])
    refused(query("other", protocol), 2, 3)
    assert committed(client, owner.topic) == [b"a", b"b", b"c"]


def test_a_driver_decides_nothing_for_a_sink_that_came_to_be_anothers(
    query: Callable[..., Query], client: SyncClient
) -> None:
    other, owner = query("other", TWO_PHASE), query("owner", TWO_PHASE)
    prepared = other.task(0, 0, [b"of the other"])
    client.admin.delete_group(group_of(other.sink_id))
    owner.write(0, [b"a"])
    with pytest.raises(SinkInUse, match="belongs to query owner"):
        other.commit(0, [prepared])
    assert committed(client, owner.topic) == [b"a"]
