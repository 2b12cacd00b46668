"""From operations to columns: sends, polls and transactions. The other functions are in `facts`.

Operations may come in any order; an operation is not kept once it is read, so a history can be streamed through.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from struct import pack
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import HistoryError, Operation, Outcome, Process
from raftlog.linearizability.checker.kafka.columns import facts
from raftlog.linearizability.checker.kafka.columns.columns import (
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
from raftlog.linearizability.checker.kafka.columns.fields import (
    OFFSET_LIMIT,
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
from raftlog.linearizability.checker.kafka.columns.gather import shifted
from raftlog.linearizability.checker.kafka.options import KafkaOptions

_OK = Outcome.OK  # compared by identity: hashing an enumeration's member is a call
_FAIL = Outcome.FAIL
_FIRST_TIME = -NEVER
_BLOCK = 4096  # entries that are put into columns at once
_FUNCTIONS = {
    "send": SEND,
    "poll": POLL,
    "txn": TXN,
    **{name: facts.CODES.get(name, OTHER) for name in facts.READERS},
}
_INPUT_FIELDS = frozenset({"ops", "producer", "producer_id", "epoch", "isolation", "transactional"})
_COMMIT_FIELDS = frozenset({"member", "generation"})
_OUTPUT_FIELDS = frozenset({"ops", "rebalance", "producer", "producer_id", "epoch"})

_Kind: TypeAlias = tuple[int, int]  # function and outcome
_Send: TypeAlias = Callable[[int, Any, Any, int], None]  # operation, key, answer, outcome
_Poll: TypeAlias = Callable[[Any], None]  # records by key


class Intake:
    """Reads operations into `columns`; `finish` once after the last."""

    def __init__(self, options: KafkaOptions, source: str | None = None) -> None:
        self.columns = Columns()
        self.columns.source = source
        transactions = (SEND, POLL, TXN) if options.transactions else (TXN,)
        self._flags_of = bytes(TRANSACTIONAL * (function in transactions) for function in range(256))
        self._operation: Operation  # the one being read
        self._process_numbers: dict[Process, int] = {}
        self._key_numbers: dict[Any, int] = {}
        self._elements: list[dict[Any, int]] = []  # of each key, by their values
        self._writer: list[int] = []  # of each element, as long as it may change
        self._offset: list[int] = []
        # What comes next in some columns. Appending to an array takes four times as long as to a list.
        self._process: list[int] = []
        self._call: list[int] = []
        self._returned: list[int] = []
        self._outcome: list[int] = []
        self._function: list[int] = []
        self._transactional: list[int] = []  # those that say so of themselves
        self._line: list[int] = []
        self._send_start: list[int] = []
        self._segment_start: list[int] = []
        self._sent: list[int] = []
        self._segment_key: list[int] = []
        self._segment_row: list[int] = []
        self._polled: list[int] = []
        self._element_key: list[int] = []

    def read(self, operations: Iterable[Operation]) -> int:
        """Read operations, finished or not, and say how many. Raises HistoryError with its line for a wrong one."""
        count, rest = 0, iter(operations)
        try:
            while read := self._block(islice(rest, _BLOCK)):
                self._settle()
                count += read
        except BadField as problem:
            wrong = self._operation
            raise HistoryError(
                f"{wrong.function} by {wrong.process!r}: {problem}", wrong.line, self.columns.source
            ) from None
        return count

    def finish(self) -> Columns:
        """The columns, complete. What was needed to read them is given up."""
        self._elements.clear()
        self._key_numbers.clear()
        self._settle()
        self.columns.writer = _packed("i", self._writer)
        self.columns.offset = _packed("q", self._offset)
        self._writer.clear()
        self._offset.clear()
        if set(map(type, self.columns.values)) == {int}:
            with suppress(OverflowError):  # an array holds them in a fifth of the memory
                self.columns.values = array("q", self.columns.values)
        self.columns.finish()
        return self.columns

    def _settle(self) -> None:
        """Put what came into the columns."""
        columns = self.columns
        for starts, staged, rows in (
            (columns.send_start, self._send_start, columns.send_element),
            (columns.segment_start, self._segment_start, columns.segment_key),
            (columns.segment_row, self._segment_row, columns.polled),
        ):
            starts += shifted(_packed("i", staged), len(rows))
            staged.clear()
        for column, staged in (
            (columns.process, self._process),
            (columns.call, self._call),
            (columns.returned, self._returned),
            (columns.line, self._line),
            (columns.send_element, self._sent),
            (columns.segment_key, self._segment_key),
            (columns.polled, self._polled),
            (columns.element_key, self._element_key),
        ):
            column += _packed(column.typecode, staged)
            staged.clear()
        columns.outcome += bytes(self._outcome)
        columns.function += bytes(self._function)
        columns.flags += bytes(self._function).translate(self._flags_of)
        for number in self._transactional:
            columns.flags[number] |= TRANSACTIONAL
        for staged in (self._outcome, self._function, self._transactional):
            staged.clear()

    # Operations

    def _block(self, operations: Iterable[Operation]) -> int:
        """Read operations into what is put into the columns next, and say how many."""
        columns, sent, segments, polled = self.columns, self._sent, self._segment_key, self._polled
        processes, calls, returns, outcomes = self._process, self._call, self._returned, self._outcome
        functions, lines, send_start, segment_start = self._function, self._line, self._send_start, self._segment_start
        numbers, send, poll = self._process_numbers, self._sender(), self._poller()
        for number, operation in enumerate(operations, len(columns)):
            self._operation = operation
            function = _FUNCTIONS.get(operation.function)
            process = numbers.get(operation.process)
            call, returned, given, output = operation.call, operation.returned, operation.input, operation.output
            if type(call) is not int or type(returned) is not int or not _FIRST_TIME <= call <= returned < NEVER:
                call, returned = _interval(operation)
            outcome = OK if operation.outcome is _OK else FAIL if operation.outcome is _FAIL else INFO
            calls.append(call)
            returns.append(returned)
            processes.append(self._process_number(operation.process) if process is None else process)
            outcomes.append(outcome)
            lines.append(operation.line or 0)
            send_start.append(len(sent))
            segment_start.append(len(segments))
            if operation.error is not None:
                columns.errors[number] = operation.error
            if function is None or function > TXN:
                self._fact(number, operation)
                continue
            functions.append(function)
            if outcome != OK or type(given) is not list or type(output) is not list:
                self._unusual(operation, number, (function, outcome), send, poll)
                continue
            for micro in output:
                if type(micro) is list and len(micro) == 3 and micro[0] == "send" and function != POLL:
                    send(number, micro[1], micro[2], outcome)
                elif type(micro) is list and len(micro) == 2 and micro[0] == "poll" and function != SEND:
                    poll(micro[1])
                else:
                    self._micro(micro, number, (function, outcome), send, poll)
            if len(output) < len(given):
                self._asked(number, given, (function, outcome), send)
            if len(polled) >= _BLOCK:
                break
        return len(calls)

    def _process_number(self, process: Process) -> int:
        number = self._process_numbers[process] = len(self.columns.processes)
        self.columns.processes.append(process)
        return number

    def _fact(self, number: int, operation: Operation) -> None:
        function = _FUNCTIONS.get(operation.function)
        if function is None:
            raise BadField(f"no such function; the Kafka analysis knows {', '.join(_FUNCTIONS)}")
        self._function.append(function)
        if FUNCTION_NAME[function] != operation.function:
            self.columns.functions[number] = operation.function
        facts.READERS[operation.function](self.columns, self.key, number, operation)

    def _unusual(self, operation: Operation, number: int, kind: _Kind, send: _Send, poll: _Poll) -> None:
        """A send, poll or transaction that is not ok, or says more of itself than what it did."""
        given, output = operation.input, operation.output
        if type(given) is not list:
            given = self._attributes(number, given) if isinstance(given, Mapping) else given
            given = sequence(given, "the input")
        if type(output) is not list and output is not None:
            output = self._output_attributes(number, output) if isinstance(output, Mapping) else output
            output = sequence(output, "the output")
        for micro in output or ():
            self._micro(micro, number, kind, send, poll)
        if kind[1] != OK or output is None or len(output) < len(given):
            self._asked(number, given, kind, send)

    def _attributes(self, number: int, given: Mapping[str, Any]) -> Any:
        columns = self.columns
        fields = named(given, _INPUT_FIELDS, "the input")
        if "isolation" in fields:
            columns.own_isolation[number] = facts.isolation(fields["isolation"])
        if fields.get("transactional"):
            self._transactional.append(number)
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

    def _micro(self, micro: Any, number: int, kind: _Kind, send: _Send, poll: _Poll) -> None:
        """Read what is answered about one micro-operation, in any of its forms."""
        if type(micro) is not list and type(micro) is not tuple:
            raise BadField(f"{show(micro)} is no micro-operation")
        function, outcome = kind
        name = micro[0] if micro else None
        if name == "send" and function != POLL and len(micro) == 3:
            send(number, micro[1], micro[2], outcome)
        elif name == "poll" and function != SEND and len(micro) <= 3:
            if len(micro) > 1 and micro[1]:
                poll(micro[1])
            if len(micro) == 3 and micro[2]:
                self._ends(number, micro[2])
        elif name == "commit" and 3 <= len(micro) <= 4:
            self._commit(number, micro)
        else:
            raise BadField(_wrong_micro(micro, function))

    def _asked(self, number: int, given: Sequence[Any], kind: _Kind, send: _Send) -> None:
        """Read the sends of a call whose answer does not tell them: they may have happened."""
        function, outcome = kind
        columns = self.columns
        already = set(self._sent[self._send_start[-1] :])
        commits_known = bool(columns.commit_operation) and columns.commit_operation[-1] == number
        for micro in given:
            if type(micro) is not list and type(micro) is not tuple:
                raise BadField(f"{show(micro)} is no micro-operation")
            name = micro[0] if micro else None
            if name == "send" and function != POLL and len(micro) == 3:
                if self._known(micro[1], micro[2]) not in already:
                    send(number, micro[1], (None, micro[2]), outcome)
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
        name = key_name(key)
        number = self._key_numbers.get(name)
        if number is None:
            number = self._key_numbers[name] = self.columns.keys.number(name)
            self._elements.append({})
        return number

    def _element(self, key: int, value: Any, shown: Any) -> int:
        values = self.columns.values
        element = self._elements[key][value] = len(values)
        values.append(shown)
        self._element_key.append(key)
        self._writer.append(NOBODY)
        self._offset.append(NOWHERE)
        return element

    def _sender(self) -> _Send:
        """What takes up sends. Its lists are looked up once, which is quicker than in every call."""
        numbers, all_elements, values, sent = self._key_numbers, self._elements, self.columns.values, self._sent
        element_key, writer, offsets = self._element_key, self._writer, self._offset

        def send(number: int, key: Any, pair: Any, outcome: int) -> None:
            if type(pair) is not list and type(pair) is not tuple:
                offset, value = None, pair
            elif len(pair) == 2:
                offset, value = pair
            else:
                raise BadField(f"{show(pair)} must be [offset, value]")
            known = numbers.get(key) if type(key) is str else None
            if known is None:
                known = self.key(key)
            wanted = value if type(value) is int or type(value) is str else hashable(value)
            elements = all_elements[known]
            element = elements.get(wanted)
            if element is None:
                element = elements[wanted] = len(values)
                values.append(value)
                element_key.append(known)
                writer.append(number)
                offsets.append(NOWHERE)
            elif writer[element] == NOBODY or self._replaces(number, element, outcome):
                writer[element] = number
            else:
                offset = None
            sent.append(element)
            place = offset if type(offset) is int and 0 <= offset < OFFSET_LIMIT else offset_of(offset)
            if place is None:
                return
            if outcome == OK and offsets[element] == NOWHERE:
                offsets[element] = place
            elif outcome != OK or offsets[element] != place:
                self._acknowledged(element, place, outcome)

        return send

    def _acknowledged(self, element: int, place: int, outcome: int) -> None:
        """A send's offset that is not, or not certainly, the one known of its element."""
        columns = self.columns
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
        settled = len(columns)
        ended = columns.outcome[earlier] if earlier < settled else self._outcome[earlier - settled]
        if earlier != number and ended == FAIL:
            return True
        self._settle()
        where = f"in line {columns.line[earlier]}" if columns.line[earlier] else "before"
        key = columns.keys.names[columns.element_key[element]]
        raise BadField(
            f"{show(columns.values[element])} was already sent to {key} {where}: every value sent to a key must differ"
        )

    def _poller(self) -> _Poll:
        """What takes up the records of polls."""
        numbers, all_elements, values, polled = self._key_numbers, self._elements, self.columns.values, self._polled
        element_key, writer, offsets = self._element_key, self._writer, self._offset
        segment_key, segment_row = self._segment_key, self._segment_row

        def take(records: Any) -> None:
            for key, pairs in records.items() if type(records) is dict else _by_name(records):
                known = numbers.get(key)
                if known is None:
                    known = self.key(key)
                if not pairs:
                    continue
                elements = all_elements[known]
                segment_key.append(known)
                segment_row.append(len(polled))
                for offset, value in pairs:
                    element = elements.get(value)
                    if element is None:
                        element = elements[value] = len(values)
                        values.append(value)
                        element_key.append(known)
                        writer.append(NOBODY)
                        offsets.append(offset if type(offset) is int and 0 <= offset < OFFSET_LIMIT else NOWHERE)
                    if offsets[element] != offset:
                        self._place(element, offset)
                    polled.append(element)

        def poll(records: Any) -> None:
            segment_count, polled_count = len(segment_key), len(polled)
            try:
                take(records)
            except (TypeError, ValueError):
                # It holds what cannot be looked up, or is no list of pairs.
                del segment_key[segment_count:], segment_row[segment_count:], polled[polled_count:]
                for key, pairs in records.items() if type(records) is dict else _by_name(records):
                    self._poll_one_by_one(self.key(key), pairs)

        return poll

    def _poll_one_by_one(self, key: int, pairs: Any) -> None:
        if not pairs:
            return
        self._segment_key.append(key)
        self._segment_row.append(len(self._polled))
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


def _by_name(records: Any) -> Iterator[tuple[str, Any]]:
    """The records of a poll that came in another form than an object, by the names of their keys."""
    return ((key_name(key), pairs) for key, pairs in items(records or (), "poll"))


def _packed(typecode: str, staged: list[int]) -> array[int]:
    """Numbers as an array. Packed into bytes they get there in half the time `array(typecode, staged)` takes."""
    return array(typecode, pack(f"{len(staged)}{typecode}", *staged))


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
