"""Stories of leaders and followers as transcripts: what is done, and beneath it what came of it.

`RAFTLOG_REWRITE=1` writes what comes of it into the files, for a person to read and keep or not.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftlog.broker.core.replica.leadership import Committed
from raftlog.wire.errors import ErrorCode
from tests.broker.core.replica.world import Answer, Fetch, Node, World

FOLDER = Path(__file__).parent / "transcripts"


class Teller:
    """Carries out one line after the other."""

    def __init__(self) -> None:
        self.world = World()
        # Messages that were sent and are still under way, by the follower that they come from or go to.
        self.requests: dict[int, Fetch] = {}
        self.answers: dict[int, tuple[Fetch, Answer]] = {}

    def tell(self, line: str) -> str:
        verb, *words = line.split()
        result = getattr(self, "do_" + verb)(*words)
        return "" if result is None else str(result)

    def node(self, name: str) -> Node:
        return self.world.nodes[int(name)]

    def do_world(self, *settings: str) -> None:
        values = dict(setting.split("=") for setting in settings)
        ids = tuple(range(1, int(values.get("nodes", 3)) + 1))
        self.world = World(ids, min_insync=int(values.get("min_insync", 1)))

    def do_append(self, name: str, *values: str) -> str:
        for value in values:
            self.node(name).append(value)
        return self.do_show(name)

    def do_send(self, name: str) -> str:
        """A follower's fetch leaves it."""
        fetch = self.node(name).fetch()
        if fetch is None:
            return "nothing to send"
        self.requests[int(name)] = fetch
        return f"to {fetch.leader}: offset {fetch.offset} last epoch {fetch.last_epoch} in epoch {fetch.leader_epoch}"

    def do_serve(self, name: str) -> str:
        """The fetch of a follower reaches its leader."""
        fetch = self.requests.pop(int(name))
        answer = self.world.nodes[fetch.leader].answer(fetch)
        self.answers[int(name)] = (fetch, answer)
        if answer.error is not ErrorCode.NONE:
            return answer.error.name
        what = f"diverging {answer.diverging}" if answer.diverging else f"records {list(answer.records)}"
        return f"{what} high watermark {answer.high_watermark}"

    def do_take(self, name: str) -> str:
        """The answer reaches the follower."""
        return self.node(name).take(*self.answers.pop(int(name)))

    def do_fetch(self, *names: str) -> str:
        """The whole way there and back."""
        told = []
        for name in names:
            if self.do_send(name) == "nothing to send":
                told.append(f"{name}: nothing to send")
                continue
            self.do_serve(name)
            told.append(f"{name}: {self.do_take(name)}")
        return "\n".join(told)

    def do_learn(self, *names: str) -> None:
        for name in names:
            self.node(name).learn()

    def do_elect(self, name: str, *how: str) -> str:
        self.world.elect(int(name), unclean="unclean" in how)
        return self.do_metadata()

    def do_kill(self, name: str) -> None:
        self.node(name).kill()

    def do_fence(self, name: str) -> str:
        self.world.fence(int(name))
        return self.do_metadata()

    def do_register(self, name: str) -> None:
        self.world.register(int(name))

    def do_checkpoint(self, *names: str) -> None:
        for name in names:
            self.node(name).checkpoint = self.node(name).log.high_watermark

    def do_delete_before(self, name: str, offset: str) -> str:
        self.node(name).log.delete_before(int(offset))
        return self.do_show(name)

    def do_wait(self, milliseconds: str) -> None:
        self.world.now_ms += int(milliseconds)

    def do_look(self, name: str) -> str:
        """The leader looks for followers that lag."""
        self.node(name).look_for_laggards()
        return self.do_isr(name)

    def do_decide(self, *how: str) -> str:
        """The controller decides on the oldest proposal; its answer may get lost."""
        return f"{self.world.decide(lose_answer='lost' in how)}; {self.do_metadata()}"

    def do_metadata(self) -> str:
        now = self.world.metadata
        recovering = " recovering" if now.leader_recovering else ""
        return f"leader {now.leader} epoch {now.leader_epoch}.{now.partition_epoch} isr {list(now.isr)}{recovering}"

    def do_isr(self, name: str) -> str:
        leadership = self.node(name).leadership
        if leadership is None:
            return "does not lead"
        state = type(leadership.state).__name__.lower()
        proposed = "" if isinstance(leadership.state, Committed) else f" to {_ids(leadership.state.proposal.isr)}"
        under = " under the minimum" if len(leadership.isr) < leadership.min_isr else ""
        return f"isr {list(leadership.isr)} maximal {list(leadership.maximal_isr)} {state}{proposed}{under}"

    def do_show(self, *names: str) -> str:
        return "\n".join(self._shown(self.node(name)) for name in names)

    def _shown(self, node: Node) -> str:
        log = node.log
        role = "leads" if node.leadership is not None else node.follows.value
        return (
            f"{node.node_id} {role} {log.log_start_offset}..{log.log_end_offset} {log.records} "
            f"high watermark {log.high_watermark} epochs {list(log.epochs)}"
        )


def _ids(members: tuple[tuple[int, int], ...]) -> list[str]:
    return [f"{broker_id} (epoch {epoch})" for broker_id, epoch in members]


def _played(text: str) -> str:
    teller = Teller()
    written = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        written.append(line)
        if line.strip() and not line.startswith("#"):
            written += [f"    {told}" for told in teller.tell(line).splitlines()]
    return "\n".join(written) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path) -> None:
    told = path.read_text()
    played = _played(told)
    if os.environ.get("RAFTLOG_REWRITE"):
        path.write_text(played)
    assert played == told
