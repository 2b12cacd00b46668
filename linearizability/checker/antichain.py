"""Sets of configurations in which none makes another superfluous.

Knows: what a configuration is and when one is at least as good as another. Refuses to know: how they come about.

A configuration is a state of the object and two masks over the operations still open. `done` has those placed for
good. `absorbed` has those that may have been placed just before the last constant call, unseen: each of them can
still be counted as placed there or be placed later, so an absorbed one is better than a placed and better than an
untouched one. An observer is best placed, and an operation of unknown outcome best untouched.
"""

from __future__ import annotations

from typing import Any, TypeAlias

# How a configuration came about, newest first: what went before, the tag of the operation placed, the number of the
# state after it, and the tag of the operation whose return asked for it. The state -1 stands for an operation that
# is counted as placed just before the last constant call.
Trace: TypeAlias = "tuple[Trace | None, Any, int, Any]"
Entry: TypeAlias = "tuple[int, int, Trace | None]"  # done, absorbed, and the trace if it is kept
Groups: TypeAlias = dict[int, list[Entry]]  # by the number of the state
Masks: TypeAlias = tuple[int, int, int]  # operations that must be placed, observers, operations of unknown outcome


def add(groups: Groups, state: int, entry: Entry, masks: Masks) -> bool:
    """Add a configuration unless one there makes it superfluous; drop those it makes superfluous."""
    entries = groups.get(state)
    if entries is None:
        groups[state] = [entry]
        return True
    forced, observers, optional = masks
    done, absorbed, _ = entry
    beaten = False
    for other, unseen, _ in entries:
        differs = done ^ other
        if not (
            absorbed & ~(unseen | other & observers)
            or (differs and (differs & forced & ~unseen or done & differs & observers or other & differs & optional))
        ):
            return False
        if not (
            unseen & ~(absorbed | done & observers)
            or differs & forced & ~absorbed
            or other & differs & observers
            or done & differs & optional
        ):
            beaten = True
    if beaten:
        groups[state] = [kept for kept in entries if not beats(entry, kept, masks)]
    groups[state].append(entry)
    return True


def beats(entry: Entry, other: Entry, masks: Masks) -> bool:
    """Whether whatever can follow `other`, in the same state, can follow `entry` too."""
    forced, observers, optional = masks
    done, absorbed, _ = entry
    differs = done ^ other[0]
    return not (
        other[1] & ~(absorbed | done & observers)
        or differs & forced & ~absorbed
        or other[0] & differs & observers
        or done & differs & optional
    )


def fewest_used(groups: Groups, width: int, optional: int) -> Groups:
    """The `width` configurations that used up the fewest optional operations."""
    ranked = sorted(
        ((entry[0] & optional).bit_count(), state, place)
        for state, entries in groups.items()
        for place, entry in enumerate(entries)
    )
    kept: Groups = {}
    for _, state, place in ranked[:width]:
        kept.setdefault(state, []).append(groups[state][place])
    return kept
