"""A data directory of a broker alone that is not there at a start: unmounted, left out of log.dirs, or empty."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raftlog.testing import BrokerProcess
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.system.clients.confluent import produce, read_all
from tests.system.traps.batches import plain_batch, read, send
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names


@pytest.mark.parametrize("absent", ["left out", "an empty mount point"])
def test_records_in_a_missing_directory_are_neither_replaced_nor_lost(tmp_path: Path, absent: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    both = {"log.dirs": f"{one},{two}"}
    broker = BrokerProcess(1, one, settings=both, log_file=tmp_path / "log")
    broker.start()
    try:
        for topic in ("a", "b"):
            create_topic(broker.address, topic)
            produce(broker.address, topic, [{"value": topic.encode()}] * 10)
        assert (one / "a-0").is_dir() and (two / "b-0").is_dir()
        broker.stop()
        two.rename(tmp_path / "elsewhere")
        broker.settings = both if absent == "an empty mount point" else {"log.dirs": str(one)}
        broker.start()
        with RawConnection(broker.address) as connection:
            there, missing = (Names(topic, bytes(16), "") for topic in ("a", "b"))
            assert send(connection, there, plain_batch(b"more")).base_offset == 10
            for answer in (send(connection, missing, plain_batch(b"anew")), read(connection, missing)):
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "is missing: what lies in it has no leader until it is back" in broker.log()
        broker.stop()
        if two.exists():
            shutil.rmtree(two)
        (tmp_path / "elsewhere").rename(two)
        broker.settings = both
        broker.start()
        assert len(read_all(broker.address, "b", 10)) == 10
        produce(broker.address, "b", [{"value": b"more"}])
        assert len(read_all(broker.address, "b", 11)) == len(read_all(broker.address, "a", 11)) == 11
    finally:
        broker.kill()


def test_a_topic_that_was_deleted_while_its_directory_was_missing_does_not_come_back_with_it(tmp_path: Path) -> None:
    one, two, elsewhere = tmp_path / "one", tmp_path / "two", tmp_path / "elsewhere"
    broker = BrokerProcess(1, one, settings={"log.dirs": f"{one},{two}"}, log_file=tmp_path / "log")
    broker.start()
    try:
        for topic in ("a", "b"):
            create_topic(broker.address, topic)
            produce(broker.address, topic, [{"value": topic.encode()}] * 10)
        broker.stop()
        two.rename(elsewhere)
        broker.start()
        with RawConnection(broker.address) as connection:
            deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=10_000)
            assert connection.ask(deletion, 6).responses[0].error_code == ErrorCode.NONE
        broker.stop()
        shutil.rmtree(two)
        elsewhere.rename(two)
        broker.start()
        assert [path.name.endswith("-stray") for path in two.glob("b-0*")] == [True], "a person may remove it"
        assert "b-0 is of a topic that is not there: set aside as" in broker.log()
        create_topic(broker.address, "b")
        produce(broker.address, "b", [{"value": b"new"}])
        assert [message.value() for message in read_all(broker.address, "b", 1)] == [b"new"]
    finally:
        broker.kill()
