"""The simulated event loop: what asyncio promises, and what happens to processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raftlog.linearizability.simulator.machine.world import Machine, World


def world_of(count: int, seed: int = 1) -> World:
    world = World(seed)
    for node in range(1, count + 1):
        world.add_machine(node, f"host{node}")
    return world


def run_on(world: World, node: int, work: Callable[[Machine], Coroutine[Any, Any, Any]]) -> None:
    world.machines[node].start(work)


def test_time_passes_only_as_far_as_somebody_waits_for() -> None:
    world = world_of(1)
    seen: list[float] = []

    async def sleeper(_: Machine) -> None:
        for seconds in (3600.0, 0.5, 0.0):
            await asyncio.sleep(seconds)
            seen.append(asyncio.get_running_loop().time())

    run_on(world, 1, sleeper)
    world.scheduler.run_until(10_000)
    assert seen == [3600.0, 3600.5, 3600.5]


def test_timers_at_one_moment_fire_in_the_order_of_their_making() -> None:
    world = world_of(1)
    seen: list[int] = []

    async def program(_: Machine) -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_at(1.0, seen.append, number)
        loop.call_at(1.0, seen.append, 99).cancel()
        await asyncio.sleep(2)

    run_on(world, 1, program)
    world.scheduler.run_until(10)
    assert seen == list(range(20))


def test_time_outs_locks_and_groups_of_tasks_work_as_in_asyncio() -> None:
    world = world_of(1)
    seen: list[object] = []

    async def holder(lock: asyncio.Lock, seconds: float) -> float:
        async with lock:
            await asyncio.sleep(seconds)
        return seconds

    async def program(_: Machine) -> None:
        lock = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(holder(lock, seconds)) for seconds in (0.3, 0.1)]
        seen.extend(task.result() for task in tasks)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(5)
        seen.append(round(asyncio.get_running_loop().time(), 6))

    run_on(world, 1, program)
    world.scheduler.run_until(10)
    assert seen == [0.3, 0.1, 1.4]


def test_what_takes_time_holds_up_its_own_process_and_no_other() -> None:
    world = world_of(2)
    seen: list[tuple[int, float]] = []

    async def program(machine: Machine) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, lambda: seen.append((machine.node, loop.time())))
        if machine.node == 1:
            machine.loop.spend(1.0)
        await asyncio.sleep(5)

    for node in (1, 2):
        run_on(world, node, program)
    world.scheduler.run_until(10)
    assert seen == [(2, 0.1), (1, 1.0)]


def test_a_function_in_a_thread_does_not_hold_up_the_loop() -> None:
    world = world_of(1)
    seen: list[tuple[str, float]] = []

    async def program(machine: Machine) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, lambda: seen.append(("timer", loop.time())))
        await loop.run_in_executor(None, machine.loop.spend, 1.0)
        seen.append(("thread", loop.time()))
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    run_on(world, 1, program)
    world.scheduler.run_until(10)
    assert seen[0] == ("timer", 0.5) and seen[1][0] == "thread" and 1.0 < seen[1][1] < 1.01


def test_a_frozen_process_does_nothing_and_then_all_of_it() -> None:
    world = world_of(1)
    seen: list[float] = []

    async def program(_: Machine) -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(asyncio.get_running_loop().time())

    run_on(world, 1, program)
    machine = world.machines[1]
    world.scheduler.at(1.5, machine.freeze)
    world.scheduler.at(7.25, machine.thaw)
    world.scheduler.run_until(9)
    assert seen == [1.0, 7.25, 8.25]


def test_a_killed_process_runs_no_cleanup_and_can_be_started_again() -> None:
    world = world_of(1)
    seen: list[str] = []

    async def child(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            seen.append(f"cleanup of {name}")

    async def program(machine: Machine) -> None:
        tasks = [asyncio.get_running_loop().create_task(child(f"child of {machine.incarnation}"))]
        try:
            await asyncio.gather(*tasks)
        finally:
            seen.append("cleanup")

    run_on(world, 1, program)
    machine = world.machines[1]
    world.scheduler.at(1, machine.kill)
    world.scheduler.at(2, machine.start)
    world.scheduler.run_until(50)
    assert seen == [] and machine.incarnation == 2 and machine.running


def test_a_bug_in_a_callback_reaches_the_run() -> None:
    world = world_of(1)
    bugs: list[BaseException] = []
    world.on_bug = lambda _, context: bugs.append(context["exception"])

    async def program(_: Machine) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    run_on(world, 1, program)
    world.scheduler.run_until(2)
    assert [type(bug) for bug in bugs] == [ZeroDivisionError]


def test_a_loop_makes_fifty_thousand_steps_a_second() -> None:
    world = world_of(2)

    async def program(_: Machine) -> None:
        for _ in range(20_000):
            await asyncio.sleep(0.001)

    for node in (1, 2):
        run_on(world, node, program)
    began = time.process_time()
    world.scheduler.run_until(1000)
    rate = world.scheduler.events / (time.process_time() - began)
    # Some 400,000 on an idle core; the bound leaves room for a slow and busy one.
    assert rate > 50_000, f"{rate:.0f} events/s"
