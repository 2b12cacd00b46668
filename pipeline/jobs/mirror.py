"""mirror: topics of one cluster into another, exactly once, with a topic that says which offset became which.

Keys, values, headers, timestamps and partitions stay as they are. Offsets cannot (compaction and transactions leave
gaps), so each task tells in its transaction where its records went; with that, groups find their place in the copy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from typing import Any

from raftlog.cli.arguments import Parser
from raftlog.cli.failure import UsageError
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.sync import SyncClient
from raftlog.client.topics import ConfigSource, ResourceType
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.running import Say, Summary
from raftlog.pipeline.jobs.topics import KEPT, ensure
from raftlog.pipeline.sink.mapping import Run, join, translate

NAME = "mirror"
SUMMARY = "topics of one cluster into another, exactly once, with offsets kept in a mapping topic"
MAPPING = "raftlog-mirror-offsets"
NOT_COPIED = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
)
"""Settings of topics that name brokers, or would stamp or refuse records that come with a time of long ago."""


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, "raftlog pipeline run mirror -b old:9092 --target new:9092 --topics orders "
                          "--checkpoint state/mirror --groups billing")  # fmt: skip
    made.add_argument("--target", required=True, metavar="HOST:PORT[,...]", help="the cluster to write to")
    made.add_argument("--topics", required=True, metavar="A,B", help="what to copy")
    made.add_argument("--prefix", default="", metavar="TEXT", help="what the copies' names begin with")
    made.add_argument("--mapping", default=MAPPING, metavar="TOPIC", help="in the target (default %(default)s)")
    made.add_argument("--groups", metavar="A,B", help="commit where these groups stand, for the copies, at the end")
    running.add_stream(made)
    return made


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    topics = options.topics.split(",")
    prepare(options, say)
    frame = running.source(spark, options, options.topics, includeHeaders=True)
    prefix = options.prefix.replace("'", "")
    columns = ["key", "value", "headers", "timestamp", "partition", f"concat('{prefix}', topic) AS topic",
               "topic AS source_topic", "partition AS source_partition", "offset AS source_offset"]  # fmt: skip
    writer = frame.selectExpr(*columns).writeStream.format("raftlog").option("includeTimestamp", True)
    writer = writer.option("kafka.bootstrap.servers", options.target).option("offsetMapping", options.mapping)
    start = running.triggered(writer, options).start
    # Topics may get partitions while they are copied.
    totals = running.follow(options, start, say, mended=lambda: prepare(options, say))
    summary = Summary(NAME)
    summary.add("rows in", totals.rows, rows_in=totals.rows, seconds=round(totals.seconds, 3))
    summary.add("copies", ", ".join(options.prefix + topic for topic in topics))
    summary.add("mapping", f"topic {options.mapping} at {options.target}")
    if options.groups:
        _move_groups(options, summary)
    return summary


def prepare(options: argparse.Namespace, say: Say) -> bool:
    """Copies get the partitions that their topics have now, new ones their settings, too. Whether any did."""
    with SyncClient(options.bootstrap_servers, timeout=options.timeout) as here:
        with SyncClient(options.target, timeout=options.timeout) as there:
            return _prepare(here, there, options, say)


def _prepare(here: SyncClient, there: SyncClient, options: argparse.Namespace, say: Say) -> bool:
    changed = False
    if not options.prefix and here.admin.describe_cluster().cluster_id == there.admin.describe_cluster().cluster_id:
        raise UsageError("--target is the cluster that is copied: --prefix tells the copies from what they are made of")
    ensure(there, options.mapping, partitions=1, configs=KEPT)
    for topic in options.topics.split(","):
        count = len(here.admin.topic(topic).partitions)
        (described,) = here.admin.describe_configs(ResourceType.TOPIC, [topic])
        own = {
            each.name: each.value or ""
            for each in described.configs
            if each.config_source == ConfigSource.TOPIC and each.name not in NOT_COPIED
        }
        copy = options.prefix + topic
        if ensure(there, copy, partitions=count, configs=own):
            say(f"topic {copy}: made with {count} partitions")
            changed = True
        elif len(there.admin.topic(copy).partitions) < count:
            there.admin.create_partitions(copy, count)
            say(f"topic {copy}: now with {count} partitions")
            changed = True
    return changed


def _move_groups(options: argparse.Namespace, summary: Summary) -> None:
    groups = options.groups.split(",")
    with SyncClient(options.bootstrap_servers, timeout=options.timeout) as here:
        committed = {group: here.admin.committed_offsets(group) for group in groups}
    with SyncClient(options.target, timeout=options.timeout) as there:
        known = read_mapping(there, options.mapping, options.prefix)
        for group in groups:
            found = translated(committed[group], known, options.prefix)
            # Where the group works on the copies already, it is not sent back.
            reached = there.admin.committed_offsets(group)
            ahead = {where: offset for where, offset in found.items() if offset > reached.get(where, -1)}
            if ahead:
                there.admin.commit_offsets(group, ahead)
            summary.add(f"group {group}", f"{len(found)} partitions, {len(ahead)} of them moved")


def translated(
    committed: Mapping[TopicPartition, int], known: Mapping[TopicPartition, list[Run]], prefix: str
) -> dict[TopicPartition, int]:
    """Committed offsets of topics as offsets of their copies; partitions that were not copied are left out."""
    found = {}
    for (topic, index), offset in committed.items():
        there = translate(known.get((topic, index), []), offset)
        if there is not None:
            found[prefix + topic, index] = there
    return found


def read_mapping(client: SyncClient, topic: str, prefix: str) -> dict[TopicPartition, list[Run]]:
    """What the topic of the mapping tells of copies under `prefix`: by topic and partition of the source."""
    found: dict[TopicPartition, list[Run]] = {}
    partitions = [(topic, each.partition_index) for each in client.admin.topic(topic).partitions]
    ends = client.admin.offsets_at(partitions, -1)
    with client.consumer(topic, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        while any(consumer.positions.get(each, 0) < end for each, end in ends.items()):
            _add(found, (record.value for record in consumer.poll(1000, timeout=1)), prefix)
    return {where: list(join(runs)) for where, runs in found.items()}


def _add(found: dict[TopicPartition, list[Run]], values: Iterable[bytes | None], prefix: str) -> None:
    """Other mirrors may write to the same topic, from clusters that have topics of the same names."""
    for value in values:
        told = json.loads(value or b"{}")
        if told and told["to_topic"] == prefix + told["topic"]:
            found.setdefault((told["topic"], told["partition"]), []).extend(Run(*run) for run in told["runs"])


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
