"""The house's style, checked: file and function lengths, depth, parameters."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.paths import ROOT, parsed
from tests.test_architecture import MODULES

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
DEPTH_MAX = 3
POSITIONAL_PARAMETERS_MAX = 5

_NESTING = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match, ast.AsyncFor, ast.AsyncWith)


@cache
def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{path.relative_to(ROOT)}::{node.name}", node)
        for path in MODULES.values()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def depth_of(node: ast.AST) -> int:
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        # `elif` is an If in the else branch: no deeper for a reader.
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        own = 1 if isinstance(child, _NESTING) and not is_elif else 0
        deepest = max(deepest, own + depth_of(child))
    return deepest


TESTS = sorted((ROOT / "tests").rglob("*.py"))
# Data that tests of the folder above read; whole brokers and foreign clients have tests/system.
NO_MIRRORS = {
    "broker/core/replica/transcripts",
    "linearizability/harness/example",
    "linearizability/harness/example/logs",
    "metadata/transcripts",
}
WAITS = ROOT / "tests" / "waiting.py"
MAY_SLEEP = re.compile(r"\b(sleep|select)\(")
VIRTUAL_TIME = ROOT / "tests" / "linearizability" / "simulator"
"""Nothing there waits: time jumps to whatever comes next."""


def test_files_stay_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in [*MODULES.values(), *TESTS]}
    assert not {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}


def test_functions_stay_short() -> None:
    found = {}
    for name, node in functions():
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            found[name] = lines
    assert not found


def test_functions_stay_shallow() -> None:
    found = {name: depth for name, node in functions() if (depth := depth_of(node)) > DEPTH_MAX}
    assert not found


def test_invariants_fail_as_what_they_are() -> None:
    """A bare assert in `check_invariants` would be a failure of another kind, which nobody catches as a bug."""
    asserting = [
        name
        for name, node in functions()
        if name.endswith("::check_invariants") and not name.startswith("linearizability/checker/")
        if any(isinstance(each, ast.Assert) for each in ast.walk(node))
    ]
    assert not asserting


def test_functions_take_few_positional_parameters() -> None:
    found = {}
    for name, node in functions():
        arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
        if len(arguments) > POSITIONAL_PARAMETERS_MAX:
            found[name] = len(arguments)
    assert not found


def is_a_sleep(node: ast.Call) -> bool:
    """`sleep` of more than nothing, and what stands for it: a select on nothing."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "select" and len(node.args) > 3:
        return all(isinstance(one, ast.List) and not one.elts for one in node.args[:3])
    is_a_turn = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    return name == "sleep" and not is_a_turn


def test_no_test_sleeps() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in TESTS
        if path != WAITS and VIRTUAL_TIME not in path.parents and MAY_SLEEP.search(path.read_text())
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and is_a_sleep(node)
    ]
    assert not wrong, f"wait for a condition (tests/waiting.py) instead of for time: {wrong}"


def test_nobody_waits_with_what_forgets_a_cancellation() -> None:
    """`asyncio.wait_for` of Python 3.11 does when the awaited one is done then; `asyncio.timeout` does not."""
    wrong = [str(path.relative_to(ROOT)) for path in MODULES.values() if "asyncio.wait_for(" in path.read_text()]
    assert not wrong, wrong


def test_no_path_of_a_machine_and_no_registry_host_is_in_the_source() -> None:
    banned = ["/" + "work/", "py" + "pi.org", "registry." + "npmjs", "python" + "hosted"]
    suffixes = {".py", ".md", ".toml", ".txt", ".yml", ".sh", ".json", ".js", ".html", ""}
    # Not into virtual environments and caches: they hold a hundred times as many files.
    ours = [top for top in sorted(ROOT.iterdir()) if top.name == ".ci" or not top.name.startswith((".", "build"))]
    wrong = []
    for path in [file for top in ours for file in ([top] if top.is_file() else sorted(top.rglob("*")))]:
        if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text(errors="replace")
            wrong += [f"{path.relative_to(ROOT)}: {word}" for word in banned if word in text]
    assert not wrong, "\n".join(wrong)


def test_folders_of_tests_mirror_those_of_the_source() -> None:
    tests = ROOT / "tests"
    files = [path for path in tests.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    folders = {str(path.parent.relative_to(tests)) for path in files if path.parent != tests}
    ours = {name for name in folders if name.split("/")[0] != "system"} - NO_MIRRORS
    strangers = sorted(name for name in ours if not any((ROOT / name).glob("*.py")))
    assert not strangers, f"no folder of the source has this name: {strangers}"
    assert folders >= NO_MIRRORS, f"gone: {sorted(NO_MIRRORS - folders)}"


def test_the_tree_is_where_it_should_be() -> None:
    for folder in ("broker", "metadata", "client", "pipeline", "linearizability"):
        link = ROOT / "raftlog" / folder
        assert link.is_symlink() and link.resolve() == (ROOT / folder).resolve(), f"raftlog/{folder} is not a link"
    assert Path(ROOT / "raftlog" / "py.typed").exists()
