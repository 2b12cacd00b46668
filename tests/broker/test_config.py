"""What a broker is told at its start: files, overrides, and what is wrong with them, all at once."""

from __future__ import annotations

import pytest

from raftlog.broker.config import BrokerConfig, ConfigError, Voter, parse_properties
from raftlog.metadata.records import Endpoint

LEAST = {"node.id": "1", "log.dirs": "/data"}


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({**LEAST, **{name.replace("_", "."): value for name, value in settings.items()}})


def problems(**settings: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as error:
        config(**settings)
    return error.value.problems


def test_values_have_their_types_and_defaults_are_filled_in() -> None:
    found = config(num_partitions="3", log_cleanup_policy="compact,delete", auto_create_topics_enable="FALSE")
    assert found["num.partitions"] == 3
    assert found["log.cleanup.policy"] == ("compact", "delete")
    assert found["auto.create.topics.enable"] is False
    assert found["socket.request.max.bytes"] == 104_857_600
    assert (found.node_id, found.data_dirs) == (1, ("/data",))
    assert found.metadata_directory == "/data/__cluster_metadata"
    assert found.static["num.partitions"] == "3"
    assert found.is_given("num.partitions") and not found.is_given("message.max.bytes")


def test_snake_case_is_another_spelling() -> None:
    assert BrokerConfig({**LEAST, "num_partitions": "4"})["num.partitions"] == 4


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = problems(num_partition="1", num_partitions="x", ssl_key_password="secret", log_dirs="")
    assert len(found) == 4
    assert "did you mean num.partitions?" in found[0]
    assert "Not a number of type INT" in found[1]
    assert "ssl.key.password is not supported by raftlog: it has no TLS yet" in found[2]
    assert "log.dirs is missing" in found[3]
    assert not any("secret" in problem for problem in found)


def test_the_least_that_a_broker_needs_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"(?s)node\.id is missing.*log\.dirs is missing"):
        BrokerConfig({})


def test_older_names_stand_in() -> None:
    assert BrokerConfig({"broker.id": "5", "log.dir": "/data"}).node_id == 5
    assert BrokerConfig({"broker.id": "5", "log.dir": "/data"}).data_dirs == ("/data",)
    assert "set only node.id" in problems(broker_id="2")[0]
    assert config(log_dirs="/a,/b", log_dir="/c").data_dirs == ("/a", "/b")
    assert config(metadata_log_dir="/m").metadata_directory == "/m/__cluster_metadata"


def test_listeners_are_read() -> None:
    found = config(listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093", controller_listener_names="CONTROLLER")
    assert found.endpoints == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert found.peer_endpoints == (Endpoint("CONTROLLER", "", 9093),)
    six = config(listeners="PLAINTEXT://[::1]:0")
    assert six.endpoints == (Endpoint("PLAINTEXT", "::1", 0),)
    named = config(
        listeners="IN://:9092,OUT://:9094",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        advertised_listeners="OUT://kafka.example:19094",
        inter_broker_listener_name="IN",
    )
    assert named.advertised == {"OUT": ("kafka.example", 19094)}
    assert named.inter_broker_listener == "IN"
    assert named.registered_endpoints() == (
        Endpoint("IN", "", 9092),
        Endpoint("OUT", "kafka.example", 19094),
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://:70000"}, "expected NAME://host:port"),
        ({"listeners": "SSL://:9092"}, "SSL is not supported, raftlog has no TLS"),
        ({"listeners": "MINE://:9092"}, "says nothing about MINE"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "the name PLAINTEXT twice"),
        ({"listeners": "CONTROLLER://:1", "controller_listener_names": "CONTROLLER"}, "no listener for clients"),
        ({"controller_listener_names": "CONTROLLER"}, "which is not among the listeners"),
        ({"advertised_listeners": "CONTROLLER://a:1"}, "CONTROLLER, which is not among the listeners"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "which no client can connect to"),
        ({"advertised_listeners": "PLAINTEXT://:9092"}, "which no client can connect to"),
        ({"inter_broker_listener_name": "X"}, "no listener has that name"),
        ({"security_inter_broker_protocol": "SSL"}, "must be PLAINTEXT"),
        ({"listener_security_protocol_map": "X"}, "expected NAME:PROTOCOL"),
        ({"process_roles": "controller"}, "process.roles must have broker in it"),
        ({"process_roles": "broker"}, "say in controller.quorum.voters who decides"),
        ({"process_roles": "broker", "controller_quorum_voters": "1@h:1"}, "a node that votes is both"),
        ({"log_dirs": "/a,/a"}, "names a directory twice"),
        ({"cordoned_log_dirs": "/data,/nowhere"}, "Missing entries : /nowhere"),
        ({"cordoned_log_dirs": "*,/data"}, "must not contain other values"),
        ({"controller_quorum_voters": "1@h:1,1@h:2"}, "names node 1 twice"),
        ({"controller_quorum_voters": "1@h:1,2@h:1"}, "has the address h:1 twice"),
        ({"controller_quorum_voters": "1@h:9092", "listeners": "PLAINTEXT://h:9092"}, "need a port of their own"),
        ({"broker_session_timeout_ms": "500"}, "has to have room for two heartbeats"),
        ({"group_consumer_max_session_timeout_ms": "1"}, "max.session.timeout.ms must be greater than or"),
        ({"group_consumer_session_timeout_ms": "1"}, "or equal to group.consumer.min.session.timeout.ms"),
        ({"group_consumer_heartbeat_interval_ms": "20000"}, "to group.consumer.heartbeat.interval.ms"),
        ({"group_consumer_min_assignment_interval_ms": "2000"}, "to group.consumer.min.assignment.interval.ms"),
        ({"raftlog_disk_free_warning_percent": "2"}, "or equal to raftlog.disk.free.critical.percent"),
        ({"raftlog_disk_free_warning_percent": "300"}, "raftlog.disk.free.warning.percent"),
        ({"controller_quorum_voters": "h:1"}, "expected id@host:port"),
    ],
)  # fmt: skip
def test_combinations_that_make_no_sense_are_refused_in_words(settings: dict[str, str], message: str) -> None:
    found = problems(**settings)
    assert len(found) == 1 and message in found[0], found


def test_a_quorum_of_this_node_alone_is_fine() -> None:
    found = config(controller_quorum_voters="1@127.0.0.1:9093")
    assert found.voters == (Voter(1, "127.0.0.1", 9093),)
    assert found.peer_listen == ("127.0.0.1", 9093)


def test_a_node_that_the_voters_do_not_name_is_an_observer() -> None:
    found = config(controller_quorum_voters="2@h:1,3@h:2")
    assert found.has_peers and found.peer_listen is None
    assert not config().has_peers


def test_a_broker_among_others_says_where_it_is_and_one_alone_tells_each_client_the_address_it_came_by() -> None:
    alone = config(listeners="PLAINTEXT://10.0.0.1:9092")
    assert alone.registered_endpoints()[0].host == ""
    among = config(listeners="PLAINTEXT://10.0.0.1:0", controller_quorum_voters="1@10.0.0.1:1,2@h:2")
    (endpoint,) = among.registered_endpoints({"PLAINTEXT": 4711})
    assert (endpoint.host, endpoint.port) == ("10.0.0.1", 4711)
    everywhere = config(listeners="PLAINTEXT://0.0.0.0:9092", controller_quorum_voters="1@10.0.0.1:1,2@h:2")
    assert everywhere.registered_endpoints()[0].host == ""


def test_properties_files_are_read_as_java_reads_them() -> None:
    text = (
        "# a comment\n! another\n\n"
        "node.id=1\n"
        "  log.dirs : /a,\\\n     /b  \n"
        "broker.rack r\\u0031\\=x\n"
        "key\\ with\\ blanks = v\\tw\n"
        "listeners=PLAINTEXT://:9092\n"
        "empty\n"
        "node.id=2"
    )
    assert parse_properties(text) == {
        "node.id": "2",
        "log.dirs": "/a,/b  ",
        "broker.rack": "r1=x",
        "key with blanks": "v\tw",
        "listeners": "PLAINTEXT://:9092",
        "empty": "",
    }


STOCK_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=16
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/raftlog
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of the file that Kafka comes with for one node, and a number of threads that somebody changed."""


def test_kafkas_own_file_for_one_node_is_taken_and_what_has_no_effect_is_told() -> None:
    found = BrokerConfig(parse_properties(STOCK_FILE))
    assert found["offsets.topic.replication.factor"] == 1 and not found.has_peers
    assert [name for names in found.without_effect.values() for name in names] == [
        "num.io.threads",
        "num.recovery.threads.per.data.dir",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ]
    assert found.without_effect["it recovers one log after the other"] == ["num.recovery.threads.per.data.dir"]


def test_what_has_no_effect_must_be_right_all_the_same() -> None:
    assert "Not a number of type INT" in problems(num_io_threads="many")[0]


def test_memory_for_requests_has_room_for_one_of_them() -> None:
    assert "queued.max.request.bytes is 1000" in problems(queued_max_request_bytes="1000")[0]
    assert config(queued_max_request_bytes="104857600")["queued.max.request.bytes"] == 100 << 20


@pytest.mark.parametrize(
    ("servers", "settings"),
    [
        ("127.0.0.1:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
        ("[::1]:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://[::]:9093"}),
        ("h:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://h:9093"}),
        ("h:1,g:2", {"listeners": "PLAINTEXT://:9092,CONTROLLER://h:1", "controller_quorum_voters": "1@h:1,2@g:2"}),
    ],
)
def test_the_quorum_may_be_named_a_second_time(servers: str, settings: dict[str, str]) -> None:
    found = config(controller_quorum_bootstrap_servers=servers, controller_listener_names="CONTROLLER", **settings)
    assert found["controller.quorum.bootstrap.servers"] == tuple(servers.split(","))


@pytest.mark.parametrize("servers", ["other:9093", "localhost:9094", "localhost", "localhost:9093,b:9093"])
def test_a_quorum_that_would_have_to_be_asked_for_its_members_is_refused(servers: str) -> None:
    (problem,) = problems(
        controller_quorum_bootstrap_servers=servers,
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
    )
    assert "name all its nodes in controller.quorum.voters" in problem
