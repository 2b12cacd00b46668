"""Clients that connect more often than a broker lets them are served all the same, only later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from raftlog.testing import cluster
from tests.system.clients.confluent import produce, read_all
from tests.system.traps.raw import create_topic

RATE = "max.connection.creation.rate"
OF_LISTENER = f"listener.name.plaintext.{RATE}"


def test_clients_beyond_the_rate_wait_and_then_work() -> None:
    with cluster(settings={"quota.window.num": "2"}) as brokers:
        address = brokers.bootstrap_servers
        create_topic(address, "t")
        admin = AdminClient({"bootstrap.servers": address})
        set_to = [
            ConfigEntry(name, rate, incremental_operation=AlterConfigOpType.SET)
            for name, rate in ((RATE, "4"), (OF_LISTENER, "3"))
        ]
        broker = str(brokers.brokers[0].node_id)
        wanted = ConfigResource(ResourceType.BROKER, broker, incremental_configs=set_to)
        for altered in admin.incremental_alter_configs([wanted]).values():
            altered.result(30)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: produce(address, "t", [{"value": b"%d" % number}]), range(4)))
        assert {message.value() for message in read_all(address, "t", 4)} == {b"0", b"1", b"2", b"3"}
        (told,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, broker)]).values()
        found = told.result(30)
        source = ConfigSource.DYNAMIC_BROKER_CONFIG.value
        values = [(found[name].value, found[name].source) for name in (RATE, OF_LISTENER)]
        assert values == [("4", source), ("3", source)]
        brokers.brokers[0].stop()
        brokers.brokers[0].start()
        (told,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, broker)]).values()
        assert told.result(30)[OF_LISTENER].value == "3", "it holds after a restart"
