"""Takes the pictures for the documentation: `python -m tests.linearizability.checker.page.picture docs/images`.

The text on them is a history's of tests; they need to be taken again only when the page looks different.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from raftlog.linearizability.checker.page import render_html
from tests.linearizability.checker.page import samples
from tests.linearizability.checker.page.browser import Browser

PICTURES = {"light": "checker-page.png", "dark": "checker-page-dark.png"}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser(1280, 800)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            page = Path(scratch) / "page.html"
            page.write_text(render_html(*samples.stale_read()))
            for scheme, name in PICTURES.items():
                browser.colours(scheme)
                browser.open(page)
                browser.keys(*("jj" if scheme == "light" else "ajjj"))
                browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                (folder / name).write_bytes(browser.screenshot())
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
