"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152).

Versions 0-2, flexible from 2.

1: session lifetime (KIP-368).
2: compact lengths and tagged fields (KIP-482).
"""

from __future__ import annotations

from raftlog.wire.schema import Bytes, Message, binary, int16, int64, string


class SaslAuthenticateRequest(Message, api_key=36, versions=(0, 2), flexible=2):
    auth_bytes: Bytes = binary()


class SaslAuthenticateResponse(Message, api_key=36, versions=(0, 2), flexible=2):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: Bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)
