"""ListConfigResources (key 74): resources that have a configuration.

Versions 0-1, flexible.

0: client metrics subscriptions, then named ListClientMetricsResources (KIP-714).
1: resources of every type (KIP-1142).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, api_key=74, versions=(0, 1), flexible=0):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
