"""Has a running broker go by settings that are changed while it runs (KIP-226).

Which ones can be changed says their definition in `metadata` (`UpdateMode`). Those that stand in for a topic's settings
take effect in the partition manager, throttles in replication, what elections go by at the controller; the rest here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from raftlog.broker.config import BrokerConfig
from raftlog.metadata.configs import DEFAULT_BROKER, broker_definition
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import ResourceType

log = logging.getLogger("raftlog.broker")

Reconfigure = Callable[[Mapping[str, Any]], None]


class DynamicConfigs:
    """Subscribed to the controller; each of `parts` is given all settings, by Kafka's names, when one has changed."""

    def __init__(self, config: BrokerConfig, *parts: Reconfigure) -> None:
        self._config = config
        self._parts = parts
        self._resources = {(ResourceType.BROKER, name) for name in (DEFAULT_BROKER, str(config.node_id))}
        self._without_effect: dict[str, str] = {}

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a new image."""
        if self._resources.isdisjoint(delta.changed_configs):
            return
        values = self._config.with_dynamic(image)
        for reconfigure in self._parts:
            reconfigure(values)
        self._warn(self._config.resolver.dynamic_broker_configs(image))

    def _warn(self, given: Mapping[str, str]) -> None:
        """As at the start, of what was set and changes nothing."""
        before = self._without_effect
        self._without_effect = {name: text for name, text in given.items() if broker_definition(name).unsupported}
        for name, text in self._without_effect.items():
            if before.get(name) != text:
                reason = broker_definition(name).unsupported
                log.warning("settings without effect in raftlog, for %s: %s", reason, name)
