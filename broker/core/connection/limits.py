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

OWN_BUFFER_BYTES = 1 * MIB
"""The least size of such a buffer, which most producers' batches never outgrow."""

OWN_BUFFER_GROWTH = 4
"""By what it grows with what has come: a length that lies costs its sender as much as us."""

ARRIVING_BYTES_MAX = 256 * MIB
"""Memory for requests that are larger than the shared buffer and still arriving, over all connections. A connection
that finds none left waits for its turn. Kafka: queued.max.request.bytes (there unlimited)."""

SPARE_BUFFER_BYTES_MAX = 8 * MIB
"""Buffers for large requests that are kept for the next one instead of being given back to the system."""

REQUEST_ARRIVAL_SECONDS_MAX = 60
"""A request must arrive whole within this time once its first byte has: a sender of one byte a minute may not hold its
share of ARRIVING_BYTES_MAX."""

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
