"""Elections and ISRs as transcripts: what was asked, what was answered, how the partitions are then.

Each file under `transcripts` is a story. A block is a command, `----`, and what came of it; everything is checked.
`RAFTLOG_REWRITE=1` writes what comes out into the files: read the difference before you believe it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftlog.metadata import cluster_commands as c
from raftlog.metadata.commands import NO_EPOCH, NewTopic, RegisterBroker
from raftlog.metadata.image import PartitionState
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import SET, World

FOLDER = Path(__file__).parent / "transcripts"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part not in ("", "-"))


def shown(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "-"


def directory_id(name: str) -> bytes:
    return name.ljust(16, ".")[:16].encode()


def described(name: str, state: PartitionState) -> str:
    parts = [
        f"{name}-{state.partition_id}",
        f"leader={state.leader if state.leader >= 0 else '-'}",
        f"epoch={state.leader_epoch}.{state.partition_epoch}",
        f"replicas={shown(state.replicas)}",
        f"isr={shown(state.isr)}",
    ]
    if state.eligible_leader_replicas:
        parts.append(f"elr={shown(state.eligible_leader_replicas)}")
    if state.directories:
        parts.append(f"on={','.join(d.decode().strip('.' + chr(0)) or '?' for d in state.directories)}")
    if state.adding_replicas or state.removing_replicas:
        parts.append(f"adding={shown(state.adding_replicas)} removing={shown(state.removing_replicas)}")
    if state.last_known_leader >= 0:
        parts.append(f"last-known={state.last_known_leader}")
    if state.leader_recovering:
        parts.append("recovering")
    return " ".join(parts)


class Story:
    """Carries out a transcript's commands. Each returns the words for what was answered, if there are any."""

    def __init__(self) -> None:
        self.world = World(brokers=0, min_insync_replicas="2")
        self.incarnations = 0

    def run(self, line: str) -> str:
        verb, *words = line.split()
        plain = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        before = self.partitions()
        answer = getattr(self, verb.replace("-", "_"))(*plain, **options)
        after = self.partitions()
        changed = [text for text in after if text not in before]
        return "\n".join([*([answer] if answer else []), *changed]) or "(nothing changes)"

    def partitions(self) -> list[str]:
        topics = sorted(self.world.image.topics.values(), key=lambda topic: topic.name)
        return [described(topic.name, state) for topic in topics for state in topic.partitions]

    # -- brokers ---------------------------------------------------------------------------------------

    def brokers(self, *ids: str) -> None:
        for broker in ids:
            self.start(broker, "clean")
            self.serve(broker)

    def start(self, broker: str, how: str, disk: str = "") -> None:
        """How the last run ended: clean, killed (the machine went on), or crashed."""
        number = int(broker)
        self.incarnations += 1
        known = self.world.image.brokers.get(number)
        disks = (disk or f"disk-of-{number}").split("+")
        command = RegisterBroker(
            number,
            self.incarnations.to_bytes(16, "big"),
            (),
            directories=tuple(directory_id(disk) for disk in disks),
            fenced=True,
            previous_broker_epoch=known.epoch if known is not None and how == "clean" else NO_EPOCH,
            log_survived=how == "killed",
        )
        assert self.world.execute(command).error is ErrorCode.NONE

    def serve(self, broker: str) -> None:
        self._heartbeat(broker)

    def stop(self, broker: str) -> str:
        answer = self._heartbeat(broker, want_shut_down=True)
        return "may stop" if answer.should_shut_down else "has to wait"

    def _heartbeat(self, broker: str, want_shut_down: bool = False) -> c.HeartbeatAnswer:
        epoch = self.world.image.brokers[int(broker)].epoch
        return self.world.execute(c.BrokerHeartbeat(int(broker), epoch, 1, want_shut_down=want_shut_down))

    def assign(self, partition: str, broker: str, disk: str) -> str:
        name, index = partition.rsplit("-", 1)
        assignment = c.DirectoryAssignment(self.world.image.topics[name].topic_id, int(index), directory_id(disk))
        epoch = self.world.image.brokers[int(broker)].epoch
        answer = self.world.execute(c.AssignDirectories(int(broker), epoch, (assignment,)))
        return answer.results[0].name

    def offline(self, broker: str, *disks: str) -> None:
        epoch = self.world.image.brokers[int(broker)].epoch
        offline = tuple(directory_id(disk) for disk in disks)
        self.world.execute(c.BrokerHeartbeat(int(broker), epoch, 1, offline_directories=offline))

    def fence(self, *ids: str) -> None:
        known = self.world.image.brokers
        self.world.execute(c.FenceBrokers(tuple((int(b), known[int(b)].epoch) for b in ids)))

    def unregister(self, broker: str) -> str:
        return self.world.execute(c.UnregisterBroker(int(broker))).error.name

    # -- topics ----------------------------------------------------------------------------------------

    def topic(self, name: str, *replicas: str) -> str:
        assignments = tuple(enumerate(map(numbers, replicas)))
        return self.world.create(NewTopic(name, assignments=assignments)).error.name

    def set(self, name: str, **configs: str) -> str:
        changes = [(key.replace("_", "."), SET, value) for key, value in configs.items()]
        error, _ = self.world.alter(ResourceType.TOPIC, name, *changes)
        return error.name

    # -- partitions --------------------------------------------------------------------------------------

    def propose(self, partition: str, by: str, isr: str, epoch: str = "", version: str = "", brokers: str = "") -> str:
        """`epoch` and `version`: leader epoch and partition epoch, if other than the present; `brokers`: epochs."""
        name, index = partition.rsplit("-", 1)
        topic = self.world.image.topics[name]
        state = topic.partitions[int(index)]
        epochs = numbers(brokers) if brokers else (-1,) * len(numbers(isr))
        members = tuple(c.IsrMember(*pair) for pair in zip(numbers(isr), epochs, strict=True))
        proposal = c.IsrProposal(
            topic.topic_id,
            int(index),
            int(epoch) if epoch else state.leader_epoch,
            int(version) if version else state.partition_epoch,
            members,
        )
        broker_epoch = self.world.image.brokers[int(by)].epoch
        answer = self.world.execute(c.AlterPartitions(int(by), broker_epoch, (proposal,)))
        return answer.results[0].error.name

    def elect(self, kind: str, *partitions: str) -> str:
        named = tuple((p.rsplit("-", 1)[0], int(p.rsplit("-", 1)[1])) for p in partitions)
        answer = self.world.execute(c.ElectLeaders(c.ElectionType[kind.upper()], named or None))
        lines = [f"{result.topic}-{result.partition_id} {result.error.name}" for result in answer.results]
        return "\n".join(lines) or "no partition needs it"

    def rebalance(self) -> str:
        answer = self.world.execute(c.RebalanceLeaders(0))
        return f"{len(answer.results)} given back"

    def reassign(self, partition: str, to: str = "", factor: str = "may-change") -> str:
        name, index = partition.rsplit("-", 1)
        wanted = c.Reassignment(name, int(index), None if to == "cancel" else numbers(to))
        answer = self.world.execute(c.AlterReassignments((wanted,), factor == "may-change"))
        return answer.results[0].error.name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_transcript_is_what_happens(path: Path) -> None:
    story = Story()
    written: list[str] = []
    for block in path.read_text().strip("\n").split("\n\n"):
        lines = block.split("\n")
        end = lines.index("----") if "----" in lines else len(lines)
        commands = [line for line in lines[:end] if not line.startswith("#")]
        outcome = [story.run(line) for line in commands]
        written.append("\n".join([*lines[:end], *(["----", *outcome] if commands else [])]))
    text = "\n\n".join(written) + "\n"
    if os.environ.get("RAFTLOG_REWRITE"):
        path.write_text(text)
    assert path.read_text() == text
