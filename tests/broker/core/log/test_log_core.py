"""The pure parts of a partition log: settings, epochs, indexes, retention and the texts of its small files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.broker.core.log.checkpoint_text import (
    CorruptCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.index import OFFSET_ENTRY, TIME_ENTRY, floor_entry, valid_prefix
from raftlog.broker.core.log.leader_epochs import LeaderEpochs
from raftlog.broker.core.log.retention import SegmentFacts, segments_to_remove
from raftlog.broker.core.log.transactions import AbortedTransaction, collect, decode_entries, encode_entry
from tests.effort import examples
from tests.paths import KAFKA_PROTOCOL

TOPIC_CONFIGS = KAFKA_PROTOCOL / "topic-configs.json"
NOT_OF_THE_LOG = {
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "unclean.leader.election.enable",
}


# Settings ----------------------------------------------------------------------------------------


def test_settings_are_read_from_text_as_well_as_from_values() -> None:
    config = LogConfig.from_mapping(
        {
            "segment.bytes": "1048576",
            "retention.ms": -1,
            "preallocate": "TRUE",
            "cleanup.policy": "compact, delete",
            "min.cleanable.dirty.ratio": "0.25",
            "flush.messages": None,
            "unclean.leader.election.enable": "true",
        }
    )
    assert (config.segment_bytes, config.retention_ms, config.preallocate) == (1 << 20, -1, True)
    assert config.compact and config.delete and config.min_cleanable_dirty_ratio == 0.25
    assert config.flush_messages == 2**63 - 1


@pytest.mark.parametrize("name", ["segment.bytes", "preallocate"])
def test_a_setting_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        LogConfig.from_mapping({name: "soon"})


@pytest.mark.skipif(not TOPIC_CONFIGS.exists(), reason="needs the reference data in ../shared/kafka-protocol")
def test_every_topic_setting_about_the_log_is_known_with_kafkas_default() -> None:
    config = LogConfig()
    for setting in json.loads(TOPIC_CONFIGS.read_text()):
        name = setting["name"]
        if name in NOT_OF_THE_LOG:
            continue
        value = getattr(config, name.replace(".", "_"))
        expected = setting["default"]
        assert value == ((expected,) if name == "cleanup.policy" else expected), name


# Leader epochs -----------------------------------------------------------------------------------


def test_an_epoch_ends_where_the_next_known_one_begins() -> None:
    epochs = LeaderEpochs([(0, 0), (2, 10), (5, 30)])
    assert epochs.end_offset_for(5, 44) == (5, 44)
    assert epochs.end_offset_for(2, 44) == (2, 30)
    assert epochs.end_offset_for(4, 44) == (2, 30)
    assert epochs.end_offset_for(1, 44) == (0, 10)
    assert epochs.end_offset_for(6, 44) == (-1, -1)
    assert epochs.end_offset_for(-1, 44) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, 44) == (-1, -1)


def test_an_epoch_before_the_first_known_one_ends_where_that_begins() -> None:
    assert LeaderEpochs([(3, 7), (4, 9)]).end_offset_for(1, 20) == (1, 7)


def test_a_contradicting_epoch_drops_what_it_contradicts() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20)])
    epochs.assign(3, 15)
    assert list(epochs) == [(0, 0), (1, 10), (3, 15)]
    epochs.assign(1, 15)
    assert list(epochs) == [(0, 0), (1, 15)]


def test_cutting_either_end_keeps_what_is_left_true() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20)])
    epochs.truncate_from(20)
    assert list(epochs) == [(0, 0), (1, 10)] and epochs.latest == 1
    epochs.truncate_before(4)
    assert list(epochs) == [(0, 4), (1, 10)]
    epochs.truncate_before(15)
    assert list(epochs) == [(1, 15)] and epochs.epoch_of(14) == -1 and epochs.epoch_of(15) == 1


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=20))
def test_epochs_always_rise(assignments: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, start in assignments:
        epochs.assign(epoch, start)
        epochs.check_invariants()
    assert parse_epochs(format_epochs(epochs)) == list(epochs)


# Indexes -----------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.sets(st.integers(0, 1000), max_size=60), st.integers(-1, 1001))
def test_the_last_entry_that_is_not_above_a_key_is_found(keys: set[int], key: int) -> None:
    ordered = sorted(keys)
    entries = b"".join(OFFSET_ENTRY.pack(entry, 2 * entry) for entry in ordered)
    assert floor_entry(entries, OFFSET_ENTRY, key) == len([entry for entry in ordered if entry <= key]) - 1


def test_after_a_crash_an_index_is_trusted_up_to_the_first_entry_that_cannot_be() -> None:
    good = [(5, 0), (9, 100), (12, 250)]
    entries = b"".join(OFFSET_ENTRY.pack(*entry) for entry in good)
    assert valid_prefix(entries, OFFSET_ENTRY, key_end=100, value_end=1000) == 3
    assert valid_prefix(entries + bytes(8), OFFSET_ENTRY, key_end=100, value_end=1000) == 3
    assert valid_prefix(entries[:20], OFFSET_ENTRY, key_end=100, value_end=1000) == 2
    assert valid_prefix(entries, OFFSET_ENTRY, key_end=12, value_end=1000) == 2
    assert valid_prefix(entries, OFFSET_ENTRY, key_end=100, value_end=250) == 2
    times = TIME_ENTRY.pack(1000, 5) + TIME_ENTRY.pack(1000, 6)
    assert valid_prefix(times, TIME_ENTRY, key_end=2**63, value_end=100) == 1


def test_aborted_transactions_that_overlap_a_fetch_are_found_and_the_search_ends_early() -> None:
    entries = [AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 3, 9, 4), AbortedTransaction(1, 8, 20, 21)]
    assert decode_entries(b"".join(encode_entry(entry) for entry in entries) + b"torn") == entries
    found: list[AbortedTransaction] = []
    assert not collect(entries, 6, 30, found, lambda entry: None)
    assert found == entries[1:]
    found.clear()
    assert collect(entries, 0, 6, found, lambda entry: None) and found == entries[:1]


# Retention ---------------------------------------------------------------------------------------


def facts(*segments: tuple[int, int, int, int]) -> list[SegmentFacts]:
    return [SegmentFacts(*segment) for segment in segments]


LOG = facts((0, 10, 100, 1000), (10, 20, 100, 2000), (20, 30, 100, 3000))


@pytest.mark.parametrize(
    ("config", "log_start", "high_watermark", "now_ms", "count"),
    [
        (LogConfig(retention_ms=1000), 0, 30, 2500, 1),
        (LogConfig(retention_ms=1000), 0, 30, 9000, 3),
        (LogConfig(retention_ms=1000), 0, 19, 9000, 1),
        (LogConfig(retention_ms=-1, retention_bytes=200), 0, 30, 9000, 1),
        (LogConfig(retention_ms=-1, retention_bytes=299), 0, 30, 9000, 0),
        (LogConfig(retention_ms=-1, retention_bytes=0), 0, 30, 9000, 3),
        (LogConfig(retention_ms=-1), 20, 30, 9000, 2),
        (LogConfig(retention_ms=1000, cleanup_policy=("compact",)), 10, 30, 9000, 1),
        (LogConfig(retention_ms=1000, cleanup_policy=("compact", "delete")), 0, 30, 9000, 3),
    ],
)
def test_the_oldest_segments_go_by_age_size_and_log_start(
    config: LogConfig, log_start: int, high_watermark: int, now_ms: int, count: int
) -> None:
    removal = segments_to_remove(LOG, config, log_start_offset=log_start, high_watermark=high_watermark, now_ms=now_ms)
    assert removal.number == count
    assert bool(removal.reason) == bool(count)


def test_an_empty_last_segment_stays() -> None:
    log = [*LOG, SegmentFacts(30, 30, 0, 0)]
    removal = segments_to_remove(
        log, LogConfig(retention_ms=1), log_start_offset=0, high_watermark=30, now_ms=9_000_000
    )
    assert removal.number == 3


# Small files -------------------------------------------------------------------------------------


def test_checkpoints_are_kafkas_text() -> None:
    offsets = {("a.b-c", 0): 5, ("t", 12): 2**62}
    text = format_offsets(offsets)
    assert text == f"0\n2\na.b-c 0 5\nt 12 {2**62}\n"
    assert parse_offsets(text) == offsets
    assert format_epochs([(0, 0), (3, 17)]) == "0\n2\n0 0\n3 17\n"
    assert parse_offsets("0\n0\n") == {}


@pytest.mark.parametrize("text", ["", "0\n", "1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt 0\n", "0\n1\nt zero 1\n", "0\nx\n"])
def test_a_checkpoint_that_is_cut_or_foreign_is_not_believed(text: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(text)


def test_partition_metadata_and_properties_are_kafkas_text() -> None:
    text = format_partition_metadata("Ezs1voJ-SdeMrFp8CRezTg")
    assert text == "version: 0\ntopic_id: Ezs1voJ-SdeMrFp8CRezTg"
    assert parse_partition_metadata(text) == "Ezs1voJ-SdeMrFp8CRezTg"
    with pytest.raises(CorruptCheckpoint):
        parse_partition_metadata("version: 1\n")
    found = parse_properties("#\n#Sat Nov 21\nnode.id=1\n cluster.id = x=y\n")
    assert found == {"node.id": "1", "cluster.id": "x=y"}
