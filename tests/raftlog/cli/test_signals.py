"""Being told to stop, at any moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from io import BytesIO

import pytest

from raftlog.cli.consume import Printer
from raftlog.cli.signals import StopRequested, StopSignals, stop_signals_raise
from raftlog.client.core.fetched import ConsumerRecord


@pytest.fixture
def stops() -> Iterator[StopSignals]:
    with stop_signals_raise() as found:
        yield found


def stop_me() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_first_signal_raises_and_the_later_ones_do_not_cut_into_the_cleaning_up(stops: StopSignals) -> None:
    with pytest.raises(StopRequested):
        stop_me()
    stop_me()
    with stops.held():
        stop_me()


def test_a_signal_that_comes_in_a_held_block_is_raised_at_its_end(stops: StopSignals) -> None:
    done = False
    with pytest.raises(StopRequested), stops.held():
        stop_me()
        done = True
    assert done
    stop_me()


def test_a_second_signal_ends_a_held_block_that_waits_for_somebody(stops: StopSignals) -> None:
    done = False
    with pytest.raises(StopRequested), stops.held():
        stop_me()
        stop_me()
        done = True
    assert not done


def test_what_can_end_early_by_itself_does_so_and_is_asked_again_by_each_signal() -> None:
    loads = [True, False]
    with stop_signals_raise(lambda: loads.pop(0)):
        stop_me()
        assert loads == [False]
        with pytest.raises(StopRequested):
            stop_me()


def test_who_sees_a_line_and_stops_the_process_at_once_finds_it_known_as_printed(
    stops: StopSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seen(BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            stop_me()
            return len(data)

    class Output:
        buffer = Seen()

    monkeypatch.setattr("sys.stdout", Output())
    printer = Printer(lambda fetched: fetched.value or b"", False, stops)
    printer.write(ConsumerRecord(7, 0, None, b"in 2", (), "t", 2))
    with pytest.raises(StopRequested):
        printer.flush()
    assert printer.printed == {("t", 2): 8}
