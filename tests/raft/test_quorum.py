"""Three nodes on the loopback interface keep one log: elections, entries, restarts, losses."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.raft.quorum_world import World


async def test_three_nodes_elect_a_leader_and_replay_what_it_proposes(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start()
        leader = await world.led()
        assert await leader.log.propose([b"a", b"b"]) == 2
        indexes = await asyncio.gather(*(leader.log.propose([b"%d" % n]) for n in range(200)))
        assert indexes == list(range(3, 203))
        await world.agree([b"a", b"b", *(b"%d" % n for n in range(200))])


async def test_a_killed_leader_is_replaced_and_nothing_committed_is_lost(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start()
        expected = []
        for generation in range(3):
            leader = await world.led()
            for n in range(5):
                entry = b"%d-%d" % (generation, n)
                await leader.log.propose([entry])
                expected.append(entry)
            leader.kill()
            await world.led()
            await world.agree(expected)
            await world.start(leader.node_id)
            await world.agree(expected)
