"""How a command says that it failed: what happened, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Collection


class CommandFailed(Exception):
    """A command could not do what it was asked; `hint` says what the user can do next, `code` is for programs."""

    def __init__(self, message: str, hint: str | None = None, *, code: str = "FAILED") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def report(self, *, as_json: bool) -> None:
        """Say it on standard error: one line of JSON for programs, or one or two lines for people."""
        if as_json:
            import json

            problem = {"code": self.code, "message": self.message, "hint": self.hint}
            print(json.dumps({"error": problem}), file=sys.stderr)
            return
        print(f"raftlog: {self.message}", file=sys.stderr)
        if self.hint:
            print(f"  {self.hint}", file=sys.stderr)


class UsageError(CommandFailed):
    """The command line itself is wrong."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint, code="USAGE")


SHORT_FORM_MIN = 3
"""So many letters are taken for the beginning of a word."""


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that `word` was probably meant to be, if any is close."""
    from difflib import get_close_matches

    longer = [each for each in known if len(word) >= SHORT_FORM_MIN and each.startswith(word)]
    if len(longer) == 1:
        return longer[0]
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return close[0] if close else None
