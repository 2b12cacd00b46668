"""From one image to another by records: a snapshot in a running node is one change to those who listen."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.difference import records_between
from raftlog.metadata.image import MetadataImage
from tests.effort import examples
from tests.metadata import strategies
from tests.metadata.test_records import contents, replay


@settings(max_examples=examples(80))
@given(*[st.lists(strategies.records, max_size=12)] * 2)
def test_records_between_two_images_lead_from_one_to_the_other(older: list[Any], newer: list[Any]) -> None:
    before = replay(MetadataImage(), *older)
    # Later on the same log: numbers that only grow have grown.
    after = replay(before, *newer)
    for topic_id, topic in before.topics_by_id.items():
        # An id is random: no topic ever gets that of a deleted one.
        again = after.topics_by_id.get(topic_id, topic)
        assume((again.name, again.internal) == (topic.name, topic.internal))
        assume(len(again.partitions) >= len(topic.partitions))
    delta = MetadataDelta(before)
    for record in records_between(before, after):
        delta.replay(record)
    assert not delta.anomalies
    found = delta.apply(after.version)
    assert contents(found) == contents(after)
    names = {topic.name for topic in before.topics.values()}
    names -= {topic.name for topic in delta.deleted_topics}
    names |= {topic.name for topic in delta.created_topics}
    assert names == set(after.topics)


def test_there_is_nothing_between_an_image_and_itself() -> None:
    assert not list(records_between(MetadataImage(), MetadataImage()))
