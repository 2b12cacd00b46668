"""SaslHandshake (key 17): the client picks a SASL mechanism (KIP-43).

Versions 0-1, never flexible.

0: bare SASL tokens follow.
1: SaslAuthenticate requests follow (KIP-152).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1)):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
