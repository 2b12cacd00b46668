"""What can go wrong on the wire: Kafka's error codes, and the exceptions of the codec.

Three kinds of failure are kept apart: an expected outcome travels as an `ErrorCode` in a reply, a peer that
breaks the protocol raises `RemoteProtocolError` and loses its connection, and a mistake of our own raises
`InvariantViolation` (or `NotEncodable` where a caller asked for bytes that do not exist).
"""

from __future__ import annotations

from enum import IntEnum


class RemoteProtocolError(Exception):
    """The other side sent bytes that are not the Kafka protocol: malformed, truncated or lying."""


class Malformed(RemoteProtocolError):
    """The bytes of a message do not follow the protocol. Says what is wrong, not where."""


class InvariantViolation(Exception):
    """Something that our own code promised does not hold. Never the fault of a peer."""


class NotEncodable(ValueError):
    """A message holds a value that has no form on the wire: out of range, null, or of the wrong type."""


class UnsupportedVersionField(NotEncodable):
    """A field has a value that matters, but the version to encode does not have the field.

    As in Kafka, fields marked ignorable are left out silently, and so are fields that hold their default.
    """


class ErrorCode(IntEnum):
    """Kafka's error codes. Each line: code, may the client retry, and the message for a person."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member for a code from the wire; codes of newer brokers read as UNKNOWN_SERVER_ERROR."""
        member = cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)
        assert isinstance(member, cls)
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in a way that no other error code describes."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside the offsets that the partition holds."
    CORRUPT_MESSAGE = 2, True, "A record batch is damaged: its checksum, size or form is wrong."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not know the topic or the partition."
    INVALID_FETCH_SIZE = 4, False, "The size asked for in the fetch is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker neither leads nor follows the partition."
    REQUEST_TIMED_OUT = 7, True, "The time allowed for the request ran out before it was done."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica asked for is not available."
    MESSAGE_TOO_LARGE = 10, False, "A record batch is larger than the topic allows (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller that sent this has been replaced by a newer one."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata string of a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection broke before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "No coordinator is available for this key at the moment."
    NOT_COORDINATOR = 16, True, "Another broker is the coordinator for this key."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not valid, or not for this use."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batches are larger than a segment of the log may be."
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync: nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "The records were written, but too few replicas are in sync."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1 (all), 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member of the group."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout lies outside the limits that the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: the member has to join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset to commit does not fit the size allowed."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized for this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized for this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for this operation on the cluster."
    INVALID_TIMESTAMP = 32, False, "The timestamp of a record lies outside the range that the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not support this version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the broker count."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas to brokers is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the active controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or lacks something."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The record format on the broker does not support this."
    POLICY_VIOLATION = 44, False, "The request breaks a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number is not the next one expected."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was seen before."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer producer of the same id has taken over (old epoch)."
    INVALID_TXN_STATE = 48, False, "The transaction is in a state that does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id is not the one of this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on this transaction is still going on."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The coordinator that wrote this marker has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized for this transactional id."
    SECURITY_DISABLED = 54, False, "The broker runs without the security feature that this needs."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not attempted, because another part of the same request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed under the log of this partition."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no log directory of this path."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker holds no state for this producer id on the partition."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition's replicas are being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Delegation tokens need TLS or SASL."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This kind of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker does not know this fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch of the fetch session is not the next one expected."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name that the request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client cannot read the compression of these records."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since: its epoch is old."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know yet how far the log is committed."
    MEMBER_ID_REQUIRED = 79, False, "The member has to join again with the member id it was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may become leader is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the leader it should have."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition's replicas are not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic: its offsets stay."
    INVALID_RECORD = 87, False, "A record is not valid for this topic."
    UNSTABLE_OFFSET_COMMIT = 88, True, "A transaction that committed offsets is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota for this kind of request is used up."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, "What the request refers to does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "Sender and receiver disagree about who votes in the quorum."
    INVALID_UPDATE_VERSION = 95, False, "The update is based on an older version of the state."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal of a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not know the topic id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker has registered with this id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker has registered with this id."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id in the log is not the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The coordinator does not know this transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "Topic ids and topic names were mixed in one fetch session."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the in-sync replicas."
    NEW_LEADER_ELECTED = 108, False, "The change to the in-sync replicas made another broker the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset lies in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is old: it has to join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old: it has a newer one to retry with."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "No controller of this id is known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry sent is larger than the broker takes."
    INVALID_REGISTRATION = 119, False, "The controller finds the registration not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed and has to be aborted."
    INVALID_RECORD_STATE = 121, False, "The record is in a state that does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker does not know this share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch of the share session is not the next one expected."
    FENCED_STATE_EPOCH = 124, False, "The share coordinator has a newer state epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's id and directory do not belong to the receiver."
    DUPLICATE_VOTER = 126, False, "The voter belongs to the quorum already."
    VOTER_NOT_FOUND = 127, False, "The voter does not belong to the quorum."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client has to start over from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the streams topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The epoch of the streams topology is old."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has as many share sessions as it may have."
