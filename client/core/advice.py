"""What to do about each error code of Kafka, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.wire.errors import ErrorCode as E

_SENTENCES: Mapping[str, tuple[E, ...]] = {
    "nothing: it is no error": (E.NONE,),
    "look into the logs of the broker": (E.UNKNOWN_SERVER_ERROR, E.PRINCIPAL_DESERIALIZATION_FAILURE),
    "create the topic, or look whether its name and the partition's number are right": (E.UNKNOWN_TOPIC_OR_PARTITION,),
    "the topic was deleted, or made anew under its name: ask for it by its name again": (
        E.UNKNOWN_TOPIC_ID,
        E.INCONSISTENT_TOPIC_ID,
        E.FETCH_SESSION_TOPIC_ID_ERROR,
    ),
    "choose another name: 1 to 249 letters, digits, dots, dashes and underscores, and none of the brokers' own": (
        E.INVALID_TOPIC_EXCEPTION,
    ),
    "choose another name, or delete the topic first": (E.TOPIC_ALREADY_EXISTS,),
    "give more partitions than the topic has, and at least one": (E.INVALID_PARTITIONS,),
    "ask for as many replicas as there are brokers, or fewer": (E.INVALID_REPLICATION_FACTOR,),
    "name brokers that are there, and each only once for a partition": (E.INVALID_REPLICA_ASSIGNMENT,),
    "look at the names and values of the settings": (E.INVALID_CONFIG,),
    "ask those who run the cluster for its policy": (E.POLICY_VIOLATION,),
    "set delete.topic.enable=true on the brokers": (E.TOPIC_DELETION_DISABLED,),
    "wait until the partition has moved, or cancel that": (E.REASSIGNMENT_IN_PROGRESS,),
    "nothing: it is as it was asked for": (E.NO_REASSIGNMENT_IN_PROGRESS, E.ELECTION_NOT_NEEDED),
    "try again when more replicas are up and in sync": (
        E.PREFERRED_LEADER_NOT_AVAILABLE,
        E.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        E.INELIGIBLE_REPLICA,
    ),
    # Records.
    "send smaller records, or raise max.message.bytes of the topic": (E.MESSAGE_TOO_LARGE,),
    "send smaller batches, or raise segment.bytes of the topic": (E.RECORD_LIST_TOO_LARGE,),
    "fewer replicas are in sync than min.insync.replicas asks for: are brokers down?": (E.NOT_ENOUGH_REPLICAS,),
    "stored, but on too few replicas: are brokers down?": (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,),
    "look at the record: a compacted topic, for one, wants a key": (E.INVALID_RECORD,),
    "give a time that message.timestamp.before.max.ms and .after.max.ms of the topic allow": (E.INVALID_TIMESTAMP,),
    "choose another compression": (E.UNSUPPORTED_COMPRESSION_TYPE,),
    "set acks to all, 1 or 0": (E.INVALID_REQUIRED_ACKS,),
    "send it again; if it comes again, look for what damages data on its way or on the broker's disk": (
        E.CORRUPT_MESSAGE,
    ),
    "look at the broker's disk: others lead the partition meanwhile, where it has more replicas": (
        E.KAFKA_STORAGE_ERROR,
        E.LOG_DIR_NOT_FOUND,
    ),
    "nothing: the record is stored": (E.DUPLICATE_SEQUENCE_NUMBER,),
    "look whether the records before it are stored, then send it again: the producer has another epoch by then": (
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        E.UNKNOWN_PRODUCER_ID,
        E.INVALID_PRODUCER_EPOCH,
    ),
    # Reading.
    "seek to an offset that is there, or set auto_offset_reset": (E.OFFSET_OUT_OF_RANGE,),
    "only brokers with tiered storage have it: seek to a later offset": (E.OFFSET_MOVED_TO_TIERED_STORAGE,),
    "set a greater max_partition_fetch_bytes": (E.INVALID_FETCH_SIZE,),
    "try again: who leads, or what is read of the log, has changed a moment ago": (
        E.LEADER_NOT_AVAILABLE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.REPLICA_NOT_AVAILABLE,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.OFFSET_NOT_AVAILABLE,
        E.FETCH_SESSION_ID_NOT_FOUND,
        E.INVALID_FETCH_SESSION_EPOCH,
    ),
    # Groups.
    "another member has the same group_instance_id; give each its own": (E.FENCED_INSTANCE_ID,),
    "the earlier member with this group_instance_id still holds it: stop it, or wait": (E.UNRELEASED_INSTANCE_ID,),
    "the group has moved on: whoever has the partition now reads again": (
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_MEMBER_EPOCH,
        E.STALE_MEMBER_EPOCH,
    ),
    "poll again, which joins the group anew": (E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED),
    "look whether the group's name is written right": (E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID),
    "stop the group's consumers first": (E.NON_EMPTY_GROUP, E.GROUP_SUBSCRIBED_TO_TOPIC),
    "all members of a group need an assignor in common": (E.INCONSISTENT_GROUP_PROTOCOL,),
    "choose a server_assignor that the brokers have": (E.UNSUPPORTED_ASSIGNOR,),
    "stop other members, or raise the limit of members that the brokers set": (E.GROUP_MAX_SIZE_REACHED,),
    "choose a session_timeout between group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers": (
        E.INVALID_SESSION_TIMEOUT,
    ),
    "keep less beside the offset, or raise offset.metadata.max.bytes of the brokers": (
        E.OFFSET_METADATA_TOO_LARGE,
        E.INVALID_COMMIT_OFFSET_SIZE,
    ),
    "try again when the transaction with these offsets has ended": (E.UNSTABLE_OFFSET_COMMIT,),
    "write the pattern as RE2 has it": (E.INVALID_REGULAR_EXPRESSION,),
    # Transactions.
    "another producer has the same transactional_id, or the transaction took longer than transaction_timeout; "
    "close this one": (E.PRODUCER_FENCED,),
    "close this producer and make a new one: the brokers have forgotten its id, or given it to another one": (
        E.INVALID_PRODUCER_ID_MAPPING,
    ),
    "look whether the transaction has ended already, as by its time-out; close this producer and make a new one": (
        E.INVALID_TXN_STATE,
    ),
    "choose a transaction_timeout below the brokers' transaction.max.timeout.ms": (E.INVALID_TRANSACTION_TIMEOUT,),
    "abort the transaction and begin again": (E.TRANSACTION_ABORTABLE,),
    "try again when the transaction before it has ended": (E.CONCURRENT_TRANSACTIONS,),
    "look whether the transactional id is written right; brokers forget those that are not used for a week": (
        E.TRANSACTIONAL_ID_NOT_FOUND,
    ),
    "another broker looks after it by now: try again": (E.TRANSACTION_COORDINATOR_FENCED, E.NOT_COORDINATOR),
    # The cluster.
    "are most brokers up?": (
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.BROKER_NOT_AVAILABLE,
        E.NOT_CONTROLLER,
        E.STALE_CONTROLLER_EPOCH,
        E.UNKNOWN_CONTROLLER_ID,
    ),
    "try again, or allow more time": (E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION),
    "send fewer requests, or raise the quota": (E.THROTTLING_QUOTA_EXCEEDED,),
    "give the brokers a listener of the same name each": (E.LISTENER_NOT_FOUND,),
    "use brokers of a newer version, or a client of an older one": (
        E.UNSUPPORTED_VERSION,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ),
    "look at what the call was given: the brokers find that it does not fit together": (
        E.INVALID_REQUEST,
        E.OPERATION_NOT_ATTEMPTED,
        E.RESOURCE_NOT_FOUND,
        E.DUPLICATE_RESOURCE,
    ),
    "make a new client with the addresses of this cluster's brokers": (
        E.INCONSISTENT_CLUSTER_ID,
        E.REBOOTSTRAP_REQUIRED,
    ),
    "ask the other kind of server: a broker in place of a controller, or the other way round": (
        E.MISMATCHED_ENDPOINT_TYPE,
        E.UNSUPPORTED_ENDPOINT_TYPE,
    ),
    "look at the ids of brokers, and whether each is up and has one of its own": (
        E.STALE_BROKER_EPOCH,
        E.DUPLICATE_BROKER_REGISTRATION,
        E.BROKER_ID_NOT_REGISTERED,
        E.INVALID_REGISTRATION,
    ),
    "look who votes in the quorum (`raftlog quorum`), then ask again": (
        E.INCONSISTENT_VOTER_SET,
        E.INVALID_VOTER_KEY,
        E.DUPLICATE_VOTER,
        E.VOTER_NOT_FOUND,
    ),
    "look at what is there now, and ask again from there": (
        E.INVALID_UPDATE_VERSION,
        E.FEATURE_UPDATE_FAILED,
        E.NEW_LEADER_ELECTED,
        E.SNAPSHOT_NOT_FOUND,
        E.POSITION_OUT_OF_RANGE,
        E.UNKNOWN_SUBSCRIPTION_ID,
        E.TELEMETRY_TOO_LARGE,
    ),
    # Security.
    "ask those who run the cluster to allow it": (
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ),
    "look at how the brokers authenticate: there is TLS in this client, and no SASL": (
        E.UNSUPPORTED_SASL_MECHANISM,
        E.ILLEGAL_SASL_STATE,
        E.SASL_AUTHENTICATION_FAILED,
        E.SECURITY_DISABLED,
        E.UNACCEPTABLE_CREDENTIAL,
        E.INVALID_PRINCIPAL_TYPE,
    ),
    "this client uses no delegation tokens: look who sends them": (
        E.DELEGATION_TOKEN_AUTH_DISABLED,
        E.DELEGATION_TOKEN_NOT_FOUND,
        E.DELEGATION_TOKEN_OWNER_MISMATCH,
        E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        E.DELEGATION_TOKEN_EXPIRED,
    ),
    "this client has no share groups and no streams groups: use one that has": (
        E.INVALID_RECORD_STATE,
        E.SHARE_SESSION_NOT_FOUND,
        E.INVALID_SHARE_SESSION_EPOCH,
        E.SHARE_SESSION_LIMIT_REACHED,
        E.FENCED_STATE_EPOCH,
        E.STREAMS_INVALID_TOPOLOGY,
        E.STREAMS_INVALID_TOPOLOGY_EPOCH,
        E.STREAMS_TOPOLOGY_FENCED,
    ),
}

ADVICE: Mapping[E, str] = {code: sentence for sentence, codes in _SENTENCES.items() for code in codes}
