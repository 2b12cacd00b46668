"""The page of a run in a real browser: it opens at what went wrong, and shows why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from raftlog.linearizability.report import Account, account_of, read_run, write_page
from tests.linearizability.checker.page.browser import Browser, missing, settle, text, texts
from tests.linearizability.checker.page.reading import PageReader, data_of
from tests.linearizability.report import samples

HOSTILE = "</script><img src=x onerror=alert(1)>"
ESCAPE = "\ue00c"

in_browser = pytest.mark.skipif(missing() is not None, reason=str(missing()))
Opener = Callable[[str], Browser]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Account:
    return account_of(read_run(samples.write_run(tmp_path_factory.mktemp("runs") / "broken", 1_500)))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Account:
    return account_of(read_run(samples.write_run(tmp_path_factory.mktemp("runs") / "clean", 20_000, broken=False)))


def page_of(*accounts: Account) -> str:
    stream = StringIO()
    write_page(stream, accounts)
    return stream.getvalue()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    browser = Browser(1440, 900)
    yield browser
    browser.close()


@pytest.fixture
def show(window: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens a page; at the end the browser must have had nothing to complain of."""

    def opened(page: str) -> Browser:
        path = tmp_path / "page.html"
        path.write_text(page)
        window.colours("light")
        window.open(path)
        settle(window)
        return window

    yield opened
    assert window.complaints() == []


def test_nothing_that_a_run_says_becomes_markup(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path / "hostile", 300)
    for name in ("run.json", "faults.jsonl"):
        told = (folder / name).read_text().replace("broker 1", HOSTILE).replace("append", HOSTILE)
        (folder / name).write_text(told)
    log = folder / "logs" / "broker-2.log"
    log.write_text(log.read_text().replace("unclean", HOSTILE))
    page = page_of(account_of(read_run(folder)))
    assert page.isascii() and HOSTILE not in page
    assert not set("<>&") & set(page.partition('id="data">')[2].partition("</script>")[0])
    assert HOSTILE in data_of(page)["report"]
    assert not {"img", "iframe"} & {tag for tag, _ in PageReader(page).elements}


@pytest.mark.long
@in_browser
def test_it_opens_at_the_gravest_error_with_its_faults_witness_and_log(show: Opener, broken: Account) -> None:
    browser = show(page_of(broken))
    assert text(browser, ".badge") == "Invalid"
    assert "acknowledged records were lost" in text(browser, ".lead")
    assert texts(browser, "#kinds [aria-pressed=true]") == [broken.errors[0].kind.name]
    faults = texts(browser, ".story .entry.fault b")
    assert faults == ["partition broker 1 | 2, 3", "kill broker 1 (leader of orders-0)"]
    assert any("the log end went back" in event for event in texts(browser, ".events .truncated"))
    assert [label.split("\n")[0] for label in texts(browser, ".witness .box .mark")] == ["1", "2"]
    assert "≠" in text(browser, ".matrix td.focus.conflict")
    assert "unclean election" in text(browser, ".lines .error")
    assert text(browser, ".story .command code") == broken.run.command
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.long
@in_browser
def test_keys_and_clicks_lead_from_error_to_error_and_to_operations(show: Opener, broken: Account) -> None:
    browser = show(page_of(broken))
    browser.keys("j")
    assert texts(browser, "#kinds [aria-pressed=true]") == [broken.errors[1].kind.name]
    first = text(browser, ".sentence")
    browser.keys("n")
    assert text(browser, "#which") == "2 / 12" and text(browser, ".sentence") != first
    assert browser.run("return location.hash") == "#run=0&error=1&example=1"
    browser.keys("o")
    assert text(browser, "#function") in {"send", "poll", "assign"}
    browser.run("document.querySelector('.witness .box').click()")
    assert "history.jsonl" in text(browser, "#card") and "send orders-0" in text(browser, "#card b")
    browser.keys(ESCAPE)
    assert browser.run("return document.getElementById('card').hidden")
    browser.keys("2")
    assert "without effect" in text(browser, ".entry.fault.idle")
    browser.keys("4")
    assert text(browser, "#sheet pre").startswith("INVALID  broken")
    browser.keys("?")
    assert "Keys and signs" in text(browser, "#help")


@pytest.mark.long
@in_browser
def test_two_runs_lie_side_by_side_on_one_axis(show: Opener, broken: Account, clean: Account) -> None:
    browser = show(page_of(broken, clean))
    assert texts(browser, ".verdict .badge") == ["Invalid", "Unknown"]
    widths = browser.run("return [...document.querySelectorAll('#stage canvas')].map((one) => one.clientWidth)")
    assert len(widths) == 2 and abs(widths[0] - widths[1]) <= 4
    assert texts(browser, "#sheet h3")[1].split() == ["B", "clean"]


@pytest.mark.long
@in_browser
def test_a_frame_of_many_operations_costs_little(show: Opener, clean: Account) -> None:
    browser = show(page_of(clean))
    browser.keys("0")
    before = browser.processor_seconds()
    frames = browser.run(
        """
        const canvas = document.querySelector("#stage canvas");
        const wheel = {clientX: 500, clientY: 400, cancelable: true};
        return new Promise((done) => {
          let frame = 0;
          const next = () => {
            if (frame++ === 40) done(frame);
            else {
              canvas.dispatchEvent(new WheelEvent("wheel", {...wheel, deltaY: frame < 20 ? -40 : 40}));
              requestAnimationFrame(next);
            }
          };
          next();
        });
        """
    )
    # A frame has 16.7 ms, of which 100,000 operations take 5 to 6 without a graphics card.
    assert (browser.processor_seconds() - before) / frames < 0.03
