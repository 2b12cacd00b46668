"""How the links of a cluster run: which port stands for whom. Written before its processes start, read by them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from raftlog.testing.faults.directory import FaultDirectory

BROKERS_LISTENER = "BROKERS"
"""The Kafka listener that brokers use among themselves; clients have another one, behind their links."""
DIALLED = b"+"
"""What a broker that calls another one through the links' process is told when the other has answered."""
FILE = "wiring.json"


@dataclass(slots=True)
class Wiring:
    """`dial_port`: where brokers call others. `brokers`: by `host:port`, whose listener that is. `clients`: by broker,
    where clients come in, and where its listener for them is.
    """

    dial_port: int
    brokers: dict[str, int] = field(default_factory=dict)
    clients: dict[int, tuple[int, int]] = field(default_factory=dict)


def write_wiring(directory: FaultDirectory, wiring: Wiring) -> None:
    (directory.path / FILE).write_text(json.dumps(asdict(wiring)))


def read_wiring(directory: FaultDirectory) -> Wiring | None:
    """None for a cluster without links."""
    file = directory.path / FILE
    if not file.exists():
        return None
    values = json.loads(file.read_text())
    clients = {int(broker): (outer, inner) for broker, (outer, inner) in values["clients"].items()}
    return Wiring(values["dial_port"], values["brokers"], clients)
