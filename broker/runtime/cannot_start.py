"""The one failure that a person who starts a broker has to hear of in words."""

from __future__ import annotations


class CannotStart(Exception):
    """The broker cannot start, or not go on; the text says why and what to do."""
