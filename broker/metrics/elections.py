"""How often leaders changed, as the metadata tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage
    from raftlog.metadata.records import PartitionState


class Elections:
    """Counts leaders that followed on others since this broker follows the metadata. `unclean`: those who may lack what
    was committed.
    """

    def __init__(self) -> None:
        self.clean = self.unclean = 0

    def publish(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """The metadata have changed."""
        for before, after in delta.topic_changes:
            if before is None or after is None:
                continue
            # New partitions are at the end, and elected by nobody.
            for was, state in zip(before.partitions, after.partitions, strict=False):
                if was is not state and state.leader not in (was.leader, NO_LEADER):
                    self._elected(was, state)

    def _elected(self, was: PartitionState, state: PartitionState) -> None:
        if state.leader_recovering and not was.leader_recovering:
            self.unclean += 1
        else:
            self.clean += 1
