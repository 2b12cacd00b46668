"""ListConfigResources (key 74), v0 to v1.

v0 lists client metrics subscriptions (KIP-714), of which there are none; v1 lists resources of every type that may
carry settings (KIP-1142), of groups those that have some.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.broker.api.context import RequestContext, responds
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_ALL_TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


@responds
def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Names by type; without types, all of them."""
    image = context.services.controller.image
    wanted: list[int] = [ResourceType.CLIENT_METRICS]
    if context.api_version >= 1:
        wanted = list(dict.fromkeys(request.resource_types)) or list(_ALL_TYPES)
    if any(resource_type not in _ALL_TYPES for resource_type in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in wanted
            for name in _names(image, resource_type)
        ]
    )


def _names(image: MetadataImage, resource_type: int) -> Iterable[str]:
    match resource_type:
        case ResourceType.TOPIC:
            return sorted(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case ResourceType.GROUP:
            return sorted(name for kind, name in image.configs if kind is ResourceType.GROUP)
        case _:
            return ()
