"""Why a client call failed, as one small tree of exceptions, each with what can be done about it."""

from __future__ import annotations

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

    @property
    def advice(self) -> str:
        """What to do about it, in a sentence, or nothing."""
        if self.in_doubt:
            return DOUBT
        if self.code is not None and self.code in ADVICE:
            return ADVICE[self.code]
        if self.fatal:
            return "close this client and make a new one"
        if self.abortable:
            return "abort the transaction and begin again"
        return "try again, or allow more time" if self.retriable else ""


FENCED = (
    "another producer has the same transactional_id, or the transaction took longer than transaction_timeout; "
    "close this one"
)
DOUBT = "an attempt to commit was not answered and may have succeeded: look what was committed before it is sent again"
ADVICE: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or look whether its name is written right",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise max.message.bytes of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for: are brokers down?",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "stored, but on too few replicas: are brokers down?",
    ErrorCode.OFFSET_OUT_OF_RANGE: "seek to an offset that is there, or set auto_offset_reset",
    ErrorCode.INVALID_PRODUCER_EPOCH: FENCED,
    ErrorCode.PRODUCER_FENCED: FENCED,
    ErrorCode.FENCED_INSTANCE_ID: "another member has the same group_instance_id; give each its own",
    ErrorCode.UNRELEASED_INSTANCE_ID: "the earlier member with this group_instance_id still holds it: stop it, or wait",
    ErrorCode.ILLEGAL_GENERATION: "the group has moved on: whoever has the partition now reads again",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has moved on: whoever has the partition now reads again",
    ErrorCode.GROUP_ID_NOT_FOUND: "look whether the group's name is written right",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "all members of a group need an assignor in common",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "choose a transaction_timeout below the brokers' transaction.max.timeout.ms",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "are most brokers up?",
}

ALWAYS_FATAL = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
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

    def __init__(self, addresses: list[str], reason: str) -> None:
        super().__init__(f"no broker answers at {', '.join(addresses)} ({reason})")
        self.addresses = addresses
        self.reason = reason
        self.broker = addresses[0] if len(addresses) == 1 else None


class TimedOut(KafkaError):
    """The brokers did not do it in time; it may still happen later."""

    retriable = True


class BufferFull(TimedOut):
    """There was no room for another record: the brokers take less than is sent."""


class NotKafka(KafkaError):
    """Whatever listens there does not speak the Kafka protocol, or no version of a request that we speak."""


class Closed(KafkaError):
    """The client, producer or consumer was closed."""


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


class TransactionFailed(KafkaError):
    """The transaction cannot be committed any more: it has to be aborted. The first failure is its `__cause__`."""

    abortable = True

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(f"the transaction has to be aborted: {cause}")
        self.__cause__ = cause
        self.code = cause.code
        self.broker = cause.broker


class WrongState(KafkaError):
    """A call that the state of the producer or consumer does not allow, such as a send outside a transaction."""


class DamagedRecords(KafkaError):
    """A batch came over the wire damaged, or lies damaged in the log: `topic`, `partition` and its `offset`.

    `next_offset`: where to seek to read on behind it; the next one, when its header is damaged too.
    """

    def __init__(self, topic: str, partition: int, offset: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(f"{topic}[{partition}]: the batch at offset {offset} is damaged: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1 if next_offset is None else next_offset


class NoOffset(KafkaError):
    """Partitions without a committed offset, or whose offset is gone, and no reset policy (auto_offset_reset)."""

    def __init__(self, partitions: list[tuple[str, int]]) -> None:
        names = ", ".join(f"{topic}[{index}]" for topic, index in partitions)
        super().__init__(f"{names}: there is no offset to begin at, and auto_offset_reset is 'none'")
        self.partitions = partitions


class MissingExtra(KafkaError):
    """A form that needs packages which are not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages: pip install 'raftlog[{extra}]'")


def check(code: int, subject: str, detail: str | None = None) -> None:
    """Raise Rejected for any error code but NONE."""
    if code != ErrorCode.NONE:
        raise Rejected(ErrorCode.of(code), subject, detail)
