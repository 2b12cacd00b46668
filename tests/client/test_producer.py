"""What the producer does after a send whose outcome it never learned."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raftlog.client.addresses import Address, parse_address
from raftlog.client.consumer import Consumer
from raftlog.client.errors import BrokerUnreachable, Rejected, TimedOut
from raftlog.client.producer import EPOCH_MAX, Producer
from raftlog.client.router import Client
from raftlog.testing import cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import Record, parse_header
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import parse_request_header
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

TOPIC = "orders"
SHORT_SECONDS = 0.5


def records(*values: bytes) -> list[Record]:
    return [Record(offset=0, timestamp=0, key=None, value=value, headers=()) for value in values]


class ScriptedClient(Client):
    """A client whose produce requests end as the script says, one after the other.

    `sent` has the producer id, the epoch and the first sequence number of each batch that was sent.
    """

    def __init__(self, *script: BaseException | ErrorCode, epoch: int = 0) -> None:
        super().__init__([])
        self.sent: list[tuple[int, int, int]] = []
        self._script = list(script)
        self._epoch = epoch
        self._introduced = 0

    def leader(self, topic: str, partition: int) -> int:
        return 1

    def ask(self, request: Any, reply: type[Any], *, node: int = -1, wait: float = 0.0) -> Any:
        if isinstance(request, InitProducerIdRequest):
            self._introduced += 1
            return InitProducerIdResponse(producer_id=self._introduced, producer_epoch=self._epoch)
        batch = parse_header(request.topic_data[0].partition_data[0].records)
        self.sent.append((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        outcome = self._script.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        partition = PartitionProduceResponse(index=0, error_code=outcome, base_offset=len(self.sent))
        return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[partition])])


DONE = ErrorCode.NONE


@pytest.mark.parametrize(
    "failure",
    [
        TimedOut("no answer"),
        BrokerUnreachable(["b:1"], "it closed the connection"),
        KeyboardInterrupt(),
        ErrorCode.INVALID_REQUIRED_ACKS,
    ],
    ids=repr,
)
def test_after_a_send_that_failed_no_sequence_number_is_used_again(failure: BaseException | ErrorCode) -> None:
    client = ScriptedClient(DONE, failure, DONE, DONE)
    producer = Producer(client)
    producer.send(TOPIC, 0, records(b"a"))
    with pytest.raises((TimedOut, BrokerUnreachable, KeyboardInterrupt, Rejected)):
        producer.send(TOPIC, 0, records(b"b"))
    producer.send(TOPIC, 0, records(b"c", b"d"))
    producer.send(TOPIC, 0, records(b"e"))
    assert client.sent == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 2)]


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    client = ScriptedClient(TimedOut("no answer"), DONE, epoch=EPOCH_MAX)
    producer = Producer(client)
    with pytest.raises(TimedOut):
        producer.send(TOPIC, 0, records(b"a"))
    producer.send(TOPIC, 0, records(b"b"))
    assert client.sent == [(1, EPOCH_MAX, 0), (2, EPOCH_MAX, 0)]


def test_a_batch_that_is_too_large_goes_as_several_of_the_same_epoch() -> None:
    client = ScriptedClient(DONE, ErrorCode.MESSAGE_TOO_LARGE, DONE, DONE)
    producer = Producer(client)
    producer.send(TOPIC, 0, records(b"a"))
    producer.send(TOPIC, 0, records(b"b", b"c"))
    assert client.sent == [(1, 0, 0), (1, 0, 1), (1, 0, 1), (1, 0, 2)]


class Proxy:
    """Passes requests to a broker and replies back; `swallow` says of how many produce requests the reply is lost.

    A lost reply is one that the broker has given, so what was produced is stored.
    """

    def __init__(self) -> None:
        self.swallow = 0
        self.closes = False
        """Whether the connection is closed in place of the lost reply; otherwise there is silence."""
        self.broker: Address | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._pass_on, args=(client,)))
            self._threads[-1].start()

    def _pass_on(self, client: socket.socket) -> None:
        assert self.broker is not None
        with client, client.makefile("rb") as requests, socket.create_connection(self.broker) as broker:
            with broker.makefile("rb") as replies:
                while request := read_frame(requests):
                    broker.sendall(request)
                    reply = read_frame(replies)
                    if parse_request_header(request[4:]).api_key != ApiKey.PRODUCE or not self.swallow:
                        client.sendall(reply)
                        continue
                    self.swallow -= 1
                    if self.closes:
                        return

    def close(self) -> None:
        """The clients should have closed their connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


def read_frame(file: Any) -> bytes:
    """The next frame with its length, or nothing at the end."""
    length: bytes = file.read(4)
    body: bytes = file.read(int.from_bytes(length, "big"))
    return length + body


@contextmanager
def broker_behind_a_proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    try:
        with cluster(settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as running:
            proxy.broker = parse_address(running.bootstrap_servers)
            yield proxy
    finally:
        proxy.close()


def values_in_log(client: Client) -> list[bytes | None]:
    consumer = Consumer(client)
    consumer.positions[TOPIC, 0] = 0
    (end,) = consumer.offsets_at([(TOPIC, 0)], -1).values()
    values: list[bytes | None] = []
    while consumer.positions[TOPIC, 0] < end:
        values += [each.record.value for each in consumer.fetch()]
    return values


def test_records_after_one_whose_reply_was_lost_are_stored() -> None:
    with broker_behind_a_proxy() as proxy, Client([proxy.address]) as client:
        client.topic(TOPIC, create=True)
        producer = Producer(client)
        assert producer.send(TOPIC, 0, records(b"first"))[0].base_offset == 0
        client.timeout = SHORT_SECONDS
        proxy.swallow = 1
        with pytest.raises(TimedOut):
            producer.send(TOPIC, 0, records(b"outcome unknown"))
        client.timeout = 15.0
        assert producer.send(TOPIC, 0, records(b"next"))[0].base_offset == 2
        assert values_in_log(client) == [b"first", b"outcome unknown", b"next"]


def test_a_batch_whose_reply_was_lost_is_stored_once_when_it_is_sent_again() -> None:
    with broker_behind_a_proxy() as proxy, Client([proxy.address]) as client:
        client.topic(TOPIC, create=True)
        producer = Producer(client)
        proxy.swallow, proxy.closes = 2, True
        assert producer.send(TOPIC, 0, records(b"first"))[0].base_offset == 0
        assert producer.send(TOPIC, 0, records(b"next"))[0].base_offset == 1
        assert values_in_log(client) == [b"first", b"next"]
