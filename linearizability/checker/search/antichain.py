"""Sets of configurations in which none makes another superfluous.

A configuration is a state of the object and two masks over the operations still open. `done` has those placed for
good. `absorbed` has those that may have been placed just before the last constant call, unseen: each of them can
still be counted as placed there or be placed later, so an absorbed one is better than a placed and better than an
untouched one. An observer is best placed, then absorbed; an operation of unknown outcome best absorbed, then untouched.

So that two configurations are compared by one operation on whole numbers, each has a merit: two bits for each open
operation, chosen such that one makes another superfluous exactly when it has all bits of the other's merit.

    operation              untouched   placed   absorbed
    must be placed         01          10       11
    observer               00          11       01
    of unknown outcome     01          00       11
"""

from __future__ import annotations

from typing import Any, TypeAlias

# How a configuration came about, newest first: what went before, the tag of the operation placed, the number of the
# state after it, and the tag of the operation whose return asked for it. The state -1 stands for an operation that
# is counted as placed just before the last constant call.
Trace: TypeAlias = "tuple[Trace | None, Any, int, Any]"
Entry: TypeAlias = "tuple[int, int, Trace | None]"  # done, absorbed, and the trace if it is kept
Groups: TypeAlias = dict[int, list[Entry]]  # by the number of the state
# The same while it grows: the entries' merits, in the same order, none as long as there is one entry only.
Growing: TypeAlias = "dict[int, tuple[list[int], list[Entry]]]"


# What it takes to tell merits: the bits of the open operations that are no observers, the bits of those that are not of
# unknown outcome, and more than the number of the highest bit.
Masks: TypeAlias = tuple[int, int, int]


def masks_of(live: int, observers: int, optional: int) -> Masks:
    """The masks when the bits in `live` are of open operations."""
    return live & ~observers, live & ~optional, live.bit_length()


def add(groups: Growing, state: int, entry: Entry, masks: Masks) -> bool:
    """Add a configuration unless one there makes it superfluous; drop those it makes superfluous.

    Only the bits of operations that are open are set in it.
    """
    found = groups.get(state)
    if found is None:
        groups[state] = ([], [entry])
        return True
    merits, entries = found
    done, absorbed, _ = entry
    changing, certain, width = masks
    if not merits:
        its_done, its_absorbed, _ = entries[0]
        if its_done == done and its_absorbed == absorbed:
            return False
        merits.append((its_done ^ changing | its_absorbed) | (its_done & certain | its_absorbed & changing) << width)
    own = (done ^ changing | absorbed) | (done & certain | absorbed & changing) << width
    beaten = False
    for other in merits:
        both = own | other
        if both == other:
            return False
        if both == own:
            beaten = True
    if beaten:
        places = [place for place, other in enumerate(merits) if own | other != own]
        merits[:] = [merits[place] for place in places]
        # A new list: somebody may be walking over the old one.
        groups[state] = (merits, [entries[place] for place in places])
        entries = groups[state][1]
    merits.append(own)
    entries.append(entry)
    return True


def settled(groups: Growing) -> Groups:
    """The groups, once nothing more is added."""
    return {state: entries for state, (_, entries) in groups.items()}


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
