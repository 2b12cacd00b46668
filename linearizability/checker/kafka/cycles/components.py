"""Strongly connected components: Tarjan's algorithm without recursion.

R. Tarjan, Depth-first search and linear graph algorithms, SIAM J. Comput. 1(2), 1972.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def components(count: int, neighbours: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The strongly connected components of the nodes 0 … count - 1.

    `neighbours[node]` are the nodes that its edges lead to. A component comes after all those that it leads to.
    """
    above = count  # leads to all others, and nothing to it
    index = [0] * count + [1]  # 0: not visited, else the order of discovery from 1
    low = [0] * count + [1]
    stack: list[int] = []
    finished = bytearray(count)
    found = 1
    path = [above]
    pending: list[Iterator[int]] = [iter(range(count))]
    while True:
        node = path[-1]
        for other in pending[-1]:
            if not index[other]:
                found += 1
                index[other] = low[other] = found
                stack.append(other)
                path.append(other)
                pending.append(iter(neighbours[other]))
                break
            if not finished[other] and index[other] < low[node]:
                low[node] = index[other]
        else:
            if node == above:
                return
            path.pop()
            pending.pop()
            if low[node] < low[path[-1]]:
                low[path[-1]] = low[node]
            if low[node] == index[node]:
                yield _unwind(stack, node, finished)


def _unwind(stack: list[int], node: int, finished: bytearray) -> list[int]:
    """Take everything down to `node` off the stack, and mark it as finished."""
    place = len(stack) - 1
    while stack[place] != node:
        place -= 1
    component = stack[place:]
    del stack[place:]
    for member in component:
        finished[member] = 1
    return component
