"""All brokers restarted one after the other while clients work: no client sees an error, and the gaps are short."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError

from tests.system.clients.confluent import consumer
from tests.system.cluster.world import World, Writer
from tests.waiting import wait_until

GAP_SECONDS_MAX = 3.0  # on a machine that is busy with other tests; benchmarks/cluster.py measures it


def test_a_rolling_restart_under_load_is_noticed_by_no_client(world: World, name: str) -> None:
    topic = world.create(name, 3)
    seen: list[bytes] = []
    errors: list[KafkaError] = []
    with (
        consumer(world.bootstrap, f"{name}-group") as reader,
        Writer(world.bootstrap, topic, linger_ms=5) as writer,
    ):
        reader.subscribe([topic])

        def read() -> None:
            for message in reader.consume(500, 0.05):
                error = message.error()
                if error is None:
                    seen.append(message.value() or b"")
                elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    errors.append(error)

        def progressed(count: int) -> bool:
            read()
            return len(seen) >= count

        wait_until(lambda: progressed(200), "the consumer reads")
        began = time.monotonic()
        for broker in world.cluster.brokers:
            assert broker.stop() == 0
            enough = len(seen) + 100
            wait_until(lambda enough=enough: progressed(enough), "reading goes on without a broker")  # type: ignore[misc]
            broker.start()
            world.wait_until_in_sync(topic, "__consumer_offsets")
            reader.commit(asynchronous=False)
        writer.end()
        wait_until(lambda: progressed(writer.acknowledged), "the consumer gets all")
    writer.check_no_errors()
    assert not errors, errors[:3]
    assert writer.longest_gap(began) < GAP_SECONDS_MAX
    assert set(seen) == {message.value() for message in writer.deliveries.messages}
    world.check_nothing_lost(topic, writer, 3)
