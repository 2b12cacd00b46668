"""The page in a real browser: what a reader sees, does, and is protected from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.linearizability.checker.page import render_html, render_report
from tests.linearizability.checker.page import samples
from tests.linearizability.checker.page.browser import Browser, missing, settle, text, texts

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

ENTER, ESCAPE, SHIFT = "\ue007", "\ue00c", "\ue008"

FRAMES = """
const [frames, move] = arguments;
const canvas = document.getElementById("canvas");
const box = canvas.getBoundingClientRect();
const before = window.requestAnimationFrame;
let drawn = 0;
window.requestAnimationFrame = (draw) => before.call(window, (time) => {
  draw(time);
  drawn++;
});
return new Promise((done) => {
  let frame = 0;
  const next = () => {
    if (frame++ === frames) {
      window.requestAnimationFrame = before;
      done(drawn);
      return;
    }
    const forth = frame < frames / 2 ? 1 : -1;
    const wheel = move === "zoom" ? {deltaY: -60 * forth} : {deltaX: 40 * forth};
    const place = {clientX: box.x + 500, clientY: box.y + 300, cancelable: true};
    canvas.dispatchEvent(new WheelEvent("wheel", {...place, ...wheel}));
    before.call(window, next);
  };
  next();
});
"""

Opener = Callable[..., Browser]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def show(window: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens a page; at the end the browser must have had nothing to complain of."""

    def opened(page: str, fragment: str = "") -> Browser:
        path = tmp_path / "page.html"
        path.write_text(page)
        window.colours("light")
        window.open(path, fragment)
        window.run("localStorage.clear()")
        return window

    yield opened
    assert window.complaints() == []


def press(browser: Browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


def search_for(browser: Browser, query: str) -> str:
    browser.run(
        "const box = document.getElementById('query'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))",
        query,
    )
    return text(browser, "#matches")


def colours_of(browser: Browser) -> list[Any]:
    """The canvas' colours, and how many pixels have each, the most frequent first."""
    settle(browser)
    counted = browser.run(
        """
        const canvas = document.getElementById("canvas");
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
        copy.drawImage(canvas, 0, 0);
        const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
        const counts = new Map();
        for (let i = 0; i < data.length; i += 4) {
          const colour = `${data[i]},${data[i + 1]},${data[i + 2]}`;
          counts.set(colour, (counts.get(colour) ?? 0) + 1);
        }
        return [...counts].sort((one, other) => other[1] - one[1]);
        """
    )
    assert isinstance(counted, list)
    return counted


@pytest.fixture(scope="module")
def stale() -> str:
    return render_html(*samples.stale_read())


@pytest.fixture(scope="module")
def long_page() -> str:
    return render_html(*samples.with_wrong_read(100_000))


def test_it_opens_at_the_witness_with_the_reason_in_words(show: Opener, stale: str) -> None:
    browser = show(stale)
    assert text(browser, "#status") == "Invalid"
    assert text(browser, "#words").startswith("The read by process 4 returned 2, although")
    assert texts(browser, "#scope [aria-pressed=true]") == ["Witness 5"]
    assert texts(browser, ".refusals .chip") == ["read() -> 2"]
    assert texts(browser, ".refusals .why") == ["answered 2, but the register holds 3"]
    assert texts(browser, ".steps .chip") == ["write(1)", "cas([1, 2]) -> True", "write(3)", "read() -> 3"]
    refused = "200,32,47"
    assert refused in [colour for colour, _ in colours_of(browser)], "the refused operation is drawn in red"


def test_a_hostile_history_runs_nothing_and_is_shown_as_it_is(show: Opener) -> None:
    browser = show(render_html(*samples.hostile()))
    for keys in ("a", "j", "n", "t", "p"):
        browser.keys(keys)
    press(browser, "[data-sheet=parts]")
    press(browser, "[data-sheet=order]")
    press(browser, "[data-sheet=text]")
    browser.click(500, 400)
    settle(browser)
    assert browser.alert() is None
    assert browser.run("return window.broken ?? null") is None
    assert browser.run("return document.querySelectorAll('img, svg, iframe, object, b b').length") == 0
    assert browser.run("return document.scripts.length") == 2
    assert "<img src=x" in text(browser, "#words")


def test_even_a_script_that_got_in_would_not_run_nor_reach_the_network(
    window: Browser, stale: str, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(stale)
    window.open(path)
    window.run(
        """
        const script = document.createElement("script");
        script.textContent = "window.broken = 'script'";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=\\"window.broken = 'img'\\">");
        """
    )
    fetched = window.run("return fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => String(error))")
    assert window.run("return window.broken ?? null") is None
    assert "Failed to fetch" in fetched
    assert any("Content Security Policy" in complaint for complaint in window.complaints())


def test_the_page_asks_for_nothing_but_itself(show: Opener, stale: str) -> None:
    browser = show(stale)
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_keys_walk_along_the_order_and_between_scopes(show: Opener, stale: str) -> None:
    browser = show(stale)
    browser.keys("j")
    assert text(browser, "#card b") == "write(1)"
    browser.keys("j")
    assert text(browser, "#card b") == "cas([1, 2]) -> True"
    browser.keys("k")
    assert text(browser, "#card b") == "write(1)"
    browser.keys("a")
    assert texts(browser, "#scope [aria-pressed=true]") == ["All 9"]
    browser.keys("\ue014")  # right: the next operation of the same client
    assert text(browser, "#card b") == "write(3)"
    browser.keys("\ue015")  # down: the next client
    assert text(browser, "#card b") == "write(7) -> ?"
    browser.keys(ESCAPE)
    assert "Select an operation" in text(browser, "#card")
    browser.keys("?")
    assert "Keys and signs" in text(browser, "#help")
    browser.keys(ESCAPE)
    assert not browser.run("return document.getElementById('help').open")


def test_the_card_tells_states_before_and_after_times_and_what_it_meets(show: Opener, stale: str) -> None:
    browser = show(stale)
    browser.keys("a", "j", "j", "j")
    card = text(browser, "#card")
    assert "read() -> 2" in card and "process 3 · operation #3" in card
    assert "10.0 ms – 15.0 ms · took 5 ms" in card
    assert "before\nholds 2" in card and "after\nholds 2" in card
    assert texts(browser, "#card .chip") == ["write(7) -> ?", "cas([1, 2]) -> True"]


def test_a_click_selects_what_was_drawn_there(show: Opener, stale: str) -> None:
    browser = show(stale)
    settle(browser)
    browser.click(700, 504)  # the refused read lies in the last row
    assert text(browser, "#card b") == "read() -> 2"
    assert "#operation=7" in browser.run("return location.hash")
    browser.click(300, 700)
    assert "Select an operation" in text(browser, "#card")


def test_a_link_leads_to_its_operation(show: Opener, stale: str) -> None:
    browser = show(stale, "#operation=1")
    assert text(browser, "#card b") == "write(7) -> ?"
    assert texts(browser, "#scope [aria-pressed=true]") == ["All 9"]


def test_search_finds_words_values_fields_and_their_opposites(show: Opener, stale: str) -> None:
    browser = show(stale)
    browser.keys("a")
    assert search_for(browser, "read") == "4"
    assert search_for(browser, "read process:3") == "2"
    assert search_for(browser, "function:read output:2") == "2"
    assert search_for(browser, "outcome:unknown") == "1"
    assert search_for(browser, "-outcome:ok") == "2"
    assert search_for(browser, "#4") == "1"
    assert search_for(browser, '"cas([1"') == "1"
    assert search_for(browser, "nowhere") == "none"
    search_for(browser, "write")
    browser.run("document.getElementById('query').focus()")
    browser.keys(ENTER)
    assert text(browser, "#matches") == "1 of 3" and text(browser, "#card b") == "write(1)"
    browser.keys(ENTER)
    assert text(browser, "#matches") == "2 of 3"
    press(browser, "#only")
    assert texts(browser, "#only[aria-pressed=true]") == ["Only"]
    browser.keys(ESCAPE)
    assert text(browser, "#matches") == "" and not texts(browser, "#only[aria-pressed=true]")


def test_keys_can_be_chosen_and_the_bad_ones_come_first(show: Opener) -> None:
    browser = show(render_html(*samples.with_wrong_read(2_000, keys=12)))
    browser.keys("p")
    entries = texts(browser, "#part-list .entry bdi")
    assert len(entries) == 12
    bad = browser.run("return document.querySelector('#part-list .dot.invalid').nextSibling.innerText")
    assert entries[0] == bad
    browser.run("document.getElementById('part-query').value = 'key-7'")
    browser.run("document.getElementById('part-query').dispatchEvent(new Event('input'))")
    assert texts(browser, "#part-list .entry bdi") == ["key-7"]
    browser.keys(ENTER)
    assert text(browser, "#part").startswith("key key-7")
    assert search_for(browser, "key:key-7") == search_for(browser, "-key:key-3")
    browser.keys(ESCAPE)


def test_findings_number_their_operations_and_can_be_changed(show: Opener) -> None:
    browser = show(render_report(samples.findings()))
    assert texts(browser, "#scope button") == ["Finding 1", "All 5"]
    assert texts(browser, ".possible.chosen .after") == ["producer-b", "consumer-2", "consumer-1"]
    press(browser, ".possible:not(.chosen) .state")
    assert texts(browser, "#scope [aria-pressed=true]") == ["Finding 2"]
    assert "consumer-1 answered no records." in text(browser, ".possible.chosen")
    browser.keys("a")
    assert texts(browser, "#scope [aria-pressed=true]") == ["All 5"]
    press(browser, "#scope button")
    assert texts(browser, "#scope [aria-pressed=true]") == ["Finding 2"]


def test_colours_follow_the_system_until_the_reader_chooses(show: Opener, stale: str) -> None:
    browser = show(stale)
    assert colours_of(browser)[0][0] == "255,255,255"
    browser.colours("dark")
    assert colours_of(browser)[0][0] == "17,21,27"
    browser.keys("d")
    assert colours_of(browser)[0][0] == "255,255,255"
    browser.colours("light")
    browser.keys("d")
    assert colours_of(browser)[0][0] == "17,21,27"
    browser.keys("d")


def test_the_text_form_is_there_to_be_copied(show: Opener, stale: str) -> None:
    browser = show(stale)
    press(browser, "[data-sheet=text]")
    shown = text(browser, "#sheet pre")
    assert "├ ✕ read() -> 2" in shown and shown.startswith("INVALID")
    browser.run(
        """
        window.copied = [];
        Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => window.copied.push(text)}});
        """
    )
    browser.keys("c", "j")
    press(browser, "#card button")
    report, line = browser.run("return window.copied")
    assert report.startswith("INVALID") and report.endswith("holds 3\n")
    assert line == (
        '{"type":"operation","process":0,"function":"write","input":1,"output":null,'
        '"call":0,"return":4000000,"outcome":"ok"}\n'
    )


@pytest.mark.parametrize("sample", ["undecided", "empty", "valid"])
def test_verdicts_without_a_witness_open_as_well(show: Opener, sample: str) -> None:
    verdict, history = samples.undecided() if sample == "undecided" else samples.register_run(50 * (sample == "valid"))
    browser = show(render_html(verdict, history))
    assert text(browser, "#status").lower() == verdict.status.value
    assert bool(texts(browser, "#nothing:not([hidden])")) == (len(history) == 0)
    browser.keys("a", "0", "t", "j", "z", "+", "-", "h", "l", "o", "x", "w", "[", "n")


def test_a_hundred_thousand_operations_stay_smooth(show: Opener, long_page: str) -> None:
    browser = show(long_page)
    assert text(browser, "#card")
    browser.keys("a", "0")
    for move in ("pan", "zoom"):
        before = browser.processor_seconds()
        drawn = browser.run(FRAMES, 50, move)
        assert drawn >= 40
        took = (browser.processor_seconds() - before) / drawn
        # A frame has 16.7 ms, of which its script takes 4 to 10 without a graphics card.
        assert took < 0.03, f"{move}: {1000 * took:.1f} ms a frame"
    before = browser.processor_seconds()
    assert search_for(browser, "write(3)").replace(",", "").isdigit()
    assert browser.processor_seconds() - before < 1


def test_zoomed_out_every_client_shows_its_operations_and_the_refusal(show: Opener, long_page: str) -> None:
    browser = show(long_page)
    browser.keys("a", "0")
    counted = dict(colours_of(browser))
    assert counted.get("200,32,47", 0) > 200, "the refusal stands out among 100,000 operations"
    ground = counted["255,255,255"]
    browser.keys("\ue010")  # to the end: still drawn
    assert dict(colours_of(browser))["255,255,255"] == pytest.approx(ground, rel=0.2)
