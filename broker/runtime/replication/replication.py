"""Replication of a running broker: whom it follows, and the ISRs of what it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from raftlog.broker.core.replica.leadership import NO_EPOCH, Leadership, LeaderTerms
from raftlog.broker.core.replica.throttle import Throttles
from raftlog.broker.runtime.replication.proposals import AlterPartitions, IsrProposals
from raftlog.broker.runtime.replication.settings import ReplicationSettings
from raftlog.metadata.records import NO_LEADER, ResourceType
from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.replication.fetcher import Fetcher
    from raftlog.broker.runtime.replication.partition_fetch_state import PartitionFetchState
    from raftlog.metadata.cluster_commands import IsrProposal
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage
    from raftlog.metadata.records import PartitionState
    from raftlog.wire.ids import BrokerEpoch

log = logging.getLogger("raftlog.replication")

CHECK_SECONDS = 0.5
"""How often silent followers and overdue answers are looked for; lagging followers are looked for every half
replica.lag.time.max.ms."""

COMES_BACK_MS_MAX = 300
"""A follower that is there makes a new connection within milliseconds, one that was restarted is fenced by then."""

FIRST_FETCH_MS_MAX = 3000
"""How long producers wait for a follower that has not fetched from a new leader yet, nor any other partition."""


class Replication:
    """The fetchers and ISRs of a broker.

    Invariant: a partition is followed under the leader and in the epoch of the newest metadata, or not at all.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: BrokerId,
        settings: ReplicationSettings,
        alter_partitions: AlterPartitions,
        *,
        registered_epoch: Callable[[], BrokerEpoch],
        silent_peers: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        """`alter_partitions` takes ISR proposals to the controller; `registered_epoch` is the epoch under which this
        process has registered, -1 before; `silent_peers` are the brokers from which the quorum's connections bring
        nothing.
        """
        self._silent_peers = silent_peers
        self._registered_epoch = registered_epoch
        self._loop = loop
        self._node_id = node_id
        self._settings = settings
        self._image: MetadataImage | None = None
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._followed: dict[Partition, PartitionFetchState] = {}
        # Those with followers that we lead.
        self._led: dict[Partition, None] = {}
        self.proposals = IsrProposals(loop, self.monotonic_ms, alter_partitions, self._on_proposal_answered)
        self._terms = LeaderTerms(node_id, settings.lag_time_max_ms, self._is_eligible, self._broker_epoch)
        self.throttles = Throttles()
        # Followers whose connection has ended, or that have none yet, and when those who wait for them go on without.
        self._lost: dict[BrokerId, int] = {}
        self._next_look_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        return int(self._loop.time() * 1000)

    # What the metadata say ---------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take new metadata: before the partitions do."""
        self._image = image
        if delta.changed_configs:
            self._set_throttles(delta, image)
        if not delta.changed_brokers:
            return
        for leader_id in list(self._fetchers):
            if leader_id in delta.changed_brokers:
                self._connect(self._fetchers[leader_id])
        # Who was fenced may be eligible now, and an idle follower does not fetch again for that.
        if self._led:
            self._loop.call_soon(self._look_for_joining)

    def _set_throttles(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for kind, name in delta.changed_configs:
            if kind is ResourceType.TOPIC:
                self.throttles.set_topic(name, image.configs_of(kind, name))
            elif kind is ResourceType.BROKER:
                everybody, own = image.configs_of(kind, ""), image.configs_of(kind, str(self._node_id))
                self.throttles.set_rates({**everybody, **own})

    def _is_eligible(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        image = self._image
        if image is None or not image.is_usable(broker_id):
            return False
        return broker_epoch in (NO_EPOCH, image.brokers[broker_id].epoch)

    def _broker_epoch(self, broker_id: BrokerId) -> BrokerEpoch:
        broker = self._image.brokers.get(broker_id) if self._image is not None else None
        return NO_EPOCH if broker is None else broker.epoch

    # Following ---------------------------------------------------------------------------------------

    def follow(self, partition: Partition, state: PartitionState) -> None:
        """Fetch a partition from its leader, if it has one."""
        before = self._followed.get(partition)
        if before is not None and (before.leader_id, before.leader_epoch) == (state.leader, state.leader_epoch):
            return
        self.stop_following(partition)
        self._led.pop(partition, None)
        if state.leader in (NO_LEADER, self._node_id):
            return
        fetcher = self._fetchers.get(state.leader)
        if fetcher is None:
            # Imported when there is somebody to follow: a broker alone starts without it.
            from raftlog.broker.runtime.replication.fetcher import Fetcher

            fetcher = self._fetchers[state.leader] = Fetcher(
                self._loop, self._node_id, state.leader, self._settings.fetcher, self._own_epoch
            )
            fetcher.throttles = self.throttles
        self._followed[partition] = fetcher.add_partition(partition, state.leader_epoch)
        self._connect(fetcher)
        self._start_looking()

    @property
    def is_current(self) -> bool:
        """Whether the metadata are newer than this process. Before that they are being read again, and say nothing
        about what may be removed: a replica that was moved away may have been moved back.
        """
        epoch = self._registered_epoch()
        return epoch >= 0 and self._broker_epoch(self._node_id) == epoch

    def _own_epoch(self) -> BrokerEpoch:
        return self._broker_epoch(self._node_id)

    def _connect(self, fetcher: Fetcher) -> None:
        listener = self._settings.listener_name
        address = self._image.address_of(fetcher.leader_id, listener) if self._image is not None else None
        if address is not None:
            fetcher.link.connect(address)

    def in_contact(self, broker_id: BrokerId) -> None:
        """Another broker can be reached again."""
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.in_contact()

    def follower_lost(self, broker_id: BrokerId) -> None:
        """A follower's connection has ended. If it does not come back in a moment, those who wait for it go on."""
        self._lost[broker_id] = self.monotonic_ms() + COMES_BACK_MS_MAX
        self._loop.call_later(COMES_BACK_MS_MAX / 1000, self._leave_out_silent)

    def _leave_out_silent(self) -> None:
        """Propose ISRs without the followers that are lost, where somebody waits for what they have not.

        Lost are those whose connection has ended and that did not come back, and those that neither fetch nor are
        heard over the quorum's connections. Who only fetches no more is slow, and has replica.lag.time.max.ms.
        """
        now_ms = self.monotonic_ms()
        due = frozenset(broker_id for broker_id, due_ms in self._lost.items() if now_ms >= due_ms)
        silent = self._silent_peers()
        heard: set[BrokerId] = set()
        for _, leadership in self._leaderships():
            heard.update(leadership.heard(now_ms))
        still = self._lost.keys() - due
        for partition, leadership in self._leaderships():
            lost = due.intersection(leadership.lost()) | due.intersection(leadership.never_heard()) - heard
            still |= lost
            lost |= {each for each in leadership.unheard(now_ms) if each in silent} - heard
            if lost and partition.log.high_watermark < partition.log.log_end_offset:
                self._shrink(partition, leadership, now_ms, lost)
        self._lost = {broker_id: due_ms for broker_id, due_ms in self._lost.items() if broker_id in still}

    def stop_following(self, partition: Partition) -> None:
        """Fetch a partition no more."""
        followed = self._followed.pop(partition, None)
        if followed is None:
            return
        fetcher = self._fetchers[followed.leader_id]
        fetcher.remove_partition(followed)
        if not len(fetcher):
            del self._fetchers[followed.leader_id]
            fetcher.close()

    # Leading -----------------------------------------------------------------------------------------

    def lead(self, partition: Partition, state: PartitionState) -> Leadership:
        """The leadership of a partition with followers, in a new leader epoch."""
        self.stop_following(partition)
        partition_log = partition.log
        leadership = Leadership(
            self._terms, partition.topic_id, state, partition_log.log_end_offset, self.monotonic_ms()
        )
        leadership.min_isr = partition.min_isr
        for broker_id in leadership.never_heard():
            self._lost.setdefault(broker_id, self.monotonic_ms() + FIRST_FETCH_MS_MAX)
        self._led[partition] = None
        self._start_looking()
        if state.leader_recovering:
            log.error(
                "partition=%r elected uncleanly in epoch %d: what was committed at offset %d or later is lost",
                partition,
                state.leader_epoch,
                partition_log.log_end_offset,
            )
        return leadership

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for another ISR."""
        self.proposals.submit(partition, proposal)

    def forget(self, partition: Partition) -> None:
        """The partition is not hosted any more, or its log failed."""
        self.stop_following(partition)
        self._led.pop(partition, None)

    def _on_proposal_answered(self, partition: Partition, refused: bool) -> None:
        """A proposal was answered: another follower may have waited for that. After a refusal it waits on: the same
        follower would be proposed again at once, and over and over.
        """
        leadership = partition.leadership
        if leadership is not None:
            partition.isr_size = len(leadership.isr)
            partition.maybe_advance_high_watermark()
            partition.try_complete_delayed()
            if not refused:
                self._expand(partition, leadership)

    def _expand(self, partition: Partition, leadership: Leadership) -> None:
        for follower in leadership.followers.values():
            if not follower.counts:
                proposal = leadership.expand(follower, partition.log.high_watermark)
                if proposal is not None:
                    self.propose(partition, proposal)

    def recover(self, partition: Partition) -> None:
        """An unclean election is over once its leader serves: tell the controller."""
        leadership = partition.leadership
        proposal = leadership.recover() if leadership is not None else None
        if proposal is not None:
            self.propose(partition, proposal)

    # Looking -----------------------------------------------------------------------------------------

    def _start_looking(self) -> None:
        if self._timer is None:
            seconds = min(CHECK_SECONDS, self._settings.lag_time_max_ms / 2000)
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self._start_looking()
        for fetcher in list(self._fetchers.values()):
            fetcher.check_time()
        self._leave_out_silent()
        now_ms = self.monotonic_ms()
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + self._settings.lag_time_max_ms // 2
            self.look_for_laggards(now_ms)
            self._look_for_joining()

    def look_for_laggards(self, now_ms: int) -> None:
        """Propose ISRs without the followers that lag (replica.lag.time.max.ms)."""
        for partition, leadership in self._leaderships():
            self._shrink(partition, leadership, now_ms)
            self.recover(partition)

    def _shrink(
        self, partition: Partition, leadership: Leadership, now_ms: int, lost: frozenset[BrokerId] = frozenset()
    ) -> None:
        proposal = leadership.shrink(partition.log.log_end_offset, now_ms, lost)
        if proposal is not None:
            self.propose(partition, proposal)

    def _look_for_joining(self) -> None:
        for partition, leadership in self._leaderships():
            if len(leadership.isr) <= len(leadership.followers):
                # Who is not eligible any more is not waited for any more.
                partition.maybe_advance_high_watermark()
                self._expand(partition, leadership)

    def _leaderships(self) -> Iterator[tuple[Partition, Leadership]]:
        for partition in list(self._led):
            leadership = partition.leadership
            if leadership is not None:
                yield partition, leadership

    def check_invariants(self) -> None:
        """Raises InvariantViolation if a fetcher or a leadership does not keep what it promises."""
        for fetcher in self._fetchers.values():
            fetcher.check_invariants()
        for _, leadership in self._leaderships():
            leadership.check_invariants()

    def close(self) -> None:
        """Stop fetching and looking."""
        if self._timer is not None:
            self._timer.cancel()
        self.proposals.close()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()
        self._led.clear()
