"""Why a client call failed, as one small tree of exceptions, each with what can be done about it."""

from __future__ import annotations

from raftlog.client.core.advice import ADVICE
from raftlog.wire.errors import ErrorCode


class KafkaError(Exception):
    """Every failure of a call to the brokers.

    `retriable`: the same call may succeed later, and was tried again until its deadline. `abortable`: the transaction
    has to be aborted, and the producer lives on. `fatal`: this producer or consumer is done, make a new one.
    `in_doubt`: what was asked may have been done all the same, by an attempt before the one that was refused.
    """

    code: ErrorCode | None = None
    retriable = False
    abortable = False
    fatal = False
    in_doubt = False
    broker: str | None = None
    """The address of the broker that said so, or that did not answer."""

    remedy = "look at the message and at its cause, then into the logs of the brokers"
    """The advice for failures of its class that have no code."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text.rstrip('.')}; {DOUBT}" if self.in_doubt else text

    @property
    def advice(self) -> str:
        """What to do about it, in a sentence."""
        if self.in_doubt:
            return "look what was done before you ask for it again"
        if self.abortable and self.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            return MAYBE_FENCED
        return self.remedy if self.code is None else ADVICE[self.code]


DOUBT = "an earlier attempt was not answered and may have succeeded"
MAYBE_FENCED = (
    "abort the transaction and begin again: ProducerFenced says so when another producer has the transactional_id"
)

ALWAYS_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)


class BrokerUnreachable(KafkaError):
    """No connection to any of `addresses` could be made or kept."""

    retriable = True
    remedy = "look whether the brokers are up, and whether their addresses are right"

    def __init__(self, addresses: list[str], reason: str) -> None:
        super().__init__(f"no broker answers at {', '.join(addresses)} ({reason})")
        self.addresses = addresses
        self.reason = reason
        self.broker = addresses[0] if len(addresses) == 1 else None


class TimedOut(KafkaError):
    """The brokers did not do it in time; it may still happen later."""

    retriable = True
    remedy = "try again, or allow more time"


class BufferFull(TimedOut):
    """There was no room for another record: the brokers take less than is sent."""

    remedy = "send less at a time, or set a greater buffer_memory"


class NotKafka(KafkaError):
    """Whatever listens there does not speak the Kafka protocol, or no version of a request that we speak."""

    remedy = "look whether the address is that of a broker, and whether it speaks TLS"


class Closed(KafkaError):
    """The client, producer or consumer was closed."""

    remedy = "make a new one"


class Rejected(KafkaError):
    """A broker answered with an error code. `subject` is what it was about, e.g. `topic 'orders'`."""

    code: ErrorCode

    def __init__(self, code: ErrorCode, subject: str, detail: str | None = None) -> None:
        about = detail or code.message
        name = subject.partition("'")[2].rpartition("'")[0] or subject
        # The broker's own sentence often names the subject already.
        super().__init__(about if name in about else f"{subject}: {about}")
        self.code = code
        self.subject = subject
        self.detail = detail
        self.retriable = code.retriable
        self.abortable = code == ErrorCode.TRANSACTION_ABORTABLE
        self.fatal = code in ALWAYS_FATAL


class ProducerFenced(Rejected):
    """A newer producer with the same transactional id has taken over. Nothing more can be sent through this one."""

    def __init__(self, code: ErrorCode, subject: str, detail: str | None = None) -> None:
        super().__init__(code, subject, detail)
        self.fatal = True

    @property
    def advice(self) -> str:
        return super().advice if self.in_doubt else ADVICE[ErrorCode.PRODUCER_FENCED]


class TransactionFailed(KafkaError):
    """The transaction cannot be committed any more: it has to be aborted. The first failure is its `__cause__`."""

    abortable = True
    remedy = "abort the transaction and begin again"

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(f"the transaction has to be aborted: {cause}")
        self.__cause__ = cause
        self.code = cause.code
        self.broker = cause.broker


class WrongState(KafkaError):
    """A call that the state of the producer or consumer does not allow, such as a send outside a transaction."""

    remedy = "put the calls into the order that the message tells"


class DamagedRecords(KafkaError):
    """A batch came over the wire damaged, or lies damaged in the log: `topic`, `partition` and its `offset`.

    `next_offset`: where to seek to read on behind it; the next one, when its header is damaged too.
    """

    remedy = "seek to next_offset to read on behind it"

    def __init__(self, topic: str, partition: int, offset: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(f"{topic}[{partition}]: the batch at offset {offset} is damaged: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1 if next_offset is None else next_offset


class NoOffset(KafkaError):
    """Partitions without a committed offset, or whose offset is gone, and no reset policy (auto_offset_reset)."""

    remedy = "seek to where to begin, or set auto_offset_reset to earliest or latest"

    def __init__(self, partitions: list[tuple[str, int]]) -> None:
        names = ", ".join(f"{topic}[{index}]" for topic, index in partitions)
        super().__init__(f"{names}: there is no offset to begin at, and auto_offset_reset is 'none'")
        self.partitions = partitions


class MissingExtra(KafkaError):
    """A form that needs packages which are not installed."""

    remedy = "install them"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages: pip install 'raftlog[{extra}]'")


def check(code: int, subject: str, detail: str | None = None) -> None:
    """Raise Rejected for any error code but NONE."""
    if code != ErrorCode.NONE:
        raise Rejected(ErrorCode.of(code), subject, detail)


class BadTable(ValueError):
    """A table that does not say records: the message names the column."""
