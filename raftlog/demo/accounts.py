"""The demo's books: what was produced, consumed, lost and counted twice, and how long anybody had to wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Kill:
    """A broker killed with -9. Times in seconds."""

    broker: int
    acknowledged: int
    consumed: int
    pause: float = 0.0
    """The longest time without an acknowledgement from this kill to the next, or to the end."""
    restart: float = 0.0
    """From its start to its serving again."""


@dataclass
class Accounts:
    """What was counted. Times in seconds."""

    rows: int = 0
    bytes: int = 0
    brokers: int = 1
    start: float = 0.0
    kills: list[Kill] = field(default_factory=list)
    acknowledged: int = 0
    failed: int = 0
    produce_seconds: float = 0.0
    produce_pause: float = 0.0
    consumed: int = 0
    consume_seconds: float = 0.0
    consume_pause: float = 0.0
    commits: int = 0
    committed: int = 0
    in_log: Counter[int] = field(default_factory=Counter)
    consumed_twice: int = 0
    never_consumed: int = 0

    @property
    def lost(self) -> int:
        """Rows that are not in the log although every row was acknowledged in the end."""
        return self.rows - len(self.in_log)

    @property
    def twice_in_log(self) -> int:
        return sum(count - 1 for count in self.in_log.values())

    @property
    def balanced(self) -> bool:
        wrong = self.lost or self.twice_in_log or self.never_consumed or self.failed
        return not wrong and self.committed == len(self.in_log)


def report(accounts: Accounts) -> str:
    """The books as a person reads them."""
    megabytes = accounts.bytes / 1e6
    brokers = "broker" if accounts.brokers == 1 else f"{accounts.brokers} brokers"
    serves = "serves" if accounts.brokers == 1 else "serve"
    restarts = ", ".join(f"{kill.restart * 1000:,.0f} ms" for kill in accounts.kills)
    pauses = " and ".join(f"{kill.pause:.2f} s" for kill in accounts.kills)
    lines = [
        ("produced", f"{accounts.acknowledged:,} records acknowledged, {megabytes:.0f} MB, "
                     f"{accounts.acknowledged / accounts.produce_seconds:,.0f} records/s"),
        ("consumed", f"{accounts.consumed:,} records in {accounts.commits} commits, "
                     f"{accounts.consumed / accounts.consume_seconds:,.0f} records/s"),
        ("lost", f"{accounts.lost + accounts.never_consumed} "
                 f"({accounts.lost} not in the log, {accounts.never_consumed} never consumed)"),
        ("twice", f"{accounts.twice_in_log} in the log, {accounts.consumed_twice} consumed again after a crash "
                  "(allowed since the last commit)"),
        ("committed", f"offset {accounts.committed:,} of {sum(accounts.in_log.values()):,}"),
        ("longest pause", f"{accounts.produce_pause:.2f} s between acknowledgements, "
                          f"{accounts.consume_pause:.2f} s between records consumed"),
        ("after kill -9", f"{pauses or 'nobody was killed'}: the longest pause between acknowledgements"),
        ("brokers", f"{brokers} {serves} {accounts.start * 1000:,.0f} ms after the start; "
                    f"a killed one {restarts or 'never'} after being started again"),
    ]  # fmt: skip
    return "\n".join(f"{name:>14}  {text}" for name, text in lines)
