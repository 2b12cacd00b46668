"""transaction.version is changed, down and up, while faults happen and transactions are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from raftlog.linearizability.simulator.cluster.kafka_port import KafkaClient
from raftlog.linearizability.simulator.cluster.simulated_broker import KAFKA_PORT, host_of
from raftlog.linearizability.simulator.cluster.transactional_client import TransactionalProducer
from raftlog.linearizability.simulator.cluster.workloads.transfers import Transfers
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext, name_of
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

FEATURE = "transaction.version"
LEVELS = (0, 1, 2)
ASK_VERSION, UPDATE_VERSION = 4, 2
UPGRADE, SAFE_DOWNGRADE = 1, 2
UPDATE_MS = 3000
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
"""Levels, and all other metadata, are in snapshots too: usual runs are too short for one."""
FOLLOW_CHANCE = 0.7
"""How often a producer asks for the level before it begins: Java's learns of it with its next connection."""


class Versions(Transfers):
    """As Transfers, with producers that follow the level, some of them late. In the end all brokers tell one level, and
    then the one that was set last.
    """

    kind = "versions"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self._last = self.random.choice(LEVELS)

    def others(self, version: int) -> Sequence[Coroutine[None, None, None]]:
        """See Transfers."""
        return (self._change(),)

    async def prepare(self, producer: TransactionalProducer) -> None:
        """See Transfers."""
        level = await self._level() if producer.random.random() < FOLLOW_CHANCE else None
        if level is None:
            return
        version = 2 if level >= 2 else 1
        if version != producer.version:
            self.count("producers that changed their version")
            producer.version = version
            if version == 2:
                # Java's takes a new epoch, too. Else markers of its last transaction, which it did not wait for and
                # which have its epoch, would end the next one where it writes before they come.
                await producer.initialize()

    async def _change(self) -> None:
        while not self.context.calm():
            if await self._set(self.random.choice(LEVELS)):
                self.count("levels set")
            await asyncio.sleep(0.05 + 0.6 * self.random.random())
        # What was given up may still be carried out for so long.
        await asyncio.sleep(UPDATE_MS / 1000)
        # Whoever lost the level would get it again with the last one.
        while len(await self._told()) != 1:
            await asyncio.sleep(0.1)
        while not await self._set(self._last):
            await asyncio.sleep(0.1)
        while await self._told() != {self._last}:
            await asyncio.sleep(0.1)

    async def _set(self, level: int) -> bool:
        """Whether it is known to be set."""
        found = await self._level()
        if found is None or found == level:
            return found is not None
        kind = UPGRADE if level > found else SAFE_DOWNGRADE
        key = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(timeout_ms=UPDATE_MS, feature_updates=[key])
        answer = await self.ask(request, UPDATE_VERSION)
        return answer is not None and name_of(answer.error_code) == "NONE"

    async def _told(self) -> set[int | None]:
        """The levels that brokers tell; None is among them if one does not."""
        ways = [await self.connected(self.ways, (host_of(node), KAFKA_PORT)) for node in self.context.nodes]
        return {await self._level(client) if client is not None else None for client in ways}

    async def _level(self, client: KafkaClient | None = None) -> int | None:
        """The level as that broker tells it, or any; None when it does not."""
        request = ApiVersionsRequest(client_software_name="simulated", client_software_version="1")
        answer = await self.ask(request, ASK_VERSION, client)
        if answer is None:
            return None
        return next((each.max_version_level for each in answer.finalized_features if each.name == FEATURE), 0)
