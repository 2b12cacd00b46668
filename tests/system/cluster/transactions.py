"""A transactional client on the wire, one request at a time: something may happen before, during and after each.

It copies: input number n is the offset that its group has committed, the output is n in every partition of a topic, and
n + 1 is committed in the same transaction. So whatever happens, each partition must hold 0, 1, 2, … once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from raftlog.client.core.addresses import parse_addresses
from raftlog.wire.batch import Record, decode_batch, encode_batch, iterate_batches
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from raftlog.wire.messages.end_txn import EndTxnRequest
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raftlog.wire.schema import Message
from tests.system.traps.raw import Closed, RawConnection
from tests.waiting import wait_until

GROUP_KEY, TRANSACTION_KEY = 0, 1
RETRIABLE = frozenset({
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
})  # fmt: skip
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Step(Enum):
    """What the client asks for, in order. Without KIP-890's second part it also names what it will write to."""

    FIND = auto()
    INIT = auto()
    ADD_PARTITIONS = auto()
    PRODUCE = auto()
    PRODUCE_MORE = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()


ONLY_VERSION_1 = frozenset({Step.ADD_PARTITIONS, Step.ADD_OFFSETS})


class Moment(Enum):
    """When something happens to a step's first request."""

    BEFORE = auto()
    UNDER_WAY = auto()
    AFTER = auto()


class Refused(Exception):
    """An error after which this transaction cannot go on."""

    def __init__(self, step: Step, error: ErrorCode) -> None:
        super().__init__(f"{step.name}: {error.name}")
        self.error = error


class Gone(Exception):
    """The client was killed here: raised by `around`."""


class Wire:
    """Connections to a cluster, made when they are needed."""

    def __init__(self, bootstrap: str) -> None:
        self.seeds = [f"{host}:{port}" for host, port in parse_addresses(bootstrap)]
        self._connections: dict[str, RawConnection] = {}

    def connection(self, address: str) -> RawConnection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = RawConnection(address, deadline_seconds=10)
        return found

    def forget(self, address: str) -> None:
        found = self._connections.pop(address, None)
        if found is not None:
            found.socket.close()

    def close(self) -> None:
        for address in list(self._connections):
            self.forget(address)

    def any(self, request: Message, version: int) -> Any:
        """The answer of the first broker that gives one."""
        for address in self.seeds:
            try:
                return self.connection(address).ask(request, version)
            except (Closed, OSError):
                self.forget(address)
        return None

    def coordinator(self, key: str, kind: int) -> str | None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        answer = self.any(request, 6)
        if answer is None or answer.coordinators[0].error_code:
            return None
        return f"{answer.coordinators[0].host}:{answer.coordinators[0].port}"

    def leader(self, topic: str, index: int) -> str | None:
        answer = self.any(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        if answer is None or answer.topics[0].error_code:
            return None
        brokers = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        return brokers.get(leaders.get(index, -1))

    def until_answered(self, locate: Callable[[], str | None], request: Message, version: int) -> Any:
        """Retry until some answer without a retriable error is there."""
        found: list[Any] = []

        def attempt() -> bool:
            address = locate()
            if address is None:
                return False
            try:
                answer = self.connection(address).ask(request, version)
            except (Closed, OSError):
                self.forget(address)
                return False
            if first_error(answer) in RETRIABLE:
                return False
            found.append(answer)
            return True

        wait_until(attempt, f"an answer to {type(request).__name__}")
        return found[0]

    # -- what is visible -------------------------------------------------------------------------------------

    def committed(self, group: str, topic: str) -> int:
        """What the group has committed for partition 0, once that is stable; 0 without a commit."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            require_stable=True,
        )
        answer = self.until_answered(lambda: self.coordinator(group, GROUP_KEY), request, 7)
        return int(max(answer.topics[0].partitions[0].committed_offset, 0))

    def visible(self, topic: str, index: int) -> list[int]:
        """The numbers that a reader of committed records sees, once no transaction is open."""
        numbers: list[int] = []
        offset, end = 0, self._end(topic, index)
        while offset < end:
            fetched = self._fetch(topic, index, offset, end)
            end = fetched.high_watermark
            taken, offset = _committed_numbers(fetched, offset)
            numbers += taken
        return numbers

    def _end(self, topic: str, index: int) -> int:
        """The high watermark, once the leader knows it: a new one's may be older than what was acknowledged."""
        latest = ListOffsetsPartition(partition_index=index, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[latest])])
        answer = self.until_answered(lambda: self.leader(topic, index), request, 7)
        return int(answer.topics[0].partitions[0].offset)

    def _fetch(self, topic: str, index: int, offset: int, end: int) -> Any:
        found: list[Any] = []
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1,
            topics=[FetchTopic(topic=topic, partitions=[
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            ])],
        )  # fmt: skip

        def is_stable() -> bool:
            answer = self.until_answered(lambda: self.leader(topic, index), request, 11)
            partition = answer.responses[0].partitions[0]
            found[:] = [partition]
            return bool(partition.last_stable_offset == partition.high_watermark >= end)

        wait_until(is_stable, f"{topic}-{index} is stable")
        return found[0]


def _committed_numbers(fetched: Any, offset: int) -> tuple[list[int], int]:
    """The numbers in a fetch that do not belong to aborted transactions, and where to go on."""
    waiting = sorted((each.first_offset, each.producer_id) for each in fetched.aborted_transactions or ())
    aborted: set[int] = set()
    numbers = []
    data = bytes(fetched.records or b"")
    for position, header in iterate_batches(data):
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(waiting.pop(0)[1])
        if header.is_control:
            aborted.discard(header.producer_id)
        elif header.producer_id not in aborted:
            batch = data[position : position + header.size]
            numbers += [int(record.value or b"") for record in decode_batch(batch) if record.offset >= offset]
        offset = header.next_offset
    return numbers, offset


def first_error(answer: Any) -> ErrorCode:
    """The first error anywhere in a response."""
    for field in answer.__fields__:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code") and value:
            return ErrorCode.of(value)
        for inner in value if isinstance(value, list) else []:
            if hasattr(inner, "__fields__") and (error := first_error(inner)) is not ErrorCode.NONE:
                return error
    return ErrorCode.NONE


def hang(address: str, topic: str, producer_id: int) -> None:
    """Begin a transaction in partition 0 that its coordinator is not told of; the broker must not verify."""
    stamp = time.time_ns() // 1_000_000
    batch = encode_batch(
        [Record(0, stamp, None, b"hanging")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        transactional_id="gone",
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    with RawConnection(address) as connection:
        assert first_error(connection.ask(request, 11)) is ErrorCode.NONE


Around = Callable[[Step, Moment], None]


class Copier:
    """One instance of the client. `version` 2 adds partitions implicitly and has another epoch in each transaction."""

    def __init__(
        self, wire: Wire, name: str, *, version: int, partitions: int = 2, timeout_ms: int = 60_000, group: str = ""
    ) -> None:
        """`name`: of the output topic, the transactional id, and, if it has no other one, the group."""
        self.wire = wire
        self.name = name
        self.group = group or name
        self.version = version
        self.partitions = partitions
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.commits = True
        self.sequences = [0] * partitions
        self.around: Around = lambda step, moment: None

    def steps(self) -> list[Step]:
        return [step for step in Step if self.version == 1 or step not in ONLY_VERSION_1]

    def copy(self) -> int:
        """One transaction; the number that was copied. Raises Refused."""
        number = self.wire.committed(self.group, self.name)
        self.begin()
        self.go_on(number, self.steps()[2:])
        return number

    def begin(self) -> None:
        """Become the instance that counts: what another one has left open is aborted."""
        self._ask(Step.FIND, lambda: self.wire.seeds[0], FindCoordinatorRequest(
            key_type=TRANSACTION_KEY, coordinator_keys=[self.name]
        ), 6)  # fmt: skip
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        answer = self._ask(Step.INIT, self._coordinator, request, 5)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = [0] * self.partitions

    def go_on(self, number: int, steps: list[Step]) -> None:
        """These steps of the transaction that copies `number`."""
        for step in steps:
            self.take(step, number)

    def take(self, step: Step, number: int) -> None:
        """One step. Raises Refused."""
        match step:
            case Step.ADD_PARTITIONS:
                self._add_partitions()
            case Step.PRODUCE:
                self._produce(step, 0, number)
            case Step.PRODUCE_MORE:
                for index in range(1, self.partitions):
                    self._produce(step, index, number)
            case Step.ADD_OFFSETS:
                request = AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=self.group,
                )
                self._ask(step, self._coordinator, request, 4)
            case Step.COMMIT_OFFSETS:
                self._commit_offsets(number + 1)
            case Step.END:
                self._end()
            case _:
                raise AssertionError(step)

    def _add_partitions(self) -> None:
        topic = AddPartitionsToTxnTopic(name=self.name, partitions=list(range(self.partitions)))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        self._ask(Step.ADD_PARTITIONS, self._coordinator, request, 3)

    def _produce(self, step: Step, index: int, number: int) -> None:
        batch = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, None, b"%d" % number)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[index],
            transactional=True,
        )
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=self.name, partition_data=[data])],
        )
        self._ask(step, lambda: self.wire.leader(self.name, index), request, 12 if self.version == 2 else 11)
        self.sequences[index] += 1

    def _commit_offsets(self, offset: int) -> None:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.name, partitions=[partition])],
        )
        version = 5 if self.version == 2 else 4
        self._ask(Step.COMMIT_OFFSETS, lambda: self.wire.coordinator(self.group, GROUP_KEY), request, version)

    def _end(self) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=self.commits,
        )
        answer = self._ask(Step.END, self._coordinator, request, 5 if self.version == 2 else 4)
        if self.version == 2 and (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = [0] * self.partitions

    def _coordinator(self) -> str | None:
        return self.wire.coordinator(self.name, TRANSACTION_KEY)

    def _ask(self, step: Step, locate: Callable[[], str | None], request: Message, version: int) -> Any:
        """The answer, of the same request sent until it is not refused for a while. Raises Refused."""
        self.around(step, Moment.BEFORE)
        address = locate()
        answer = None
        if address is not None:
            with contextlib.suppress(Closed, OSError):
                connection = self.wire.connection(address)
                connection.send_request(request, version)
                self.around(step, Moment.UNDER_WAY)
                assert request.api_key is not None
                _, answer = connection.receive(request.api_key, version)
            if answer is None:
                self.wire.forget(address)
        else:
            self.around(step, Moment.UNDER_WAY)
        if answer is None or first_error(answer) in RETRIABLE:
            answer = self.wire.until_answered(locate, request, version)
        if (error := first_error(answer)) is not ErrorCode.NONE:
            raise Refused(step, error)
        self.around(step, Moment.AFTER)
        return answer
