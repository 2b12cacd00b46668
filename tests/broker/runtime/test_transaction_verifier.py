"""What a broker asks of transaction coordinators while several requests are under way to one of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from raftlog.broker.core.coordinator.shared import TRANSACTION_TOPIC
from raftlog.broker.runtime.transaction_verifier import (
    REQUESTS_MAX,
    ClientAbility,
    PartitionErrors,
    Transaction,
    TransactionVerifier,
)
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId

PLACE = ("orders", 0)


class Busy:
    """A verifier whose coordinator has as many requests to answer as it may have."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        sender = SimpleNamespace(send=lambda broker, request, version, respond: self.sent.append(respond))
        image: Any = SimpleNamespace(
            topics={TRANSACTION_TOPIC: SimpleNamespace(partitions=[SimpleNamespace(leader=1)])},
            brokers={1: SimpleNamespace(fenced=False)},
        )
        requests: Any = SimpleNamespace(sender=lambda name, seconds: sender)
        loop: Any = asyncio.new_event_loop()
        loop.close()
        self.verifier = TransactionVerifier(loop, requests, lambda: image)
        for number in range(REQUESTS_MAX):
            self.ask(number, 0, name=f"other-{number}")

    def ask(self, producer_id: int, epoch: int, *, name: str = "transfer") -> list[ErrorCode]:
        """Whose transaction it is; the list gets the answer."""
        answers: list[ErrorCode] = []

        def answered(errors: PartitionErrors) -> None:
            answers.append(errors[PLACE])

        transaction = Transaction(name, ProducerId(producer_id), ProducerEpoch(epoch))
        self.verifier.verify(transaction, [PLACE], ClientAbility.ADDS_PARTITIONS, answered)
        return answers


def test_of_two_epochs_that_wait_the_lower_one_is_fenced_whoever_came_first() -> None:
    busy = Busy()
    first = busy.ask(70, 5)
    assert busy.ask(70, 4) == [ErrorCode.INVALID_PRODUCER_EPOCH] and first == []
    assert busy.ask(70, 6) == [] and first == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_the_epoch_of_an_earlier_producer_id_does_not_fence_the_one_that_followed() -> None:
    """A transactional id gets another producer id, which begins with epoch 0, when the epochs are used up."""
    busy = Busy()
    earlier = busy.ask(70, 32_766)
    later = busy.ask(71, 0)
    assert later == [] and earlier == [ErrorCode.NETWORK_EXCEPTION]
    assert busy.ask(70, 32_766) == [] and later == [ErrorCode.NETWORK_EXCEPTION]
