"""Faults of requests, in the broker that is asked: between its connections and its dispatcher.

It stands there only while such a fault is in force. A request whose answer is to be changed or lost is carried out on a
connection of its own, which leads nowhere (`Aside`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial

from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.reply import Buffer, FileRange, PendingReply, frame
from raftlog.broker.core.connection.server_side import Dispatch, ServerSide
from raftlog.broker.core.connection.transport import Fault
from raftlog.testing.faults.answers import KEPT, put_in, refusal
from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.last_requests import INTER_BROKER_CLIENTS
from raftlog.testing.faults.matching import ANY_API, fits_client, fits_request, looks_inside
from raftlog.testing.faults.spec import PROTOCOL, FaultSpec
from raftlog.wire.apis import APIS, Api, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import RequestHeader, parse_request_header, parse_response_header
from raftlog.wire.schema import Message

log = logging.getLogger("raftlog.faults")

FETCH_SESSION_CODES = ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR")


class ProtocolFaults:
    """Those of one broker. `install` says which are in force."""

    def __init__(self, directory: FaultDirectory, broker: int, brokers_listener: str) -> None:
        """`brokers_listener`: where only other brokers come in, "" if they use that of the clients."""
        self._directory = directory
        self._broker = broker
        self._brokers_listener = brokers_listener
        self._dispatch: Dispatch | None = None
        self._side: ServerSide | None = None
        self._connections: Callable[[], list[Connection]] = list
        self._specs: list[FaultSpec] = []
        self._swallowed: dict[int, dict[Connection, None]] = {}

    def stand_between(self, side: ServerSide, dispatch: Dispatch, connections: Callable[[], list[Connection]]) -> None:
        """`side` has `dispatch`, and will have ours while there are faults."""
        self._side, self._dispatch, self._connections = side, dispatch, connections
        self.install(self._specs)

    def install(self, specs: Sequence[FaultSpec]) -> None:
        """These faults are in force, in this order, and no others."""
        self._specs = [spec for spec in specs if spec.kind in PROTOCOL and spec.is_at(self._broker)]
        if self._side is not None and self._dispatch is not None:
            self._side.dispatch = self._consider if self._specs else self._dispatch
            for connection in self._connections() if self._specs else ():
                connection.repeat_matcher = None  # its next request comes to us, too
        for number in {*self._swallowed} - {spec.number for spec in self._specs}:
            # What they asked is lost: as with a network that comes back, they have to begin again.
            for connection in self._swallowed.pop(number):
                connection.close("a fault is over that swallowed its requests")

    # -- a request ---------------------------------------------------------------------------------

    def _consider(self, connection: Connection, request: memoryview) -> None:
        header = parse_request_header(request)
        api = APIS[header.api_key]
        message = self._decoded(header, api, request)
        for spec in self._specs:
            if spec.api not in (ANY_API, api.name) or not self._is_meant(spec, connection, header):
                continue
            if message is not None and self._has_to_name_all(spec, message):
                code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                answer = refusal(message, api.response, header.api_version, code)
                assert answer is not None
                self._answer(connection, header, encode(answer, header.api_version))
                return
            if looks_inside(spec) and not (message is not None and fits_request(spec, message)):
                continue
            if self._directory.hit(spec.number) and spec.kind != "observe":
                self._happen(spec, connection, header, request)
                return
        self._pass(connection, request)

    def _decoded(self, header: RequestHeader, api: Api, request: memoryview) -> Message | None:
        """The request, if any fault has to look into it."""
        specs = [spec for spec in self._specs if spec.api in (ANY_API, api.name)]
        if any(spec.kind == "error" or looks_inside(spec) for spec in specs):
            return decode(api.request, header.api_version, bytes(request), header.body_offset, exact=False)
        return None

    def _is_meant(self, spec: FaultSpec, connection: Connection, header: RequestHeader) -> bool:
        client = header.client_id
        from_broker = connection.listener_name == self._brokers_listener or (client or "").startswith(
            INTER_BROKER_CLIENTS
        )
        return fits_client(spec, client, from_broker=from_broker)

    def _has_to_name_all(self, spec: FaultSpec, request: Message) -> bool:
        """A fetch in a session names what has changed alone. Its client is told to begin anew, and names all."""
        if getattr(request, "session_epoch", -1) <= 0 or spec.code in FETCH_SESSION_CODES:
            return False
        now = self._directory.read(spec.number)
        is_used_up = now.is_healed or 0 <= now.when.times <= now.evidence.fired
        return not is_used_up and (spec.kind == "error" or looks_inside(spec))

    def _pass(self, connection: Connection, request: memoryview) -> None:
        assert self._dispatch is not None
        self._dispatch(connection, request)
        connection.repeat_matcher = None

    def _happen(self, spec: FaultSpec, connection: Connection, header: RequestHeader, request: memoryview) -> None:
        log.info("fault=%d %s client=%r %s", spec.number, spec.kind, header.client_id, APIS[header.api_key].name)
        match spec.kind:
            case "blackhole":
                self._swallowed.setdefault(spec.number, {})[connection] = None
                connection.reserve_place()
            case "delay":
                connection.hold()
                later = partial(self._after_delay, connection, bytes(request))
                asyncio.get_running_loop().call_later(spec.seconds, later)
            case "disconnect" if not spec.applied:
                connection.close("a fault disconnects it")
            case "disconnect":
                self._aside(connection, request, header, lambda _: None)
            case _:
                self._refuse(spec, connection, header, request)

    def _after_delay(self, connection: Connection, request: bytes) -> None:
        if connection.closed:
            return
        connection.release()
        try:
            self._pass(connection, memoryview(request))
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            connection.fail(error)

    def _refuse(self, spec: FaultSpec, connection: Connection, header: RequestHeader, request: memoryview) -> None:
        api, version, code = APIS[header.api_key], header.api_version, ErrorCode[spec.code]
        if api.key in KEPT:
            self._aside(connection, request, header, partial(self._spoilt, spec, api, version))
            return
        message = decode(api.request, version, bytes(request), header.body_offset, exact=False)
        answer = refusal(message, api.response, version, code)
        if answer is None:
            self._has_missed(spec, api, version)
            self._pass(connection, request)
            return
        body = encode(answer, version)
        if spec.applied:
            self._aside(connection, request, header, lambda _: body)
        elif api.key == ApiKey.PRODUCE and getattr(message, "acks", 1) == 0:
            connection.close("a record without acknowledgement was refused")
        else:
            self._answer(connection, header, body)

    def _spoilt(self, spec: FaultSpec, api: Api, version: int, body: bytes) -> bytes:
        answer = decode(api.response, version, body)
        if not put_in(answer, version, ErrorCode[spec.code]):
            self._has_missed(spec, api, version)
        return encode(answer, version)

    def _has_missed(self, spec: FaultSpec, api: Api, version: int) -> None:
        """An answer has no place for an error, such as that of Metadata about no topic: it is not counted."""
        log.info("fault=%d %s v%d has no place for an error: it passes", spec.number, api.name, version)

        def take_back(found: FaultSpec) -> None:
            found.evidence.calls -= 1
            found.evidence.fired -= 1

        self._directory.change(spec.number, take_back)

    @staticmethod
    def _answer(connection: Connection, header: RequestHeader, body: bytes) -> None:
        flexible = _is_flexible(APIS[header.api_key], header.api_version)
        connection.reply(frame(header.correlation_id, body, flexible=flexible))

    def _aside(
        self,
        connection: Connection,
        request: memoryview,
        header: RequestHeader,
        answer: Callable[[bytes], bytes | None],
    ) -> None:
        """Carry a request out, and answer what `answer` makes of the response; None ends the connection."""
        assert self._side is not None and self._dispatch is not None
        api, version = APIS[header.api_key], header.api_version
        place = connection.reserve_place()

        def answered(reply: bytes) -> None:
            _, offset = parse_response_header(header.api_key, version, reply)
            body = answer(reply[offset:])
            if body is None:
                connection.close("a fault disconnects it")
            else:
                place.complete(frame(header.correlation_id, body, flexible=_is_flexible(api, version)))

        aside = Aside(self._side, connection, place, answered)
        try:
            self._dispatch(aside.connection, request)
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            connection.fail(error)
        if not aside.is_answered and aside.connection.is_idle:
            place.complete([])  # the request is of those that get no response


def _is_flexible(api: Api, version: int) -> bool:
    return api.response_header_version(version) > 0


class Aside:
    """A connection that leads nowhere, for one request: a Transport that keeps what it is given."""

    def __init__(
        self, side: ServerSide, instead_of: Connection, place: PendingReply, answered: Callable[[bytes], None]
    ) -> None:
        self.connection = Connection(
            side,
            self,
            (instead_of.peer_host, instead_of.peer_port),
            instead_of.local_address,
            instead_of.listener_name,
        )
        self.connection.software = instead_of.software
        self.is_answered = False
        self._instead_of = instead_of
        self._place = place
        self._answered = answered
        self._reply = bytearray()

    def send(self, buffer: Buffer, /) -> int:
        """See Transport."""
        self._reply += buffer
        if len(self._reply) >= 4 and len(self._reply) - 4 >= int.from_bytes(self._reply[:4], "big"):
            reply, self._reply = bytes(self._reply[4:]), bytearray()
            self.is_answered = True
            self.call_soon(partial(self._end, reply))
        return len(buffer)

    def _end(self, reply: bytes) -> None:
        self.connection.close("its one request is answered")
        if not self._instead_of.closed:
            self._answered(reply)

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        """See Transport."""
        return sum(self.send(buffer) for buffer in buffers)

    def send_file(self, file: FileRange, start: int) -> int:
        """See Transport."""
        return self.send(os.pread(file.fileno(), file.length - start, file.position + start))

    def watch_writable(self, wanted: bool) -> None:
        """See Transport."""

    def pause_reading(self) -> None:
        """See Transport."""

    def resume_reading(self) -> None:
        """See Transport."""

    def end_when_silent(self) -> None:
        """See Transport."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """See Transport."""
        asyncio.get_running_loop().call_soon(callback)

    def bug(self, error: Exception) -> None:
        """See Transport."""
        log.error("a bug in serving a request aside", exc_info=error)

    def close(self, reason: str, fault: Fault) -> None:
        """See Transport."""
        if not self.is_answered:
            self._instead_of.close(reason, fault=fault)
