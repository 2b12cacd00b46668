"""Addresses as people write them: `host:port`, `[::1]:9092`, several with commas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """One address; the port may be left out (9092). Raises ValueError with what is wrong."""
    text = text.strip()
    if "://" in text:
        scheme, _, text = text.partition("://")
        if scheme.upper() != "PLAINTEXT":
            raise ValueError(f"{scheme}:// is not supported, only PLAINTEXT://")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address like [::1]:9092")
    elif text.count(":") > 1:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, like [::1]:9092")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"{text!r} has no host name")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r}: {port!r} is not a port from 1 to 65535")
    return Address(host, int(port))


def parse_addresses(given: str | Iterable[Address | str]) -> list[Address]:
    """A bootstrap list, as one text or one by one. Raises ValueError or TypeError with what is wrong."""
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise TypeError(f"addresses are text like 'host:9092', and this is {given!r}")
    parts = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else list(given)
    for part in parts:
        if not isinstance(part, str | Address):
            raise TypeError(f"an address is text like 'host:9092', and this is {part!r}")
    if not parts:
        raise ValueError("no address is given")
    return [parse_address(part) if isinstance(part, str) else part for part in parts]
