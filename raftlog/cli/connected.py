"""A command's way to the brokers: makes the client, and words what goes wrong on the way for people."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.client.core.addresses import parse_addresses
from raftlog.client.core.advice import ADVICE
from raftlog.client.core.errors import BrokerUnreachable, KafkaError, NotKafka, Rejected, TimedOut
from raftlog.client.sync import SyncClient
from raftlog.wire.errors import ErrorCode, NotEncodable
from raftlog.wire.messages.metadata import MetadataResponseTopic

HINTS: dict[ErrorCode, str] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "add --if-not-exists if that is fine",
    ErrorCode.INVALID_CONFIG: "`raftlog config list --all --topic NAME` (or --broker ID, --logger ID) shows what can be"
    " set",
    ErrorCode.INVALID_REPLICATION_FACTOR: "a topic cannot have more replicas than there are brokers",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "names are 1 to 249 of a-z A-Z 0-9 . _ -, and . and _ count as the same",
    ErrorCode.INVALID_PARTITIONS: "partitions can only be added, never removed",
    ErrorCode.MESSAGE_TOO_LARGE: "`raftlog topic alter NAME -c max.message.bytes=N` lets larger ones in",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first; `raftlog group describe NAME` lists them",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has active members: stop its consumers first",
    ErrorCode.GROUP_ID_NOT_FOUND: "`raftlog group list` shows the groups there are",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "`raftlog topic describe __consumer_offsets` shows partitions without a"
    " leader; if one has a leader and cannot be read, the log of that broker says why",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`raftlog topic list` shows the topics there are, and their partitions",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another codec with -z",
    ErrorCode.NOT_CONTROLLER: "start its voters, of which most have to be up; `raftlog quorum status` shows them",
    ErrorCode.LEADER_NOT_AVAILABLE: "are most brokers up? `raftlog cluster status` tells, if one of them is",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`raftlog cluster status` shows which brokers are missing",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "it is down or not in sync yet: `raftlog cluster status` shows it",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that has everything is up; --unclean takes one that has not",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`raftlog cluster status` shows the brokers there are",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "`raftlog cluster status` shows the brokers there are",
    ErrorCode.DUPLICATE_VOTER: "`raftlog quorum status` shows the voters",
    ErrorCode.VOTER_NOT_FOUND: "`raftlog quorum status` shows the voters",
    ErrorCode.NETWORK_EXCEPTION: "its broker does not answer; `raftlog cluster status` tells which are up",
    ErrorCode.KAFKA_STORAGE_ERROR: "the partition is offline on its broker; the broker's log says why and what to do",
}


def advice_for(code: ErrorCode) -> str:
    """What to do about an error."""
    return HINTS.get(code, ADVICE[code])


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[SyncClient]:
    """A client for the brokers that the options name; its failures leave the block as CommandFailed."""
    try:
        addresses = parse_addresses(options.bootstrap_servers)
    except ValueError as error:
        raise UsageError(f"bad address: {error}", "write -b HOST:PORT") from error
    try:
        with SyncClient(addresses, client_id="raftlog-cli", timeout=options.timeout) as client:
            yield client
    except KafkaError as error:
        raise worded(error, options) from error
    except NotEncodable as error:
        hint = "a number or a name in it is too large, or is no text"
        raise UsageError(f"no broker can be asked that: {error}", hint) from error


STANDS_STILL = "a broker that is paused, or waits for a majority of its --peers, answers nobody: its log says which"


def stands_still(problem: str) -> bool:
    """Whether somebody was reached and gave no answer, by what the client says of a broker."""
    return "did not answer" in problem


def worded(error: KafkaError, options: argparse.Namespace) -> CommandFailed:
    """The failure as a sentence with advice."""
    match error:
        case Rejected():
            return CommandFailed(str(error), HINTS.get(error.code), code=error.code.name)
        case BrokerUnreachable():
            hint = "is it running? `raftlog dev --port 9092` starts one; -b HOST:PORT names another"
            if stands_still(error.reason):
                hint = f"{STANDS_STILL}; -b HOST:PORT names another"
            return CommandFailed(str(error), hint, code="BROKER_UNREACHABLE")
        case TimedOut():
            return CommandFailed(str(error), f"--timeout gives it longer than {options.timeout:g} s", code="TIMED_OUT")
        case NotKafka():
            return CommandFailed(str(error), "is -b the address of a Kafka broker without TLS?", code="NOT_KAFKA")
    return CommandFailed(str(error))


def find_topic(client: SyncClient, name: str) -> MetadataResponseTopic:
    """A topic's metadata; for a name nobody knows the failure offers the nearest one."""
    try:
        return client.admin.topic(name)
    except Rejected as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    raise no_such_topic(client, name)


def no_such_topic(client: SyncClient, name: str) -> CommandFailed:
    names = [topic.name or "" for topic in client.admin.metadata().topics]
    close = nearest(name, names)
    hint = f"did you mean {close!r}?" if close else "`raftlog topic list` shows those there are"
    return CommandFailed(f"there is no topic {name!r}", hint, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)


def no_such_group(names: list[str], name: str) -> CommandFailed:
    close = nearest(name, names)
    hint = f"did you mean {close!r}?" if close else "`raftlog group list` shows the groups there are"
    return CommandFailed(f"there is no group {name!r}", hint, code=ErrorCode.GROUP_ID_NOT_FOUND.name)
