"""Takes the pictures for the documentation: `python -m tests.linearizability.checker.page.picture docs/images`.

The text on them is a history's of tests; they need to be taken again only when the page looks different.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from raftlog.linearizability.checker.page import render_html
from raftlog.linearizability.report import account_of, read_run, write_page
from tests.linearizability.checker.page import samples
from tests.linearizability.checker.page.browser import Browser, settle
from tests.linearizability.report.samples import write_run

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
                settle(browser)
                (folder / name).write_bytes(browser.screenshot())
            browser.resize(1440, 900)
            browser.colours("light")
            with page.open("w") as stream:
                write_page(stream, [account_of(read_run(write_run(Path(scratch) / "isr-of-one", 6_000)))])
            browser.open(page)
            settle(browser)
            (folder / "run-report.png").write_bytes(browser.screenshot())
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
