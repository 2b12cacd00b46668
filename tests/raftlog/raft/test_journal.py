"""The journal keeps what it acknowledged, whatever happens to the machine, and never passes damage off as data."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest

from raftlog.broker.store.disk import OsDisk
from raftlog.raft.core.entries import Entry
from raftlog.raft.disk import RESERVE_SUFFIX, TEMPORARY_SUFFIX, read_file, replace_file, truncate_file
from raftlog.raft.frames import HEADER_SIZE
from raftlog.raft.journal import Journal, JournalFailed, JournalLocked
from raftlog.raft.journal_recovery import JournalDamaged, Recovered
from tests.effort import examples
from tests.raftlog.raft.crashing_disk import Crashed, CrashingDisk

DIRECTORY = "/journal"


class Model:
    """What a journal must hold: entries from 1 on, of which a snapshot may stand for the first ones."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.vote = (0, -1)

    def copy(self) -> Model:
        other = Model()
        other.entries, other.vote = list(self.entries), self.vote
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and (self.entries, self.vote) == (other.entries, other.vote)

    def __repr__(self) -> str:
        return f"Model(vote={self.vote}, entries={[(e.index, e.term, e.data) for e in self.entries]})"


def snapshot_chunks(entries: list[Entry]) -> list[bytes]:
    """A snapshot that spells out what it stands for, so that recovery can be compared."""
    return [b"%d %d %s" % (entry.index, entry.term, entry.data) for entry in entries]


def model_of(recovered: Recovered) -> Model:
    model = Model()
    if recovered.snapshot is not None:
        for chunk in recovered.snapshot.chunks:
            index, term, data = chunk.split(b" ", 2)
            model.entries.append(Entry(int(index), int(term), data))
        assert recovered.snapshot.index == len(model.entries)
    model.entries += recovered.entries
    model.vote = (recovered.term, recovered.voted_for)
    return model


def one_step(rng: random.Random, model: Model, journal: Journal, compacted: int) -> tuple[Model, int]:
    """Do something to the journal; the model as it is once that has succeeded."""
    after = model.copy()
    last = len(model.entries)
    term = max(model.vote[0], 1)
    choice = rng.random()
    if choice < 0.55:
        new = [Entry(last + 1 + n, term, b"e%d" % rng.randrange(99)) for n in range(rng.randint(1, 3))]
        after.entries += new
        step = (journal.append, (new,))
    elif choice < 0.7:
        after.vote = (model.vote[0] + 1, rng.randint(1, 3))
        step = (journal.vote, after.vote)
    elif choice < 0.85 and last > compacted:
        start = rng.randint(compacted + 1, last)
        new = [Entry(start + n, term, b"r%d" % rng.randrange(99)) for n in range(rng.randint(0, 2))]
        after.entries[start - 1 :] = new
        previous = model.entries[start - 2].term if start > 1 else 0
        step = (journal.replace_from, (start, previous, new))
    elif choice < 0.93 and last > compacted:
        compacted = rng.randint(compacted + 1, last)
        covered = model.entries[:compacted]
        step = (journal.save_snapshot, (compacted, covered[-1].term, snapshot_chunks(covered)))
    elif last > compacted:
        # A leader's snapshot of another branch: what is behind it here goes too.
        compacted = rng.randint(compacted + 1, last)
        other = model.entries[compacted - 1].term + 100
        after.entries = [Entry(n, other, b"o%d" % rng.randrange(99)) for n in range(1, compacted + 1)]
        chunks = snapshot_chunks(after.entries)
        step = (functools.partial(journal.save_snapshot, truncate_rest=True), (compacted, other, chunks))
    else:
        return after, compacted
    PENDING.append(after)
    function, arguments = step
    function(*arguments)  # type: ignore[operator]
    return after, compacted


PENDING: list[Model] = []


def run(files: CrashingDisk, rng: random.Random, steps: int) -> tuple[Model, Model]:
    """(what was acknowledged, what was under way) when the steps are done or the power goes."""
    model = Model()
    compacted = 0
    PENDING[:] = [model]
    try:
        journal = Journal(DIRECTORY, files, segment_bytes=200)
        for _ in range(steps):
            model, compacted = one_step(rng, model, journal, compacted)
    except Crashed:
        pass
    return model, PENDING[-1]


@pytest.mark.parametrize("seed", range(examples(16)))
def test_a_crash_at_any_operation_loses_nothing_acknowledged_and_invents_nothing(seed: int) -> None:
    probe = CrashingDisk(random.Random(seed))
    run(probe, random.Random(seed), 25)
    assert probe.operations > 30
    for crash_at in range(1, probe.operations + 1):
        files = CrashingDisk(random.Random(seed * 1000 + crash_at), crash_at=crash_at)
        acknowledged, under_way = run(files, random.Random(seed), 25)
        for _ in range(2):  # the second start must find what the first one found
            files = files.reboot()
            journal = Journal(DIRECTORY, files, segment_bytes=200)
            found = model_of(journal.recovered)
            assert found in (acknowledged, under_way), (seed, crash_at)
            assert journal.last_index == len(found.entries)
            acknowledged = under_way = found
        journal.append([Entry(journal.last_index + 1, journal.term or 1, b"goes on")])
        again = Journal(DIRECTORY, files.reboot(), segment_bytes=200)
        assert model_of(again.recovered).entries[-1].data == b"goes on"


def written(directory: Path, count: int = 5) -> Path:
    """A journal with entries in one segment; its path."""
    journal = Journal(str(directory), OsDisk())
    for index in range(1, count + 1):
        journal.append([Entry(index, 1, b"entry %d" % index)])
    journal.close()
    (segment,) = directory.glob("*.journal")
    return segment


@pytest.mark.parametrize("cut", [1, 5, HEADER_SIZE, HEADER_SIZE + 3])
def test_a_torn_tail_is_cut_and_writing_goes_on(tmp_path: Path, cut: int) -> None:
    segment = written(tmp_path)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-cut])
    journal = Journal(str(tmp_path), OsDisk())
    assert journal.last_index == 4
    assert journal.recovered.truncated_bytes > 0
    journal.append([Entry(5, 1, b"entry 5")])
    journal.close()
    assert segment.read_bytes() == whole


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    segment = written(tmp_path)
    segment.write_bytes(segment.read_bytes() + bytes(4096))
    journal = Journal(str(tmp_path), OsDisk())
    assert (journal.last_index, journal.recovered.truncated_bytes) == (5, 4096)


def test_every_flipped_byte_before_the_last_frame_is_refused_with_file_position_and_advice(tmp_path: Path) -> None:
    segment = written(tmp_path)
    whole = segment.read_bytes()
    last_frame = whole.rindex(b"RLJ1")
    for position in range(0, last_frame, 7):
        segment.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        with pytest.raises(JournalDamaged) as damage:
            Journal(str(tmp_path), OsDisk())
        assert damage.value.path == str(segment)
        assert damage.value.position <= position
        assert f"{segment}" in str(damage.value) and "What to do" in str(damage.value)
        assert segment.stat().st_size == len(whole), "evidence was destroyed"


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    journal = Journal(str(tmp_path), OsDisk())
    journal.save_snapshot(5, 1, [b"chunk one", b"chunk two"])
    journal.close()
    (snapshot,) = tmp_path.glob("*.snapshot")
    whole = snapshot.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", whole.replace(b"two", b"2wo")):
        snapshot.write_bytes(damaged)
        with pytest.raises(JournalDamaged, match=r"\.snapshot"):
            Journal(str(tmp_path), OsDisk())


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), OsDisk(), segment_bytes=60)
    for index in range(1, 6):
        journal.append([Entry(index, 1, b"x" * 40)])
    journal.close()
    segments = sorted(tmp_path.glob("*.journal"))
    assert len(segments) > 3
    for missing in segments[:-1]:
        content = missing.read_bytes()
        missing.unlink()
        with pytest.raises(JournalDamaged):
            Journal(str(tmp_path), OsDisk())
        missing.write_bytes(content)
    Journal(str(tmp_path), OsDisk()).close()


def test_a_snapshot_drops_what_it_covers_and_a_restart_finds_the_rest(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), OsDisk(), segment_bytes=60)
    for index in range(1, 11):
        journal.append([Entry(index, 1, b"x" * 40)])
    journal.vote(4, 2)
    journal.save_snapshot(8, 1, [b"state"])
    journal.close()
    assert len(list(tmp_path.glob("*.journal"))) <= 4
    again = Journal(str(tmp_path), OsDisk())
    assert again.recovered.snapshot is not None
    assert (again.recovered.snapshot.index, again.recovered.snapshot.chunks) == (8, [b"state"])
    assert [entry.index for entry in again.recovered.entries] == [9, 10]
    assert (again.term, again.voted_for) == (4, 2)
    again.save_snapshot(10, 1, [b"later"])
    again.close()
    assert len(list(tmp_path.glob("*.snapshot"))) == 1
    last = Journal(str(tmp_path), OsDisk())
    assert (last.recovered.entries, last.term, last.voted_for) == ([], 4, 2)


def test_two_processes_cannot_have_one_journal(tmp_path: Path) -> None:
    first = Journal(str(tmp_path), OsDisk())
    with pytest.raises(JournalLocked, match="two brokers must not share a directory"):
        Journal(str(tmp_path), OsDisk())
    first.close()
    Journal(str(tmp_path), OsDisk()).close()


def test_a_full_disk_fails_the_write_and_later_ones_succeed() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    journal.append([Entry(1, 1, b"one")])
    files.fail["write"] = 1
    with pytest.raises(JournalFailed, match="No space left on device") as failure:
        journal.append([Entry(2, 1, b"two")])
    assert not failure.value.on_disk_unknown
    journal.append([Entry(2, 1, b"other")])
    again = Journal(DIRECTORY, files.reboot())
    assert [entry.data for entry in again.recovered.entries] == [b"one", b"other"]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_segment_that_cannot_be_begun_keeps_no_descriptor(operation: str) -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files, segment_bytes=10)
    journal.append([Entry(1, 1, b"one")])
    before = len(files.is_open)
    for _ in range(3):
        files.fail[operation] = 1
        with pytest.raises(JournalFailed, match="No space left on device"):
            journal.append([Entry(2, 1, b"two")])
    assert len(files.is_open) == before
    journal.append([Entry(2, 1, b"two")])


@pytest.mark.parametrize("operation", ["write", "open"])
def test_on_a_full_disk_the_journal_takes_from_what_is_kept_for_it(operation: str) -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files, segment_bytes=10)
    kept = [f"{DIRECTORY}/{number:02}{RESERVE_SUFFIX}" for number in range(3)]
    for path in kept:
        files.close(files.open(path, create=True))
    files.fail[operation] = 2
    journal.append([Entry(1, 1, b"one")])
    assert [path for path in kept if path in files.names] == kept[:1]
    files.fail[operation] = 2
    with pytest.raises(JournalFailed, match="No space left on device"):
        journal.append([Entry(2, 1, b"two")])
    journal.append([Entry(2, 1, b"other")])
    assert not any(path in files.names for path in kept)
    again = Journal(DIRECTORY, files.reboot())
    assert [entry.data for entry in again.recovered.entries] == [b"one", b"other"]


def test_after_a_failed_sync_nothing_more_is_written() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    files.fail["sync"] = 1
    with pytest.raises(JournalFailed) as failure:
        journal.append([Entry(1, 1, b"one")])
    assert failure.value.on_disk_unknown
    with pytest.raises(JournalFailed, match="restart the broker"):
        journal.append([Entry(1, 1, b"one")])


def test_a_snapshot_that_cannot_be_written_leaves_the_journal_as_it_was() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    journal.append([Entry(1, 1, b"one")])
    files.fail["write"] = 1
    with pytest.raises(JournalFailed):
        journal.save_snapshot(1, 1, [b"state"])
    journal.append([Entry(2, 1, b"two")])
    assert [e.data for e in Journal(DIRECTORY, files.reboot()).recovered.entries] == [b"one", b"two"]


def test_a_follower_may_install_a_snapshot_beyond_its_log() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    journal.append([Entry(1, 1, b"one")])
    journal.save_snapshot(50, 7, [b"state"])
    journal.append([Entry(51, 7, b"next")])
    again = Journal(DIRECTORY, files.reboot())
    assert again.recovered.snapshot is not None and again.recovered.snapshot.index == 50
    assert [entry.index for entry in again.recovered.entries] == [51]


def test_files_as_a_whole_on_the_operating_systems_disk(tmp_path: Path) -> None:
    disk, folder = OsDisk(), str(tmp_path / "a" / "b")
    disk.make_directory(folder)
    replace_file(disk, f"{folder}/x", [b"0123", b"456789"])
    assert read_file(disk, f"{folder}/x") == b"0123456789"
    truncate_file(disk, f"{folder}/x", 4)
    replace_file(disk, f"{folder}/y", [b"other"])
    assert disk.list_directory(folder) == ["x", "y"]
    assert read_file(disk, f"{folder}/x") == b"0123"


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_snapshot_that_failed_on_a_full_disk_does_not_spoil_the_next_one(operation: str) -> None:
    disk = CrashingDisk(random.Random(3))
    journal = Journal(DIRECTORY, disk)
    journal.append([Entry(index, 1, b"x") for index in range(1, 4)])
    disk.fail[operation] = 1
    with pytest.raises(JournalFailed):
        journal.save_snapshot(3, 1, [b"state"])
    assert not any(name.endswith(TEMPORARY_SUFFIX) for name in disk.names), "it would fill the disk for others"
    journal.save_snapshot(3, 1, [b"state"])
    again = Journal(DIRECTORY, disk.reboot())
    assert again.recovered.snapshot is not None and again.recovered.snapshot.chunks == [b"state"]


def test_entries_of_another_branch_behind_a_snapshot_are_dropped_when_a_crash_came_before_the_cut() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    journal.append([Entry(index, 1, b"old") for index in range(1, 8)])
    files.fail["write"] = 0
    write_at = files.write_at
    files.crash_at = None

    def crash_after_snapshot(descriptor: int, data: bytes | memoryview, position: int) -> int:
        if any(name.endswith("5.snapshot") for name in files.names):
            raise Crashed
        return write_at(descriptor, data, position)

    files.write_at = crash_after_snapshot  # type: ignore[method-assign]
    with pytest.raises(Crashed):
        journal.save_snapshot(5, 2, [b"state"], truncate_rest=True)
    again = Journal(DIRECTORY, files.reboot())
    assert (again.last_index, again.recovered.entries) == (5, [])
    again.append([Entry(6, 2, b"new")])
    third = Journal(DIRECTORY, again._disk.reboot())  # type: ignore[attr-defined]
    assert third.recovered.entries == [Entry(6, 2, b"new")]


def test_a_vote_a_cut_and_entries_are_one_write() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    journal.append([Entry(index, 1, b"old") for index in range(1, 5)])
    before = files.operations
    journal.save((3, 2), (3, 1), [Entry(3, 3, b"new")])
    assert files.operations - before == 2, "one write and one sync"
    assert (journal.last_index, journal.term, journal.voted_for) == (3, 3, 2)
    again = Journal(DIRECTORY, files.reboot())
    assert [entry.data for entry in again.recovered.entries] == [b"old", b"old", b"new"]
    assert (again.recovered.term, again.recovered.voted_for) == (3, 2)
    assert again.load_snapshot() is None


def test_a_snapshot_that_comes_late_does_not_replace_a_later_one() -> None:
    files = CrashingDisk(random.Random(1))
    journal = Journal(DIRECTORY, files)
    journal.append([Entry(index, 1, b"x") for index in range(1, 8)])
    journal.save_snapshot(50, 2, [b"of the leader"])
    journal.save_snapshot(7, 1, [b"our own, which took longer"])
    again = Journal(DIRECTORY, files.reboot())
    assert again.recovered.snapshot is not None
    assert (again.recovered.snapshot.index, again.last_index) == (50, 50)
    again.save_snapshot(7, 1, [b"and after a restart"])
    assert again.load_snapshot() == again.recovered.snapshot
