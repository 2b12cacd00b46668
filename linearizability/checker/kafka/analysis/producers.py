"""Fencing of producers: once a newer epoch is known, an older one succeeds no more.

A fence that leaked is seen in two ways: by the clock, and by the places of records in a key's log.
"""

from __future__ import annotations

from raftlog.linearizability.checker.kafka.columns.columns import NEVER, NOBODY, OK, Columns
from raftlog.linearizability.checker.kafka.columns.fields import EPOCHS
from raftlog.linearizability.checker.kafka.context import Context
from raftlog.linearizability.checker.kafka.report.findings import Example, Judgement


def check_producers(context: Context) -> None:
    """fenced-producer and epoch-reused."""
    columns = context.columns
    if not columns.initialised and not columns.producers.names:
        return
    claims: dict[int, list[tuple[int, int]]] = {}  # producer -> (operation, epoch) that succeeded
    for number, producer, epoch in columns.initialised:
        claims.setdefault(producer, []).append((number, epoch))
    for number, producer in enumerate(columns.producer):
        if producer != NOBODY and columns.committed[number]:
            claims.setdefault(producer, []).append((number, columns.epoch[number]))
    for producer, made in claims.items():
        _by_clock(context, producer, made)
    _by_place(context)
    _reused(context)


def _by_clock(context: Context, producer: int, made: list[tuple[int, int]]) -> None:
    columns = context.columns
    by_call = sorted(made, key=lambda claim: columns.call[claim[0]])
    by_returned = sorted(
        (claim for claim in made if columns.outcome[claim[0]] == OK and columns.returned[claim[0]] != NEVER),
        key=lambda claim: columns.returned[claim[0]],
    )
    done = 0
    newest = (NOBODY, -1)
    for number, epoch in by_call:
        while done < len(by_returned) and columns.returned[by_returned[done][0]] < columns.call[number]:
            if by_returned[done][1] > newest[1]:
                newest = by_returned[done]
            done += 1
        if epoch < newest[1]:
            found = (producer, (number, epoch), newest)
            context.findings.add("fenced-producer", Judgement.ERROR, newest[1] - epoch, _tell_clock, context, found)


def _by_place(context: Context) -> None:
    """Along each key's log a producer's epochs never fall."""
    columns, order = context.columns, context.order
    if all(producer == NOBODY for producer in columns.producer):
        return
    for key in range(len(columns.keys.names)):
        newest: dict[int, int] = {}  # producer -> element of its newest epoch so far
        for place in range(order.key_start[key], order.key_start[key + 1]):
            element = order.elements[place]
            writer = columns.writer[element]
            if writer == NOBODY or columns.producer[writer] == NOBODY:
                continue
            producer = columns.producer[writer]
            before = newest.get(producer, NOBODY)
            if before == NOBODY or columns.epoch[writer] >= columns.epoch[columns.writer[before]]:
                newest[producer] = element
            elif element not in order.doubled and before not in order.doubled:
                weight = columns.epoch[columns.writer[before]] - columns.epoch[writer]
                context.findings.add("fenced-producer", Judgement.ERROR, weight, _tell_place, context, before, element)


def _reused(context: Context) -> None:
    first: dict[tuple[int, int], int] = {}
    for number, producer, epoch in context.columns.initialised:
        before = first.setdefault((producer, epoch), number)
        if before != number:
            found = (producer, epoch, before, number)
            context.findings.add("epoch-reused", Judgement.ERROR, 1, _tell_reused, context, found)


def _epoch(epoch: int) -> str:
    identity = epoch // EPOCHS
    return f"epoch {epoch % EPOCHS}" + (f" of producer id {identity}" if identity else "")


def _name(columns: Columns, producer: int) -> str:
    return columns.producers.names[producer]


def _tell_clock(context: Context, found: tuple[int, tuple[int, int], tuple[int, int]]) -> Example:
    words = context.words
    producer, (number, epoch), (newer, newer_epoch) = found
    text = (
        f"Producer {_name(context.columns, producer)}: {words.who(number)} succeeded with {_epoch(epoch)}, although "
        f"{words.who(newer)} had succeeded with {_epoch(newer_epoch)} {words.gap(newer, number)} before it began."
    )
    details = {"producer": _name(context.columns, producer), "epochs": [newer_epoch % EPOCHS, epoch % EPOCHS]}
    return Example(text, (newer, number), None, details)


def _tell_place(context: Context, before: int, element: int) -> Example:
    words, columns = context.words, context.columns
    newer, older = columns.writer[before], columns.writer[element]
    text = (
        f"Producer {_name(columns, columns.producer[older])}: {words.element(element)} was sent with "
        f"{_epoch(columns.epoch[older])} by {words.who(older)} and stands behind {words.element(before)}, which "
        f"{words.who(newer)} sent with {_epoch(columns.epoch[newer])}."
    )
    details = {
        "producer": _name(columns, columns.producer[older]),
        "epochs": [columns.epoch[newer] % EPOCHS, columns.epoch[older] % EPOCHS],
    }
    return Example(text, (newer, older), words.key(columns.element_key[element]), details)


def _tell_reused(context: Context, found: tuple[int, int, int, int]) -> Example:
    producer, epoch, first, second = found
    words = context.words
    name = _name(context.columns, producer)
    text = f"Producer {name} was given {_epoch(epoch)} twice: to {words.who(first)} and to {words.who(second)}."
    return Example(text, (first, second), None, {"producer": name, "epoch": epoch % EPOCHS})
