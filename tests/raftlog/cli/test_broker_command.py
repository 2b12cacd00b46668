from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from raftlog.cli.broker import build_parser, gather_settings
from raftlog.testing import BrokerDied, BrokerProcess
from tests.raftlog.cli.conftest import Run
from tests.waiting import DEADLINE_SECONDS


def settings(*arguments: str) -> dict[str, str]:
    return gather_settings(build_parser().parse(list(arguments)))


def test_flags_become_kafkas_settings() -> None:
    assert settings(
        "--node-id", "3", "--data-dir", "/d", "--listen", "[::1]:0", "--advertise", "example.org:19092"
    ) == {
        "node.id": "3",
        "log.dirs": "/d",
        "listeners": "PLAINTEXT://[::1]:0",
        "advertised.listeners": "PLAINTEXT://example.org:19092",
    }


def test_without_a_listener_only_this_machine_is_served() -> None:
    assert settings("--node-id", "1")["listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_set_wins_over_flags_and_flags_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnode.id=1\nlog.dirs=/from/file\nnum.partitions = 2\nlog.retention.hours: 5\n")
    merged = settings("--config", str(file), "--data-dir", "/from/flag", "--set", "num.partitions=7")
    assert (merged["node.id"], merged["log.dirs"]) == ("1", "/from/flag")
    assert (merged["num.partitions"], merged["log.retention.hours"]) == ("7", "5")


PEERS = "1@127.0.0.1:9192,2@127.0.0.1:9292,3@127.0.0.1:9392"


def test_peers_become_the_quorums_voters_and_the_own_place_is_listened_on() -> None:
    assert settings("--id", "2", "--listen", "127.0.0.1:9093", "--peers", PEERS) == {
        "node.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:9093,CONTROLLER://127.0.0.1:9292",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": PEERS,
    }


def test_peers_may_be_listened_for_elsewhere() -> None:
    given = settings("--id", "2", "--peers", PEERS, "--peer-listen", "0.0.0.0:9292")
    assert given["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://0.0.0.0:9292"


def test_a_broker_that_the_peers_do_not_name_listens_for_none() -> None:
    for flags in ((), ("--observer",)):
        given = settings("--id", "4", "--peers", PEERS, *flags)
        assert given["controller.quorum.voters"] == PEERS
        assert given["listeners"] == "PLAINTEXT://127.0.0.1:9092"
        assert given.get("process.roles") == ("broker" if flags else None)


def test_an_observer_may_have_its_peers_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=4\ncontroller.quorum.voters={PEERS}\n")
    given = settings("--config", str(file), "--observer", "--peer-listen", "127.0.0.1:9492")
    assert given["process.roles"] == "broker" and given["controller.listener.names"] == "CONTROLLER"
    assert given["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9492"


def test_health_is_served_where_it_is_asked_for() -> None:
    assert settings("--id", "1", "--health-listen", "127.0.0.1:8080")["raftlog.health.listener"] == "127.0.0.1:8080"
    assert settings("--id", "1", "--metrics-listen", "127.0.0.1:8081")["raftlog.metrics.listener"] == "127.0.0.1:8081"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peers", "a:1"], "write it like 1@127.0.0.1:9093"),
        (["--peers", "1@a"], "--peers 'a' is not an address"),
        (["--peers", "1@a:1;2@b:2"], "write a comma between two peers"),
        (["--peers", "1@a:1,1@b:2"], "names broker 1 twice"),
        (["--peers", "1@a:1,2@a:1"], "the address a:1 twice"),
        (["--peers", "1@a:1,2@:2"], "need a host and a port"),
        (["--peers", "1@a:1,2@b:0"], "need a host and a port"),
        (["--peers", "1@a:1,2@b:2", "--observer"], "--observer contradicts --peers"),
        (["--observer"], "--observer needs --peers"),
        (["--health-listen", "8080"], "is not an address"),
        (["--peer-listen", "a:1"], "--peer-listen needs --peers"),
        (["--listen", "9092"], "is not an address"),
        (["--listen", "localhost:99999"], "is not an address"),
        (["--listen", "::1:9092"], "[::1]:9092"),
        (["--advertise", "localhost"], "is not an address"),
        (["--data-dir", "a,b"], "log.dirs=A,B"),
        (["--set", "num.partitions"], "key=value"),
        (["--set", "num.partitoins=3"], "num.partitions"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--nodeid", "1"], "--node-id"),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_is_right(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    outcome = run("broker", "--node-id", "1", "--data-dir", str(tmp_path), *arguments)
    assert outcome.code == 2 and outcome.out == ""
    assert outcome.err.startswith("raftlog: ") and said in outcome.err


def test_what_is_missing_is_named_with_its_flag(run: Run) -> None:
    outcome = run("broker")
    assert outcome.code == 2 and "--node-id" in outcome.err and "--data-dir" in outcome.err


def test_a_config_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    outcome = run("broker", "--config", str(tmp_path / "none"))
    assert outcome.code == 1 and "none: no such file" in outcome.err


def test_a_usage_error_is_raised_before_the_broker_is_loaded() -> None:
    program = (
        "import sys; from raftlog.cli.main import main; main(['broker', '--peers', '2']); "
        "assert not [m for m in sys.modules if m.startswith('raftlog.broker') or m == 'uvloop']"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_broker_alone_loads_nothing_that_only_several_need() -> None:
    program = (
        "import sys, raftlog.broker.main; "
        "assert not [m for m in sys.modules if m.startswith('raftlog.metadata.cluster_')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_broker_loads_no_command_line_with_its_checksum() -> None:
    program = "import sys, raftlog.broker.main; assert not {'crc32c', 'importlib.metadata'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.fixture
def process(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A broker that a test starts itself; gone afterwards whatever happens."""
    made = BrokerProcess(1, tmp_path / "data", log_file=tmp_path / "log")
    yield made
    made.kill()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_broker_in_order(process: BrokerProcess, number: signal.Signals) -> None:
    process.start()
    os.kill(process.pid, number)
    assert process.stop() == 0


@pytest.mark.long
def test_with_json_a_broker_tells_in_one_line_where_it_serves(tmp_path: Path) -> None:
    words = ["broker", "--id", "7", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--json"]
    broker = subprocess.Popen([sys.executable, "-m", "raftlog", *words], stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    try:
        told = json.loads(broker.stdout.readline())
        assert (told["id"], told["pid"]) == (7, broker.pid)
        host, _, port = told["address"].rpartition(":")
        socket.create_connection((host, int(port)), DEADLINE_SECONDS).close()
    finally:
        broker.terminate()
        rest, _ = broker.communicate(timeout=DEADLINE_SECONDS)
    assert (broker.returncode, rest) == (0, "")


@pytest.mark.long
def test_a_broker_that_is_told_to_stop_again_and_again_still_ends_in_order(process: BrokerProcess) -> None:
    process.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.running:
        assert time.monotonic() < deadline, "it does not end"
        process.terminate()
    assert process.returncode == 0


@pytest.mark.long
def test_a_port_that_is_taken_ends_the_start_with_advice(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = BrokerProcess(1, tmp_path / "data", port=port, log_file=tmp_path / "log")
        with pytest.raises(BrokerDied) as died:
            made.start()
    assert made.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in str(died.value) and "--listen" in str(died.value)


@pytest.mark.long
@pytest.mark.parametrize("listener", ["health", "metrics"])
def test_a_port_of_the_metrics_that_is_taken_is_told_as_that(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {f"raftlog.{listener}.listener": f"127.0.0.1:{taken.getsockname()[1]}"}
        made = BrokerProcess(1, tmp_path / "data", settings=settings, log_file=tmp_path / "log")
        with pytest.raises(BrokerDied, match="another port with --health-listen or --metrics-listen"):
            made.start()


@pytest.mark.long
def test_a_data_directory_has_one_broker(process: BrokerProcess, tmp_path: Path) -> None:
    process.start()
    second = BrokerProcess(1, process.data_dir, log_file=tmp_path / "second.log")
    with pytest.raises(BrokerDied, match="in use by another process"):
        second.start()
    assert second.returncode == 1


@pytest.mark.long
def test_a_data_directory_belongs_to_one_node(process: BrokerProcess, tmp_path: Path) -> None:
    process.start()
    process.stop()
    other = BrokerProcess(2, process.data_dir, log_file=tmp_path / "second.log")
    with pytest.raises(BrokerDied, match=r"node.id=1"):
        other.start()


@pytest.mark.long
def test_a_data_directory_of_kafka_is_refused_and_left_as_it_was(process: BrokerProcess) -> None:
    """Kafka starts on no directory in which it finds a name that it does not know."""
    properties = "version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\ndirectory.id=V2jJv2n0Q1m2c1dV3h5d7Q\n"
    for name in ("__cluster_metadata-0", "orders-0"):
        (process.data_dir / name).mkdir(parents=True)
    (process.data_dir / "meta.properties").write_text(properties)
    before = sorted(process.data_dir.iterdir())
    with pytest.raises(BrokerDied, match=r"is a data directory of Apache Kafka.*Use another directory"):
        process.start()
    assert sorted(process.data_dir.iterdir()) == before


@pytest.mark.long
def test_a_data_directory_without_its_metadata_is_refused_and_left_as_it_was(
    process: BrokerProcess, tmp_path: Path
) -> None:
    """On new metadata the broker would know none of its topics."""
    process.start()
    process.stop()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (process.data_dir / "__cluster_metadata").rename(elsewhere / "__cluster_metadata")
    with pytest.raises(BrokerDied, match=r"whose metadata are missing.*metadata\.log\.dir"):
        process.start()
    assert not (process.data_dir / "__cluster_metadata").exists()
    process.settings["metadata.log.dir"] = str(elsewhere)
    process.start()


@pytest.mark.long
def test_a_data_directory_that_is_a_file_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = BrokerProcess(1, tmp_path / "file", log_file=tmp_path / "log")
    with pytest.raises(BrokerDied, match="--data-dir"):
        made.start()
    assert made.returncode == 1


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_cannot_be_written_is_refused_with_advice(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    made = BrokerProcess(1, tmp_path / "data")
    with pytest.raises(BrokerDied):
        made.start()
    assert made.returncode == 1


@pytest.mark.long
def test_a_log_level_that_does_not_exist_is_refused_in_words(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAFTLOG_LOG_LEVEL", "loud")
    done = run("broker", "--node-id", "1", "--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0")
    assert done.code == 1
    assert done.err == (
        "raftlog: RAFTLOG_LOG_LEVEL in the environment is LOUD; give one of DEBUG, INFO, WARNING, ERROR, CRITICAL\n"
    )


@pytest.mark.long
@pytest.mark.parametrize("host", ["::", ""])
def test_on_all_addresses_each_client_is_told_the_one_that_it_connected_to(tmp_path: Path, host: str) -> None:
    """No host at all means IPv4 and IPv6, as with Kafka: `localhost` may be either."""
    try:
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    made = BrokerProcess(1, tmp_path / "data", host=host, log_file=tmp_path / "log")
    made.start()
    try:
        for host, address in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
            admin = AdminClient({"bootstrap.servers": f"{address}:{made.port}"})
            (told,) = admin.list_topics(timeout=DEADLINE_SECONDS).brokers.values()
            assert (told.host, told.port) == (host, made.port)
        assert f"serving address=[::]:{made.port} " in made.log()
    finally:
        made.kill()
