"""What should show each of the simulator's mutants to real processes, and which of them only the simulator can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trial:
    """A run that should notice a mutant: workload, fault, seconds of load, and what else `raftlog verify` is told."""

    workload: str
    fault: str = "none"
    seconds: float = 20.0
    brokers: int = 3
    rate: float = 60.0
    libraries: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A name for the runs without a mutant."""
        more = [f"{key}={value}" for pairs in (self.settings, self.options) for key, value in pairs.items()]
        words = [self.workload, self.fault, f"{self.seconds:g}", str(self.brokers), f"{self.rate:g}", self.libraries]
        return "-".join(each for each in [*words, *more] if each)

    def __str__(self) -> str:
        more = [f"{key}={value}" for pairs in (self.settings, self.options) for key, value in pairs.items()]
        more += [f"{self.brokers} brokers"] if self.brokers != 3 else []
        more += [self.libraries] if self.libraries else []
        return " ".join([f"{self.workload} with {self.fault}", *more])


CLEAN_SHRINK = {"min.insync.replicas": "1", "replica.lag.time.max.ms": "2000"}
FORGETFUL = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
GROUP, NEW_GROUP = {"kind": "classic"}, {"kind": "consumer"}
RESTLESS = {"leave": "often"}
ASSIGNED_AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
OWN = "raftlog"
"""The library whose consumers say as which member they commit."""
TRIALS: Mapping[str, Trial] = {
    # The consensus.
    "truncate-on-overlap": Trial("topics", "partition", 30, rate=12),
    "vote-twice": Trial("topics", "pause", 30, rate=12, brokers=5),
    "ack-before-fsync": Trial("topics", "blackout", 30, rate=12),
    "no-fsync": Trial("append", "blackout", 30),
    "acknowledge-unverified": Trial("topics", "partition", 30, rate=12, brokers=5),
    "commit-unverified": Trial("topics", "partition", 30, rate=12, brokers=5),
    "commit-of-earlier-term": Trial("topics", "partition", 30, rate=12, brokers=5),
    "wiped-disk-votes": Trial("append", "wiped-disk", 30),
    "majority-begins": Trial("append", "wiped-disk", 30),
    "unknown-is-failed": Trial("topics", "partition", 30, rate=12),
    # Partitions and replicas.
    "isr-of-one": Trial("append", "lone-leader", 40),
    "ack-before-replication": Trial("append", "lone-leader", 40),
    "election-outside-isr": Trial("append", "pause-kill", 30),
    "truncate-to-high-watermark": Trial("append", "hunt", 30),
    "truncation-by-stale-leader": Trial("append", "hunt", 30),
    "high-watermark-too-early": Trial("append", "hunt", 30),
    "sent-is-acknowledged": Trial("append", "hunt", 30),
    "proposal-counts-at-once": Trial("append", "partition", 30, settings=CLEAN_SHRINK),
    "overtaken-answers": Trial("append", "slow-links", 30),
    "lost-power-not-told": Trial("append", "pause-kill", 30),
    # What removes and remembers.
    "cleaner-drops-last-values": Trial("compacted", "none", 20),
    "cleaner-ahead-of-disk": Trial("compacted", "blackout", 30),
    "cleaner-above-high-watermark": Trial("compacted", "partition", 30),
    "orphans-deleted": Trial("append", "blackout", 30),
    "producers-forgotten": Trial("append", "hunt", 30),
    "producers-not-compared": Trial("append", "lost-answers", 20),
    "answered-before-committed": Trial("groups", "coordinator-hunt", 30, options=GROUP),
    # Transactions.
    "lso-off-by-one": Trial("transactions", "none", 20),
    "aborted-is-read": Trial("transactions", "none", 20),
    "end-without-epoch-bump": Trial("transactions", "delayed-end-txn", 30),
    "init-without-fencing": Trial("transactions", "zombie-writer", 30),
    "coordinator-forgets": Trial("transactions", "kill", 30),
    "markers-not-resumed": Trial("transactions", "coordinator-hunt", 30),
    "decided-before-committed": Trial("transactions", "coordinator-hunt", 30),
    "ids-expire-in-use": Trial("transactions", "pause-client", 30, settings=FORGETFUL),
    "producers-expire-in-transactions": Trial(
        "transactions", "zombie-writer", 30, settings={"producer.id.expiration.ms": "1000"}
    ),
    "producers-expire-too-early": Trial("append", "lone-leader", 30),
    # Groups.
    "generation-not-checked": Trial(
        "groups", "delayed-commit", 40, rate=120, libraries=OWN, options=GROUP | RESTLESS
    ),
    "member-epoch-not-checked": Trial(
        "groups",
        "delayed-commit",
        40,
        rate=120,
        libraries=OWN,
        settings=ASSIGNED_AT_ONCE,
        options=NEW_GROUP | RESTLESS,
    ),
    "given-before-free": Trial("groups", "none", 30, libraries=OWN, options=NEW_GROUP | RESTLESS),
    "aborted-offsets-count": Trial("consume-transform-produce", "kill", 30),
    "unstable-offsets-told": Trial("consume-transform-produce", "pause-client", 40),
    # The client.
    "client-uses-numbers-again": Trial("append", "partition", 30, libraries=OWN),
    "client-numbers-anew": Trial("append", "lost-answers", 20, libraries=OWN),
    "client-offsets-as-of-now": Trial("consume-transform-produce", "kill", 30, libraries=OWN),
    "client-reads-aborted": Trial("transactions", "kill", 30, libraries=OWN),
}
SELDOM: Mapping[str, str] = {
    "truncate-on-overlap": "what is cut off too much is sent again at once: its sender must be lost in between",
    "vote-twice": "two nodes must ask for votes in one term, and each find a majority, within milliseconds",
    "ack-before-fsync": "a majority must lose power in the milliseconds between an answer and its sync",
    "acknowledge-unverified": "a follower must have what a lost leader did not commit, and be heard for the majority",
    "commit-unverified": "a follower must have what a lost leader did not commit when the next one first speaks",
    "commit-of-earlier-term": "five leaders must change as in figure 8 of the paper, each with the right ones away",
    "unknown-is-failed": "clients are told an error after which they ask again: that counts as unknown",
    "high-watermark-too-early": "a reader must come in the milliseconds before followers have it, and its leader die",
    "cleaner-ahead-of-disk": "all replicas must lose power in the second after the cleaner has run, and before a sync",
    "cleaner-above-high-watermark": "the later value must be lost with its leader right after the cleaner has run",
    "answered-before-committed": "the coordinator must die in the millisecond between its answer and the next fetch",
    "markers-not-resumed": "the coordinator must die in the milliseconds between a decision and its markers",
    "unstable-offsets-told": "a client must stand still after its offsets, longer than its session, and commit in time",
    "client-uses-numbers-again": "a batch must be given up, be stored all the same, and the next meet the same leader",
    "client-offsets-as-of-now": "a group must change between a poll and the end of the transaction of what it gave",
}
"""Mutants that real processes can show, and why a run of a minute seldom does."""
ONLY_SIMULATED: Mapping[str, str] = {
    "double-vote": "a message would have to come twice, which TCP does not allow",
    "late-ack": "an answer would have to outlive its connection, which TCP does not allow",
    "forgotten-vote": "the request for a vote is lost with the voter's connection, see the simulator's own text",
    "damage-is-torn-tail": "a journal must rot while another node is left behind and the third is away",
    "snapshot-before-safe": "a power cut between two writes that are a fraction of a millisecond apart",
    "read-without-majority": "no client is answered by such a read alone: brokers answer from what they have replayed",
    "retention-above-high-watermark": "no workload deletes records: clients cannot tell that from a loss",
    "retention-too-early": "a record that goes 0.3 s too early: clients do not see when",
    "deletion-by-leader-alone": "clients see where a log begins only at its leader",
    "deletion-not-followed": "clients see where a log begins only at its leader",
    "snapshots-without-levels": "the workloads change no feature",
    "eligible-beside-one": "both replicas must be fenced by one command, and come back one after the other",
    "earlier-topic-taken-over": "a broker must be away while a topic is deleted and made again under its name",
    "id-goes-by-name": "clients learn the new id before they send: a request must be under way meanwhile",
    "offset-0-on-error": "no client looks at the offset of an answer that is an error",
    "ids-expire-too-early": "an id that is forgotten when idle is simply made again",
    "expired-by-leader-alone": "an id that comes back when idle is simply used again",
    "forgotten-producers-begin-anew": "clients take a new epoch and go on",
    "upgrade-forgets-holders": "the groups of the workloads do not change their protocol",
    "upgrade-forgets-offsets": "the groups of the workloads do not change their protocol",
    "never-downgraded": "the groups of the workloads do not change their protocol",
    "client-commits-taken": "the workloads commit as the member that read, which the coordinator checks",
    "client-loses-cancelled": "the clients of the workloads cancel nothing",
    "client-commits-undone": "the workloads commit what they name, not what a consumer takes for done",
    "one-batch-remembered": "several batches must be stored, and all their answers lost",
    "end-before-vouched": "no workload asks where a log ends",
    "end-beyond-committed": "no workload asks where a log ends",
    "replaced-static-commits": "the members of the workloads have instance ids of their own",
    "outsiders-commit": "the workloads commit as members",
    "batches-not-verified": "a batch must outlive its connection and its transaction",
    "guard-outlives-transaction": "the coordinator's word must come later than the markers of what it decided since",
    "completed-before-marked": "its coordinator must die in the milliseconds in which the markers are under way",
}
