"""ApiVersions (key 18), v0 to v4.

Client software name and version (KIP-511, v3), supported features (KIP-584, v3). The response has header v0 in
every version. A request of a version that we do not know is answered in the form of v0 with
UNSUPPORTED_VERSION and the ranges, so that the client can ask again.
"""

from __future__ import annotations

import functools
import re

from raftlog.broker.api.context import RequestContext
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

# KIP-511: what a client may call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> bytes:
    """The ranges of versions that we serve."""
    version = context.api_version
    if version >= 3:
        name, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version)
        context.connection.facts = {"software": f"{name} {software_version}"}
    return _ranges(version, ErrorCode.NONE)


def unsupported_version() -> bytes:
    """The answer to a version that we do not know: the body of v0."""
    return _ranges(0, ErrorCode.UNSUPPORTED_VERSION)


@functools.cache
def _ranges(version: int, error: ErrorCode) -> bytes:
    from raftlog.broker.server.dispatcher import served_apis

    keys = [
        ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
        for api in served_apis()
    ]
    return encode(ApiVersionsResponse(error_code=error, api_keys=keys), version)
