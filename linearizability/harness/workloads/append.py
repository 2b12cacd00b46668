"""`append`: records are sent to partitions, and read from them by consumers that assign partitions to themselves."""

from __future__ import annotations

from raftlog.linearizability.harness.workloads.sessions import LogSession

ASSIGN_PROBABILITY = 1 / 64
SEND_PROBABILITY = 0.5


class AppendSession(LogSession):
    """Half sends, half polls; now and then other partitions."""

    def step(self) -> None:
        """See Session."""
        if self.random.random() < ASSIGN_PROBABILITY:
            consumer = self.consumer()
            everything = self.all_partitions()
            chosen = self.random.sample(everything, self.random.randint(1, len(everything)))
            self.assign(consumer, sorted(chosen), beginning=self.random.random() < 0.5)
        elif self.random.random() < SEND_PROBABILITY:
            self.send(self.random.choice(self.all_partitions()), self.value())
        else:
            self.poll()
