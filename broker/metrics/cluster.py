"""Metrics of partitions and their replicas, of the controller, and of the quorum."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from raftlog.broker.core.byte_rate import UNLIMITED
from raftlog.broker.metrics.families import counter, counters, gauge, gauges, histogram
from raftlog.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from raftlog.broker.api.context import Services
    from raftlog.broker.metrics.sources import Pauses, Sources


def replica_families(services: Services) -> Iterator[Metric]:
    """Of the replicas on this broker that are open; those it leads say how their ISRs are."""
    leads = hosted = offline = under_replicated = under_min_isr = at_min_isr = reassigning = 0
    image = services.controller.image
    for partition in services.partitions.open_partitions():
        hosted += 1
        offline += partition.log.offline_reason is not None
        if partition.leader_id != services.node_id:
            continue
        leads += 1
        state = image.partition(partition.topic, partition.index)
        # Those that a reassignment is adding are not missed yet (KIP-352).
        replicas = len(state.replicas) - len(state.adding_replicas) if state is not None else 1
        under_replicated += partition.isr_size < replicas
        under_min_isr += partition.isr_size < partition.min_isr
        at_min_isr += partition.isr_size == partition.min_isr
        reassigning += state is not None and bool(state.adding_replicas or state.removing_replicas)
    manager = "kafka_server_replicamanager"
    yield gauge(f"{manager}_leadercount", "Partitions that this broker leads, of those that are open", leads)
    yield gauge(f"{manager}_partitioncount", "Replicas on this broker that are open", hosted)
    yield gauge(f"{manager}_offlinereplicacount", "Replicas on this broker whose disk has failed", offline)
    yield gauge(f"{manager}_underreplicatedpartitions", "Led here, without some of their replicas", under_replicated)
    yield gauge(f"{manager}_underminisrpartitioncount", "Led here, below min.insync.replicas", under_min_isr)
    yield gauge(f"{manager}_atminisrpartitioncount", "Led here, at min.insync.replicas", at_min_isr)
    yield gauge(f"{manager}_reassigningpartitions", "Led here, being moved", reassigning)
    changes = services.partitions.isr_changes
    yield counter(f"{manager}_isrshrinks", "Followers that left the ISR of what is led here", changes.shrinks)
    yield counter(f"{manager}_isrexpands", "Followers that came into the ISR of what is led here", changes.expands)


async def controller_families(sources: Sources, pauses: Pauses) -> AsyncIterator[Metric]:
    """What the metadata say of the cluster; every broker tells the same."""
    image = sources.controller.image
    partitions = leaderless = not_preferred = internal = 0
    for topic in image.topics.values():
        await pauses.pause()
        internal += topic.internal
        partitions += len(topic.partitions)
        for state in topic.partitions:
            leaderless += state.leader == NO_LEADER
            not_preferred += state.leader != state.replicas[0]
    fenced = sum(broker.fenced for broker in image.brokers.values())
    leader = sources.controller.log.leader_id == sources.node_id
    controller = "kafka_controller_kafkacontroller"
    yield gauge(f"{controller}_activecontrollercount", "1 where the controller is", leader)
    yield gauge(f"{controller}_activebrokercount", "Brokers that serve", len(image.brokers) - fenced)
    yield gauge(f"{controller}_fencedbrokercount", "Registered brokers that do not serve", fenced)
    yield gauge(f"{controller}_globaltopiccount", "Topics of the cluster", len(image.topics))
    yield gauge(f"{controller}_globalpartitioncount", "Partitions of the cluster", partitions)
    yield gauge(f"{controller}_offlinepartitionscount", "Partitions without a leader", leaderless)
    imbalance = f"{controller}_preferredreplicaimbalancecount"
    yield gauge(imbalance, "Partitions that another than the first replica leads", not_preferred)
    stats = "kafka_controller_controllerstats"
    yield counter(f"{stats}_leaderelections", "New leaders of partitions, by election", sources.elections.clean)
    unclean = "Leaders that may lack what was committed"
    yield counter(f"{stats}_uncleanleaderelections", unclean, sources.elections.unclean)


def quorum_families(sources: Sources) -> Iterator[Metric]:
    """The metadata quorum as this node sees it."""
    log = sources.controller.log
    status = log.status()
    raft = "kafka_server_raftmetrics"
    votes = any(voter.node_id == status.node_id for voter in status.voters)
    state = "leader" if status.leader_id == status.node_id else "follower" if votes else "observer"
    yield gauges(f"{raft}_current_state", "What this node is in the quorum", ["current_state"], [([state], 1)])
    yield gauge(f"{raft}_current_leader", "The node that leads the quorum, -1 for none", status.leader_id)
    yield gauge(f"{raft}_current_epoch", "The term", status.term)
    yield gauge(f"{raft}_high_watermark", "The last entry that is committed and replayed here", status.committed_index)
    yield gauge(f"{raft}_log_end_offset", "The last entry in the log here", status.last_index)
    yield gauge(f"{raft}_number_of_voters", "Nodes with a vote", len(status.voters))
    yield gauge(f"{raft}_number_of_observers", "Nodes that follow without a vote", len(status.observers))
    members = [member for member in (*status.voters, *status.observers) if member.node_id != status.node_id]
    lag = "raftlog_raft_follower_lag_entries"
    behind = [
        ([str(member.node_id)], max(status.last_index - member.match_index, 0))
        for member in members
        if member.match_index >= 0
    ]
    yield gauges(lag, "Entries that a node has yet to get; the leader knows", ["node_id"], behind)
    silence = "raftlog_raft_last_contact_seconds"
    heard = [([str(m.node_id)], m.last_contact_seconds) for m in members if m.last_contact_seconds >= 0]
    yield gauges(silence, "Since anything came from a node", ["node_id"], heard)
    uncommitted = status.last_index - status.committed_index
    yield gauge("raftlog_raft_commit_lag_entries", "Entries in the log here, not known as committed", uncommitted)
    what = "How long the journal of the metadata took to write and sync"
    yield histogram("raftlog_raft_journal_write_seconds", what, log.disk_seconds)


def throttle_families(services: Services) -> Iterator[Metric]:
    """Replication that is held back (KIP-73). Clients are never throttled."""
    throttles = services.partitions.all_throttles
    rates = {"leader": throttles.leaders, "follower": throttles.followers} if throttles is not None else {}
    limits = [([role], rate.rate) for role, rate in rates.items() if rate.rate != UNLIMITED]
    what = "Bytes of replication that were subject to a throttle"
    yield counters("raftlog_replication_throttled_bytes", what, ["role"], (([r], rates[r].bytes) for r in rates))
    yield gauges("raftlog_replication_throttle_limit_bytes", "The throttle, in bytes a second", ["role"], limits)
