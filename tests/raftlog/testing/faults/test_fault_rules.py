"""The rules of faults, without a broker: which call is hit, what is answered, what a link lets through, and when."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest

from raftlog.broker.api.handlers import HANDLERS
from raftlog.testing import Cluster
from raftlog.testing.faults.answers import ERROR_FIELDS, KEPT, put_in, refusal
from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.flow import NEVER, SENT_AGAIN_SECONDS, Conditions, Flow
from raftlog.testing.faults.link_faults import SHAPES, shape
from raftlog.testing.faults.machine import FaultyDisk
from raftlog.testing.faults.matching import fits_client, fits_request
from raftlog.testing.faults.spec import ALWAYS, FaultSpec, When, from_json, to_json
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.schema import OWN_TAGS_FROM, Kind, Message, Struct

# -- which calls are hit -----------------------------------------------------------------------------------


def hit(when: When, calls: int = 12) -> list[int]:
    found: list[int] = []
    for call in range(1, calls + 1):
        if when.hits(call, len(found)):
            found.append(call)
    return found


def test_a_fault_hits_the_calls_that_it_says() -> None:
    assert hit(When()) == [1] and hit(When(times=3)) == [1, 2, 3] and hit(When(first=4)) == [4]
    assert hit(When(times=ALWAYS)) == [*range(1, 13)] and hit(When(times=2, first=11)) == [11, 12]


def test_chance_is_the_seeds() -> None:
    one, other = (hit(When(ALWAYS, probability=0.5, seed=seed), 100) for seed in (1, 2))
    assert one == hit(When(ALWAYS, probability=0.5, seed=1), 100) != other
    assert 30 < len(one) < 70


def test_faults_are_counted_once_for_all_who_look(tmp_path: Path) -> None:
    directory, another = FaultDirectory(tmp_path), FaultDirectory(tmp_path)
    directory.make()
    spec = directory.add(FaultSpec("error", links=[(1, 2)], when=When(times=2)))
    assert [each.hit(spec.number) for each in (directory, another, directory, another)] == [True, True, False, False]
    assert (another.read(1).evidence.calls, another.read(1).evidence.fired) == (4, 2)
    assert another.add(FaultSpec("kill")).number == 2 and from_json(to_json(spec)) == spec


# -- what is answered --------------------------------------------------------------------------------------


def sample(kind: type[Struct], version: int) -> Any:
    """A message with every field of a version, one entry in each list."""
    made = kind()
    for field in kind.__fields__:
        if not field.versions.hold(version) or (field.tag or 0) >= OWN_TAGS_FROM:
            continue
        if field.struct is not None:
            entry = sample(field.struct, version)
            setattr(made, field.name, [entry] if field.kind is Kind.ARRAY else entry)
        elif field.kind is Kind.ARRAY:
            setattr(made, field.name, ["listed" if field.element is Kind.STRING else b"\1" * 16
                                       if field.element is Kind.UUID else 7])  # fmt: skip
        elif field.kind is Kind.STRING:
            setattr(made, field.name, "named")
        elif field.kind in (Kind.INT32, Kind.INT64) and "error" not in field.name:
            setattr(made, field.name, 7)
    return made


def errors(message: Struct, version: int) -> list[int]:
    found = []
    for field in message.__fields__:
        value = getattr(message, field.name)
        if not field.versions.hold(version):
            continue
        if field.name in ERROR_FIELDS:
            found.append(value)
        elif field.struct is not None:
            for each in value if isinstance(value, list) else [value]:
                found += errors(each, version) if each is not None else []
    return found


VERSIONS = [
    (key, version)
    for key in HANDLERS
    for version in range(APIS[key].min_version, APIS[key].max_version + 1)
]  # fmt: skip


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_every_api_in_every_version_can_be_refused_with_any_code(code: ErrorCode) -> None:
    for key, version in VERSIONS:
        api = APIS[key]
        answer: Message | None
        if key in KEPT:
            answer = sample(api.response, version)
            has_place = put_in(answer, version, code)
            assert has_place or key == ApiKey.METADATA or not errors(answer, version), (api, version)
        else:
            answer = refusal(sample(api.request, version), api.response, version, code)
            assert answer is not None, (api, version)
        read = decode(api.response, version, encode(answer, version))
        assert int(code) in errors(read, version), (api, version)


def test_a_refusal_names_what_was_asked() -> None:
    partitions = [PartitionProduceData(index=3), PartitionProduceData(index=5)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    answer: Any = refusal(request, APIS[ApiKey.PRODUCE].response, 9, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [each.name for each in answer.responses] == ["t"]
    assert [(each.index, each.error_code, each.base_offset) for each in answer.responses[0].partition_responses] == [
        (3, 6, -1), (5, 6, -1)
    ]  # fmt: skip
    asked = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    found: Any = refusal(asked, APIS[ApiKey.FIND_COORDINATOR].response, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [(each.key, each.error_code) for each in found.coordinators] == [("a", 15), ("b", 15)]


def test_requests_are_told_apart_by_what_they_name() -> None:
    identity = bytes(range(16))
    spec = FaultSpec("error", topic="t", topic_id=identity.hex(), partition=2)
    by_id = FetchRequest(topics=[FetchTopic(topic_id=identity, partitions=[FetchPartition(partition=2)])])
    assert fits_request(spec, by_id)
    assert not fits_request(FaultSpec("error", topic="t", topic_id=identity.hex(), partition=3), by_id)
    assert not fits_request(FaultSpec("error", topic="other"), by_id)
    produce = ProduceRequest(
        transactional_id="x", topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2)])]
    )
    assert fits_request(spec, produce) and fits_request(FaultSpec("error", transactional_id="x"), produce)
    assert not fits_request(FaultSpec("error", transactional_id="y"), produce)
    asked = FindCoordinatorRequest(coordinator_keys=["g"])
    assert fits_request(FaultSpec("error", group="g"), asked) and not fits_request(FaultSpec("error", group="h"), asked)


def test_brokers_are_meant_only_by_name() -> None:
    assert fits_client(FaultSpec("error"), "app", from_broker=False)
    assert not fits_client(FaultSpec("error"), "raftlog-replica-2", from_broker=True)
    assert fits_client(FaultSpec("error", client="raftlog-*"), "raftlog-replica-2", from_broker=True)
    assert not fits_client(FaultSpec("error", client="billing*"), "app", from_broker=False)


# -- links -------------------------------------------------------------------------------------------------


def conditions(*specs: FaultSpec) -> Conditions:
    for spec in specs:
        spec.links = [(1, 2)]
    return Conditions.of(specs, 1, 2)


def test_a_cut_holds_everything_back_until_it_heals() -> None:
    flow, cut = Flow(Random(1)), conditions(FaultSpec("cut"))
    flow.put(b"a", 1.0, cut)
    flow.put(b"b", 2.0, cut)
    assert flow.take(100.0) == ([], 0.0) and flow.next_at == NEVER and flow.held_bytes == 2
    flow.changed(5.0, conditions())
    assert flow.take(5.0) == ([b"a", b"b"], 7.0) and flow.is_empty and not flow.held_bytes
    assert not Conditions.of([FaultSpec("cut", links=[(1, 2)])], 2, 1).is_cut


def test_pieces_keep_their_order_whatever_delays_them() -> None:
    slow = conditions(FaultSpec("slow-link", seconds=0.1, jitter=0.5), FaultSpec("drop", when=When(probability=0.5)))
    flow = Flow(Random(3))
    for number in range(50):
        flow.put(bytes([number]), number / 100, slow)
    taken: list[bytes] = []
    now = 0.0
    while not flow.is_empty:
        now = max(now, flow.next_at)
        pieces, waited = flow.take(now)
        assert waited >= 0.1 * len(pieces)
        taken += pieces
    assert taken == [bytes([number]) for number in range(50)] and now > 0.5 + SENT_AGAIN_SECONDS


def test_a_bandwidth_is_that_of_all_pieces_together() -> None:
    flow, narrow = Flow(Random(1)), conditions(FaultSpec("bandwidth", amount=100))
    for _ in range(4):
        flow.put(bytes(50), 0.0, narrow)
    assert len(flow.take(1.0)[0]) == 2 and len(flow.take(1.9)[0]) == 1 and flow.next_at == 2.0


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_of_a_partition_cuts_something(name: str) -> None:
    for count in (3, 4, 5, 7):
        brokers = range(1, count + 1)
        cut = {*shape(name, brokers, Random(1))}
        assert cut and all(a != b for a, b in cut)
        if name == "majorities-ring":
            heard = [frozenset(a for a in brokers if a == b or (a, b) not in cut) for b in brokers]
            assert all(len(each) > count // 2 for each in heard) and len({*heard}) == count


def test_a_bridge_of_two_cuts_nothing_and_says_so() -> None:
    with pytest.raises(ValueError, match="a partition 'bridge' of 2 brokers cuts nothing"):
        shape("bridge", [1, 2], Random(1))


# -- disks -------------------------------------------------------------------------------------------------


def test_a_power_cut_leaves_what_was_synced(tmp_path: Path) -> None:
    disk = FaultyDisk(lambda *_: None)
    name = str(tmp_path / "log")
    file = disk.open(name, create=True)
    disk.write_at(file, b"synced", 0)
    disk.sync(file)
    disk.write_at(file, b"SYN", 0)
    disk.write_at(file, b" and more", 6)
    disk.rename(name, name + "2")
    assert disk.lose_what_was_not_synced(None) == 12
    assert (tmp_path / "log2").read_bytes() == b"synced"


def test_on_a_full_disk_room_that_is_freed_can_be_used(tmp_path: Path) -> None:
    disk = FaultyDisk(lambda *_: None)
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    disk.write_at(disk.open(old, create=True), bytes(10_000), 0)
    disk.install([FaultSpec("full-disk")])
    with pytest.raises(OSError, match="No space left"):
        disk.open(new, create=True)
    disk.remove(old)
    file = disk.open(new, create=True)
    assert disk.write_at(file, bytes(5000), 0) == 5000
    assert disk.write_at(file, bytes(5000), 0) == 5000, "in the place of what is there"
    with pytest.raises(OSError, match="No space left"):
        disk.write_at(file, bytes(5000), 5000)


@pytest.mark.parametrize("kind", ["full-disk", "slow-disk", "sync-error"])
def test_faults_of_one_kind_happen_together_to_a_disk(tmp_path: Path, kind: str) -> None:
    happened: list[tuple[int, float]] = []
    disk = FaultyDisk(lambda fault, _, ms: happened.append((fault.number, ms)))
    file = disk.open(str(tmp_path / "log"), create=True)
    disk.install([FaultSpec(kind, number=number, seconds=number / 1000) for number in (1, 2)])

    def use() -> None:
        disk.write_at(file, b"record", 0)
        disk.sync(file)

    with pytest.raises(OSError) if kind != "slow-disk" else nullcontext():
        use()
    took = (1.0, 2.0) if kind == "slow-disk" else (0.0, 0.0)
    assert happened == [(1, took[0]), (2, took[1])]


def test_a_slow_disk_is_slow_for_all_files_at_once(tmp_path: Path) -> None:
    happened: list[float] = []
    disk = FaultyDisk(lambda fault, _, ms: happened.append(ms))
    file = disk.open(str(tmp_path / "log"), create=True)
    disk.install([FaultSpec("slow-disk", seconds=0.001)])
    disk.sync_filesystem(file)
    assert happened == [1.0]


def test_a_file_may_be_opened_in_another_thread_while_one_is_renamed(tmp_path: Path) -> None:
    disk = FaultyDisk(lambda fault, size, ms: None)

    class Path_(str):
        """Compared while the disk looks which files are renamed: there the other thread comes in between."""

        def startswith(self, *arguments: Any) -> bool:
            disk.open(str(tmp_path / f"new-{len(list(tmp_path.iterdir()))}"), create=True)
            return super().startswith(*arguments)

    for number in range(3):
        disk.open(Path_(tmp_path / f"old-{number}"), create=True)
    disk.rename(str(tmp_path / "old-0"), str(tmp_path / "renamed"))
    disk.remove_directory(_made(tmp_path / "empty"))


def _made(folder: Path) -> str:
    folder.mkdir()
    return str(folder)


def test_a_torn_write_keeps_a_part_that_the_seed_chooses(tmp_path: Path) -> None:
    found = set()
    for seed in range(20):
        disk = FaultyDisk(lambda *_: None)
        file = disk.open(str(tmp_path / f"log{seed}"), create=True)
        disk.write_at(file, b"0123456789", 0)
        disk.lose_what_was_not_synced(Random(seed))
        found.add((tmp_path / f"log{seed}").read_bytes())
    assert len(found) > 4 and all(b"0123456789".startswith(each) and len(each) < 10 for each in found)


# -- what nobody injects into ------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("faults", [False, True])
def test_a_broker_without_faults_has_nothing_of_them_in_its_process(tmp_path: Path, faults: bool) -> None:
    broker = Cluster(1, tmp_path, faults=faults, python=(sys.executable, "-X", "importtime")).brokers[0]
    FaultDirectory(tmp_path).make()
    with subprocess.Popen(broker.command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if " serving " in line:
                process.terminate()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}
    assert "raftlog.broker.main" in loaded
    assert ("raftlog.testing.faults.protocol" in loaded) == faults == any("testing" in name for name in loaded)


def test_files_that_other_threads_open_meanwhile_do_not_disturb_a_rename(tmp_path: Path) -> None:
    class Changing(dict[int, str]):
        """Its size is another one whenever it is gone through."""

        def items(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    disk = FaultyDisk(lambda spec, size, seconds: None)
    disk._paths = Changing()
    (tmp_path / "old").write_text("x")
    disk.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    assert (tmp_path / "new").read_text() == "x"
