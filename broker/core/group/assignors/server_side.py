"""The assignors that a broker has, by the names that consumers and `group.consumer.assignors` give them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from raftlog.broker.core.group.assignors.assignor import Assignor
from raftlog.broker.core.group.assignors.range import assign_ranges
from raftlog.broker.core.group.assignors.uniform import assign_uniformly

SERVER_ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""The first one serves members that name none."""
