"""Where replicas should lie: a plan that spreads partitions over brokers and moves as little as it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Partition = tuple[str, int]


class ImpossiblePlan(ValueError):
    """There are too few brokers for the replicas wanted."""


def plan(
    current: Mapping[Partition, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
) -> dict[Partition, list[int]]:
    """Replicas of each partition on the brokers of `racks`, the first one being the preferred leader.

    Replicas that lie on these brokers stay where they are as far as the numbers of replicas on two brokers then differ
    by one at most; racks are kept apart where there are enough. Raises ImpossiblePlan.
    """
    held: Counter[int] = Counter(dict.fromkeys(racks, 0))
    wanted: dict[Partition, list[int]] = {}
    for partition, replicas in sorted(current.items()):
        factor = len(replicas) if replication_factor is None else replication_factor
        if factor > len(racks):
            raise ImpossiblePlan(f"{factor} replicas cannot lie on {len(racks)} brokers")
        kept = [broker for broker in replicas if broker in racks][:factor]
        wanted[partition] = kept
        held.update(kept)
    for partition, replicas in wanted.items():
        factor = len(current[partition]) if replication_factor is None else replication_factor
        while len(replicas) < factor:
            broker = _best(replicas, racks, held)
            replicas.append(broker)
            held[broker] += 1
    _level(wanted, racks, held)
    _spread_leaders(wanted)
    return wanted


def _best(replicas: Sequence[int], racks: Mapping[int, str | None], held: Counter[int]) -> int:
    """The broker for one more replica: in a rack of its own if there is one, then the one that holds least."""
    used = {racks[broker] for broker in replicas}

    def cost(broker: int) -> tuple[bool, int, int]:
        return racks[broker] is not None and racks[broker] in used, held[broker], broker

    return min((broker for broker in racks if broker not in replicas), key=cost)


def _level(wanted: dict[Partition, list[int]], racks: Mapping[int, str | None], held: Counter[int]) -> None:
    """Move single replicas from the fullest broker to the emptiest until they differ by one at most."""
    for _ in range(sum(held.values())):
        fullest = max(held, key=lambda broker: (held[broker], -broker))
        emptiest = min(held, key=lambda broker: (held[broker], broker))
        if held[fullest] - held[emptiest] <= 1:
            return
        for replicas in wanted.values():
            others = {racks[broker] for broker in replicas if broker != fullest}
            crowded = racks[emptiest] is not None and racks[emptiest] in others
            if fullest in replicas and emptiest not in replicas and not crowded:
                replicas[replicas.index(fullest)] = emptiest
                held[fullest] -= 1
                held[emptiest] += 1
                break
        else:
            return


def _spread_leaders(wanted: dict[Partition, list[int]]) -> None:
    led: Counter[int] = Counter()
    for replicas in wanted.values():
        # The first one stays the preferred leader unless another leads clearly less.
        best = min(replicas, key=lambda broker: (led[broker], replicas.index(broker)))
        replicas.remove(best)
        replicas.insert(0, best)
        led[best] += 1
