"""Requests to a broker, and what it answered, in words that are the same whoever answers.

Names that only one run has lose that part, ids become what they stand for, and lists are sorted. What says when or
who (times, producer ids) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.schema import ZERO_UUID, Message, Struct
from tests.system.traps.raw import Closed, RawConnection, create_topic
from tests.waiting import wait_until

GROUP, TRANSACTION = 0, 1
UNKNOWN_TOPIC_ID = b"\1" * 16
# Whoever gets one of these asks again.
PASSING = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS")
BARE = ("name", "topic", "feature", "group_id", "transactional_id", "resource_name", "member_id", "partition_index")
LEFT_OUT = {
    *("throttle_time_ms", "producer_id", "last_timestamp", "transaction_start_time_ms", "log_append_time_ms"),
    *("client_host", "documentation", "member_metadata"),
}
GENERATED = re.compile(r"[0-9A-Za-z_-]{22}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What a broker puts into the id of a member."""


class Asker:
    """One chapter of questions. What is `told` is a line for each: the question's label and the answer in words."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.told: dict[str, str] = {}
        self.counts_partitions = False
        """Whether only the number of partitions is told, where it is open which."""
        self._connection = RawConnection(address)
        self._run = uuid4().hex[:8]
        self._topics = {ZERO_UUID: "zeros", UNKNOWN_TOPIC_ID: "unknown"}
        self._members: dict[str, str] = {}
        self._without: frozenset[str] = frozenset()
        for kind in (GROUP, TRANSACTION):
            self.quietly(FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4)

    def close(self) -> None:
        self._connection.socket.close()

    # ── names ─────────────────────────────────────────────────────────────────────────────────────────────

    def name(self, what: str) -> str:
        """A name that only this run has."""
        return f"{what}-{self._run}"

    def is_ours(self, name: str) -> bool:
        return self._run in name

    def topic(self, what: str, partitions: int) -> str:
        """Make a topic."""
        name = self.name(what)
        self._topics[create_topic(self.address, name, partitions=partitions)] = what
        return name

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that was made; of another name one that no topic has."""
        what = name.removesuffix(f"-{self._run}")
        return next((key for key, known in self._topics.items() if known == what), UNKNOWN_TOPIC_ID)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────

    def quietly(self, request: Message, version: int) -> Any:
        """The answer, when it is not one that passes."""
        found: list[Any] = []

        def is_answered() -> bool:
            found[:] = [self._connection.ask(request, version)]
            known = dict(self._members)
            words = self.words(found[0])
            self._members = known  # groups of others, which are in the answer, have no number
            return not any(error in words for error in PASSING)

        wait_until(is_answered, f"an answer that lasts to {type(request).__name__}")
        return found[0]

    def ask(
        self,
        label: str,
        request: Message,
        version: int,
        *,
        without: tuple[str, ...] = (),
        trim: Callable[[Any], None] | None = None,
    ) -> Any:
        """Ask, and tell what was answered, but for the fields `without`, and without what `trim` takes away."""
        assert label not in self.told and ": " not in label, label
        try:
            answer = self.quietly(request, version)
        except Closed:
            self._connection = RawConnection(self.address)
            self.told[label] = "the connection is closed"
            return None
        if trim is not None:
            trim(answer)
        self._without = frozenset(without)
        self.told[label] = self.words(answer)
        self._without = frozenset()
        return answer

    def producer(self, name: str | None) -> tuple[int, int]:
        """The id and epoch of a new producer."""
        answer = self.quietly(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        assert answer.error_code == ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    # ── words ─────────────────────────────────────────────────────────────────────────────────────────────

    def words(self, value: Any) -> str:
        """What a part of an answer says."""
        if isinstance(value, Struct):
            text = " ".join(filter(None, (self._field(value, name) for name in _names(value))))
            return text if isinstance(value, Message) else f"({text})"
        if isinstance(value, list):
            parts = sorted(value) if value and isinstance(value[0], int) else sorted(map(self.words, value))
            return f"[{', '.join(map(str, parts))}]"
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._topics.get(bytes(value)) or f"{len(value)} bytes"
        return str(value)

    def _field(self, struct: Struct, name: str) -> str:
        value = getattr(struct, name)
        if name in LEFT_OUT or name in self._without:
            return ""
        if name.endswith("error_code"):
            return ErrorCode.of(value).name
        if name in BARE and value is not None:
            return self.words(value)
        if name == "partitions" and self.counts_partitions:
            return f"{len(value)} partitions"
        nothing = value is None or value is False or value in ("", [], -1, -(2**31))
        return "" if nothing else f"{name}={self.words(value)}"

    def _text(self, text: str) -> str:
        if GENERATED.search(text) and " " not in text:
            text = self._members.setdefault(text, f"c{len(self._members) + 1}")
        return text.replace(f"-{self._run}", "")


def _names(struct: Struct) -> list[str]:
    """The fields: what the struct is about, what was wrong, and the others."""
    names = [field.name for field in struct.__fields__]
    first = [name for name in (*BARE, "error_code", "partition_error_code") if name in names]
    return [*first, *(name for name in names if name not in first)]
