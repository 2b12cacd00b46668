"""ApiVersions (key 18), v0 to v4.

Client software name and version (KIP-511, v3), supported features (KIP-584, v3). The response has header v0 in
every version. A request of a version that we do not know is answered in the form of v0 with
UNSUPPORTED_VERSION and the ranges, so that the client can ask again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from raftlog.broker.api.context import RequestContext, responds
from raftlog.broker.api.handlers import served_apis
from raftlog.metadata.feature_levels import SUPPORTED_FEATURES
from raftlog.metadata.image import MetadataImage
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_LOWEST_LEVEL_ZERO_FROM = 4
"""Clients of older versions take a range that begins with 0 for a broken answer (KIP-584)."""

# KIP-511: what a client may call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@responds
def handle(context: RequestContext, request: ApiVersionsRequest) -> bytes:
    """The ranges of versions that we serve."""
    version = context.api_version
    if version >= 3:
        name, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version)
        context.connection.software = f"{name} {software_version}"
        return _with_features(version, context.services.controller.image)
    return _ranges(version, ErrorCode.NONE)


def unsupported_version() -> bytes:
    """The answer to a version that we do not know: the body of v0."""
    return _ranges(0, ErrorCode.UNSUPPORTED_VERSION)


@functools.cache
def _keys() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
        for api in served_apis()
    ]


@functools.cache
def _ranges(version: int, error: ErrorCode) -> bytes:
    return encode(ApiVersionsResponse(error_code=error, api_keys=_keys()), version)


_encoded: dict[int, tuple[Mapping[str, int], bytes]] = {}
"""By version: the levels of features that an encoded answer tells, and the answer."""


def _with_features(version: int, image: MetadataImage) -> bytes:
    known = _encoded.get(version)
    if known is None or known[0] is not image.features:
        response = ApiVersionsResponse(
            api_keys=_keys(),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
                if low > 0 or version >= _LOWEST_LEVEL_ZERO_FROM
            ],
            finalized_features_epoch=image.version,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in image.features.items()
            ],
        )
        known = _encoded[version] = (image.features, encode(response, version))
    return known[1]
