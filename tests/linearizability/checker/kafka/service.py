"""A tiny Kafka that is right by construction, with clients that run at the same time.

Each client is a generator: it yields wherever another client may come between, and what lies between two yields
happens at one moment. A client's operation begins and ends at such moments too, so the recorded intervals contain the
moments at which things took effect. Transactions append as they go and become visible all at once when they commit;
readers see nothing at or behind the first open transaction's record.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation, Outcome

GROUP = "g"


class Log:
    """One key: entries of (value or None for a marker, the transaction it belongs to or None)."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Transaction | None]] = []

    def append(self, value: Any, transaction: Transaction | None = None) -> int:
        self.entries.append((value, transaction))
        return len(self.entries) - 1

    def stable_end(self) -> int:
        """The last stable offset: where the first open transaction begins, or the end."""
        for offset, (_, transaction) in enumerate(self.entries):
            if transaction is not None and transaction.state == "open":
                return offset
        return len(self.entries)

    def read(self, start: int, limit: int, committed: bool = True) -> tuple[list[list[Any]], int]:
        """Up to `limit` records from `start` on, and the position after them."""
        end = self.stable_end() if committed else len(self.entries)
        found: list[list[Any]] = []
        position = start
        while position < end and len(found) < limit:
            value, transaction = self.entries[position]
            aborted = transaction is not None and transaction.state == "aborted" and committed
            if value is not None and not aborted:
                found.append([position, value])
            position += 1
        return found, position


class Transaction:
    """Its state, and the logs it wrote to."""

    def __init__(self) -> None:
        self.state = "open"
        self.logs: list[Log] = []

    def finish(self, state: str) -> None:
        if self.state == "open":
            self.state = state
            for log in self.logs:
                log.append(None)  # the marker


class Service:
    """The cluster, its clients and the history they record."""

    def __init__(
        self, seed: int, *, mode: str = "assign", isolation: str = "read_committed", faults: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.mode = mode
        self.isolation = isolation  # or "both": each client as it likes
        self.fault_rate = 0.06 if faults else 0.0
        self.now = 0
        self.logs = {f"k{number}": Log() for number in range(self.random.randint(2, 4))}
        self.keys = list(self.logs)
        self.operations: list[Operation] = []
        self.next_value = 0
        self.next_process = 0
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.offsets: dict[str, int] = {}
        self.generation = 0
        self.members: dict[str, list[str]] = {}

    # Recording

    def value(self) -> str:
        self.next_value += 1
        return f"v{self.next_value}"

    def process(self) -> int:
        self.next_process += 1
        return self.next_process

    def begin(self, process: int, function: str, given: Any = None) -> Operation:
        operation = Operation(process, function, given, None, None, self.now)
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome, output: Any = None, error: str | None = None) -> None:
        operation.outcome = outcome
        operation.output = output
        operation.returned = self.now
        operation.error = error

    def unlucky(self) -> bool:
        return self.random.random() < self.fault_rate

    # Running

    def run(self, steps: int = 400) -> History:
        """Run the clients in random turns, then read everything from the beginning."""
        clients = [self.sender(), self.sender()]
        if self.mode in ("assign", "mixed"):
            clients += [self.reader(), self.reader(), self.transactor("t1"), self.transactor("t2")]
        if self.mode in ("subscribe", "mixed"):
            clients += [self.member("a"), self.member("b"), self.rebalancer()]
        if self.mode == "exactly-once":
            clients += [self.copier("a"), self.copier("b"), self.copier("c"), self.rebalancer()]
        clients.append(self.observer())
        for _ in range(steps):
            self.now += self.random.randint(1, 1_000_000)
            next(self.random.choice(clients))
        for transaction in self.open.values():
            transaction.finish("aborted")
        self.now += 1_000_000
        for _ in self.final_reads():
            self.now += 1_000_000
        return History.of(self.operations)

    def final_reads(self) -> Iterator[None]:
        process = self.process()
        operation = self.begin(process, "assign", {"keys": self.keys, "position": "beginning"})
        yield
        self.end(operation, OK)
        positions = dict.fromkeys(self.keys, 0)
        while any(positions[key] < len(log.entries) for key, log in self.logs.items()):
            yield
            operation = self.begin(process, "poll", [["poll"]])
            yield
            micro = self.poll(positions, 7)
            yield
            self.end(operation, OK, [micro])

    def isolation_of_one(self) -> str:
        return (
            self.random.choice(["read_committed", "read_uncommitted"]) if self.isolation == "both" else self.isolation
        )

    def poll(self, positions: dict[str, int], limit: int = 3, isolation: str | None = None) -> list[Any]:
        """Read some records of every key, at this very moment, and move the positions on."""
        committed = (isolation or self.isolation) != "read_uncommitted"
        records, ends = {}, {}
        for key in positions:
            log = self.logs[key]
            found, positions[key] = log.read(positions[key], limit, committed)
            ends[key] = log.stable_end()
            if found:
                records[key] = found
        return ["poll", records, ends] if committed else ["poll", records]

    # Clients

    def sender(self) -> Iterator[None]:
        process = self.process()
        while True:
            key, value = self.random.choice(self.keys), self.value()
            operation = self.begin(process, "send", [["send", key, value]])
            yield
            if self.unlucky():
                self.end(operation, FAIL, error="NOT_ENOUGH_REPLICAS")
                yield
                continue
            if self.unlucky():
                arrives_late = self.random.random() < 0.5
                self.end(operation, INFO, error="REQUEST_TIMED_OUT")
                if self.random.random() < 0.3:
                    operation.returned = None
                process = self.process()
                yield
                if arrives_late:
                    self.logs[key].append(value)
                yield
                continue
            offset = self.logs[key].append(value)
            yield
            self.end(operation, OK, [["send", key, [offset if self.random.random() < 0.9 else None, value]]])
            yield

    def assign(self, process: int, positions: dict[str, int], isolation: str) -> Iterator[None]:
        wanted = self.random.sample(self.keys, self.random.randint(1, len(self.keys)))
        given: dict[str, Any] = {"keys": wanted, "isolation": isolation}
        fresh = self.random.random() < 0.3
        if fresh:
            given["position"] = "beginning"
        operation = self.begin(process, "assign", given)
        yield
        self.end(operation, OK)
        for key in list(positions):
            if key not in wanted or fresh:
                del positions[key]
        for key in wanted:
            positions.setdefault(key, 0)
        yield

    def reader(self) -> Iterator[None]:
        process, positions, isolation = self.process(), {}, self.isolation_of_one()
        yield from self.assign(process, positions, isolation)
        while True:
            if self.random.random() < 0.05:
                yield from self.assign(process, positions, isolation)
            before = dict(positions)
            operation = self.begin(process, "poll", [["poll"]])
            yield
            micro = self.poll(positions, self.random.randint(1, 5), isolation)
            yield
            outcome = OK
            if self.unlucky():
                outcome = self.random.choice([FAIL, INFO])
                positions.update(before)  # it seeks back
            self.end(operation, outcome, [micro])
            yield

    def initialise(self, process: int, name: str) -> Iterator[int]:
        operation = self.begin(process, "init-producer", {"producer": name})
        yield 0
        self.epochs[name] = self.epochs.get(name, -1) + 1
        epoch = self.epochs[name]
        if name in self.open:
            self.open[name].finish("aborted")
        yield 0
        self.end(operation, OK, {"epoch": epoch})
        yield epoch

    def transactor(self, name: str) -> Iterator[None]:
        """Sends to and polls from several keys in one transaction."""
        while True:
            process, positions, isolation = self.process(), {}, self.isolation_of_one()
            epoch = 0
            for step in self.initialise(process, name):
                epoch = step
                yield
            yield from self.assign(process, positions, isolation)
            while True:
                before = dict(positions)
                plan = [self.random.choice(["send", "poll"]) for _ in range(self.random.randint(1, 4))]
                given: list[Any] = []
                for kind in plan:
                    given.append(["send", self.random.choice(self.keys), self.value()] if kind == "send" else ["poll"])
                asked = {"ops": given, "producer": name, "epoch": epoch}
                operation = self.begin(process, "txn", asked)
                transaction = self.open[name] = Transaction()
                answer: list[Any] = []
                for micro in given:
                    yield
                    if micro[0] == "poll":
                        answer.append(self.poll(positions, isolation=isolation))
                        continue
                    log = self.logs[micro[1]]
                    answer.append(["send", micro[1], [log.append(micro[2], transaction), micro[2]]])
                    if log not in transaction.logs:
                        transaction.logs.append(log)
                yield
                if self.unlucky():
                    transaction.finish("aborted")
                    positions.clear()
                    positions.update(before)
                    self.end(operation, FAIL, answer if self.random.random() < 0.5 else None, "aborted")
                    yield
                    continue
                if self.unlucky():
                    if self.random.random() < 0.5:
                        transaction.finish("committed")
                    yield
                    self.end(operation, INFO, answer if self.random.random() < 0.5 else None, "timeout")
                    yield
                    break  # a new client takes over the name and fences this one
                transaction.finish("committed")
                yield
                self.end(operation, OK, answer)
                yield

    # The group

    def rebalance(self) -> None:
        self.generation += 1
        names = sorted(self.members)
        for name in names:
            self.members[name] = []
        for key in self.keys:
            if names:
                self.members[self.random.choice(names)].append(key)

    def rebalancer(self) -> Iterator[None]:
        while True:
            for _ in range(self.random.randint(5, 30)):
                yield
            self.rebalance()

    def joined(self, process: int, name: str, mine: dict[str, Any]) -> Iterator[None]:
        """Learn the generation; keys that are new begin at the committed offset."""
        operation = self.begin(process, "join", {"group": GROUP, "member": name})
        yield
        # Who missed a generation may have missed another owner.
        positions = mine["positions"] if mine["generation"] == self.generation - 1 else {}
        mine["generation"], keys = self.generation, list(self.members[name])
        mine["moved"] = sorted(set(positions) ^ set(keys))
        mine["positions"] = {key: positions[key] if key in positions else self.offsets.get(key, 0) for key in keys}
        answer = {"member": name, "generation": self.generation, "keys": keys}
        yield
        self.end(operation, OK, answer)
        yield

    def subscribe(self, process: int, name: str) -> Iterator[None]:
        operation = self.begin(process, "subscribe", {"keys": self.keys, "group": GROUP})
        yield
        self.members.setdefault(name, [])
        self.rebalance()
        self.end(operation, OK)
        yield

    def member(self, name: str) -> Iterator[None]:
        """Polls what it owns and commits after each poll, at least once."""
        process = self.process()
        mine: dict[str, Any] = {"generation": -1, "positions": {}, "moved": []}
        yield from self.subscribe(process, name)
        while True:
            if mine["generation"] != self.generation:
                yield from self.joined(process, name, mine)
            operation = self.begin(process, "poll", [["poll"]])
            yield
            micro = self.poll(mine["positions"])
            yield
            self.end(operation, OK, {"ops": [micro], "rebalance": mine["moved"]})
            mine["moved"] = []
            yield
            yield from self.commit(process, name, mine)
            if self.random.random() < 0.2:
                yield from self.fetch(process)

    def commit(self, process: int, name: str, mine: dict[str, Any]) -> Iterator[None]:
        offsets = dict(mine["positions"])
        if not offsets:
            return
        given = {"group": GROUP, "offsets": offsets, "member": name, "generation": mine["generation"]}
        operation = self.begin(process, "commit", given)
        yield
        if mine["generation"] != self.generation:
            self.end(operation, FAIL, error="ILLEGAL_GENERATION")
        elif self.unlucky():
            if self.random.random() < 0.5:
                self.offsets.update(offsets)
            yield
            self.end(operation, INFO, error="timeout")
        else:
            self.offsets.update(offsets)
            yield
            self.end(operation, OK)
        yield

    def fetch(self, process: int) -> Iterator[None]:
        operation = self.begin(process, "committed", {"group": GROUP, "keys": self.keys})
        yield
        answer = [[key, self.offsets.get(key)] for key in self.keys]
        yield
        self.end(operation, OK, answer)
        yield

    def copier(self, name: str) -> Iterator[None]:
        """Consumes in transactions that commit the group's offsets with them: exactly once."""
        while True:
            process = self.process()
            mine: dict[str, Any] = {"generation": -1, "positions": {}, "moved": []}
            epoch = 0
            for step in self.initialise(process, f"copy-{name}"):
                epoch = step
                yield
            yield from self.subscribe(process, name)
            while True:
                if mine["generation"] != self.generation:
                    yield from self.joined(process, name, mine)
                finished = yield from self.copy(process, name, (epoch, mine))
                if not finished:
                    break

    def copy(self, process: int, name: str, state: tuple[int, dict[str, Any]]) -> Any:
        epoch, mine = state
        before, value, target = dict(mine["positions"]), self.value(), self.random.choice(self.keys)
        asked = {"ops": [["poll"], ["send", target, value]], "producer": f"copy-{name}", "epoch": epoch}
        operation = self.begin(process, "txn", asked)
        transaction = self.open[f"copy-{name}"] = Transaction()
        yield
        answer = [self.poll(mine["positions"])]
        yield
        transaction.logs.append(self.logs[target])
        answer.append(["send", target, [self.logs[target].append(value, transaction), value]])
        yield
        offsets = dict(mine["positions"])
        answer.append(["commit", GROUP, offsets])
        if mine["generation"] != self.generation or self.unlucky():
            transaction.finish("aborted")
            mine["positions"] = before
            yield
            self.end(operation, FAIL, answer, "fenced or aborted")
            yield
            return True
        unknown = self.unlucky()
        if not unknown or self.random.random() < 0.5:
            transaction.finish("committed")
            self.offsets.update(offsets)
        yield
        self.end(operation, INFO if unknown else OK, {"ops": answer, "rebalance": mine["moved"]})
        mine["moved"] = []
        yield
        return not unknown

    def observer(self) -> Iterator[None]:
        """Asks brokers about keys."""
        process = self.process()
        while True:
            function = self.random.choice(["high-watermark", "last-stable-offset", "list-offsets", "leader"])
            given = {"keys": self.keys, "at": "latest"} if function == "list-offsets" else self.keys
            operation = self.begin(process, function, given)
            yield
            if function == "last-stable-offset":
                answer: Any = {key: log.stable_end() for key, log in self.logs.items()}
            elif function == "leader":
                answer = {key: {"leader": 1, "epoch": 4} for key in self.keys}
            else:
                answer = {key: len(log.entries) for key, log in self.logs.items()}
            yield
            self.end(operation, OK, answer)
            yield
