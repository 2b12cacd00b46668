"""The page: one HTML file that holds everything it needs and asks for nothing.

Three things keep a hostile history harmless. Data are JSON in a block that no browser executes, with every `<`, `>`
and `&` written as an escape, so that no text can end the block. The script puts text on the page only as text. And
the page forbids itself, by a policy in its head, any script but its own and any connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import IO, Any, NamedTuple

from raftlog.linearizability.checker.page.encode import pieces
from raftlog.linearizability.checker.page.report import Report
from raftlog.linearizability.checker.page.text import render_text

STYLES = ("page.css",)
# In the order in which they are read; each uses only what stands before it when it is loaded.
SCRIPTS = (
    "base.js",
    "columns.js",
    "data.js",
    "layout.js",
    "order.js",
    "view.js",
    "theme.js",
    "draw.js",
    "marks.js",
    "overview.js",
    "search.js",
    "panel.js",
    "controls.js",
    "keys.js",
    "main.js",
)


def chunks(report: Report) -> Iterator[str]:
    """The page in pieces, all of them ASCII. Raises ValueError for an operation that the history lacks."""
    title = f"{report.status.value}: {report.title}" if report.title else f"{report.status.value} history"
    yield from document(title, _assets(), _data(report))


def _data(report: Report) -> Iterator[str]:
    yield "{"
    for name, value in pieces(report):
        yield f"{as_json(name)}:{as_json(value)},\n"
    yield f'"report":{as_json(render_text(report))}}}'


class Assets(NamedTuple):
    """What a page is made of besides its data."""

    style: str
    script: str
    body: str


def document(title: str, assets: Assets, data: Iterable[str]) -> Iterator[str]:
    """A page in pieces, all of them ASCII; `data` are the pieces of its JSON, made by `as_json`."""
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{_digest(assets.script)}'; style-src 'sha256-{_digest(assets.style)}'"
    )
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_ascii(title)}</title>\n<style>{assets.style}</style>\n</head>\n{assets.body}\n"
        '<script type="application/json" id="data">\n'
    )
    yield from data
    yield f"</script>\n<script>{assets.script}</script>\n</html>\n"


def render_report(report: Report) -> str:
    """The page as one text."""
    return "".join(chunks(report))


def write_report(report: Report, stream: IO[str]) -> None:
    """Write the page piece by piece; opening, flushing and closing the stream is the caller's business."""
    for chunk in chunks(report):
        stream.write(chunk)


def as_json(value: Any) -> str:
    """A value for the page's block of data: nothing in it can end the block."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _ascii(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _assets() -> Assets:
    own = __package__
    return assets_of([(own, name) for name in STYLES], [(own, name) for name in SCRIPTS], (own, "body.html"))


def assets_of(
    styles: Sequence[tuple[str, str]], scripts: Sequence[tuple[str, str]], body: tuple[str, str]
) -> Assets:
    """Files of packages' folders `assets`, put together. The script is one function: its names are nobody else's."""

    def read(package: str, name: str) -> str:
        return resources.files(package).joinpath("assets", name).read_text(encoding="utf-8")

    style = "".join(read(*each) for each in styles)
    script = "".join(f"\n// {name}\n{read(package, name)}" for package, name in scripts)
    return Assets(style, f'\n(() => {{\n"use strict";\n{script}\n}})();\n', read(*body).strip())
