"""Every bound of one connection, and of the memory that connections receive into, with its name and its reason.

No operator has a reason to turn them; what Kafka has a configuration for is in `broker/server/limits.py`.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

FRAME_BYTES_MIN = 8
"""The smallest request header, v0: API key, version, correlation id."""

RECEIVE_BUFFER_BYTES = 512 * KIB
"""One buffer, shared by all connections, that the kernel copies requests into. A frame that fits is served without
another copy; 256 KiB is the batch size of a well-tuned producer plus its framing."""

OWN_BUFFER_FROM_BYTES = 32 * KIB
"""A frame of which so much has come, and which is not whole yet, moves to a buffer of its own."""

ARRIVING_BYTES_MAX = 256 * MIB
"""Memory for requests that are larger than the shared buffer or arrive in pieces, over all connections, where
queued.max.request.bytes says nothing. A connection that finds none left waits for its turn."""

SMALL_REQUEST_BYTES = 2 * MIB
"""Requests up to here have a share of that memory of their own: what producers send with their own settings."""

SMALL_REQUESTS_SHARE = 4
"""That share is one part in so many."""

WAITING_BYTES_PER_SECOND = 64 * MIB
"""Who waits for memory may be passed by for as long as his request would take at this rate: who waits for little goes
first, and nobody waits for ever."""

SLOW_SECONDS = 0.5
"""While somebody waits for memory, those who have some are looked at after every so many seconds."""

SLOW_PART = 64
"""Whose request has grown by less than one part in so many of what it holds has to give it up: 3 MiB a second of 95,
or 32 KiB of one."""

KEPT_PART = 8
"""What connections keep of requests that they have received and cannot look at yet may be one part in so many of the
memory for requests; then less is received at once."""

PRESSED_RECEIVE_BYTES = 64 * KIB
"""How much is received at once while somebody waits for memory, or much is kept: of a request that has to wait, too, so
much is kept."""

SPARE_BUFFER_BYTES_MAX = 8 * MIB
"""Buffers for large requests that are kept for the next one instead of being given back to the system."""

REQUEST_ARRIVAL_SECONDS_MAX = 60
"""A request must arrive whole within this time once its first byte has: a sender of one byte a minute may not hold its
memory, whether others need it or not."""

INFLIGHT_REQUESTS_PER_CONNECTION_MAX = 128
"""Requests of one connection that may be waiting for their reply. librdkafka allows a million in flight, Java five;
what is over the bound stays in the socket, so that the client is slowed and nobody else."""

UNSENT_BYTES_PER_CONNECTION_MAX = 4 * MIB
"""Bytes of replies one connection may leave unread before its next request is looked at. File ranges do not count: they
take no memory."""

SEND_BYTES_PER_TURN = 4 * MIB
"""Bytes sent to one connection before the others get their turn."""

BUFFERS_PER_SEND_MAX = 256
"""Buffers handed to one sendmsg call; IOV_MAX is 1,024 on Linux."""
