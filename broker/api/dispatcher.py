"""From a frame to the handler of its API, and what every request has in common before its handler runs.

A handler module has either `serve(services, raw_request)`, for the data path, or `handle(context, request)`, which
answers through the context: see `RequestContext`; or both, and `handle` is for large requests.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, NoReturn

from raftlog.broker.api.context import Handler, InTurns, OwnRequest, RawRequest, RequestContext, Services
from raftlog.broker.api.handlers import HANDLERS, module_name
from raftlog.broker.api.large_requests import LargeRequests
from raftlog.broker.api.request_metrics import RequestTimes, next_timed
from raftlog.broker.core.connection.reply import frame
from raftlog.broker.core.connection.server_side import NotYet
from raftlog.broker.server.limits import DECODED_REQUEST_BYTES_MAX, LARGE_REQUEST_BYTES, REQUEST_ENTRIES_MAX
from raftlog.wire.apis import APIS, Api, ApiKey
from raftlog.wire.codec import decode, decode_in_steps
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.headers import parse_request_header

if TYPE_CHECKING:
    from asyncio import Future
    from types import ModuleType

    from raftlog.broker.core.connection.connection import Connection
    from raftlog.wire.schema import Message

_HEADER = Struct(">hhih")
_NEVER = 1 << 15  # above every version


class Route:
    """An API that is served, with its handler once it is loaded."""

    __slots__ = (
        "api",
        "flexible_from",
        "handle",
        "max_version",
        "min_version",
        "module",
        "requests",
        "serve",
        "timed_at",
    )

    def __init__(self, api: Api, module: str) -> None:
        self.api = api
        self.module = module_name(module)
        # How many came so far, and the how manieth is to be timed; 0 for none.
        self.requests = self.timed_at = 0
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.flexible_from = _NEVER if api.flexible_from is None else api.flexible_from
        self.serve: Callable[[Services, RawRequest], None] | None = None
        self.handle: Handler[Any] | None = None

    @property
    def is_imported(self) -> bool:
        """Whether loading it takes no time."""
        return self.module in sys.modules

    def load(self) -> None:
        """Import the handler, if nobody has."""
        module = importlib.import_module(self.module)
        self.serve = getattr(module, "serve", None)
        self.handle = getattr(module, "handle", None)


class Dispatcher:
    """Takes frames from connections and gives them to handlers."""

    def __init__(self, services: Services, advertised: Mapping[str, tuple[str, int]]) -> None:
        """`advertised`: by listener; without an entry clients are told the address that they connected to."""
        self._services = services
        self._advertised = advertised
        self._routes = {int(key): Route(APIS[key], module) for key, module in HANDLERS.items()}
        # Requests of APIs whose handlers are being imported.
        self._waiting: dict[Route, list[Connection]] = {}
        self._times: RequestTimes | None = None
        self._large_requests = LargeRequests(services.loop.call_soon)
        services.counts.requests = self._requests
        services.counts.begin_timing = self._begin_timing

    def dispatch(self, connection: Connection, request: memoryview) -> None:
        """Serve one request. Raises RemoteProtocolError when the peer broke the protocol."""
        api_key, version, correlation_id, client_id_length = (
            _HEADER.unpack_from(request) if len(request) >= _HEADER.size else self._short_header(request)
        )
        route = self._routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            self._unserved(connection, api_key, version, correlation_id)
            return
        if route.serve is None and route.handle is None:
            if not route.is_imported and len(request) <= DECODED_REQUEST_BYTES_MAX:
                self._import_for(route, connection)
            route.load()
        route.requests = count = route.requests + 1
        if count == route.timed_at:
            self._time(route, connection, request)
            return
        if route.serve is None or (route.handle is not None and len(request) > LARGE_REQUEST_BYTES):
            self._handle(route, connection, request)
            return
        raw = RawRequest(connection, version, correlation_id, request)
        raw.offset = _HEADER.size + max(client_id_length, 0)
        if raw.offset > len(request):
            raise RemoteProtocolError(f"{route.api.name}: the client id is longer than the request")
        if version >= route.flexible_from:
            raw.offset = self._after_tags(request, raw.offset)
        route.serve(self._services, raw)

    def _import_for(self, route: Route, connection: Connection) -> NoReturn:
        """Import the handler in a thread, and serve the request then: that of groups took a tenth of a second, in which
        nobody was served. What the connection asks next waits.
        """
        waiting = self._waiting.get(route)
        if waiting is None:
            waiting = self._waiting[route] = []
            importing = self._services.loop.run_in_executor(None, importlib.import_module, route.module)
            importing.add_done_callback(partial(self._imported, route))
        waiting.append(connection)
        raise NotYet

    def _imported(self, route: Route, importing: Future[ModuleType]) -> None:
        waiting = self._waiting.pop(route)
        if importing.cancelled():
            return
        failure = importing.exception()
        if failure is None:
            route.load()
        for connection in waiting:
            if failure is None:
                connection.resume()
            elif isinstance(failure, Exception):
                connection.fail(failure)

    def _time(self, route: Route, connection: Connection, request: memoryview) -> None:
        """Dispatch it once more, with a watch in the hand."""
        times = self._times
        assert times is not None
        count = route.requests
        route.requests, route.timed_at = count - 1, next_timed(count)
        times.serve(route.api.key, count, connection, lambda: self.dispatch(connection, request))

    def _begin_timing(self, times: RequestTimes) -> None:
        self._times = times
        for route in self._routes.values():
            route.timed_at = route.requests + 1

    def _requests(self) -> list[tuple[Api, int]]:
        return [(route.api, route.requests) for route in self._routes.values() if route.requests]

    def serve_here(self, request: Message, version: int, take: Callable[[Message], None]) -> None:
        """Serve a request that this broker asks itself; see BrokerRequests."""
        assert request.api_key is not None
        route = self._routes[request.api_key]
        if route.handle is None:
            route.load()
        assert route.handle is not None
        route.handle(OwnRequest(self._services, route.api, version, take), request)

    @staticmethod
    def _short_header(request: memoryview) -> tuple[int, int, int, int]:
        raise RemoteProtocolError(f"a request of {len(request)} bytes is shorter than its header")

    @staticmethod
    def _after_tags(request: memoryview, offset: int) -> int:
        if offset < len(request) and request[offset] == 0:
            return offset + 1
        return parse_request_header(request).body_offset

    def _unserved(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        if api_key == ApiKey.API_VERSIONS:
            # KIP-511: a client that is newer than we are gets the v0 form, which every client can read.
            from raftlog.broker.api.api_versions import unsupported_version

            connection.reply(frame(correlation_id, unsupported_version(), flexible=False))
            return
        route = self._routes.get(api_key)
        if route is None:
            raise RemoteProtocolError(f"API key {api_key} is not served")
        raise RemoteProtocolError(
            f"{route.api.name} v{version} is not served, only v{route.api.min_version} to v{route.api.max_version}"
        )

    def _handle(self, route: Route, connection: Connection, request: memoryview) -> None:
        if len(request) > DECODED_REQUEST_BYTES_MAX:
            raise RemoteProtocolError(
                f"{route.api.name}: a request of {len(request)} bytes; only Produce may be larger than "
                f"{DECODED_REQUEST_BYTES_MAX}"
            )
        header = parse_request_header(request)
        is_large = len(request) > LARGE_REQUEST_BYTES
        if is_large and not self._large_requests.begin(connection):
            route.requests -= 1
            raise NotYet
        context = RequestContext(
            services=self._services,
            api=route.api,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            listener_name=connection.listener_name,
            advertised=self._advertised.get(connection.listener_name) or connection.local_address,
            connection=connection,
        )
        handle = route.handle
        assert handle is not None
        # A copy: the handler may keep parts of the request for longer than the receive buffer lives.
        data, cls, version, start = bytes(request), route.api.request, header.api_version, header.body_offset
        if is_large:
            decoding = decode_in_steps(cls, version, data, start, exact=False, elements_max=REQUEST_ENTRIES_MAX)
            self._handle_in_turns(context, handle, decoding)
        else:
            handle(context, decode(cls, version, data, start, exact=False, elements_max=REQUEST_ENTRIES_MAX))
            context.handler_returned()

    def _handle_in_turns(
        self, context: RequestContext, handle: Handler[Any], decoding: InTurns[Message]
    ) -> None:
        """What the connection asks next is looked at when the request is decoded and handed over."""
        connection = context.connection
        context.is_large = True
        connection.hold()
        context.handler_returned()

        def decoded(message: Message) -> None:
            connection.release()
            if not connection.closed:
                handle(context, message)

        context.in_turns(decoding, decoded)
        context.call_at_rest(partial(self._large_requests.end, connection))
