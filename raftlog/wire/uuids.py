"""Kafka's text form of a 16-byte id: base64url without padding, 22 characters.

No ids are made here: that needs randomness, which a core does not have.
"""

from __future__ import annotations

import base64
import binascii

from raftlog.wire.schema import ZERO_UUID

__all__ = ["ZERO_UUID", "uuid_from_text", "uuid_to_text"]

_TEXT_LENGTH = 22


def uuid_to_text(identifier: bytes) -> str:
    """The 22 characters for the 16 bytes. Raises ValueError for any other length."""
    if len(identifier) != len(ZERO_UUID):
        raise ValueError(f"an id has 16 bytes, not {len(identifier)}")
    return base64.urlsafe_b64encode(identifier)[:_TEXT_LENGTH].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes for the 22 characters. Raises ValueError for a text that is not such an id.

    Strict: 22 base64 characters hold 132 bits, and a text whose 4 spare bits are set is refused, so that an
    id has exactly one text form.
    """
    if len(text) != _TEXT_LENGTH:
        raise ValueError(f"an id has 22 base64url characters, not {len(text)}: {text!r}")
    try:
        identifier = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not a base64url id: {text!r}") from error
    if len(identifier) != len(ZERO_UUID) or uuid_to_text(identifier) != text:
        raise ValueError(f"not a base64url id: {text!r}")
    return identifier
