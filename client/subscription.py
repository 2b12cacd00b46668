"""Which topics a consumer reads, and how many partitions each had when it last looked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from raftlog.client.core.errors import Rejected
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode


class Subscription:
    """`topics`, and those whose whole names match `pattern`."""

    def __init__(self, router: Router, settings: ConsumerSettings, topics: Sequence[str], pattern: str | None) -> None:
        self.topics = frozenset(topics)
        self.pattern = pattern
        self.is_matched_by_brokers = settings.group is not None and settings.protocol == "consumer"
        """The pattern is one of RE2 then, and means nothing here (KIP-848)."""
        self._router = router
        self._has_group = settings.group is not None
        self._seen: Mapping[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern)

    def names(self) -> frozenset[str]:
        """As far as they are known here."""
        if self.pattern is None or self.is_matched_by_brokers:
            return self.topics
        matching = re.compile(self.pattern)
        return self.topics | {name for name in self._router.known.topics if matching.fullmatch(name)}

    async def look(self) -> Mapping[str, int]:
        """Ask the brokers; returns how many partitions each topic had at the last look.

        What is known may have been asked for by others meanwhile, so it is not what to compare with.
        """
        await self._ask()
        before, known = self._seen, self._router.known
        self._seen = {name: known.partition_count(name) for name in self.names()}
        return before

    async def _ask(self) -> None:
        wanted = None if self.pattern is not None else sorted(self.topics)
        await self._router.retrying(lambda: self._router.metadata(wanted))
        missing = [name for name in self.topics if name not in self._router.known.topics]
        if missing and not self._has_group:
            code = self._router.known.errors.get(missing[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise Rejected(code, f"topic {missing[0]!r}")
