"""Reads a page as a browser does, without running it: its elements, and the data it carries."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any


class PageReader(HTMLParser):
    """Collects every element with its attributes, and the text of each script and style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            tag, before = self.texts[-1]
            self.texts[-1] = (tag, before + data)

    def text_of(self, tag: str) -> list[str]:
        return [text for own, text in self.texts if own == tag]


def data_of(page: str) -> dict[str, Any]:
    """The data block as the script reads it."""
    begin = '<script type="application/json" id="data">'
    assert page.count(begin) == 1, "one block of data"
    data = json.loads(page.partition(begin)[2].partition("</script>")[0])
    assert isinstance(data, dict)
    return data


def column_of(data: dict[str, Any], name: str) -> list[Any]:
    """A column with one value an operation, whichever way it is written."""
    column = data[name]
    if isinstance(column, dict):
        return [column["all"]] * int(data["count"])
    assert isinstance(column, list)
    return column
