"""What a run is: everything that decides it, as it was asked for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

SYSTEMS = ("raftlog", "kafka")
LIBRARIES = ("confluent", "aiokafka", "raftlog")
OUR_LIBRARIES = ("raftlog",)
"""Those that speak version 2 of transactions (KIP-890)."""
CLIENTS_PER_BROKER = 2
SECONDS_MIN = 1.0


@dataclass(slots=True)
class RunSettings:
    """`rate`: operations a second of all clients together. `settings`: the brokers'; `options`: the workload's."""

    workload: str
    fault: str = "none"
    system: str = "raftlog"
    seconds: float = 60.0
    brokers: int = 3
    clients: int = 6
    rate: float = 60.0
    seed: int = 0
    libraries: tuple[str, ...] = LIBRARIES
    settings: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    final_seconds: float = 20.0
    mutant: str = ""
    """One of the simulator's, which is in the code of all brokers and clients."""
    directory: Path = Path("verify")

    @property
    def command(self) -> str:
        """The command line that runs it again."""
        words = ["raftlog", "verify", "--workload", self.workload, "--fault", self.fault, "--seed", str(self.seed)]
        words += ["--time", f"{self.seconds:g}", "--brokers", str(self.brokers), "--clients", str(self.clients)]
        words += ["--rate", f"{self.rate:g}"]
        if self.system != "raftlog":
            words += ["--system", self.system]
        if self.libraries != LIBRARIES:
            words += ["--libraries", ",".join(self.libraries)]
        for flag, values in (("--set", self.settings), ("--option", self.options)):
            for key, value in values.items():
                words += [flag, f"{key}={value}"]
        if self.mutant:
            words += ["--mutant", self.mutant]
        return shlex.join(words)
