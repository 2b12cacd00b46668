"""Where to start and stop reading, as people write it: `-o beginning`, `-o -10`, `-o s@2026-01-31`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from raftlog.cli.failure import UsageError
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.offsets import EARLIEST, LATEST
from raftlog.client.sync import SyncAdmin

OFFSETS_HELP = """\
offsets (-o), repeat to give both a start and a stop:
  beginning, end    the first record there is, or only what comes from now on
  stored            where the group (-G) stands, which it does anyway; beginning where it has not committed
  123               this offset              -10     ten before the end, in each partition
  s@TIME, e@TIME    start, stop at a time: ms since 1970, or ISO such as 2026-01-31T12:00:00Z
"""
DIGITS_MAX = 18
"""A number of so many digits fits into Kafka's 64 bits."""
NAMED = {"beginning": "beginning", "earliest": "beginning", "end": "end", "latest": "end", "stored": "stored"}


class Start(NamedTuple):
    """`kind`: beginning, end, stored, offset, tail (last `number`) or time (`number` ms)."""

    kind: str
    number: int = 0


class Range(NamedTuple):
    start: Start | None
    stop_ms: int | None


def parse_offsets(texts: list[str]) -> Range:
    """Raises UsageError for what is no offset and for two starts."""
    start: Start | None = None
    stop_ms: int | None = None
    for text in texts:
        if text.startswith("e@"):
            stop_ms = parse_time(text[2:])
            continue
        if start is not None:
            raise UsageError("-o gives two places to start", "give one start, and one stop as e@TIME")
        start = parse_start(text)
    return Range(start, stop_ms)


def parse_start(text: str) -> Start:
    if text in NAMED:
        return Start(NAMED[text])
    if text.startswith("s@"):
        return Start("time", parse_time(text[2:]))
    if re.fullmatch(rf"-\d{{1,{DIGITS_MAX}}}", text):
        return Start("tail", int(text[1:]))
    if text.isdecimal() and len(text) <= DIGITS_MAX:
        return Start("offset", int(text))
    raise UsageError(f"-o {text!r} is not an offset", "beginning, end, stored, 123, -10, s@TIME or e@TIME")


def parse_time(text: str) -> int:
    """ms since 1970 from such a number or an ISO date and time (UTC unless it says otherwise); what was before is 0."""
    if text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time", "write ms since 1970, or ISO such as 2026-01-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


_ISO_DURATION = re.compile(r"P(?:(\d{1,18})D)?(?:T(?:(\d{1,18})H)?(?:(\d{1,18})M)?(?:(\d{1,18})S)?)?")
_SHORT_DURATION = re.compile(r"(\d{1,18})(ms|s|m|h|d)")
_SHORT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(text: str) -> int:
    """Milliseconds from ISO 8601 (`P1DT2H`), as Kafka's tools take it, or short (`90m`)."""
    if match := _SHORT_DURATION.fullmatch(text):
        return int(match[1]) * _SHORT_MS[match[2]]
    match = _ISO_DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"{text!r} is not a duration", "write it like 90m, 2h, 7d or P1DT2H30M")
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def resolve(admin: SyncAdmin, partitions: list[TopicPartition], start: Start) -> dict[TopicPartition, int]:
    """The first offset to read in each partition; a number outside the log means its nearest end.

    `stored` is where nothing is stored, that is the beginning.
    """
    match start.kind:
        case "beginning" | "stored":
            return admin.offsets_at(partitions, EARLIEST)
        case "end":
            return admin.offsets_at(partitions, LATEST)
        case "time":
            return admin.offsets_at(partitions, start.number)
    first, last = admin.offsets_at(partitions, EARLIEST), admin.offsets_at(partitions, LATEST)
    wanted = {each: last[each] - start.number if start.kind == "tail" else start.number for each in partitions}
    return {each: min(max(wanted[each], first[each]), last[each]) for each in partitions}
