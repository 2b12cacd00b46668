"""Fixtures for people's own tests: a Kafka for the session, topics and groups for the function. See docs/TESTING.md.

pytest loads this module in every test run of everybody who has raftlog installed: it imports nothing that is not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from raftlog.linearizability.checker.recorder import Recorder
    from raftlog.testing.faults.faults import Faults
    from raftlog.testing.kafka import Kafka

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
SHARED_INPUT = "raftlog_kafka"
NAME_LENGTH_MAX = 200
MARKER = (
    "kafka(brokers=1, settings={}, partitions=1, config={}): "
    "how many brokers the test wants with which broker configs, and what its topics are like"
)
_OF_BROKERS = ("brokers", "settings")
_OF_TOPICS = ("partitions", "config")

_running: list[Kafka] = []
"""Those of our fixtures; a failing test tells what their brokers logged, and their faults end with each test."""
_others: list[Kafka] = []
"""Those that tests have started themselves, also if they have stopped since this test began: what they logged is told,
too."""


# -- options and hooks -------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka for tests (raftlog)")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help=f"use the Kafka that runs there (or at {BOOTSTRAP_VARIABLE}) in place of one of our own",
    )
    group.addoption(
        "--kafka-shared", action="store_true", help="with pytest-xdist: one Kafka for all workers, not one for each"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test whose mark asks for other brokers gets a Kafka of its own kind."""
    if any(each.args or {*each.kwargs} - {*_OF_BROKERS, *_OF_TOPICS} for each in _marks(metafunc.definition)):
        text = f"{metafunc.definition.nodeid}: pytest.mark.kafka takes {MARKER.partition(':')[0]}"
        pytest.fail(text, pytrace=False)
    wanted = _asked(metafunc.definition, _OF_BROKERS)
    if wanted and "kafka" in metafunc.fixturenames:
        label = "-".join(f"{name}={wanted[name]}" for name in wanted if name == "brokers") or "kafka"
        metafunc.parametrize("kafka", [wanted], indirect=True, scope="session", ids=[label])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one kind run together: each change of kind stops a Kafka and starts another one."""
    kinds: dict[str, list[pytest.Item]] = {}
    for item in items:
        kinds.setdefault(repr(_asked(item, _OF_BROKERS)), []).append(item)
    items[:] = [item for kind in kinds.values() for item in kind]


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    return [*item.iter_markers("kafka")]


def _asked(item: pytest.Item, names: Sequence[str]) -> dict[str, Any]:
    """What the marks of a test, its class and its module ask together; the nearest one wins."""
    asked = {name: value for mark in reversed(_marks(item)) for name, value in mark.kwargs.items()}
    return {name: asked[name] for name in names if name in asked}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts a worker: with --kafka-shared it is told where the Kafka of all of them is."""
    if not node.config.getoption("--kafka-shared") or _bootstrap(node.config):
        return
    if not _running:
        _start()
    node.workerinput[SHARED_INPUT] = _running[0].bootstrap_servers


def pytest_unconfigure() -> None:
    """Stop what still runs: the Kafka of all workers."""
    with ExitStack() as stopping:
        for kafka in [*_running]:
            stopping.callback(_stop, kafka)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is logged from now on is of this test."""
    _others[:] = [kafka for kafka in _others if kafka.cluster is not None]
    if _running or _others:
        from raftlog.testing.report import begin

        begin(_running, _others)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that passes although one of its faults had no effect has shown nothing; then all faults are healed."""
    outcome: Any = yield
    try:
        for kafka in _running if outcome.excinfo is None else ():
            if kafka.faults_made is not None:
                kafka.faults_made.check()
    except AssertionError as error:
        outcome.force_exception(pytest.fail.Exception(str(error), pytrace=False))
    _heal(outcome)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """What fixtures have put in is over with the test, also when there was no test, or when they did so at its end."""
    outcome: Any = yield
    _heal(outcome)


def _heal(outcome: Any) -> None:
    """End all faults. What goes wrong is told, after what went wrong before."""
    made = [faults for kafka in _running if (faults := kafka.faults_made) is not None]
    try:
        with ExitStack() as healing:
            for faults in made:
                healing.callback(faults.heal)
    except Exception as error:  # noqa: BLE001 - the test has failed
        if outcome.excinfo is None:
            outcome.force_exception(error)
        else:
            outcome.excinfo[1].add_note(f"and its faults could not be healed: {error}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failure tells what the brokers logged meanwhile, the faults, and the command that runs it again."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed and (_running or _others):
        from raftlog.testing.report import sections

        report.sections += sections(list(dict.fromkeys([*_running, *_others])), item.nodeid)


def _bootstrap(config: pytest.Config) -> str | None:
    """Where a Kafka runs already."""
    shared: Mapping[str, str] = getattr(config, "workerinput", {})
    given: str | None = config.getoption("--kafka-bootstrap")
    return given or shared.get(SHARED_INPUT) or os.environ.get(BOOTSTRAP_VARIABLE) or None


def _start(**options: Any) -> Kafka:
    from raftlog.testing.kafka import Kafka

    kafka = Kafka(**options).start()
    _others.remove(kafka)
    _running.append(kafka)
    return kafka


def started(kafka: Kafka) -> None:
    """Somebody in this process has started it."""
    if kafka not in _running:
        _others.append(kafka)
    kafka.before_stop = kafka.before_stop or _keep


def _keep(kafka: Kafka) -> None:
    """A test stops it: what a failure is to tell must be asked now."""
    if kafka in _running or kafka in _others:
        from raftlog.testing.report import keep

        keep(kafka)


def _stop(kafka: Kafka) -> None:
    if kafka in _running:
        _running.remove(kafka)
        kafka.stop()


# -- fixtures ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kafka_settings() -> dict[str, Any]:
    """Override it: what `raftlog.testing.Kafka` is given, for example {"brokers": 3, "settings": {...}}."""
    return {}


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, kafka_settings: dict[str, Any]) -> Iterator[Kafka]:
    """The session's Kafka: `.bootstrap_servers`, `.seed`, `.records`, `.lag`, `.admin`, `.faults` and more."""
    bootstrap = _bootstrap(request.config)
    wanted: dict[str, Any] = getattr(request, "param", {})
    if bootstrap is not None:
        from raftlog.testing.kafka import Kafka

        if wanted:
            pytest.skip(f"it wants brokers of its own, and the Kafka at {bootstrap} was given")
        elsewhere = Kafka(bootstrap_servers=bootstrap)
        yield elsewhere
        elsewhere.stop()
        return
    running = _start(**{**kafka_settings, **wanted})
    yield running
    _stop(running)


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka: Kafka) -> str:
    """`host:port` of the session's Kafka, as every client takes it."""
    return kafka.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_bootstrap_server(kafka_bootstrap_servers: str) -> str:
    """The same."""
    return kafka_bootstrap_servers


@pytest.fixture
def kafka_topics(request: pytest.FixtureRequest, kafka: Kafka) -> Callable[..., list[str]]:
    """`kafka_topics(2, partitions=3, config={}, seed=[b"one"])` makes topics and returns their names."""
    asked = _asked(request.node, _OF_TOPICS)

    def make(n: int = 1, **options: Any) -> list[str]:
        return [kafka.topic(_unique(request), **{**asked, **options}) for _ in range(n)]

    return make


@pytest.fixture
def kafka_topic(kafka_topics: Callable[..., list[str]]) -> str:
    """The name of a topic that only this test has."""
    return kafka_topics()[0]


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """The name of a group that only this test has."""
    return _unique(request)


@pytest.fixture
def kafka_cluster() -> Iterator[Callable[..., Kafka]]:
    """`with kafka_cluster(brokers=3) as kafka:` has brokers of its own, with all that `kafka` has. What is not left
    stops when the test ends.
    """
    made: list[Kafka] = []

    def make(brokers: int = 3, **options: Any) -> Kafka:
        made.append(_start(brokers=brokers, **options))
        return made[-1]

    with ExitStack() as stopping:
        yield make
        for kafka in made:
            stopping.callback(_stop, kafka)


@pytest.fixture
def kafka_faults(kafka: Kafka) -> Iterator[Faults]:
    """What can go wrong with the session's Kafka (docs/TESTING.md). All of it is healed when the test is over."""
    is_anothers = kafka not in _running  # of a fixture that has taken the place of ours
    faults = kafka.faults
    if is_anothers:
        faults.forget()
        _running.append(kafka)
    yield faults
    if is_anothers:
        _running.remove(kafka)
        faults.heal()


@pytest.fixture
def kafka_history() -> Recorder:
    """A recorder: `invoke` before a request leaves, then `ok`, `fail` or `info`; for threads and asyncio alike."""
    import time

    from raftlog.linearizability.checker.recorder import Recorder

    return Recorder(time.monotonic_ns)


def _unique(request: pytest.FixtureRequest) -> str:
    """The test's name, the worker's, and a random end: nobody else has it, and in a log it is known."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    name = "".join(each if each.isalnum() and each.isascii() else "-" for each in request.node.name)
    return "-".join(filter(None, (name[:NAME_LENGTH_MAX].strip("-"), worker, os.urandom(3).hex())))
