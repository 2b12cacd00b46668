"""One run: the system, the clients, the faults, the history, the verdict. `verify` is what the command line calls."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from raftlog.linearizability.checker.page.report import plural
from raftlog.linearizability.harness.clients import Clients
from raftlog.linearizability.harness.faults import EVERYTHING, faults_named
from raftlog.linearizability.harness.folder import FAULTS as FAULT_LINES
from raftlog.linearizability.harness.folder import HISTORY, LOGS, SAMPLES, RunFolder, copy_settled
from raftlog.linearizability.harness.judge import Ruling, judge, judge_money, terms_of
from raftlog.linearizability.harness.nemesis import Done, Nemesis, schedule
from raftlog.linearizability.harness.properties import reached
from raftlog.linearizability.harness.replicas import judge_replicas
from raftlog.linearizability.harness.sampler import Sampler
from raftlog.linearizability.harness.scenarios import BIT_FLIP
from raftlog.linearizability.harness.session import Assignment
from raftlog.linearizability.harness.settings import OUR_LIBRARIES, RunSettings
from raftlog.linearizability.harness.systems import abilities_of
from raftlog.linearizability.harness.systems import system as make_system
from raftlog.linearizability.harness.systems.system import System
from raftlog.linearizability.harness.workloads.catalogue import WORKLOADS, Workload
from raftlog.testing.clusters import REPLICAS_MAX

QUIET_SECONDS = 3.0
"""Between the last fault and the final reads, at most: less when clients work again before."""
FIRST_LOOK_SECONDS = 15.0
FIRST_LOOK_AT_MUTANTS_SECONDS = 5.0
"""The history is judged for the first time after so long, and again whenever it is twice as old."""
WARM_UP_SECONDS = 30.0
TELL_SECONDS = 0.5
EXTENSION = 2.0
"""How many times its length a run may be longer for faults that had no turn yet."""

Tell = Callable[[str], None]


class Run:
    """`tell` is called with a line of progress now and then."""

    def __init__(self, settings: RunSettings, tell: Tell) -> None:
        self.settings = settings
        self.workload: Workload = WORKLOADS[settings.workload]
        self._tell = tell
        self._faults = faults_named(settings.fault, frozenset())
        self._unclean = any(fault.unclean for fault in self._faults)
        self._few_replicas = any(fault.few_replicas for fault in self._faults)
        self._stopped = threading.Event()
        self._is_loading = False
        self._early: Ruling | None = None
        self._replicas: dict[str, Any] | None = None
        self._suffix = ""

    def verify(self) -> Ruling:
        """Do it. Raises CannotStart when the system does not serve, FileExistsError for a folder that is taken."""
        settings = self.settings
        brokers = dict(self.workload.broker_settings)
        for fault in self._faults:
            brokers |= fault.settings
        system = make_system(replace(settings, settings={**brokers, **settings.settings}))
        if not system.is_ours:
            self._suffix = f"-{os.urandom(3).hex()}"
            self.workload = self.workload.renamed(self._suffix)
        with RunFolder(settings) as folder:
            folder.phase("setup")
            if self.workload.model == "kafka":
                folder.run["check"] = terms_of(self.workload, settings, is_over=False, is_read_back=False).words
            if system.version is not None:
                folder.run["versions"][settings.system] = system.version
            self._tell(f"starting {plural(settings.brokers, 'broker') if system.broker_ids else settings.system}")
            clients = Clients(folder.path / LOGS, lambda line: folder.add(HISTORY, line), settings.mutant)
            complaints: list[str] = []
            try:
                system.start()
                folder.run["brokers"] = len(system.broker_ids)
                done = self._on(system, clients, folder)
            finally:
                clients.stop()
                complaints = system.stop(folder.path / LOGS)
            folder.run["versions"] |= clients.versions
            self._tell("judging")
            ruling = self._rule(folder, clients, done, complaints)
            folder.run["reached"] = reached(folder.path)
            folder.end("done", ruling.to_json())
        return ruling

    # -- the run -----------------------------------------------------------------------------------

    def _on(self, system: System, clients: Clients, folder: RunFolder) -> Done:
        settings = self.settings
        self._make_topics(system)
        folder.run["topics"] = [{"name": name, "partitions": count} for name, count in self.workload.topics.items()]
        self._start_clients(system, clients)
        abilities = abilities_of(settings.system, settings.brokers) | self.workload.abilities
        if set(settings.libraries) <= set(OUR_LIBRARIES):
            abilities |= {"only our client"}
        periods = schedule(settings.fault, settings.seconds, settings.seed, abilities)
        folder.run["schedule"] = [
            {"at": each.at, "seconds": each.seconds, "faults": [fault.name for fault in each.faults]}
            for each in periods
        ]
        nemesis = Nemesis(
            system, self.workload, clients, settings.seed,
            periods=periods, write=lambda line: folder.add(FAULT_LINES, line),
        )  # fmt: skip
        self._wait_for_first_success(clients)
        sampler = Sampler(system, self.workload, lambda line: folder.add(SAMPLES, line))
        self._is_loading = True
        folder.phase("load")
        sampler.start()
        nemesis.start()
        try:
            self._load(clients, nemesis, folder)
            self._is_loading = False
            folder.phase("heal")
            self._tell("stopped: healing; stop once more for no verdict" if self._stopped.is_set() else "healing")
            nemesis.stop()
            self._wait_until_clients_work(clients)
            folder.phase("final")
            self._tell("reading everything back")
            clients.read_back(settings.final_seconds + 15.0)
            if system.broker_ids and system.is_ours and self.workload.topics:
                self._tell("comparing replicas")
                self._replicas = self._compare(system, nemesis)
        finally:
            nemesis.stop()
            sampler.stop()
        return nemesis.done

    def _compare(self, system: System, nemesis: Nemesis) -> dict[str, Any]:
        # Compaction takes different records away here and there, and a bit that has flipped stays as it is.
        rotten = any(each.kind == BIT_FLIP for each in nemesis.done.all_put)
        return judge_replicas(system, self.workload.topics, compares=not rotten and not self.workload.configs)

    def _make_topics(self, system: System) -> None:
        brokers = max(1, len(system.broker_ids))
        replicas = min(REPLICAS_MAX, brokers)
        configs = dict(self.workload.configs)
        if self._few_replicas:
            # So that the rest still has a majority when all but the leader stand still.
            replicas = (brokers + 1) // 2
            configs["min.insync.replicas"] = str(replicas)
        if self._unclean:
            configs |= {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        elif "min.insync.replicas" not in {**configs, **self.settings.settings}:
            configs["min.insync.replicas"] = str(max(1, replicas - 1))
        for name, partitions in self.workload.topics.items():
            system.make_topic(name, partitions, replicas, configs)

    def _start_clients(self, system: System, clients: Clients) -> None:
        settings = self.settings
        libraries = [each for each in settings.libraries if not self.workload.only or each in self.workload.only]
        for number in range(settings.clients):
            clients.start(
                Assignment(
                    number=number,
                    clients=settings.clients,
                    workload=settings.workload,
                    library=libraries[number % len(libraries)],
                    bootstrap=system.bootstrap,
                    seed=settings.seed,
                    rate=settings.rate / settings.clients,
                    topics=self.workload.topics,
                    options=settings.options,
                    final_seconds=settings.final_seconds,
                    suffix=self._suffix,
                )
            )

    def _wait_for_first_success(self, clients: Clients) -> None:
        """Until each client has done something: coordinators load, and processes start, before the faults do."""
        latest = time.monotonic() + WARM_UP_SECONDS
        self._tell("waiting for clients")
        while time.monotonic() < latest and not all(each.has_succeeded for each in clients.all):
            time.sleep(0.1)

    def _load(self, clients: Clients, nemesis: Nemesis, folder: RunFolder) -> None:
        began = time.monotonic()
        look_at = began + (FIRST_LOOK_AT_MUTANTS_SECONDS if self.settings.mutant else FIRST_LOOK_SECONDS)
        looking: threading.Thread | None = None
        end = began + self.settings.seconds
        # On a slow machine a broker may take long to start again; each fault gets its turn all the same.
        latest = end + EXTENSION * self.settings.seconds
        while self._early is None and ((now := time.monotonic()) < end or (now < latest and not nemesis.has_done_each)):
            self._tell_progress(now - began, clients, nemesis)
            if now > look_at and (looking is None or not looking.is_alive()):
                look_at = now + (now - began)
                looking = threading.Thread(target=self._look, args=(folder, clients), daemon=True)
                looking.start()
            if self._stopped.wait(min(TELL_SECONDS, max(0.01, end - now))):
                folder.run["seconds"] = min(self.settings.seconds, round(time.monotonic() - began, 3))
                break

    def _look(self, folder: RunFolder, clients: Clients) -> None:
        """Judge what there is by now. An error ends the load: what comes after it would only hide it."""
        if self.workload.model != "kafka":
            return
        terms = terms_of(self.workload, self.settings, is_over=False, is_read_back=False)
        latest = clients.told_until()
        with tempfile.TemporaryDirectory() as directory:
            settled = Path(directory) / HISTORY
            copy_settled(folder.history, settled, latest)
            found = judge(settled, self.workload, terms)
        if found["status"] == "invalid":
            self._early = Ruling("invalid", found["reason"])

    def _tell_progress(self, seconds: float, clients: Clients, nemesis: Nemesis) -> None:
        effects = sum(nemesis.done.effective().values())
        in_force = f", now {nemesis.now}" if nemesis.now else ""
        self._tell(
            f"{seconds:.0f} of {self.settings.seconds:g} s: {clients.total('ok'):,} ok, "
            f"{clients.total('fail'):,} failed, {clients.total('info'):,} unknown; {effects} faults{in_force}"
        )

    def _wait_until_clients_work(self, clients: Clients) -> None:
        """The system is whole again: clients get a while to find it so."""
        quiet = time.monotonic() + QUIET_SECONDS
        latest = time.monotonic() + 10 * QUIET_SECONDS
        while time.monotonic() < latest:
            time.sleep(TELL_SECONDS)
            if time.monotonic() > quiet and clients.last_ok > quiet - 1.0:
                return

    def stop(self) -> bool:
        """End the load early, heal, and judge what there is. False if there is no load to end: not yet, or no more."""
        is_loading, self._is_loading = self._is_loading, False
        if is_loading:
            self._stopped.set()
        return is_loading

    # -- the verdict -------------------------------------------------------------------------------

    def _rule(self, folder: RunFolder, clients: Clients, done: Done, complaints: list[str]) -> Ruling:
        doubts = [*complaints, *self.doubts_of_faults(done), *self._doubts_of_clients(clients)]
        left = unread(clients)
        if self.workload.model == "kafka" and left:
            doubts.append(f"the final reads of {', '.join(left)} met no end in time: what was not seen is no proof")
        terms = terms_of(self.workload, self.settings, is_over=True, is_read_back=not left)
        checks = [judge(folder.history, self.workload, terms)]
        if self.settings.workload == "bank":
            checks.append(judge_money(folder.history, is_read_back=not left))
        if self._replicas is not None:
            checks.append(self._replicas)
        for each in checks:
            if each["status"] == "unknown":
                doubts.append(each["reason"] or "the checker could not judge everything")
        bad = [each for each in checks if each["status"] == "invalid"]
        if bad:
            return Ruling("invalid", bad[0]["reason"], doubts, checks)
        if self._early is not None:
            doubts.append(f"an error was found while it ran, and is none in the whole history: {self._early.reason}")
        if doubts:
            return Ruling("unknown", doubts[0], doubts, checks)
        return Ruling("valid", checks[0]["reason"] or "every operation is explained", doubts, checks)

    def doubts_of_faults(self, done: Done) -> list[str]:
        """Why the faults may not have been what was asked for."""
        name = self.settings.fault
        if name == "none":
            return []
        effective = done.effective()
        if done.broken_by:
            return [f"the faults ended early by a bug in the harness: {done.broken_by}"]
        if not effective:
            failures = f": {done.failures[0]}" if done.failures else ""
            return [f"no fault had any effect{failures}"]
        put = done.names
        if name != EVERYTHING:
            put |= {each.name for each in self._faults}
        idle = sorted(each for each in put if not effective[each])
        doubts = [f"{', '.join(idle)} had no effect"] if idle and name != EVERYTHING else []
        return doubts + [each for each in done.failures if "healed" in each]

    def _doubts_of_clients(self, clients: Clients) -> list[str]:
        succeeded = {function for (function, outcome), count in clients.counts.items() if outcome == "ok" and count}
        missing = [each for each in self.workload.functions if each not in succeeded]
        doubts = [f"no {each} succeeded" for each in missing]
        left = clients.values.get("records-left", 0)
        if self.settings.workload == "compacted" and left >= clients.counts["put", "ok"]:
            doubts.append("nothing was compacted")
        doubts += [f"nothing that client {each} did succeeded" for each in clients.idle]
        doubts += clients.dead
        doubts += [f"the final reads failed: {each}" for each in clients.final_failures]
        if self.workload.model != "kafka":  # there each client tells what nobody else can
            doubts += [f"the final reads of client {each} did not end in time" for each in clients.unfinished]
        return doubts


def unread(clients: Clients) -> list[str]:
    """Keys of which no final read reached the highest offset that is known, nor the end of the log."""
    found = []
    for key, goal in sorted(clients.goals.items()):
        reached = any(each.get(key, -1) >= goal for each in clients.final_read)
        if not reached and key not in clients.final_ends:
            found.append(key)
    return found


def verify(settings: RunSettings, tell: Tell) -> Ruling:
    """One run from its settings to its verdict."""
    return Run(settings, tell).verify()
