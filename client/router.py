"""Finds the broker that can answer, asks it, and asks again when that may help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from raftlog.client.connection import Connection, Reply
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import BrokerUnreachable, Closed, KafkaError, Rejected, TimedOut, check
from raftlog.client.core.metadata import NO_LEADER, ClusterMetadata
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from raftlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from raftlog.wire.schema import Message

if TYPE_CHECKING:
    import ssl

Result = TypeVar("Result")

UNANSWERED = (None, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
"""The codes of errors after which nobody knows what was done."""
FIRST_BACKOFF_SECONDS = 0.02
LONGEST_BACKOFF_SECONDS = 1.0
ANY_BROKER = -1
GROUP, TRANSACTION = 0, 1
"""What a coordinator coordinates (FindCoordinator)."""


class Router:
    """A connection per broker and lane, opened when needed, and what was learned about the cluster.

    `timeout` (seconds) bounds one call with all its retries. A lane is a connection of its own: requests that the
    broker keeps waiting on purpose (a fetch, a join) would hold up whatever comes behind them.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str = "raftlog",
        timeout: float = 15.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.timeout = timeout
        self.known = ClusterMetadata()
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._tls = tls
        self._connections: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._coordinators: dict[tuple[str, int], int] = {}
        self._first_address = 0
        self._reached = False
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._opening and not any(each.in_flight for each in self._connections.values())

    async def close(self) -> None:
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def ask(
        self,
        request: Message,
        reply: type[Reply],
        *,
        node: int = ANY_BROKER,
        lane: str = "",
        timeout: float | None = None,
        highest: int | None = None,
    ) -> Reply:
        """One request to one broker, not retried; `timeout` seconds in place of the router's.

        `highest` bounds the version.
        """
        seconds = self.timeout if timeout is None else timeout
        connection = await self.connection(node, lane=lane)
        return await connection.request(request, reply, seconds, highest=highest)

    async def ask_coordinator(
        self,
        key: str,
        request: Message,
        reply: type[Reply],
        *,
        kind: int = GROUP,
        lane: str = "",
        timeout: float | None = None,
        highest: int | None = None,
    ) -> Reply:
        """One request to the coordinator of a consumer group or a transactional id, not retried."""
        node = await self.coordinator(key, kind)
        return await self.ask(request, reply, node=node, lane=lane, timeout=timeout, highest=highest)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        also: Iterable[ErrorCode] = (),
        timeout: float | None = None,
    ) -> Result:
        """Call `attempt` until it succeeds, fails for good, or `timeout` seconds have passed.

        Worth another try are lost connections to a cluster that was reached before, retriable error codes and the
        codes in `also`. What was learned about the cluster is forgotten first, for it may be the cause.
        UNKNOWN_TOPIC_OR_PARTITION is retriable by Kafka's book, but people mistype: it is only retried when in `also`.
        """
        seconds = self.timeout if timeout is None else timeout
        failures: list[KafkaError] = []
        try:
            async with asyncio.timeout(seconds):
                return await self._try_on(attempt, set(also), failures)
        except TimeoutError:
            self.forget()
            if failures:
                raise failures[-1] from None
            raise TimedOut(f"the brokers did not answer within {seconds:g} s") from None

    async def changing(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """`retrying` for what changes something. Who tries again after an attempt that was not answered may be refused
        for what that one did, as by TOPIC_ALREADY_EXISTS: such a Rejected is `in_doubt`.
        """
        is_unanswered = False

        async def watched() -> Result:
            nonlocal is_unanswered
            try:
                return await attempt()
            except KafkaError as error:
                is_unanswered |= error.code in UNANSWERED
                raise

        try:
            return await self.retrying(watched)
        except Rejected as error:
            error.in_doubt = is_unanswered
            raise

    async def _try_on(
        self, attempt: Callable[[], Awaitable[Result]], wanted: set[ErrorCode], failures: list[KafkaError]
    ) -> Result:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not self._worth_another_try(error, wanted):
                    raise
                failures[:] = [error]
            self.forget()
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)

    def forget(self) -> None:
        """Ask anew who coordinates what and who leads."""
        self._coordinators.clear()
        self.known.topics = {
            name: topic._replace(
                partitions={index: each._replace(leader=NO_LEADER) for index, each in topic.partitions.items()}
            )
            for name, topic in self.known.topics.items()
        }

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        self._coordinators.pop((key, kind), None)

    def _worth_another_try(self, error: KafkaError, wanted: set[ErrorCode]) -> bool:
        if isinstance(error, BrokerUnreachable | TimedOut):
            return self._reached
        if not isinstance(error, Rejected):
            return False
        return error.code in wanted or (error.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def metadata(self, topics: Sequence[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """What any broker knows about `topics` (None: all). `create` lets the broker create missing ones."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer = await self.ask(request, MetadataResponse)
        check(answer.error_code, "metadata")
        self.known.update(answer)
        return answer

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic's metadata. Raises Rejected, for example with UNKNOWN_TOPIC_OR_PARTITION."""
        (topic,) = (await self.metadata([name], create=create)).topics
        check(topic.error_code, f"topic {name!r}")
        return topic

    async def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader. Raises Rejected when the partition is unknown or has none."""
        if self.known.leader((topic, partition)) == NO_LEADER:
            await self.topic(topic)
        if partition not in self.known.topics[topic].partitions:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}[{partition}]", "there is no such partition")
        leader = self.known.leader((topic, partition))
        if leader == NO_LEADER:
            raise Rejected(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}[{partition}]")
        return leader

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The node id of the broker that looks after a consumer group or a transactional id."""
        if (key, kind) not in self._coordinators:
            answer = await self.ask(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse)
            subject = f"{'group' if kind == GROUP else 'transactional id'} {key!r}"
            check(answer.error_code, subject, answer.error_message)
            self.known.found(answer.node_id, Address(answer.host, answer.port))
            self._coordinators[key, kind] = answer.node_id
        return self._coordinators[key, kind]

    async def connection(self, node: int = ANY_BROKER, *, lane: str = "") -> Connection:
        """The connection to a broker, or to any. Raises BrokerUnreachable, or Rejected for an unknown one."""
        if self._closed:
            raise Closed("the client is closed")
        found = self._connections.get((node, lane))
        if found is not None and found.is_open:
            return found
        task = self._opening.get((node, lane))
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(node, lane))
            self._opening[node, lane] = task
            task.add_done_callback(lambda done: self._opened((node, lane), done))
        # Several may wait for it: one who is cancelled takes nobody's connection away.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                return await self.connection(node, lane=lane)  # somebody cancels whatever tasks there are
            raise

    def disconnect(self, node: int, *, lane: str = "") -> None:
        """Drop the connection to a broker that does not answer; the next request makes a new one."""
        connection = self._connections.pop((node, lane), None)
        if connection is not None:
            connection.close(BrokerUnreachable([str(connection.address)], "it did not answer, and is not waited for"))

    def _opened(self, key: tuple[int, str], task: asyncio.Task[Connection]) -> None:
        self._opening.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._connections[key] = task.result()

    async def _open(self, node: int, lane: str) -> Connection:
        if node == ANY_BROKER:
            return await self._open_any()
        if node not in self.known.nodes:
            await self.metadata([])
        if node not in self.known.nodes:
            known = ", ".join(str(each) for each in sorted(self.known.nodes))
            error = Rejected(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}", f"the cluster only has broker {known}")
            # Of one that was there, somebody else has the partitions and groups by now, or soon.
            error.retriable = node in self.known.gone
            raise error
        address = self.known.nodes[node].address
        return await Connection.open(address, self._client_id, self.timeout, tls=self._tls)

    async def _open_any(self) -> Connection:
        reasons: list[str] = []
        addresses = list(dict.fromkeys([*self._bootstrap, *(each.address for each in self.known.nodes.values())]))
        # One that stands still takes connections and answers nothing: the others have to get their turn.
        timeout = self.timeout / len(addresses) if len(addresses) > 1 else self.timeout
        first = self._first_address % len(addresses)
        for address in addresses[first:] + addresses[:first]:
            self._first_address += 1
            try:
                connection = await Connection.open(address, self._client_id, timeout, tls=self._tls)
            except (BrokerUnreachable, TimedOut) as error:
                reasons.append(error.reason if isinstance(error, BrokerUnreachable) else str(error))
                continue
            self._reached = True
            return connection
        raise BrokerUnreachable([str(each) for each in addresses], ", ".join(dict.fromkeys(reasons)))


class TopicIds(Mapping[str, bytes]):
    """Topic ids by name, as they are known at the time."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def __getitem__(self, name: str) -> bytes:
        return self._router.known.topics[name].topic_id

    def __iter__(self) -> Iterator[str]:
        return iter(self._router.known.topics)

    def __len__(self) -> int:
        return len(self._router.known.topics)
