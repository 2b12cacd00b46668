"""The Raft log in memory: what follows the snapshot (and a little before it), and the rule for changing its end.

Log matching (Raft §5.3): entries are appended after one that matches, and truncated only where one conflicts. It
also keeps account of the configurations and of which entries are the application's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.entries import Entry, Kind, kind_of
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import NO_TERM, Term


class Accepted(NamedTuple):
    """Entries fit. `verified`: the log equals the leader's up to here. `truncate_from`: entries from here on were
    removed because they conflicted; 0: none.
    """

    verified: int
    truncate_from: int


class Rejected(NamedTuple):
    """Entries do not fit; the logs may agree at `hint_index` (of `hint_term`), and nowhere later."""

    hint_index: int
    hint_term: Term


class Base(NamedTuple):
    """What stands before the first entry in memory. `internal`: how many entries up to here are not the
    application's.
    """

    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term = NO_TERM
    configuration: Configuration = Configuration()
    configuration_index: int = 0
    internal: int = 0


class RaftLog:
    """The entries after `base`.

    Invariants: indexes have no gap; terms never fall; `configuration` is that of the last configuration entry, or of
    the base.
    """

    __slots__ = ("_configurations", "_entries", "_internal", "base")

    def __init__(self, base: Base, entries: Iterable[Entry] = ()) -> None:
        self.base = base
        self._entries: list[Entry] = []
        self._configurations: list[tuple[int, Configuration]] = []
        self._internal: list[int] = []
        self.append(entries)

    # -- reading -----------------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        """The index of the last entry, or of the base."""
        return self.base.index + len(self._entries)

    @property
    def last_term(self) -> Term:
        """The term of the last entry, or of the base."""
        return self._entries[-1].term if self._entries else self.base.term

    @property
    def configuration(self) -> Configuration:
        """The newest configuration, committed or not: it is in force from the moment it is in the log."""
        return self._configurations[-1][1] if self._configurations else self.base.configuration

    @property
    def configuration_index(self) -> int:
        """The index of the entry with the newest configuration; 0: it comes from the command line."""
        return self._configurations[-1][0] if self._configurations else self.base.configuration_index

    def term_at(self, index: int) -> Term | None:
        """The term of an entry, or None when it is not (or no longer) here."""
        position = index - self.base.index
        if position == 0:
            return self.base.term
        if 0 < position <= len(self._entries):
            return self._entries[position - 1].term
        return None

    def entry(self, index: int) -> Entry:
        """The entry with this index, which must be here."""
        return self._entries[index - self.base.index - 1]

    def between(self, first: int, last: int) -> list[Entry]:
        """The entries from `first` to `last`, both included and both here."""
        return self._entries[first - self.base.index - 1 : last - self.base.index]

    def up_to_bytes(self, first: int, bytes_max: int) -> list[Entry]:
        """Entries from `first` on, as many as fit into `bytes_max`, and at least one if there is one."""
        found: list[Entry] = []
        size = 0
        for position in range(first - self.base.index - 1, len(self._entries)):
            entry = self._entries[position]
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def agreement_before(self, index: int, term: Term) -> tuple[int, Term]:
        """(index, term) of the last entry at or before `index` whose term is at most `term`: where a log that has
        `term` at `index` may begin to agree with this one.
        """
        index = min(index, self.last_index)
        while index > self.base.index:
            own = self.entry(index).term
            if own <= term:
                return index, own
            index -= 1
        return self.base.index, self.base.term

    def configuration_at(self, index: int) -> tuple[int, Configuration]:
        """(index of its entry, the configuration in force) after entry `index`."""
        place = bisect_right(self._configurations, index, key=lambda pair: pair[0])
        if place:
            return self._configurations[place - 1]
        return self.base.configuration_index, self.base.configuration

    def internal_up_to(self, index: int) -> int:
        """How many entries up to `index` are not the application's."""
        return self.base.internal + bisect_right(self._internal, index)

    def application_index(self, index: int) -> int:
        """How many entries of the application there are up to `index`."""
        return index - self.internal_up_to(index)

    def check_invariants(self) -> None:
        """Raises RaftViolation when an invariant of the class does not hold. Costs as much as the log is long."""
        before: Base | Entry = self.base
        for entry in self._entries:
            if entry.index != before.index + 1 or entry.term < before.term:
                raise RaftViolation(f"entry {entry.index} of term {entry.term} after {before[:2]}")
            before = entry
        internal = [entry.index for entry in self._entries if kind_of(entry.data) is not Kind.APPLICATION]
        if internal != self._internal:
            raise RaftViolation(f"entries {internal} are not the application's, and {self._internal} count as such")
        if any(self.entry(index).data[2:] != each.encode() for index, each in self._configurations):
            raise RaftViolation("a configuration in force is not the one in the log")

    # -- writing -----------------------------------------------------------------------------------

    def append(self, entries: Iterable[Entry]) -> None:
        """Put entries behind the last one. Raises RaftViolation when they do not follow it."""
        for entry in entries:
            if entry.index != self.last_index + 1 or entry.term < self.last_term:
                raise RaftViolation(
                    f"entry {entry.index} of term {entry.term} after {self.last_index} of term {self.last_term}"
                )
            kind = kind_of(entry.data)
            if kind is not Kind.APPLICATION:
                self._internal.append(entry.index)
                if kind is Kind.CONFIGURATION:
                    self._configurations.append((entry.index, Configuration.decode(entry.data[2:])))
            self._entries.append(entry)

    def accept(self, previous: tuple[int, Term], entries: Sequence[Entry], committed: int) -> Accepted | Rejected:
        """Take entries of the leader that follow `previous` (index, term); `entries` have no gap.

        What is there already stays, also behind what the message verifies: a message may be late or come twice, and
        must not take away what was acknowledged since. Raises RaftViolation when a committed entry conflicts.
        """
        index, term = previous
        if index < self.base.index:
            # The beginning is in the snapshot, hence committed, hence the same as the leader's.
            skipped = min(self.base.index - index, len(entries))
            entries = entries[skipped:]
            if not entries:
                return Accepted(max(index + skipped, committed), 0)
        elif self.term_at(index) != term:
            return Rejected(*self.agreement_before(index if index <= self.last_index else self.last_index, term))
        verified = entries[-1].index if entries else index
        for position, entry in enumerate(entries):
            own = self.term_at(entry.index)
            if own == entry.term:
                continue
            truncate_from = 0
            if own is not None:
                if entry.index <= committed:
                    raise RaftViolation(f"the leader's entry {entry.index} differs from the committed one")
                truncate_from = entry.index
                self.truncate(truncate_from)
            self.append(entries[position:])
            return Accepted(verified, truncate_from)
        return Accepted(verified, 0)

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on; configurations among them are taken back."""
        del self._entries[index - self.base.index - 1 :]
        while self._configurations and self._configurations[-1][0] >= index:
            self._configurations.pop()
        while self._internal and self._internal[-1] >= index:
            self._internal.pop()

    def compact(self, index: int) -> None:
        """Forget the entries up to `index`, which a snapshot covers."""
        if index <= self.base.index:
            return
        term = self.entry(index).term
        configuration_index, configuration = self.configuration_at(index)
        internal = self.internal_up_to(index)
        del self._entries[: index - self.base.index]
        self._configurations = [pair for pair in self._configurations if pair[0] > index]
        self._internal = [one for one in self._internal if one > index]
        self.base = Base(index, term, configuration, configuration_index, internal)

    def restore(self, base: Base) -> bool:
        """Begin after a snapshot from the leader. What follows it stays if it matches; else True: it was dropped."""
        if self.term_at(base.index) == base.term:
            self.compact(base.index)
            self.base = base
            return False
        dropped = self.last_index > base.index
        self._entries.clear()
        self._configurations.clear()
        self._internal.clear()
        self.base = base
        return dropped
