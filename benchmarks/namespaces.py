"""Hosts on one machine: network namespaces behind a bridge, whose links can be cut in one direction, without a word.

A cut host sends to a hardware address that nobody has, so that neither end is told. Linux and root only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

NOBODY = "02:00:00:00:00:fe"
"""A hardware address that no host here has."""


def can_be_made() -> bool:
    """Whether this process may make namespaces."""
    return shutil.which("ip") is not None and os.geteuid() == 0 and _tried()


def _tried() -> bool:
    name = f"rl{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    return subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False).returncode == 0


def _ip(*arguments: str, inside: str | None = None) -> None:
    subprocess.run(["ip", *(["-n", inside] if inside else []), *arguments], check=True, capture_output=True)


class Network:
    """Hosts by number, 10.77.0.NUMBER each."""

    def __init__(self) -> None:
        self._prefix = f"rl{os.getpid()}"
        self._hub = f"{self._prefix}hub"

    def _name(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    @staticmethod
    def address(host: int) -> str:
        """Where a host is."""
        return f"10.77.0.{host}"

    def add(self, host: int) -> None:
        """A host, connected with all others."""
        name, port = self._name(host), f"p{host}"
        _ip("netns", "add", name)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name, inside=self._hub)
        _ip("link", "set", port, "master", "hub", "up", inside=self._hub)
        _ip("addr", "add", f"{self.address(host)}/24", "dev", "eth0", inside=name)
        _ip("link", "set", "eth0", "up", inside=name)
        _ip("link", "set", "lo", "up", inside=name)

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """What runs a command on a host."""
        return ["ip", "netns", "exec", self._name(host), *command]

    def start(self, host: int, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A process on a host."""
        return subprocess.Popen(self.command(host, command), **options)

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        """Lose all that goes from one host to another."""
        for source, target in links:
            arguments = ("neigh", "replace", self.address(target), "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
            _ip(*arguments, inside=self._name(source))

    def heal(self, links: Iterable[tuple[int, int]]) -> None:
        """Lose nothing any more, on all links at about the same time."""
        healing = [
            subprocess.Popen(["ip", "-n", self._name(source), "neigh", "del", self.address(target), "dev", "eth0"])
            for source, target in links
        ]
        if sum(abs(each.wait()) for each in healing):
            raise RuntimeError("a link was not healed")


@contextmanager
def network(hosts: Iterable[int]) -> Iterator[Network]:
    """A network for as long as the block lasts."""
    made, numbers = Network(), list(hosts)
    names = [made._hub, *map(made._name, numbers)]
    try:
        _ip("netns", "add", made._hub)
        _ip("link", "add", "hub", "type", "bridge", inside=made._hub)
        _ip("link", "set", "hub", "up", inside=made._hub)
        for host in numbers:
            made.add(host)
        yield made
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
