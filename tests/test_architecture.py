"""The floors of docs/ARCHITECTURE.md: who may import whom, checked on the source itself."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.paths import ROOT, parsed

FOLDERS = ("raftlog", "metadata", "broker", "client", "pipeline", "linearizability", "benchmarks")

# Longest prefix wins. A module may import modules of a lower floor, or of its own part.
FLOORS: dict[str, int] = {
    "raftlog": 0,  # the package root: a version number
    "raftlog.wire": 0,
    "raftlog.raft.core": 0,
    "raftlog.linearizability.checker": 0,
    "raftlog.linearizability.report": 1,
    "raftlog.metadata": 1,
    "raftlog.client.core": 1,
    "raftlog.broker.core": 2,
    "raftlog.raft": 3,
    "raftlog.client": 3,
    # Within the broker's shell, from the disk up to the process.
    "raftlog.broker.config": 3,
    "raftlog.broker.ports": 3,
    "raftlog.broker.store": 4,
    "raftlog.broker.descriptors": 5,
    "raftlog.broker.platform": 5,
    "raftlog.broker.runtime": 6,
    "raftlog.broker.server": 6,
    "raftlog.broker.api": 7,
    "raftlog.broker": 8,
    "raftlog.pipeline": 9,
    "raftlog.linearizability": 9,
    "raftlog.cli": 9,
    "raftlog.demo": 9,
    "raftlog.testing": 9,
    "raftlog.__main__": 9,
    "benchmarks": 9,
}
# Drivers may use each other where one is built on the other.
DRIVER_FLOOR = 9

CORES = (
    "raftlog.wire",
    "raftlog.raft.core",
    "raftlog.metadata",
    "raftlog.client.core",
    "raftlog.broker.core",
    "raftlog.linearizability.checker",
    "raftlog.linearizability.report",
)
# What a core may never import: it does no I/O, reads no clock and starts no thread.
BANNED_IN_CORES = {"asyncio", "socket", "os", "time", "threading", "logging", "uvloop", "selectors", "random"}
# The checker is handed to other people's threads and files; these are its two edges with the world.
CORE_EXCEPTIONS = {
    ("raftlog.linearizability.checker.recorder", "threading"),
    ("raftlog.linearizability.checker.recorder", "time"),
    ("raftlog.linearizability.checker.budget", "time"),
}


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts[0] not in ("raftlog", "benchmarks"):
        parts.insert(0, "raftlog")
    return ".".join(parts)


def source_files() -> list[Path]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            # raftlog/broker and its like are links to folders that are walked on their own.
            if not any(parent.is_symlink() for parent in path.parents):
                found.append(path)
    return found


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """(module, line) for each import statement: at the head, in a function, or for the type checker alone."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            found.extend((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
    return found


MODULES = {module_name(path): path for path in source_files()}


def resolve(name: str) -> str | None:
    """The module of ours that `name` (a module, or a name in one) stands for."""
    while name:
        if name in MODULES:
            return name
        name = name.rpartition(".")[0]
    return None


def part_of(module: str) -> str:
    prefixes = [prefix for prefix in FLOORS if module == prefix or module.startswith(prefix + ".")]
    return max(prefixes, key=len)


def is_core(module: str) -> bool:
    return any(module == core or module.startswith(core + ".") for core in CORES)


def test_every_import_points_to_a_lower_floor_or_to_the_same_part() -> None:
    wrong = []
    for module, path in MODULES.items():
        part = part_of(module)
        for name, line in imports_of(path):
            target = resolve(name)
            if target is None or target == "raftlog":
                continue
            other = part_of(target)
            if other == part or FLOORS[other] < FLOORS[part]:
                continue
            if FLOORS[part] == FLOORS[other] == DRIVER_FLOOR:
                continue
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {part} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_the_client_and_the_broker_do_not_know_each_other() -> None:
    wrong = []
    for module, path in MODULES.items():
        for name, line in imports_of(path):
            sides = {module.split(".")[1] if "." in module else "", *name.split(".")[1:2]}
            if name.startswith("raftlog.") and sides == {"client", "broker"}:
                wrong.append(f"{path.relative_to(ROOT)}:{line}")
    assert not wrong, "\n".join(wrong)


def test_a_core_imports_nothing_that_does_io_or_reads_a_clock() -> None:
    wrong = []
    for module, path in MODULES.items():
        if not is_core(module):
            continue
        for name, line in imports_of(path):
            banned = name.split(".")[0]
            if banned in BANNED_IN_CORES and (module, banned) not in CORE_EXCEPTIONS:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: a core imports {banned}")
    assert not wrong, "\n".join(wrong)


def test_there_are_no_circles_between_files_not_even_for_the_type_checker() -> None:
    graph = {
        module: sorted({t for name, _ in imports_of(path) if (t := resolve(name)) and t != module})
        for module, path in MODULES.items()
    }
    done: set[str] = set()
    trail: list[str] = []

    def visit(module: str) -> None:
        if module in done:
            return
        assert module not in trail, "import cycle: " + " -> ".join([*trail[trail.index(module) :], module])
        trail.append(module)
        for target in graph[module]:
            visit(target)
        trail.pop()
        done.add(module)

    for module in graph:
        visit(module)


def test_every_module_says_what_it_knows() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if path.name != "__init__.py" and not ast.get_docstring(parsed(path))
    ]
    assert not silent, "modules without a docstring: " + ", ".join(silent)
