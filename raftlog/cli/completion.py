"""`raftlog completion`: what makes a shell complete commands, verbs and options; and the completing itself.

The shell calls `raftlog` with the line so far in the environment (argcomplete's protocol). The command that stands
there is run until it would parse its arguments, and its parser is asked instead.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from raftlog.cli.arguments import Parser, Verbs
from raftlog.cli.failure import CommandFailed

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")
_OF_FILES = ("FILE", "FOLDER", "DIRECTORY", "DIR", "PATH")

EPILOG = """\
Put it where your shell reads it when it starts:
  bash    eval "$(raftlog completion bash)"     in ~/.bashrc
  zsh     eval "$(raftlog completion zsh)"      in ~/.zshrc, behind compinit
  fish    raftlog completion fish | source      in ~/.config/fish/config.fish"""


def run(arguments: list[str]) -> int:
    parser = Parser(prog="raftlog completion", description="Print what makes a shell complete commands.", epilog=EPILOG)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    options = parser.parse(arguments)
    try:
        import argcomplete
    except ImportError:
        hint = "pip install 'raftlog[completion]', in the environment that `raftlog` is in"
        raise CommandFailed("completion needs the package argcomplete", hint) from None
    print(argcomplete.shellcode(["raftlog"], shell=options.shell))
    return 0


def complete(modules: Mapping[str, str], summaries: Mapping[str, str]) -> NoReturn:
    """Tell the shell what may stand where its cursor is, and end the process. `modules`: by the names of commands."""
    try:
        from argcomplete import split_line

        line, point = os.environ.get("COMP_LINE", ""), int(os.environ.get("COMP_POINT") or 0)
        _, _, _, words, _ = split_line(line, point)
        if len(words) < 2:
            _ask(_choice_of(summaries), 0)
        _patch(words)
        from importlib import import_module

        import_module(modules[words[1]]).run(words[2:])
    finally:
        os._exit(1)  # nothing fits, or the command would not say


def _patch(words: list[str]) -> None:
    """Parsers are asked in place of parsing, and nouns for their verbs."""
    choose = Verbs.choose

    def choose_or_complete(verbs: Verbs, arguments: list[str]) -> tuple[str, list[str]]:
        if not arguments:
            _ask(_choice_of(verbs.summaries), len(words) - 1)
        return choose(verbs, arguments)

    def ask(parser: Parser, arguments: list[str]) -> argparse.Namespace:
        _ask(parser, len(words) - len(arguments) - 1)

    Verbs.choose = choose_or_complete  # type: ignore[method-assign,assignment]
    Parser.parse = ask  # type: ignore[method-assign,assignment]


def _choice_of(summaries: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    choices = parser.add_subparsers()
    for name, summary in summaries.items():
        choices.add_parser(name, help=summary)
    return parser


def _ask(parser: argparse.ArgumentParser, before: int) -> NoReturn:
    """What this parser takes, which has so many words of the line before its own name."""
    from argcomplete import autocomplete

    os.environ["_ARGCOMPLETE"] = str(before + 1)  # which word is the name of the program, counted from 1
    autocomplete(parser, default_completer=_files, exit_method=os._exit)
    os._exit(0)


def _files(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Files where one is wanted: names of topics and the like are not to be found there."""
    from argcomplete.completers import FilesCompleter

    return FilesCompleter()(prefix) if action.metavar in _OF_FILES else ()
