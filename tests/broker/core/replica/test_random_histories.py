"""Random lives of a partition's replicas, with every message, learning, crash and election at a random moment.

Whatever happens: what was committed once stays, the same everywhere, as long as leaders come from the ISR.
"""

from __future__ import annotations

from random import Random

import pytest

from raftlog.metadata.records import NO_LEADER
from tests.broker.core.replica.world import LAG_MS_MAX, Answer, Fetch, Node, World
from tests.effort import examples

SEEDS = range(examples(400))
STEPS = 250


class History:
    """One random life. `trace` tells how it went."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(
            (1, 2, 3), min_insync=self.random.choice((1, 2, 2)), records_max=self.random.choice((1, 2, 10))
        )
        self.requests: list[Fetch] = []
        self.answers: list[tuple[Fetch, Answer]] = []
        self.values = 0
        self.trace: list[str] = []
        # Steps, and how often each is taken.
        self.steps = {
            self.append: 6, self.send: 12, self.serve: 12, self.take: 12, self.drop: 1, self.learn: 6, self.kill: 1,
            self.revive: 2, self.fence: 2, self.hand_over: 1, self.decide: 4, self.look: 2, self.wait: 2,
            self.checkpoint: 2, self.expire: 1,
        }  # fmt: skip

    def any_node(self) -> Node:
        return self.world.nodes[self.random.choice(self.world.ids)]

    def step(self) -> None:
        (chosen,) = self.random.choices(list(self.steps), list(self.steps.values()))
        self.trace.append(f"{chosen.__name__}: {chosen()}")

    def append(self) -> str:
        leaders = [node for node in self.world.nodes.values() if node.leadership is not None]
        if not leaders:
            return "nobody"
        node = self.random.choice(leaders)
        self.values += 1
        return f"{node.node_id} v{self.values} at {node.append(f'v{self.values}')}"

    def send(self) -> str:
        node = self.any_node()
        fetch = node.fetch() if node.is_alive else None
        if fetch is not None:
            self.requests.append(fetch)
        return str(fetch)

    def serve(self) -> str:
        if not self.requests:
            return "nothing"
        fetch = self.requests.pop(self.random.randrange(len(self.requests)))
        leader = self.world.nodes[fetch.leader]
        if not leader.is_alive:
            return "nobody there"
        answer = leader.answer(fetch)
        self.answers.append((fetch, answer))
        return f"{fetch} -> {answer}"

    def take(self) -> str:
        if not self.answers:
            return "nothing"
        fetch, answer = self.answers.pop(self.random.randrange(len(self.answers)))
        node = self.world.nodes[fetch.replica]
        if not node.is_alive or node.broker_epoch != fetch.broker_epoch:
            return "nobody there"
        told = node.take(fetch, answer)
        self.world.check_log(node)
        return f"{fetch.replica} {told}"

    def drop(self) -> str:
        for messages in (self.requests, self.answers):
            if messages and self.random.random() < 0.5:
                messages.pop(self.random.randrange(len(messages)))
        return ""

    def learn(self) -> str:
        node = self.any_node()
        if node.is_alive:
            node.learn()
        return f"{node.node_id} {node.known}"

    def kill(self) -> str:
        node = self.any_node()
        node.kill()
        return str(node.node_id)

    def revive(self) -> str:
        node = self.any_node()
        if not node.is_alive:
            # A restarted broker is fenced first: the controller sees that it was away.
            self.world.fence(node.node_id)
            self.world.register(node.node_id)
        return str(node.node_id)

    def fence(self) -> str:
        node = self.any_node()
        if not node.is_alive:
            self.world.fence(node.node_id)
        return f"{self.world.metadata}"

    def hand_over(self) -> str:
        now = self.world.metadata
        member = self.random.choice(now.isr)
        if self.world.nodes[member].is_alive and now.leader != NO_LEADER:
            self.world.elect(member)
        return f"{self.world.metadata}"

    def decide(self) -> str:
        if not self.world.proposals:
            return "nothing"
        return self.world.decide(lose_answer=self.random.random() < 0.2)

    def look(self) -> str:
        node = self.any_node()
        node.look_for_laggards()
        return str(node.node_id)

    def wait(self) -> str:
        self.world.now_ms += self.random.choice((1, LAG_MS_MAX // 2, LAG_MS_MAX + 1))
        return str(self.world.now_ms)

    def checkpoint(self) -> str:
        node = self.any_node()
        node.checkpoint = node.log.high_watermark
        return str(node.node_id)

    def expire(self) -> str:
        node = self.any_node()
        if node.leadership is not None and self.random.random() < 0.3:
            node.log.delete_before(node.log.log_start_offset + 1)
        return f"{node.node_id} from {node.log.log_start_offset}"

    def check_leader(self) -> None:
        """Who leads by the newest metadata, and knows it, has everything that was ever committed."""
        now = self.world.metadata
        leader = self.world.nodes.get(now.leader)
        if leader is None or leader.leadership is None or leader.known.leader_epoch != now.leader_epoch:
            return
        log = leader.log
        for offset, record in self.world.history.items():
            if offset >= log.log_start_offset:
                assert offset < log.log_end_offset, f"committed {record} at {offset} is lost: {log.records}"
                assert log.records[offset - log.log_start_offset] == record

    def settle(self) -> None:
        """Everybody lives and hears everything: all logs become the same."""
        self.requests.clear()
        self.answers.clear()
        for node_id in self.world.ids:
            if not self.world.nodes[node_id].is_alive:
                self.world.fence(node_id)
                self.world.register(node_id)
        for _ in range(60):
            self.world.now_ms += 10
            for node in self.world.nodes.values():
                node.learn()
                fetch = node.fetch()
                if fetch is not None:
                    node.take(fetch, self.world.nodes[fetch.leader].answer(fetch))
            while self.world.proposals:
                self.world.decide()
            self.check_leader()
        nodes = list(self.world.nodes.values())
        leader = self.world.nodes[self.world.metadata.leader]
        assert sorted(self.world.metadata.isr) == list(self.world.ids)
        for node in nodes:
            log = node.log
            assert log.log_end_offset == leader.log.log_end_offset == log.high_watermark
            common = max(log.log_start_offset, leader.log.log_start_offset)
            assert log.read(common, 10_000) == leader.log.read(common, 10_000)


@pytest.mark.parametrize("chunk", range(8))
def test_what_was_committed_is_never_lost_or_changed(chunk: int) -> None:
    for seed in SEEDS[chunk::8]:
        history = History(seed)
        try:
            for _ in range(STEPS):
                history.step()
                history.check_leader()
            history.settle()
        except AssertionError as error:
            last = "\n".join(history.trace[-40:])
            raise AssertionError(f"seed {seed}: {error}\n{last}") from error
