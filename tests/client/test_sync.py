"""The blocking client: the same results, interruptions, and what it costs to import."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading

import pytest

from raftlog.client import KafkaError, Outgoing, Placed, SyncClient
from raftlog.client.admin import Admin
from raftlog.client.core.errors import Closed, TimedOut
from raftlog.client.sync import SyncAdmin, SyncConsumer, SyncProducer
from tests.client.conftest import Servers


def test_records_go_out_and_come_back(servers: Servers, name: str) -> None:
    with SyncClient(servers.bootstrap) as client:
        client.admin.create_topic(name, partitions=1)
        with client.producer() as producer:
            assert producer.send(name, b"0", key=b"k") == Placed(name, 0, 0, pytest.approx(0, abs=1 << 60))
            outcomes = producer.send_batch(name, [b"1", Outgoing(b"2")])
            assert [each.offset for each in outcomes if isinstance(each, Placed)] == [1, 2]
        with client.consumer(name, group=name, auto_offset_reset="earliest") as consumer:
            values: list[bytes | None] = []
            for batch in consumer.batches(2):
                values += [record.value for record in batch]
                assert consumer.done(batch)
                if len(values) == 3:
                    break
            consumer.commit()
            assert consumer.committed() == {(name, 0): 3} and consumer.positions == {(name, 0): 3}
            consumer.seek(name, 0, 1)
            assert next(iter(consumer)).value == b"1"
        assert client.admin.lag(name) == {(name, 0): 0} and values == [b"0", b"1", b"2"]


def test_several_threads_share_a_producer(servers: Servers, name: str) -> None:
    with SyncClient(servers.bootstrap) as client:
        client.admin.create_topic(name, partitions=1)
        with client.producer(linger=0) as producer:
            threads = [
                threading.Thread(target=lambda: [producer.send(name, b"x") for _ in range(20)]) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert client.admin.offsets_at([(name, 0)], -1) == {(name, 0): 80}


def test_a_closed_client_says_so_and_a_silent_one_is_given_up() -> None:
    client = SyncClient("127.0.0.1:1", timeout=0.5)
    with pytest.raises((TimedOut, KafkaError)):
        client.admin.metadata()
    client.close()
    with pytest.raises(Closed):
        client.admin.metadata()


def test_the_names_are_the_same() -> None:
    public = {name for name, member in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
    assert public <= set(dir(SyncAdmin)), public - set(dir(SyncAdmin))
    for name in ("send", "enqueue", "send_batch", "flush", "transaction", "begin", "commit", "abort", "close"):
        assert hasattr(SyncProducer, name)
    for name in ("poll", "batches", "seek", "seek_to_time", "pause", "resume", "commit", "committed", "lag", "close"):
        assert hasattr(SyncConsumer, name)


def test_importing_needs_no_arrays() -> None:
    script = (
        "import sys; from raftlog.client import Client, SyncClient;"
        "print([name for name in ('numpy', 'pyarrow', 'pyspark', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
