"""Why a client call failed, as one small tree of exceptions."""

from __future__ import annotations

from raftlog.wire.errors import ErrorCode


class ClientError(Exception):
    """Every failure of a call to the brokers."""


class BrokerUnreachable(ClientError):
    """No connection to any of `addresses` could be made or kept."""

    def __init__(self, addresses: list[str], reason: str) -> None:
        super().__init__(f"no broker answers at {', '.join(addresses)} ({reason})")
        self.addresses = addresses
        self.reason = reason


class TimedOut(ClientError):
    """The brokers did not do it in time; it may still happen later."""


class NotKafka(ClientError):
    """Whatever listens there does not speak the Kafka protocol, or no version of a request that we speak."""


class Rejected(ClientError):
    """A broker answered with an error code. `subject` is what it was about, e.g. `topic 'orders'`."""

    def __init__(self, code: ErrorCode, subject: str, detail: str | None = None) -> None:
        about = detail or code.message
        name = subject.partition("'")[2].rpartition("'")[0] or subject
        # The broker's own sentence often names the subject already.
        super().__init__(about if name in about else f"{subject}: {about}")
        self.code = code
        self.subject = subject
        self.detail = detail
