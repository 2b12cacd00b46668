"""Cycles of dependencies: each class by hand, and all of them against brute force."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from raftlog.linearizability.checker.history import INFO, OK, History
from raftlog.linearizability.checker.kafka import Judgement, KafkaOptions, analyze
from raftlog.linearizability.checker.kafka.cycles import dependencies
from tests.effort import at_least
from tests.linearizability.checker.kafka.service import Service
from tests.linearizability.checker.kafka.story import Story

pytestmark = pytest.mark.long

HISTORIES = at_least(250)  # in each part


def found(story: Story, **options: object) -> dict[str, str]:
    """Names of the cycles found with their judgements."""
    report = story.report(**options)
    names = [one for one in report.anomalies if one.name[0] in "GPs" and one.name != "G1a"]
    return {one.name: one.judgement.value for one in reversed(names)}  # the gravest judgement of each name


def reader(story: Story) -> Story:
    """At the end somebody reads all that has an offset, so that nothing else is wrong."""
    records: dict[str, list[tuple[int, str]]] = {}
    for operation in story.operations:
        for micro in operation.output or []:
            if micro[0] == "send":
                records.setdefault(micro[1], []).append(tuple(micro[2]))
    return story.poll(99, {key: sorted(pairs) for key, pairs in records.items()}, at=(900, 901))


def test_g0_two_transactions_whose_writes_interleave() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 1), at=(0, 9))
    story.txn(2, ("send", "x", "c", 1), ("send", "y", "d", 0), at=(0, 9))
    assert found(reader(story)) == {"G0": "allowed"}


def test_g0_through_a_single_send_between_two_of_a_transaction() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "x", "b", 2), at=(0, 9)).send(2, "x", "c", 1, at=(0, 9))
    assert found(reader(story)) == {"G0": "allowed"}


def test_no_g0_when_the_writes_are_in_one_order() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 0), at=(0, 9))
    story.txn(2, ("send", "x", "c", 1), ("send", "y", "d", 1), at=(0, 9))
    assert found(reader(story)) == {}


def test_g1c_that_needs_the_inferred_write_order_is_allowed() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "d")]}), at=(0, 9))
    story.txn(2, ("send", "x", "c", 1), ("send", "y", "d", 0), at=(0, 9))
    assert found(reader(story)) == {"G1c": "allowed"}


def test_g1c_of_reads_alone_is_an_error() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 9))
    story.txn(2, ("send", "y", "b", 0), ("poll", {"x": [(0, "a")]}), at=(0, 9))
    assert found(reader(story)) == {"G1c": "error"}
    assert found(story, isolation="read_uncommitted") == {"G1c": "allowed"}


def test_no_g1c_when_only_one_reads_the_other() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 9))
    assert found(reader(story.txn(2, ("send", "y", "b", 0), at=(0, 9)))) == {}


def test_g1c_realtime_reading_what_was_sent_later() -> None:
    story = Story().poll(1, {"x": [(0, "a")]}, at=(0, 5)).send(2, "x", "a", 0, at=(6, 9))
    assert found(story)["G1c-realtime"] == "error"
    assert found(story, isolation="read_uncommitted")["G1c-realtime"] == "error"
    assert found(Story().poll(1, {"x": [(0, "a")]}, at=(0, 5)).send(2, "x", "a", 0, at=(5, 9))) == {}


def test_g1c_realtime_through_a_transaction_that_read_what_came_after_it_was_read() -> None:
    """T1 polled b and sent a; a was polled, and only after that b was sent."""
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 20))
    story.poll(2, {"x": [(0, "a")]}, at=(2, 4)).send(3, "y", "b", 0, at=(6, 8))
    assert found(reader(story)) == {"G1c-realtime": "error"}
    assert found(story, isolation="read_uncommitted") == {"G1c-realtime": "allowed"}


def test_g1c_process_when_the_same_process_goes_on() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 20))
    story.poll(2, {"x": [(0, "a")]}, at=(2, 4)).send(2, "y", "b", 0, at=(6, 8))
    assert found(reader(story)) == {"G1c-realtime": "error", "G1c-process": "error"}


def test_g1c_process_is_found_where_stamps_are_too_coarse_for_real_time() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 20))
    story.poll(2, {"x": [(0, "a")]}, at=(2, 4)).send(2, "y", "b", 0, at=(4, 8))
    assert found(reader(story)) == {"G1c-process": "error"}


def test_g0_realtime_and_process() -> None:
    story = Story().txn(1, ("send", "x", "a", 1), ("send", "y", "b", 0), at=(0, 20))
    story.send(2, "y", "c", 1, at=(4, 6)).send(3, "x", "d", 0, at=(8, 10))
    assert found(reader(story)) == {"G0-realtime": "allowed"}
    story = Story().txn(1, ("send", "x", "a", 1), ("send", "y", "b", 0), at=(0, 20))
    story.send(2, "y", "c", 1, at=(4, 6)).send(2, "x", "d", 0, at=(8, 10))
    assert found(reader(story)) == {"G0-realtime": "allowed", "G0-process": "allowed"}


def test_the_shortest_cycle_is_told_with_offsets_and_times() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 20))
    story.poll(2, {"x": [(0, "a")]}, at=(2, 4)).send(3, "y", "b", 0, at=(6, 8))
    cycle = reader(story).report().anomaly("G1c-realtime")
    assert cycle is not None
    text = cycle.examples[0].text
    assert len(cycle.examples[0].operations) == 3
    assert "sent 'a' (x, offset 0), which" in text
    assert "was over 2 ms before" in text


def test_the_shortest_of_many_cycles_comes_first() -> None:
    story = Story()
    for number in range(3):  # a ring of three
        story.txn(number, ("send", f"x{number}", "v", 0), ("poll", {f"x{(number + 1) % 3}": [(0, "v")]}), at=(0, 9))
    for number in range(2):  # a ring of two
        story.txn(5 + number, ("send", f"y{number}", "v", 0), ("poll", {f"y{1 - number}": [(0, "v")]}), at=(0, 9))
    cycles = story.report().anomaly("G1c")
    assert cycles is not None
    assert [len(example.operations) for example in cycles.examples] == [2, 3]


def test_a_long_ring_is_found_without_recursion() -> None:
    story = Story()
    count = 3_000
    for number in range(count):
        polled = {f"x{(number + 1) % count}": [(0, "v")]}
        story.txn(number, ("send", f"x{number}", "v", 0), ("poll", polled), at=(0, 9))
    cycles = story.report().anomaly("G1c")
    assert cycles is not None
    assert len(cycles.examples[0].operations) == count
    assert "more steps" in cycles.examples[0].text


def test_out_of_steps_the_cycles_are_reported_as_existing() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 9))
    story.txn(2, ("send", "y", "b", 0), ("poll", {"x": [(0, "a")]}), at=(0, 9))
    assert found(reader(story), cycle_steps=0) == {"PL-2-cycle-exists": "error", "PL-1-cycle-exists": "allowed"}


# Brute force


def random_history(seed: int) -> History:
    """Sends, polls and transactions at random, with offsets and reads that no service would give."""
    draw = random.Random(seed)
    story = Story()
    keys = ["x", "y", "z"][: draw.randint(1, 3)]
    offsets = {key: draw.sample(range(20), 12) for key in keys}
    sent: dict[str, list[tuple[int, str]]] = {key: [] for key in keys}
    plans = []
    for number in range(draw.randint(2, 7)):
        kind = draw.choice(["send", "poll", "txn", "txn"])
        sends = {"send": 1, "poll": 0, "txn": draw.randint(0, 2)}[kind]
        micro: list[tuple[object, ...]] = []
        for place in range(sends):
            key = draw.choice(keys)
            record = (offsets[key].pop(), f"{number}.{place}")
            sent[key].append(record)
            micro.append(("send", key, record[1], record[0]))
        plans.append((kind, micro))
    free = [0] * 4
    for kind, micro in plans:
        if kind != "send":
            for key in keys:
                if sent[key] and draw.random() < 0.6:
                    micro.append(("poll", {key: draw.sample(sent[key], 1)}))
        process = draw.randrange(4)
        call = free[process] + draw.randint(0, 4)
        returned = call + draw.randint(0, 6)
        free[process] = returned + draw.randint(0, 2)
        outcome = INFO if draw.random() < 0.1 else OK
        more = {"at": (call, returned), "outcome": outcome, "partly": True}
        if kind == "txn":
            story.txn(process, *micro, **more)
        else:
            output = [["send", one[1], [one[3], one[2]]] if one[0] == "send" else ["poll", one[1]] for one in micro]
            given = [["send", one[1], one[2]] if one[0] == "send" else ["poll"] for one in micro]
            story.do(process, kind, given, output, outcome=outcome, at=(call, returned))
    return story.history()


def brute_force(history: History) -> tuple[set[str], set[str]]:
    """The classes of cycles (with inferred write order, without), from the definitions and all paths."""
    operations = list(history.by_call())
    count = len(operations)
    writer: dict[tuple[str, str], int] = {}
    order: dict[str, dict[int, str]] = {}
    committed = [operation.outcome is OK for operation in operations]
    for number, operation in enumerate(operations):
        for micro in operation.output or []:
            if micro[0] == "send":
                writer[micro[1], micro[2][1]] = number
    for operation in operations:
        for micro in operation.output or []:
            if micro[0] == "poll" and operation.outcome is OK:
                for key, pairs in micro[1].items():
                    for _, value in pairs:
                        committed[writer[key, value]] = True
    for number, operation in enumerate(operations):
        for micro in operation.output or []:
            if micro[0] == "send" and committed[number]:
                order.setdefault(micro[1], {})[micro[2][0]] = micro[2][1]
            if micro[0] == "poll":
                for key, pairs in micro[1].items():
                    order.setdefault(key, {}).update(dict(pairs))
    ww, wr, process, realtime = (set() for _ in range(4))
    for key, log in order.items():
        for earlier, later in combinations(sorted(log), 2):
            ww.add((writer[key, log[earlier]], writer[key, log[later]]))
    for number, operation in enumerate(operations):
        for micro in operation.output or []:
            if micro[0] == "poll":
                wr |= {(writer[key, value], number) for key, pairs in micro[1].items() for _, value in pairs}
    after = set(wr)  # a poll also follows whoever sent something before what it returned
    for source, target in ww:
        after |= {(source, reader) for sender, reader in wr if sender == target and reader != target}
    for first in range(count):
        for second in range(count):
            one, other = operations[first], operations[second]
            if one.outcome is OK and one.precedes(other):
                realtime.add((first, second))
            if one.process == other.process and first < second and one.outcome is OK and one.returned <= other.call:
                process.add((first, second))
    return (_classes(count, ww, after, process, realtime), _classes(count, set(), wr, process, realtime))


def _classes(count: int, ww: set, wr: set, process: set, realtime: set) -> set[str]:  # type: ignore[type-arg]
    ww = {edge for edge in ww if edge[0] != edge[1]}
    wr = {edge for edge in wr if edge[0] != edge[1]}
    found = set()
    for name, extra in (("", set()), ("-process", process), ("-realtime", realtime)):
        for prefix, base, needed in (("G0", ww, ww), ("G1c", ww | wr, wr)):
            if (prefix == "G0" and not ww) or (name and not extra):
                continue
            if _simple_cycle(count, base | extra, needed, extra):
                found.add(prefix + name)
    return found


def _simple_cycle(count: int, edges: set, needed: set, extra: set) -> bool:  # type: ignore[type-arg]
    """Whether a cycle that meets no operation twice has a needed edge, and an extra one where there are any."""
    after: dict[int, list[int]] = {number: [] for number in range(count)}
    for source, target in edges:
        after[source].append(target)

    def walk(path: list[int]) -> bool:
        for target in after[path[-1]]:
            if target == path[0]:
                taken = [*pairwise(path), (path[-1], target)]
                if any(step in needed for step in taken) and (not extra or any(step in extra for step in taken)):
                    return True
            elif target > path[0] and target not in path and walk([*path, target]):
                return True
        return False

    return any(walk([start]) for start in range(count))


@pytest.mark.parametrize("part", range(4))
def test_the_classes_found_are_those_of_brute_force(part: int) -> None:
    for seed in range(part * HISTORIES, part * HISTORIES + HISTORIES):
        history = random_history(seed)
        report = analyze(history, KafkaOptions(transaction_visibility=None))
        names = {one.name for one in report.anomalies if one.name[0] == "G" and one.name != "G1a"}
        errors = {one.name for one in report.errors if one.name[0] == "G" and one.name != "G1a"}
        inferred, observed = brute_force(history)
        assert names <= inferred | observed, f"seed {seed}: {names} beyond {inferred | observed}\n{report.text()}"
        assert errors == observed, f"seed {seed}: errors {errors}, brute force {observed}\n{report.text()}"
        plain = {name for name in inferred if "-" not in name}
        assert plain <= names, f"seed {seed}: {plain - names} missing"
        for kind in ("-process", "-realtime"):
            # A cycle that could be told in a stronger class may be told in the weaker one.
            if any(name.endswith(kind) for name in inferred):
                assert any(name.endswith(kind) for name in names), f"seed {seed}: no {kind}, {inferred}"
        assert all(one.judgement is Judgement.ALLOWED for one in report.anomalies if one.name.startswith("G0"))


def test_nodes_looked_at_all_at_once_and_one_by_one_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    histories = [Service(seed, mode="mixed").run(300) for seed in range(3)] + [random_history(n) for n in range(60)]
    expected = [analyze(history).to_json() for history in histories]
    monkeypatch.setattr(dependencies, "_ROUNDS", 0)
    assert [analyze(history).to_json() for history in histories] == expected


def test_what_follows_a_late_append_follows_it_however_long_the_chain() -> None:
    story = Story().send(1, "x0", "late", 0, at=(900, 901))
    for number in range(100):  # each reads what came before, called the later the earlier in the chain
        before = (0, "late") if number == 0 else (0, "v")
        answer = ("poll", {f"x{number}": [before]})
        story.txn(2 + number, answer, ("send", f"x{number + 1}", "v", 0), at=(500 - number, 600 - number))
    assert found(story)["G1c-realtime"] == "error"
