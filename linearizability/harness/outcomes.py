"""What became of a call: it happened (it returns), it did not (`Refused`), or nobody knows (`Uncertain`).

After Jepsen's mapping for Kafka: what a broker refuses before it does anything is definite, and whatever may have been
written is not. NOT_LEADER_OR_FOLLOWER may have been written (KAFKA-13574), and so may all that timed out.
"""

from __future__ import annotations

DEFINITE = frozenset({
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED",
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION",
    "NOT_CONTROLLER", "BROKER_NOT_AVAILABLE", "INVALID_REPLICATION_FACTOR", "MESSAGE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "POLICY_VIOLATION", "NOT_ENOUGH_REPLICAS",
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID", "FENCED_MEMBER_EPOCH",
    "STALE_MEMBER_EPOCH", "INVALID_PRODUCER_ID_MAPPING",
})  # fmt: skip
"""Error codes by which a broker says that it has done nothing and will not."""
FENCING = frozenset({
    "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "FENCED_INSTANCE_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_ID_MAPPING",
})  # fmt: skip
"""After these a client is of no use any more."""


class CallFailed(Exception):
    """A client's call did not return what was asked for. `is_fatal`: the client has to be made anew."""

    def __init__(self, words: str, *, is_fatal: bool = False) -> None:
        super().__init__(words)
        self.is_fatal = is_fatal


class Refused(CallFailed):
    """It did not happen and never will."""


class Uncertain(CallFailed):
    """It may have happened, or may yet."""


def of_end(failed: CallFailed) -> CallFailed:
    """What became of a commit or an abort by a library that asks again by itself when it is not answered, and does not
    say so: where it is fenced then, the end may have come before. The producer is not trusted with another transaction.
    """
    kind = Uncertain if failed.is_fatal else type(failed)
    return kind(str(failed), is_fatal=True)


def by_code(code: str, words: str, *, is_fatal: bool = False) -> CallFailed:
    """The outcome that an error code stands for; `code` is Kafka's name, or the client's own word."""
    text = f"{code}: {words}" if words and words != code else code
    if code in DEFINITE:
        return Refused(text, is_fatal=is_fatal or code in FENCING)
    return Uncertain(text, is_fatal=is_fatal)
