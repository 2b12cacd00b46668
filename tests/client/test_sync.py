"""The blocking client: the same results, interruptions, and what it costs to import."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raftlog.client import (
    Admin,
    Client,
    Closed,
    Consumer,
    KafkaError,
    Outgoing,
    Placed,
    Position,
    Producer,
    SyncAdmin,
    SyncClient,
    SyncConsumer,
    SyncProducer,
    TimedOut,
)
from tests.client.conftest import Servers
from tests.programs import printed_by


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


def test_a_loop_over_records_that_was_left_goes_on_where_it_was(servers: Servers, name: str) -> None:
    """What came with the last record is not lost, and what was asked for after is done."""
    with SyncClient(servers.bootstrap) as client:
        client.admin.create_topic(name, partitions=1)
        with client.producer() as producer:
            producer.send_batch(name, [b"%d" % n for n in range(10)])
        with client.consumer(name, group=name, auto_offset_reset="earliest") as consumer:
            found: list[bytes | None] = []
            for end in (3, 4, 7):
                for record in consumer:
                    found.append(record.value)
                    if len(found) == end:
                        break
            assert found == [b"%d" % n for n in range(7)]
        assert client.admin.committed_offsets(name) == {(name, 0): 6}  # nobody asked for the one behind it
        with client.consumer(name, group=name) as consumer:
            assert next(iter(consumer)).value == b"6"
            consumer.commit()
            assert consumer.committed() == {(name, 0): 7}


def test_a_client_that_cannot_be_made_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no address"):
        SyncClient("")
    assert threading.active_count() == before


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


def test_who_waits_in_another_thread_is_told_that_the_client_was_closed() -> None:
    client = SyncClient("127.0.0.1:1", timeout=0.5)
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(lambda: client.run(wait()))
        assert begun.wait(20)
        client.close()
        with pytest.raises(Closed, match="closed meanwhile"):
            waiting.result(20)


# What only code in the event loop can use, or what blocking code has in another form.
ONLY_WITH_ASYNCIO = {
    "Client": {"router"},
    "Consumer": {"on_assigned", "on_revoked", "on_lost", "check_invariants", "break_off", "finish_current"},
    "Producer": {"check_invariants"},
}


def parameters(function: Any) -> list[str]:
    return [str(each) for each in inspect.signature(function).parameters.values()]


def test_names_and_parameters_are_the_same() -> None:
    with SyncClient("127.0.0.1:1") as client, client.producer(transactional_id="it") as producer:
        consumer = client.consumer("orders")
        blocking = [client, client.admin, producer, consumer, producer.transaction()]
        plain = [client.inner, client.inner.admin, producer.inner, consumer.inner, producer.inner.transaction()]
        for ours, theirs in zip(blocking, plain, strict=True):
            names = {name for name in dir(theirs) if not name.startswith("_")}
            names -= ONLY_WITH_ASYNCIO.get(type(theirs).__name__, set())
            assert names <= set(dir(ours)), (type(ours), names - set(dir(ours)))
            for name in names:
                if inspect.isfunction(getattr(type(theirs), name, None)):
                    assert parameters(getattr(ours, name)) == parameters(getattr(theirs, name)), (type(ours), name)
    assert parameters(SyncClient) == parameters(Client)


def test_an_editor_shows_what_a_blocking_method_does() -> None:
    for other, blocking in ((Consumer, SyncConsumer), (Producer, SyncProducer), (Admin, SyncAdmin)):
        for name, method in inspect.getmembers(other, inspect.isfunction):
            if not name.startswith("_") and method.__doc__ and hasattr(blocking, name):
                assert getattr(blocking, name).__doc__, f"{blocking.__name__}.{name}"


def test_a_client_with_tls_begins_with_a_handshake() -> None:
    handshake = b"\x16\x03"
    for kind in ("blocking", "asyncio"):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(20)
            host, port = listener.getsockname()
            address, context = f"{host}:{port}", ssl.create_default_context()
            with ThreadPoolExecutor(1) as pool:
                asking = pool.submit(ask_once, kind, address, context)
                connection, _ = listener.accept()
                with connection:
                    assert connection.recv(2, socket.MSG_WAITALL) == handshake
                assert isinstance(asking.exception(), KafkaError)


def ask_once(kind: str, address: str, context: ssl.SSLContext) -> None:
    if kind == "blocking":
        with SyncClient(address, timeout=2, tls=context) as client:
            client.admin.metadata()
    else:

        async def ask() -> None:
            async with Client(address, timeout=2, tls=context) as client:
                await client.admin.metadata()

        asyncio.run(ask())


def test_a_transaction_commits_positions_with_words_of_ones_own(servers: Servers, name: str) -> None:
    with SyncClient(servers.bootstrap) as client:
        client.admin.create_topic(name, partitions=1)
        with client.producer(transactional_id=name) as producer:
            with producer.transaction():
                producer.send_positions({(name, 0): Position(7, metadata="seven")}, name)
        with client.consumer(name, group=name) as consumer:
            assert consumer.committed((name, 0)) == {(name, 0): 7}


def test_what_is_not_closed_ends_with_its_client_without_a_word(servers: Servers, name: str) -> None:
    script = (
        "import sys; from raftlog.client import SyncClient; client = SyncClient(sys.argv[1]);"
        "client.admin.create_topic(sys.argv[2], partitions=1);"
        "reader = client.consumer(sys.argv[2]); reader.start(); reader.poll(timeout=0.01);"
        "member = client.consumer(sys.argv[2], group=sys.argv[2]); member.start(); member.poll(timeout=0.01);"
        "writer = client.producer(); writer.send(sys.argv[2], b'x');"
        "client.close()"
    )
    command = [sys.executable, "-c", script, servers.bootstrap, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_all_names_can_be_imported_without_arrays() -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('numpy', 'pyarrow', 'pandas')));"
        "from raftlog.client import *; print(TableDelivery.__name__)"
    )
    assert printed_by(script) == "TableDelivery"


def test_importing_needs_no_arrays() -> None:
    script = (
        "import sys; from raftlog.client import Client, SyncClient;"
        "print([name for name in ('numpy', 'pyarrow', 'pyspark', 'pandas') if name in sys.modules])"
    )
    assert printed_by(script) == "[]"
