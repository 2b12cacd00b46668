"""The settings of a broker that have to do with transactions, by Kafka's names."""

from __future__ import annotations

from raftlog.metadata.config_definition import ConfigType, at_least, dynamic, fixed

_INT, _SHORT = ConfigType.INT, ConfigType.SHORT

_ROWS = (
    ("transaction.max.timeout.ms", _INT, 900_000, "The longest time-out a transaction may ask for."),
    (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
        "How often transactions are looked at for their time-out.",
    ),
    (
        "transactional.id.expiration.ms", _INT, 604_800_000,
        "After how long without a transaction a transactional id is forgotten.",
    ),
    (
        "transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
        "How often transactional ids are looked at for expiry.",
    ),
    ("transaction.state.log.num.partitions", _INT, 50, "How many partitions __transaction_state is given."),
    (
        "transaction.state.log.replication.factor", _SHORT, 3,
        "How many replicas __transaction_state is given. Left at its default, as many as there are brokers,"
        " and no more than this.",
    ),
    (
        "transaction.state.log.min.isr", _INT, 2,
        "How many replicas of __transaction_state have to have a record before it counts; all of them, if"
        " there are fewer.",
    ),
    ("transaction.state.log.segment.bytes", _INT, 104_857_600, "The segment size of __transaction_state."),
)  # fmt: skip

_VERIFICATION = (
    dynamic(
        "transaction.partition.verification.enable", ConfigType.BOOLEAN, True, None,
        "Whether a transaction's first batch in a partition is checked with its coordinator.",
    ),
    fixed(
        "add.partitions.to.txn.retry.backoff.ms", _INT, 20, at_least(1),
        "How long at most to wait before asking again while a producer's transaction before is being ended.",
    ),
    fixed(
        "add.partitions.to.txn.retry.backoff.max.ms", _INT, 100, at_least(0),
        "How long the coordinator is asked again before the producer is told to try later.",
    ),
)  # fmt: skip

TRANSACTION_CONFIGS = (
    *(fixed(name, kind, default, at_least(1), text) for name, kind, default, text in _ROWS),
    *_VERIFICATION,
)
