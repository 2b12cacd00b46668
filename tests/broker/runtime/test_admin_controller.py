"""The running controller: commands in any number at once, restarts, failing disks, listeners."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from pathlib import Path

import pytest

from raftlog.broker.api.request_timeouts import SHARE
from raftlog.broker.config import BrokerConfig
from raftlog.broker.runtime.controller import (
    CHANGES_TOGETHER,
    COMMAND_SECONDS_MAX,
    PARTS_UNDER_WAY_MAX,
    Controller,
)
from raftlog.broker.runtime.opening import open_controller, random_id
from raftlog.client.sync import SyncClient
from raftlog.metadata.commands import (
    AlterConfigs,
    AlterResource,
    ConfigChange,
    ConfigOperation,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    RegisterBroker,
)
from raftlog.metadata.controller import Environment
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import ResourceType
from raftlog.raft.local import LocalLog
from raftlog.wire.errors import ErrorCode
from tests.broker.runtime.admin_world import AdminWorld
from tests.raftlog.raft.crashing_disk import Crashed, CrashingDisk


class Listener:
    """Keeps what it is told, and follows it."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.topics: set[str] = set()

    def __call__(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.versions.append(image.version)
        self.topics |= {topic.name for topic in delta.created_topics}
        self.topics -= {topic.name for topic in delta.deleted_topics}
        assert self.topics == set(image.topics)


async def test_listeners_are_told_every_change_before_the_answer(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        listener = Listener()
        await world.create("early")
        world.controller.subscribe(listener)
        assert listener.topics == {"early"}
        answers = await asyncio.gather(*(world.create(f"t{n}") for n in range(50)))
        assert len(listener.topics) == 51
        assert listener.versions == sorted(set(listener.versions))
        assert all(result.error is ErrorCode.NONE for (result,) in answers)
        await world.controller.execute(DeleteTopics(("early",)))
        assert "early" not in listener.topics


async def test_commands_made_at_once_see_each_other(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        results = [result for (result,) in await asyncio.gather(*(world.create("same") for _ in range(20)))]
        errors = [result.error for result in results]
        assert errors.count(ErrorCode.NONE) == 1
        assert errors.count(ErrorCode.TOPIC_ALREADY_EXISTS) == 19


async def test_some_parts_of_large_requests_wait_for_their_commit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AdminWorld(tmp_path) as world:
        begun: list[str] = []
        room = asyncio.Event()
        execute = world.controller.execute

        async def hold(command: CreateTopics, seconds: float) -> object:
            begun.append(command.topics[0].name)
            await room.wait()
            return await execute(command, seconds)

        def command(names: tuple[str, ...]) -> CreateTopics:
            return CreateTopics(tuple(map(NewTopic, names)))

        async def create(names: list[str]) -> list[str]:
            answers = world.controller.execute_in_parts(names, command, COMMAND_SECONDS_MAX)
            return [result.name async for answer in answers for result in answer.results]

        monkeypatch.setattr(world.controller, "execute", hold)
        wanted = [[f"{letter}{number}" for number in range(5 * CHANGES_TOGETHER + 7)] for letter in "abc"]
        given_up, *requests = (asyncio.create_task(create(names)) for names in wanted)
        for _ in range(100):
            await asyncio.sleep(0)
        waiting = begun.copy()
        assert len(waiting) == PARTS_UNDER_WAY_MAX and waiting[:2] == ["a0", "b0"]
        given_up.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        makes_room = [name for name in waiting if name.startswith("a")]
        assert len(begun) == len(waiting + makes_room)
        room.set()
        assert await asyncio.gather(*requests) == wanted[1:], "answers come in the order of the request"
        assert set(world.image.topics) == {name for names in wanted[1:] for name in names}


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create(NewTopic("t", 3, 1, configs=(("retention.ms", "5"),)))
        before = world.image
        _, first = await world.controller.next_producer_id(1)
    listener = Listener()
    world = AdminWorld(tmp_path)
    world.controller.subscribe(listener)
    async with world:
        assert listener.topics == {"t"}
        assert world.image.cluster_id == before.cluster_id
        assert world.image.topics["t"].topic_id == before.topics["t"].topic_id
        assert world.image.configs_of(ResourceType.TOPIC, "t") == {"retention.ms": "5"}
        assert world.image.brokers[1].epoch == before.brokers[1].epoch + 1
        _, second = await world.controller.next_producer_id(1)
        assert second > first


async def test_producer_ids_are_never_given_twice_however_many_ask(tmp_path: Path) -> None:
    given: list[int] = []
    for _ in range(3):
        async with AdminWorld(tmp_path) as world:
            answers = await asyncio.gather(*(world.controller.next_producer_id(1) for _ in range(1500)))
            assert all(error is ErrorCode.NONE for error, _ in answers)
            given += [producer_id for _, producer_id in answers]
    assert len(set(given)) == len(given) == 4500


async def test_the_offsets_topic_has_as_many_replicas_as_there_are_brokers_unless_somebody_said(
    tmp_path: Path,
) -> None:
    async with AdminWorld(tmp_path / "default") as world:
        await world.add_broker(2)
        result = await world.controller.ensure_internal_topic("__consumer_offsets")
        assert (result.error, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 50, 2)
        assert (await world.controller.ensure_internal_topic("__consumer_offsets")).topic_id == result.topic_id
    async with AdminWorld(tmp_path / "said", offsets_topic_replication_factor="3") as world:
        result = await world.controller.ensure_internal_topic("__consumer_offsets")
        assert result.error is ErrorCode.INVALID_REPLICATION_FACTOR


def controller_on(files: CrashingDisk, rng: random.Random) -> Controller:
    config = BrokerConfig({"node.id": "1", "log.dirs": "/nowhere"})
    log = LocalLog("/journal", node_id=1, disk=files, snapshot_bytes=600)
    environment = Environment(lambda: rng.randbytes(16), config.resolver)
    return Controller(log, environment)


async def started(controller: Controller) -> Controller:
    await controller.start()
    await controller.initialize("cluster")
    await controller.register(RegisterBroker(1, random_id(), ()))
    return controller


async def test_a_full_disk_is_told_to_the_client_and_forgotten_when_there_is_room() -> None:
    files = CrashingDisk(random.Random(1))
    controller = await started(controller_on(files, random.Random(2)))
    files.fail["write"] = 1
    commands = [CreateTopics((NewTopic(name, 1, 1),)) for name in ("a", "b")]
    for answer in await asyncio.gather(*map(controller.execute, commands)):
        assert answer.results[0].error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left on device" in (answer.results[0].message or "")
    assert not controller.image.topics
    assert (await controller.execute(commands[0])).results[0].error is ErrorCode.NONE
    assert set(controller.image.topics) == {"a"}


async def test_after_a_failed_sync_commands_are_refused_and_the_broker_goes_on() -> None:
    files = CrashingDisk(random.Random(1))
    controller = await started(controller_on(files, random.Random(2)))
    files.fail["sync"] = 1
    for name in ("a", "b"):
        answer = await controller.execute(CreateTopics((NewTopic(name, 1, 1),)))
        assert answer.results[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await controller.next_producer_id(1))[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert not controller.image.topics


async def work(controller: Controller, rng: random.Random, acknowledged: dict[str, str | None]) -> None:
    """Create, change and delete topics; `acknowledged`: what each topic's retention is known to be, None: deleted."""
    await started(controller)
    for step in range(12):
        name = f"t{rng.randrange(4)}"
        value = str(step + 1)
        existing = name in controller.image.topics
        if not existing:
            await controller.execute(CreateTopics((NewTopic(name, 1, 1, configs=(("retention.ms", value),)),)))
            acknowledged[name] = value
        elif rng.random() < 0.3:
            await controller.execute(DeleteTopics((name,)))
            acknowledged[name] = None
        else:
            change = ConfigChange("retention.ms", ConfigOperation.SET, value)
            await controller.execute(AlterConfigs((AlterResource(ResourceType.TOPIC, name, (change,)),)))
            acknowledged[name] = value


def state_of(image: MetadataImage) -> dict[str, str | None]:
    return {name: image.configs_of(ResourceType.TOPIC, name)["retention.ms"] for name in image.topics}


@pytest.mark.parametrize("seed", range(3))
async def test_a_crash_at_any_operation_leaves_metadata_as_acknowledged(seed: int) -> None:
    probe = CrashingDisk(random.Random(seed))
    await work(controller_on(probe, random.Random(seed)), random.Random(seed), {})
    for crash_at in range(1, probe.operations + 1):
        files = CrashingDisk(random.Random(crash_at), crash_at=crash_at)
        acknowledged: dict[str, str | None] = {}
        try:
            await work(controller_on(files, random.Random(seed)), random.Random(seed), acknowledged)
        except Crashed:
            pass
        controller = controller_on(files.reboot(), random.Random(99))
        await controller.start()
        controller.image.check_invariants()
        found = state_of(controller.image)
        known = {name: value for name, value in acknowledged.items() if value is not None}
        # One change may have been under way: then at most one topic differs from what was acknowledged.
        differing = [name for name in {*found, *known} if found.get(name) != known.get(name)]
        assert len(differing) <= 1, (crash_at, found, known)


async def test_starts_after_many_crashes_do_not_get_slower_and_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftlog.broker.runtime.metadata_loader.REPLAYED_PARTITIONS_MAX", 40)
    for start in range(9):
        async with AdminWorld(tmp_path) as world:
            if start == 0:
                await world.create(NewTopic("t", 10, 1))
            assert world.image.topics["t"].partitions[3].leader_epoch == start
            snapshots = [path.name for path in Path(world.config.metadata_directory).glob("*.snapshot")]
            assert len(snapshots) == (0 if start < 5 else 1)


async def test_ten_thousand_partitions_are_read_back_quickly(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        for start in range(0, 10_000, 2_500):
            await world.create(*(f"t{n}" for n in range(start, start + 2_500)))
    controller = open_controller(BrokerConfig({"node.id": "1", "log.dirs": str(tmp_path)}))
    began = time.process_time()
    await controller.start()
    assert len(controller.image.topics) == 10_000
    assert time.process_time() - began < 3.0, "it takes about 0.2 s"
    await controller.close()


def test_a_command_is_given_up_before_our_own_client_gives_up_and_never_learns_why() -> None:
    client_seconds = inspect.signature(SyncClient).parameters["timeout"].default
    assert SHARE * client_seconds >= COMMAND_SECONDS_MAX
