"""`metadata`: who leads, where logs end and begin, asked while records are appended, in and out of transactions."""

from __future__ import annotations

from typing import Any

from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.offsets import EARLIEST, LATEST
from raftlog.client.sync import SyncClient
from raftlog.linearizability.harness.journal import key_of
from raftlog.linearizability.harness.libraries.ports import REQUEST_SECONDS
from raftlog.linearizability.harness.outcomes import Uncertain, by_code
from raftlog.linearizability.harness.workloads.sessions import LogSession


class MetadataSession(LogSession):
    """Sends, polls, and questions to the brokers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client: SyncClient | None = None

    def step(self) -> None:
        """See Session."""
        chance = self.random.random()
        partitions = self.all_partitions()
        if chance < 0.4:
            self.send(self.random.choice(partitions), self.value())
        elif chance < 0.5:
            self.poll()
        elif chance < 0.65:
            self.ask("leader", [key_of(each) for each in partitions], self._leaders)
        elif chance < 0.8:
            self.ask("high-watermark", [key_of(each) for each in partitions], lambda: self._ends(LATEST, False))
        elif chance < 0.9:
            self.ask("last-stable-offset", [key_of(each) for each in partitions], lambda: self._ends(LATEST, True))
        else:
            at = self.random.choice(("latest", "earliest"))
            given = {"keys": [key_of(each) for each in partitions], "at": at, "isolation": "read_uncommitted"}
            self.ask("list-offsets", given, lambda: self._ends(LATEST if at == "latest" else EARLIEST, False))

    def ask(self, function: str, given: Any, question: Any) -> None:
        """One question, recorded."""

        def call() -> Any:
            try:
                return question()
            except Rejected as error:
                raise by_code(error.code.name, str(error)) from None
            except KafkaError as error:
                raise Uncertain(str(error)) from None

        self.journal.did(function, given, call)

    def _admin(self) -> Any:
        if self._client is None:
            name = f"verify-{self.work.number}-metadata"
            self._client = SyncClient(self.work.bootstrap, client_id=name, timeout=REQUEST_SECONDS)
        return self._client.admin

    def _leaders(self) -> dict[str, Any]:
        found = {}
        for name in self.work.topics:
            for each in self._admin().topic(name).partitions:
                if each.leader_id >= 0:
                    at = {"leader": each.leader_id, "epoch": each.leader_epoch}
                    found[key_of((name, each.partition_index))] = at
        return found

    def _ends(self, at: int, read_committed: bool) -> dict[str, int]:
        found = self._admin().offsets_at(self.all_partitions(), at, read_committed=read_committed)
        return {key_of(each): offset for each, offset in found.items()}
