"""A directory on which a newer version ran: an older one says which file, whose, and what to start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import pytest

from raftlog.broker.runtime.version_note import note_version, read_version
from raftlog.broker.store.disk import OsDisk
from raftlog.raft import journal, snapshot_file
from raftlog.raft.core import snapshot
from raftlog.raft.core.entries import MARK, Entry, application_data, configuration_data
from raftlog.raft.core.log import Base
from raftlog.raft.journal import Journal
from raftlog.testing import BrokerDied, BrokerProcess
from raftlog.testing.ports import ReservedPort

Patch = pytest.MonkeyPatch
RECORD = msgpack.packb((1, [(99, 0, "x")]))
FEATURE = msgpack.packb((1, [(2, 0, "raftlog.metadata.version", 2)]))


def entry(data: bytes) -> Callable[[Path, Patch], None]:
    def write(directory: Path, _: Patch) -> None:
        log = Journal(str(directory), OsDisk())
        log.append([Entry(log.last_index + 1, log.recovered.last_term, data)])
        log.close()

    return write


def segment(directory: Path, patch: Patch) -> None:
    patch.setattr(journal, "FORMAT", 2)
    shutil.rmtree(directory)
    Journal(str(directory), OsDisk()).close()


def snapshot_of(chunks: Callable[[Base], list[bytes]]) -> Callable[[Path, Patch], None]:
    def write(directory: Path, _: Patch) -> None:
        log = Journal(str(directory), OsDisk())
        log.save_snapshot(log.last_index, log.recovered.last_term, chunks(Base(log.last_index, 1)))
        log.close()

    return write


def new_snapshot_file(directory: Path, patch: Patch) -> None:
    patch.setattr(snapshot_file, "FORMAT", 2)
    snapshot_of(lambda _: [b"x"])(directory, patch)


def new_snapshot_header(directory: Path, patch: Patch) -> None:
    patch.setattr(snapshot, "FORMAT", 2)
    snapshot_of(lambda base: snapshot.SnapshotContent(base, b"", [b"x"]).all_chunks())(directory, patch)


ALONE = {
    "segment": (segment, ".journal", "a journal of format 2"),
    "snapshot": (new_snapshot_file, ".snapshot", "a snapshot of format 2"),
    "record": (entry(RECORD), "__cluster_metadata", "a record of type 99"),
    "feature": (entry(FEATURE), "__cluster_metadata", "raftlog.metadata.version at level 2"),
}
IN_A_QUORUM = {
    "header": (new_snapshot_header, "__cluster_metadata", "a snapshot with a header of format 2"),
    "kind": (entry(bytes((MARK, 99))), "__cluster_metadata", "an entry of an unknown kind (c163)"),
    "members": (entry(configuration_data(msgpack.packb((2, (), ())))), "__cluster_metadata", "members of format 2"),
    "record": (entry(application_data(9, 9, RECORD)), "__cluster_metadata", "a record of type 99"),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return used(tmp_path_factory.mktemp("alone") / "data", ())


@pytest.fixture(scope="module")
def of_a_quorum(tmp_path_factory: pytest.TempPathFactory, peers: tuple[str, ...]) -> Path:
    return used(tmp_path_factory.mktemp("quorum") / "data", peers)


@pytest.fixture(scope="module")
def peers() -> Iterator[tuple[str, ...]]:
    reserved = ReservedPort()
    yield "--peers", f"1@127.0.0.1:{reserved.number}"
    reserved.release()


def used(directory: Path, arguments: tuple[str, ...]) -> Path:
    process = BrokerProcess(1, directory, extra_arguments=arguments)
    process.start()
    assert process.stop() == 0
    return directory


def refusal(directory: Path, arguments: tuple[str, ...], tmp_path: Path) -> str:
    process = BrokerProcess(1, directory, log_file=tmp_path / "log", extra_arguments=arguments)
    with pytest.raises(BrokerDied):
        process.start()
    assert process.returncode == 1
    assert "Traceback" not in process.log()
    return process.log()


@pytest.mark.parametrize("kind", ALONE)
def test_a_broker_alone_names_the_file_and_what_to_start(
    alone: Path, tmp_path: Path, monkeypatch: Patch, kind: str
) -> None:
    write, file, what = ALONE[kind]
    directory = shutil.copytree(alone, tmp_path / "data")
    with monkeypatch.context() as patch:
        write(directory / "__cluster_metadata", patch)
    (directory / "__cluster_metadata" / "raftlog.version").unlink(missing_ok=True)
    said = refusal(directory, (), tmp_path)
    assert f"{file} was written by a newer version of raftlog, and this is 0." in said
    assert what in said and "start the broker with that version again" in said


@pytest.mark.parametrize("kind", IN_A_QUORUM)
def test_a_member_of_a_quorum_names_the_version_that_ran_there(
    of_a_quorum: Path, peers: tuple[str, ...], tmp_path: Path, monkeypatch: Patch, kind: str
) -> None:
    write, file, what = IN_A_QUORUM[kind]
    directory = shutil.copytree(of_a_quorum, tmp_path / "data")
    with monkeypatch.context() as patch:
        write(directory / "__cluster_metadata", patch)
    note_version(str(directory / "__cluster_metadata"), "9.8.7")
    said = refusal(directory, peers, tmp_path)
    assert f"{file} was written by raftlog 9.8.7, and this is 0." in said
    assert what in said and "start the broker with raftlog 9.8.7 or newer" in said


def test_a_broker_notes_its_version_where_it_served(alone: Path) -> None:
    from raftlog import __version__

    assert read_version(str(alone / "__cluster_metadata")) == __version__
