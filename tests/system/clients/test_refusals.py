"""What there is not yet is refused in a way that every client understands: at once, in words, and for good."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from tests.conftest import Broker
from tests.system.clients.confluent import producer

DEADLINE_SECONDS = 30


@pytest.fixture(autouse=True)
def _is_raftlog(broker: Broker) -> None:
    if broker.process is None:
        pytest.skip("another broker may have it")


def test_librdkafka_gives_up_transactions_at_once(broker: Broker, name: str) -> None:
    client = producer(broker.bootstrap_servers, transactional_id=name)
    with pytest.raises(KafkaException, match="not supported by this broker") as raised:
        client.init_transactions(DEADLINE_SECONDS)  # a retried error would only end here
    error: KafkaError = raised.value.args[0]
    assert error.fatal() and error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_aiokafka_gives_up_transactions_at_once(broker: Broker, name: str) -> None:
    async def start() -> None:
        client = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name)
        try:
            await asyncio.wait_for(client.start(), DEADLINE_SECONDS)
        finally:
            await client.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(start())


def test_kafka_python_gives_up_transactions_at_once(broker: Broker, name: str) -> None:
    with (
        closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name)) as client,
        pytest.raises(TransactionalIdAuthorizationFailedError),
    ):
        client.init_transactions()
