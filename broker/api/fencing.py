"""How a fenced producer is told, by the version of the request (KIP-588)."""

from __future__ import annotations

from raftlog.wire.errors import ErrorCode


def fencing_error(error: ErrorCode, api_version: int, producer_fenced_from: int) -> ErrorCode:
    """The error as a client of this version knows it: older ones do not know PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < producer_fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
