"""What runs must have reached: a campaign in which one of these never happened says nothing about it, and fails.

Counted by observation, by functions of the product that are watched for the length of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from raftlog.linearizability.simulator.mutants.mutants import patch
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.log import RaftLog
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import Role

Holds = Callable[..., bool]


class Property(NamedTuple):
    """Something that happens, in these kinds of run. It has when `owner.name` is called and `before` holds of its
    arguments, or `after` of its result and arguments.
    """

    text: str
    parts: tuple[str, ...]
    owner: Any
    name: str
    before: Holds | None = None
    after: Holds | None = None


def _always(*_: Any, **__: Any) -> bool:
    return True


RAFT = ("core", "quorum")
_OF_RAFT = (
    Property("a leader was elected after another one", RAFT, Raft, "_become_leader", lambda raft, *_: raft.term > 1),
    Property("a leader stepped down", RAFT, Raft, "_become_follower", lambda raft, *_: raft.role is Role.LEADER),
    Property(
        "a vote was asked of a node that had given it",
        RAFT,
        Raft,
        "_on_request_vote",
        lambda raft, sender, request, _: not request.pre and request.term == raft.term and raft.voted_for != NO_NODE,
    ),
    Property("a log was cut", RAFT, RaftLog, "truncate", _always),
    Property("a snapshot was installed", RAFT, Raft, "_install", _always),
)


def _of_clusters() -> tuple[Property, ...]:
    from raftlog.broker.core.group.classic_group import ClassicGroup
    from raftlog.broker.core.log import producers
    from raftlog.broker.core.replica.leadership import Leadership
    from raftlog.broker.core.transaction import end
    from raftlog.broker.runtime import transaction_host
    from raftlog.broker.runtime.delayed_operation import Mark
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.store.partition_log import PartitionLog
    from raftlog.metadata import elections

    return tuple(
        Property(text, ("cluster",), owner, name, before, after)
        for text, owner, name, before, after in (
            (
                "a leader was lost while a producer waited for it",
                Partition,
                "become_follower",
                lambda partition, _: partition.watchers(Mark.HIGH_WATERMARK) > 0,
                None,
            ),
            ("the in-sync replicas shrank", Leadership, "shrink", None, lambda found, *_: found is not None),
            ("a replica came back into sync", Leadership, "expand", None, lambda found, *_: found is not None),
            (
                "an eligible leader replica was elected",
                elections,
                "_elect",
                None,
                lambda found, state, electorate, election, choice: not choice.isr and found[0] > 0 and not found[2],
            ),
            (
                "records of a replica were cut off",
                PartitionLog,
                "truncate_to",
                lambda log, offset, *_: offset < log.log_end_offset,
                None,
            ),
            (
                "a stored batch came again",
                producers.ProducerStates,
                "_duplicate",
                None,
                lambda found, *_: found is not None,
            ),
            ("a producer was fenced", end, "_sender", None, lambda found, *_: found is end.Sender.FENCED),
            (
                "committed records stood behind an open transaction",
                PartitionLog,
                "update_high_watermark",
                lambda log, _: log.last_stable_offset < log.high_watermark,
                None,
            ),
            (
                "a transaction was aborted because of its time-out",
                transaction_host,
                "abort_timed_out",
                None,
                lambda found, *_: getattr(found, "response", False) is True,
            ),
            (
                "members of a group got another generation",
                ClassicGroup,
                "start_generation",
                lambda group, _: group.generation > 0,
                None,
            ),
        )
    )


def properties(part: str) -> tuple[Property, ...]:
    """Those of a kind of run."""
    every = (*_OF_RAFT, *(_of_clusters() if part == "cluster" else ()))
    return tuple(each for each in every if part in each.parts)


@contextmanager
def watched(part: str, reached: Counter[str]) -> Iterator[None]:
    """Count how often each happens."""
    with ExitStack() as stack:
        for each in properties(part):
            stack.enter_context(patch(each.owner, each.name, _watching(each, reached)))
        yield


def _watching(wanted: Property, reached: Counter[str]) -> Any:
    real = wanted.owner.__dict__[wanted.name]

    def watch(*arguments: Any, **named: Any) -> Any:
        if wanted.before is not None and wanted.before(*arguments, **named):
            reached[wanted.text] += 1
        result = real(*arguments, **named)
        if wanted.after is not None and wanted.after(result, *arguments):
            reached[wanted.text] += 1
        return result

    return watch


def never_reached(part: str, reached: Counter[str]) -> Sequence[str]:
    """What no run of a campaign came to."""
    return [each.text for each in properties(part) if not reached[each.text]]
