"""Thousands of frames that nearly are requests, and a million of them in `make fuzz`.

    RAFTLOG_FUZZ_SEED=7 make fuzz          the same frames again
    RAFTLOG_FUZZ_FRAMES=100000 make fuzz   fewer of them
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import ApplyResult
from pathlib import Path

import pytest

from raftlog.testing import Cluster, cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.messages.metadata import MetadataRequest
from tests.system.fuzz.attack import Attack, NoProgress, Outcome
from tests.system.fuzz.frames import Frames
from tests.system.fuzz.watch import Bystander, LogReader, Watch, watched
from tests.system.traps.batches import everything, plain_batch, read, send
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names, sensible_request

SHORT_FRAMES = 2_000
SHORT_SEED = 20_251
CAMPAIGN_FRAMES = int(os.environ.get("RAFTLOG_FUZZ_FRAMES", "1000000"))
PROCESSES = max(2, (os.cpu_count() or 2) - 1)
SHARE_FRAMES = 5_000
"""A process gets its frames in shares of this size, so that the broker is looked at in between."""
CAMPAIGN_RSS_BYTES_MAX = 400 << 20
"""A million frames make some thousand topics and groups, which a broker has to remember."""
SHOWN_FRAMES_MAX = 40
SETTINGS = {"offsets.topic.num.partitions": "2", "auto.create.topics.enable": "true"}


class Death(Exception):
    """The broker went away during a share of frames; the text shows what was under way."""


def attack(address: str, seed: int, names: Names, numbers: range) -> Outcome:
    """Send one share of frames."""
    host, _, port = address.rpartition(":")
    attack = Attack((host, int(port)), Frames(seed, names).range(numbers.start, numbers.stop))
    try:
        return attack.run()
    except (NoProgress, OSError) as error:
        shown = "\n".join(frame[:200].hex() for frame in attack.under_way()[:SHOWN_FRAMES_MAX])
        raise Death(f"{type(error).__name__}: {error}; under way were, in hex:\n{shown}") from None


def prepare(brokers: Cluster) -> Names:
    """A topic with records and a group with an offset for the frames to talk about."""
    names = Names("fuzz", create_topic(brokers.bootstrap_servers, "fuzz"), "fuzz-group")
    with RawConnection(brokers.bootstrap_servers) as connection:
        send(connection, names, plain_batch(b"x" * 100))
        for key, version in ((ApiKey.FIND_COORDINATOR, 0), (ApiKey.OFFSET_COMMIT, 8)):
            connection.ask(sensible_request(key, version, names), version)
    return names


@contextmanager
def told(seed: int) -> Iterator[None]:
    """Failures say how to see them again."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the frames are those of RAFTLOG_FUZZ_SEED={seed}")
        raise


def compare(watch: Watch, outcomes: list[Outcome]) -> Outcome:
    """Each connection that the broker ended has one line in its log."""
    total = Outcome(*map(sum, zip(*outcomes, strict=True)))
    # A quiet connection may have been ended by both sides at once.
    watch.log.wait_for_closed_lines(total.closed, at_most=total.closed + total.quiet)
    return total


def restart_and_read(brokers: Cluster, bystander: Bystander, *, kill: bool) -> None:
    """Stop in order, or kill -9, and start again: what the bystander wrote must be there."""
    process = brokers.brokers[0]
    if kill:
        process.kill()
    else:
        assert process.stop() == 0, f"the broker {process.how_it_ended()}{process.last_words()}"
    log = LogReader(process)
    process.start()
    with RawConnection(brokers.bootstrap_servers) as connection:
        assert everything(connection, bystander.names) == [b"%d" % number for number in range(bystander.rounds)]
        # The other topics and groups too can be used: nothing that was stored keeps the broker from reading it.
        for topic in connection.ask(MetadataRequest(topics=None), 1).topics:
            for partition in topic.partitions:
                read(connection, Names(topic.name, b"", ""), index=partition.partition_index)
    log.look()


def test_two_thousand_mutated_frames_do_not_disturb_the_broker() -> None:
    seed = int(os.environ.get("RAFTLOG_FUZZ_SEED", SHORT_SEED))
    with told(seed), cluster(settings=SETTINGS) as brokers:
        names = prepare(brokers)
        with watched(brokers.brokers[0]) as watch:
            outcome = attack(watch.address, seed, names, range(SHORT_FRAMES))
            watch.check()
            total = compare(watch, [outcome])
        assert total.done >= SHORT_FRAMES and total.replies > SHORT_FRAMES // 5, total
        restart_and_read(brokers, watch.bystander, kill=True)


@pytest.mark.slow
def test_a_million_mutated_frames_do_not_disturb_the_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("RAFTLOG_FUZZ_SEED") or secrets.randbits(31))
    began = time.monotonic()
    with told(seed), cluster(directory=tmp_path, settings=SETTINGS) as brokers:
        names = prepare(brokers)
        with watched(brokers.brokers[0]) as watch:
            outcomes = campaign(watch, seed, names)
            total = compare(watch, outcomes)
        with capsys.disabled():
            print(
                f"\nseed {seed}: {total} in {time.monotonic() - began:.0f} s, at most {watch.largest_bytes >> 20} MiB, "
                f"bystander: {watch.bystander.rounds} rounds, slowest {watch.bystander.slowest_seconds:.2f} s"
            )
        assert total.done >= CAMPAIGN_FRAMES, total
        restart_and_read(brokers, watch.bystander, kill=False)


def campaign(watch: Watch, seed: int, names: Names) -> list[Outcome]:
    """All frames, a share at a time, from several processes."""
    shares = [
        range(start, min(start + SHARE_FRAMES, CAMPAIGN_FRAMES)) for start in range(0, CAMPAIGN_FRAMES, SHARE_FRAMES)
    ]
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pending: list[ApplyResult[Outcome]] = [
            pool.apply_async(attack, (watch.address, seed, names, share)) for share in shares
        ]
        for result in pending:
            while not result.ready():
                result.wait(1.0)
                watch.check(CAMPAIGN_RSS_BYTES_MAX)
            outcomes.append(result.get())
    return outcomes
