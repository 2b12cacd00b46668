"""From operations to columns: sends, polls and transactions. The other functions are in `facts`.

Knows: the form of micro-operations (docs/CHECKER_KAFKA.md) and how partial results of failed and unknown operations
are read. Refuses to know: files, and what is right or wrong. Operations may come in any order; an operation is not
kept once it is read, so a history can be streamed through.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from raftlog.linearizability.checker.history import HistoryError, Operation, Outcome, Process
from raftlog.linearizability.checker.kafka import facts
from raftlog.linearizability.checker.kafka.columns import (
    FAIL,
    FUNCTION_NAME,
    INFO,
    NEVER,
    NOBODY,
    NOWHERE,
    OK,
    OTHER,
    POLL,
    SEND,
    TRANSACTIONAL,
    TXN,
    Columns,
)
from raftlog.linearizability.checker.kafka.fields import (
    BadField,
    hashable,
    integer,
    items,
    key_name,
    named,
    offset_of,
    sequence,
    show,
    text,
)
from raftlog.linearizability.checker.kafka.options import KafkaOptions

_OK = Outcome.OK  # compared by identity: hashing an enumeration's member is a call
_FAIL = Outcome.FAIL
_FIRST_TIME = -NEVER
_BLOCK = 4096  # entries that are put into columns at once
_DATA = {"send": SEND, "poll": POLL, "txn": TXN}
_INPUT_FIELDS = frozenset({"ops", "producer", "producer_id", "epoch", "isolation", "transactional"})
_COMMIT_FIELDS = frozenset({"member", "generation"})
_OUTPUT_FIELDS = frozenset({"ops", "rebalance", "producer", "producer_id", "epoch"})


class Intake:
    """Reads operations into `columns`; `finish` once after the last."""

    def __init__(self, options: KafkaOptions, source: str | None = None) -> None:
        self.columns = Columns()
        self.columns.source = source
        self._all_transactions = options.transactions
        self._process_numbers: dict[Process, int] = {}
        self._key_numbers: dict[Any, int] = {}
        self._elements: list[dict[Any, int]] = []
        self._writer: list[int] = []  # of each element, as long as it may change
        self._offset: list[int] = []
        # What comes next in some columns. Appending to an array takes four times as long as to a list.
        self._process: list[int] = []
        self._call: list[int] = []
        self._returned: list[int] = []
        self._line: list[int] = []
        self._send_start: list[int] = []
        self._segment_start: list[int] = []
        self._sent: list[int] = []
        self._segment_key: list[int] = []
        self._segment_row: list[int] = []
        self._polled: list[int] = []
        self._element_key: list[int] = []

    def add(self, operation: Operation) -> None:
        """Read one finished or unfinished operation. Raises HistoryError with its line."""
        function = _DATA.get(operation.function)
        try:
            if function is not None:
                self._data(operation, function)
            else:
                self._fact(operation)
        except BadField as problem:
            raise HistoryError(
                f"{operation.function} by {operation.process!r}: {problem}", operation.line, self.columns.source
            ) from None

    def finish(self) -> Columns:
        """The columns, complete. What was needed to read them is given up."""
        self._elements.clear()
        self._key_numbers.clear()
        self._settle()
        self._settle_polled()
        _move(self._writer, self.columns.writer)
        _move(self._offset, self.columns.offset)
        self.columns.finish()
        return self.columns

    def _settle(self) -> None:
        """Put what came into the columns."""
        columns = self.columns
        for column, staged in (
            (columns.process, self._process),
            (columns.call, self._call),
            (columns.returned, self._returned),
            (columns.line, self._line),
            (columns.send_start, self._send_start),
            (columns.segment_start, self._segment_start),
            (columns.send_element, self._sent),
            (columns.segment_key, self._segment_key),
            (columns.segment_row, self._segment_row),
            (columns.element_key, self._element_key),
        ):
            _move(staged, column)

    def _settle_polled(self) -> None:
        _move(self._polled, self.columns.polled)

    # One operation

    def _begin(self, operation: Operation, function: int, flags: int) -> int:
        columns = self.columns
        if len(self._call) >= _BLOCK:
            self._settle()
        process = operation.process
        known = self._process_numbers.get(process)
        if known is None:
            known = self._process_numbers[process] = len(columns.processes)
            columns.processes.append(process)
        call, returned, outcome = operation.call, operation.returned, operation.outcome
        if type(call) is not int or type(returned) is not int or not _FIRST_TIME <= call <= returned < NEVER:
            call, returned = _interval(operation)
        number = len(columns.outcome)
        self._call.append(call)
        self._returned.append(returned)
        self._process.append(known)
        columns.outcome.append(OK if outcome is _OK else FAIL if outcome is _FAIL else INFO)
        columns.function.append(function)
        columns.flags.append(flags)
        self._line.append(operation.line or 0)
        self._send_start.append(len(columns.send_element) + len(self._sent))
        self._segment_start.append(len(columns.segment_key) + len(self._segment_key))
        if operation.error is not None:
            columns.errors[number] = operation.error
        return number

    def _fact(self, operation: Operation) -> None:
        reader = facts.READERS.get(operation.function)
        if reader is None:
            known = ", ".join([*_DATA, *facts.READERS])
            raise BadField(f"no such function; the Kafka analysis knows {known}")
        code = facts.CODES.get(operation.function, OTHER)
        number = self._begin(operation, code, 0)
        if FUNCTION_NAME[code] != operation.function:
            self.columns.functions[number] = operation.function
        reader(self.columns, self.key, number, operation)

    def _data(self, operation: Operation, function: int) -> None:
        flags = TRANSACTIONAL if function == TXN or self._all_transactions else 0
        number = self._begin(operation, function, flags)
        given, output = operation.input, operation.output
        if type(given) is not list:
            given = self._attributes(number, given) if isinstance(given, Mapping) else given
            given = sequence(given, "the input")
        if type(output) is not list and output is not None:
            output = self._output_attributes(number, output) if isinstance(output, Mapping) else output
            output = sequence(output, "the output")
        outcome = self.columns.outcome[number]
        if output:
            self._answered(number, output, function, outcome)
        if outcome != OK or output is None or len(output) < len(given):
            self._asked(number, given, function)

    def _attributes(self, number: int, given: Mapping[str, Any]) -> Any:
        columns = self.columns
        fields = named(given, _INPUT_FIELDS, "the input")
        if "isolation" in fields:
            columns.own_isolation[number] = facts.isolation(fields["isolation"])
        if fields.get("transactional"):
            columns.flags[number] |= TRANSACTIONAL
        self._producer(number, fields)
        return fields.get("ops")

    def _output_attributes(self, number: int, output: Mapping[str, Any]) -> Any:
        fields = named(output, _OUTPUT_FIELDS, "the output")
        if fields.get("rebalance"):
            names = facts.rebalanced(fields["rebalance"])
            self.columns.rebalanced[number] = frozenset(self.key(name) for name in names)
        self._producer(number, fields)
        return fields.get("ops")

    def _producer(self, number: int, fields: Mapping[str, Any]) -> None:
        if fields.get("epoch") is None and fields.get("producer") is None:
            return
        producer, epoch = facts.producer_of(self.columns, fields)
        self.columns.name_producer(number, producer, epoch)

    # Micro-operations

    def _answered(self, number: int, output: Sequence[Any], function: int, outcome: int) -> None:
        """Read an answer."""
        for micro in output:
            if type(micro) is not list and type(micro) is not tuple:
                raise BadField(f"{show(micro)} is no micro-operation")
            name = micro[0] if micro else None
            if name == "send" and function != POLL and len(micro) == 3:
                pair = micro[2]
                if type(pair) is not list and type(pair) is not tuple:
                    self._send(number, micro[1], pair, None, outcome)
                elif len(pair) == 2:
                    self._send(number, micro[1], pair[1], pair[0], outcome)
                else:
                    raise BadField(f"{show(pair)} must be [offset, value]")
            elif name == "poll" and function != SEND and len(micro) <= 3:
                if len(micro) > 1 and micro[1]:
                    self._poll(micro[1])
                if len(micro) == 3 and micro[2]:
                    self._ends(number, micro[2])
            elif name == "commit" and 3 <= len(micro) <= 4:
                self._commit(number, micro)
            else:
                raise BadField(_wrong_micro(micro, function))

    def _asked(self, number: int, given: Sequence[Any], function: int) -> None:
        """Read the sends of a call whose answer does not tell them: they may have happened."""
        columns = self.columns
        already = set(self._sent[self._send_start[-1] - len(columns.send_element) :])
        commits_known = bool(columns.commit_operation) and columns.commit_operation[-1] == number
        outcome = columns.outcome[number]
        for micro in given:
            if type(micro) is not list and type(micro) is not tuple:
                raise BadField(f"{show(micro)} is no micro-operation")
            name = micro[0] if micro else None
            if name == "send" and function != POLL and len(micro) == 3:
                if self._known(micro[1], micro[2]) not in already:
                    self._send(number, micro[1], micro[2], None, outcome)
            elif name == "commit" and 3 <= len(micro) <= 4:
                if not commits_known:
                    self._commit(number, micro)
            elif name != "poll" or function == SEND:
                raise BadField(_wrong_micro(micro, function))

    def _commit(self, number: int, micro: Sequence[Any]) -> None:
        """Offsets that a transaction commits for a group."""
        fields = named(micro[3] if len(micro) == 4 else None, _COMMIT_FIELDS, "a commit's member")
        member = text(fields.get("member", ""), "member")
        generation = integer(fields.get("generation"), "generation", -1)
        facts.commit_rows(self.columns, self.key, number, (text(micro[1], "group"), micro[2], member, generation))

    def _known(self, key: Any, value: Any) -> int | None:
        return self._elements[self.key(key)].get(hashable(value))

    def key(self, key: Any) -> int:
        """The number of a key, in any of its forms."""
        if type(key) is str or type(key) is int:
            number = self._key_numbers.get(key)
            if number is not None:
                return number
        name = key_name(key)
        number = self.columns.keys.number(name)
        if number == len(self._elements):
            self._elements.append({})
        if type(key) is str or type(key) is int:
            self._key_numbers[key] = number
        return number

    def _element(self, key: int, value: Any, shown: Any, writer: int = NOBODY) -> int:
        values = self.columns.values
        element = self._elements[key][value] = len(values)
        values.append(shown)
        self._element_key.append(key)
        self._writer.append(writer)
        self._offset.append(NOWHERE)
        return element

    def _send(self, number: int, key: Any, value: Any, offset: Any, outcome: int) -> None:
        columns = self.columns
        known = self._key_numbers.get(key) if type(key) is str else None
        if known is None:
            known = self.key(key)
        wanted = value if type(value) is int or type(value) is str else hashable(value)
        element = self._elements[known].get(wanted)
        if element is None:
            element = self._element(known, wanted, value, number)
        elif self._writer[element] == NOBODY or self._replaces(number, element, outcome):
            self._writer[element] = number
        else:
            offset = None
        self._sent.append(element)
        place = None if offset is None else offset_of(offset)
        if place is None:
            return
        if outcome == OK and self._offset[element] == NOWHERE:
            self._offset[element] = place
        elif outcome != OK or self._offset[element] != place:
            columns.send_ack[len(columns.send_element) + len(self._sent) - 1] = place
            if outcome == OK:
                columns.extra_offsets.setdefault(element, set()).add(place)
            elif outcome == INFO:
                columns.unsure.append((element, place))

    def _replaces(self, number: int, element: int, outcome: int) -> bool:
        """Whether a second send of a value may be: only after, or as, one that certainly failed."""
        columns = self.columns
        earlier = self._writer[element]
        if earlier != number and outcome == FAIL:
            return False
        if earlier != number and columns.outcome[earlier] == FAIL:
            return True
        self._settle()
        where = f"in line {columns.line[earlier]}" if columns.line[earlier] else "before"
        key = columns.keys.names[columns.element_key[element]]
        raise BadField(
            f"{show(columns.values[element])} was already sent to {key} {where}: every value sent to a key must differ"
        )

    def _poll(self, records: Any) -> None:
        numbers, all_elements = self._key_numbers, self._elements
        offsets, polled = self._offset, self._polled
        segment_key, segment_row = self._segment_key, self._segment_row
        settled = len(self.columns.polled)
        for key, pairs in records.items() if type(records) is dict else items(records, "poll"):
            known = numbers.get(key) if type(key) is str else None
            if known is None:
                known = self.key(key)
            if not pairs:
                continue
            start = len(polled)
            segment_key.append(known)
            segment_row.append(settled + start)
            elements = all_elements[known]
            try:
                for offset, value in pairs:
                    element = elements.get(value)
                    if element is None:
                        element = self._element(known, value, value)
                    if offsets[element] != offset:
                        self._place(element, offset)
                    polled.append(element)
            except (TypeError, ValueError):
                del polled[start:]
                self._poll_one_by_one(known, pairs)  # it holds what cannot be looked up, or is no list of pairs
        if len(polled) >= _BLOCK:
            self._settle_polled()

    def _poll_one_by_one(self, key: int, pairs: Any) -> None:
        name, elements = self.columns.keys.names[key], self._elements[key]
        for pair in sequence(pairs, name):
            if (type(pair) is not list and type(pair) is not tuple) or len(pair) != 2:
                raise BadField(f"{name}: {show(pair)} is not [offset, value]")
            offset, value = pair
            wanted = value if type(value) is int or type(value) is str else hashable(value)
            element = elements.get(wanted)
            if element is None:
                element = self._element(key, wanted, value)
            if self._offset[element] != offset or type(offset) is not int:
                self._place(element, offset)
            self._polled.append(element)

    def _place(self, element: int, offset: Any) -> None:
        """The record about to be polled stands at another offset than the one known, if any."""
        columns = self.columns
        place = offset_of(offset)
        if place is None:
            columns.polled_offset[len(columns.polled) + len(self._polled)] = None
        elif self._offset[element] == NOWHERE:
            self._offset[element] = place
        elif self._offset[element] != place:
            columns.polled_offset[len(columns.polled) + len(self._polled)] = place
            columns.extra_offsets.setdefault(element, set()).add(place)

    def _ends(self, number: int, given: Any) -> None:
        ends = self.columns.ends.setdefault(number, {})
        for key, end in items(given, "visible ends"):
            ends[self.key(key)] = integer(end, "end")


def _move(staged: list[int], column: array[int]) -> None:
    """Put staged numbers at a column's end. Packed into bytes they get there in half the time `fromlist` takes."""
    column.frombytes(pack(f"{len(staged)}{column.typecode}", *staged))
    staged.clear()


def _interval(operation: Operation) -> tuple[int, int]:
    """When it was called and when it returned, NEVER if it did not."""
    call, returned = operation.call, operation.returned
    if returned is None:
        if operation.outcome is _OK:
            raise BadField("an operation with outcome ok has no return time")
        returned = NEVER
    elif returned < call or returned == NEVER:
        raise BadField(f"the interval from {call} to {returned} makes no sense")
    try:
        call, returned = array("q", [call, returned])
    except (OverflowError, TypeError):
        raise BadField(f"the interval from {call} to {returned} is not of 64-bit integers") from None
    return call, returned


def _wrong_micro(micro: Any, function: int) -> str:
    kinds = {SEND: "send", POLL: "poll"}.get(function, "send, poll and commit")
    forms = '["send", key, [offset, value]], ["poll", {key: [[offset, value]]}], ["commit", group, {key: offset}]'
    return f"{show(micro)} is not one of the micro-operations that go here ({kinds}); their forms are {forms}"
