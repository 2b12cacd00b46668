"""The documents are true: tables are held against the code, links and paths lead somewhere."""

from __future__ import annotations

import importlib.util
import re

from raftlog.broker.api.handlers import HANDLERS, served_apis
from raftlog.cli.main import main
from tests.paths import ROOT

DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
COLUMNS_MAX = 119
README_WORDS_MAX = 900


def api_table() -> str:
    lines = ["| key | API | versions | flexible from | handler |", "| --- | --- | --- | --- | --- |"]
    for api in served_apis():
        flexible = "" if api.flexible_from is None else f"v{api.flexible_from}"
        versions = f"{api.advertised_min} to {api.max_version}"
        lines.append(f"| {api.key} | {api.name} | {versions} | {flexible} | `broker/api/{HANDLERS[api.key]}.py` |")
    return "\n".join(lines)


def test_the_table_of_apis_is_what_the_broker_serves() -> None:
    text = (ROOT / "docs" / "PROTOCOL.md").read_text()
    assert api_table() in text, f"docs/PROTOCOL.md should hold:\n{api_table()}"


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for document in DOCS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)


def test_files_and_tests_that_documents_name_exist() -> None:
    missing = []
    folders = "tests|broker|metadata|raftlog|client|pipeline|linearizability|benchmarks|docs"
    pattern = re.compile(rf"`((?:{folders})/[\w./-]+?)(?:::(\w+))?`")
    for document in DOCS:
        for path, name in pattern.findall(document.read_text()):
            target = ROOT / path
            if not target.exists() or (name and f"def {name}(" not in target.read_text()):
                missing.append(f"{document.relative_to(ROOT)}: {path}{'::' + name if name else ''}")
    assert not missing, "\n".join(missing)


def test_a_walk_names_each_file_once_and_functions_that_are_in_it() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    walks = re.split(r"^#+ ", text[text.index("\n## Walks\n") : text.index("\n## Consensus\n")], flags=re.MULTILINE)
    wrong, rows = [], 0
    for walk in walks:
        title, below = walk.split("\n", 1)[0], ROOT / "linearizability" if "all below `lin" in walk else ROOT
        named: set[str] = set()
        for path, told in re.findall(r"^\| \d+ \| `([^`]+)`[^|]*\| (.*) \|$", walk, re.MULTILINE):
            rows += 1
            target, function = below / path, re.match(r"`(\w+)`[:,]", told)
            if path in named or not target.exists():
                wrong.append(f"{title}: {path} {'twice' if path in named else 'is not there'}")
            elif function and f"def {function[1]}(" not in target.read_text():
                wrong.append(f"{title}: {path} has no {function[1]}")
            named.add(path)
    assert rows > 80 and not wrong, "\n".join(wrong)


def test_the_readme_is_read_in_two_minutes_and_does_not_miscount() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= README_WORDS_MAX
    for name in ("README.md", "CHANGELOG.md"):
        counted = re.search(r"(\S+) APIs at every\s+version", (ROOT / name).read_text())
        assert counted and counted[1] == str(len(HANDLERS)), f"{name}: the broker serves {len(HANDLERS)} APIs"


def test_lines_of_documents_fit_a_window() -> None:
    long = []
    for document in DOCS:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            # A table's row cannot be broken, nor can one word.
            breaks = not line.startswith("|") and " " in line.strip()
            if breaks and len(line) > COLUMNS_MAX:
                long.append(f"{document.relative_to(ROOT)}:{number}")
    assert not long, f"longer than {COLUMNS_MAX} columns: {', '.join(long)}"


def test_make_help_names_every_target_and_no_other() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: help (.*)$", text, re.MULTILINE)[0].split())
    assert set(re.findall(r'"make ([a-z-]+)', text)) == targets


COMMAND = re.compile(r"`((?:raftlog|make|python) [^`\n]+)`|^ *\$? *((?:raftlog|make|python) .*)$", re.MULTILINE)


def command_exists(words: list[str]) -> bool:
    if words[0] == "make":
        return re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if words[:2] == ["python", "-m"]:
        return importlib.util.find_spec(words[2]) is not None
    nouns = [word for word in words[1:3] if re.fullmatch(r"[a-z]+", word)]
    return main([*nouns, "--help"]) == 0


def test_commands_that_documents_name_exist() -> None:
    wrong = []
    for document in DOCS:
        commands = {quoted or in_block for quoted, in_block in COMMAND.findall(document.read_text())}
        wrong += [f"{document.name}: {each}" for each in sorted(commands) if not command_exists(each.split())]
    assert not wrong, "\n".join(wrong)
