"""A broker's process: signals, the ready line, the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from raftlog import __version__
from raftlog.broker.broker import Broker
from raftlog.broker.descriptors import raise_limits
from raftlog.broker.platform import Platform, SystemClock, this_platform
from raftlog.broker.runtime.cannot_start import CannotStart
from raftlog.broker.runtime.loading_pause import freeze_start
from raftlog.broker.runtime.log_format import configure_logging
from raftlog.broker.runtime.version_note import note_version
from raftlog.broker.server.listeners import KafkaListeners, Listeners
from raftlog.broker.store.data_directory import refuse_another_nodes, refuse_without_metadata
from raftlog.metadata.codec import UnsupportedRecord
from raftlog.raft.core.errors import NewerVersion

if TYPE_CHECKING:
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.runtime.watchdog import Watchdog

__all__ = ["CannotStart", "SystemClock", "run"]

log = logging.getLogger("raftlog.broker")

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Surroundings(NamedTuple):
    """What a broker's process is built in: the event loop, the machine, and the listeners on it. Tests bring others."""

    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    platform: Callable[[], Platform] = this_platform
    listeners: Callable[[BrokerConfig], Listeners] = KafkaListeners


WRITTEN_BY_A_NEWER_VERSION = (NewerVersion, UnsupportedRecord)
"""Nothing is broken: a newer raftlog can go on where this one has to stop."""


def run(
    config: BrokerConfig,
    *,
    ready_fd: int | None = None,
    lifeline_fd: int | None = None,
    surroundings: Surroundings = Surroundings(),  # noqa: B008 - a value
) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code.

    A line of JSON is written to `ready_fd` once clients are accepted; the broker stops when the other end of
    `lifeline_fd` is closed. Raises CannotStart, OSError, JournalDamaged, NewerVersion, UnsupportedRecord.
    """
    configure_logging(config.node_id, _log_level(), config["raftlog.log.format"])
    if too_little := raise_limits():
        raise CannotStart(too_little)
    watchdog = _start_watchdog(config)
    with asyncio.Runner(loop_factory=surroundings.loop) as runner:
        if watchdog is not None:
            watchdog.begin(runner.get_loop())
        code = runner.run(_serve(config, surroundings, ready_fd, lifeline_fd, watchdog))
        _hear_no_more_signals(runner.get_loop())
        return code


def _log_level() -> str:
    level = os.environ.get("RAFTLOG_LOG_LEVEL", "INFO").upper()
    if level not in LOG_LEVELS:
        raise CannotStart(f"RAFTLOG_LOG_LEVEL in the environment is {level}; give one of {', '.join(LOG_LEVELS)}")
    return level


def _start_watchdog(config: BrokerConfig) -> Watchdog | None:
    """Only among others there is somebody else to go to for the clients of a broker that stands still."""
    timeout_ms = config["raftlog.standstill.timeout.ms"]
    if not config.has_peers or timeout_ms == 0:
        return None
    from raftlog.broker.runtime.watchdog import start_watchdog

    return start_watchdog(timeout_ms / 1000)


async def _serve(
    config: BrokerConfig,
    surroundings: Surroundings,
    ready_fd: int | None,
    lifeline_fd: int | None,
    watchdog: Watchdog | None,
) -> int:
    began = time.monotonic()
    platform = surroundings.platform()
    for directory in config.data_dirs:
        platform.disk.make_directory(directory, durable=True)
        refuse_another_nodes(directory, config.node_id)
    if not config.has_peers:
        refuse_without_metadata(config.data_dirs, config.metadata_directory)
    for reason, names in config.without_effect.items():
        log.warning("settings without effect in raftlog, for %s: %s", reason, ", ".join(names))
    broker = Broker(config, platform, surroundings.listeners(config))
    _watch_for_the_end(broker, lifeline_fd)
    if not await _start(broker):
        return await _stop(broker)
    for _, host, port in broker.addresses:
        seconds = time.monotonic() - began
        log.info("serving address=%s cluster=%s start=%.3fs", _shown(host, port), broker.cluster_id, seconds)
    with contextlib.suppress(OSError):  # a word for later; what the disk lacks is told by those who need it
        note_version(config.metadata_directory, __version__)
    if watchdog is not None:
        watchdog.guard(port for _, _, port in broker.addresses)
    freeze_start()
    _tell_ready(ready_fd, config.node_id, broker.addresses[0][1:])
    await broker.stopping.wait()
    return await _stop(broker)


async def _start(broker: Broker) -> bool:
    """Whether the broker serves; not when it was told to stop before. Raises what hinders it."""
    starting = broker.loop.create_task(broker.start())
    stopping = broker.loop.create_task(broker.stopping.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        # Among others a start may have to wait for a quorum for as long as it takes.
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    await starting
    return True


def _watch_for_the_end(broker: Broker, lifeline_fd: int | None) -> None:
    for number in STOP_SIGNALS:
        broker.loop.add_signal_handler(number, broker.stopping.set)
    if lifeline_fd is not None:
        broker.loop.add_reader(lifeline_fd, broker.stopping.set)

    def bug(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, WRITTEN_BY_A_NEWER_VERSION):
            broker.fail(error)
            return
        trace = error if isinstance(error, Exception) else None
        log.critical("a bug, stopping: %s", context.get("message"), exc_info=trace)
        broker.fail(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))

    broker.loop.set_exception_handler(bug)


def _hear_no_more_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Who tells a broker to stop once more in its last moments does not make a kill of its orderly end."""
    # Without the loop's handler the system's would be in force, which ends the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell_ready(ready_fd: int | None, node_id: int, address: tuple[str, int]) -> None:
    if ready_fd is None:
        return
    line = json.dumps({"id": node_id, "pid": os.getpid(), "address": _shown(*address)})
    os.write(ready_fd, line.encode() + b"\n")
    os.close(ready_fd)


async def _stop(broker: Broker) -> int:
    """Stop in order, unless there is a bug to stop for."""
    if isinstance(broker.failure, WRITTEN_BY_A_NEWER_VERSION):
        raise broker.failure
    if broker.failure is not None:
        # Not in order: the next start recovers, as after a crash, and trusts nothing that this one concluded.
        why = f"no data directory is left: {broker.failure}" if isinstance(broker.failure, OSError) else "of a bug"
        log.critical("stopped because %s; the next start recovers the logs", why)
        return 70
    await broker.stop()
    return 0
