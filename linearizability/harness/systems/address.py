"""A Kafka that runs already, at an address: only clients can fail."""

from __future__ import annotations

from pathlib import Path

from raftlog.client.core.errors import KafkaError
from raftlog.linearizability.harness.systems.system import CannotStart, System


class AddressSystem(System):
    """Neither started nor stopped."""

    name = "address"
    is_ours = False

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def start(self) -> None:
        """See System."""
        try:
            self.broker_ids = tuple(sorted(each.node_id for each in self.admin.metadata([]).brokers))
        except (KafkaError, OSError, ValueError) as error:
            raise CannotStart(f"nobody answers at {self._address}: {error}") from error

    def stop(self, logs: Path) -> list[str]:
        """See System."""
        self.close_admin()
        return []

    @property
    def bootstrap(self) -> str:
        """See System."""
        return self._address

    def states(self) -> dict[int, str]:
        """See System."""
        return {}
