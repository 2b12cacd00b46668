// The start: put the verdict at the top, open at the witness, and listen.

function showHeader() {
  const words = { valid: "Valid", invalid: "Invalid", unknown: "Unknown" };
  byId("status").textContent = words[data.status];
  byId("status").classList.add(data.status);
  byId("title").textContent = data.title;
  byId("title").hidden = !data.title;
  byId("facts").replaceChildren(...data.facts.map(([name, value]) =>
    make("li", {}, name ? `${visible(name)} ` : "", make("b", {}, visible(value)))));
  byId("words").textContent = data.words;
}

// What the colours and signs mean, as far as this history has them.
function showLegend() {
  const entry = (sign, text) => make("span", {}, make("i", { class: `sign ${sign}` }), make("bdi", {}, cut(text, 24)));
  const entries = data.functions.slice(0, 12).map((name, place) => entry(`hue hue${place % 6}`, name));
  if (data.outcome.includes(INFO)) entries.push(entry("box unknown", "unknown outcome"));
  if (data.outcome.includes(FAIL)) entries.push(entry("box failed", "failed"));
  if (data.parts.some((part) => part.order || part.witness)) entries.push(entry("point", "takes effect"));
  if (data.parts.some((part) => part.witness)) entries.push(entry("refused", "refused"), entry("core", "in the witness"));
  byId("legend").replaceChildren(...entries, make("span", { class: "spring" }),
    make("span", { class: "soft" }, "Wheel zooms, drag moves, ", make("kbd", {}, "?"), " for all keys"));
}

// The selected operation is kept in the address, so that a link leads to it.
function rememberPlace() {
  const wanted = ui.selected < 0 ? "" : `#operation=${ui.selected}`;
  if (location.hash === wanted) return;
  try {
    history.replaceState(null, "", wanted || location.pathname + location.search);
  } catch {
    // A page without an address of its own has nothing to remember in.
  }
}

function recallPlace() {
  const found = /^#operation=(\d+)$/.exec(location.hash);
  if (found && Number(found[1]) < data.count) choose(Number(found[1]));
}

function start() {
  useTheme(storedTheme());
  showHeader();
  showLegend();
  if (toldWitness() && ui.part >= 0) ui.focus = "witness";
  else if (data.findings.length) ui.focus = 0;
  if (ui.focus === 0) sheet = "findings";
  rebuild();
  measure();
  showControls();
  showPanel();
  showMatches();
  showOpening();
  listen();
  listenToOverview();
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", recallPlace);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    useTheme(theme);
    view.overview = null;
    redraw();
  });
  new ResizeObserver(() => {
    const untouched = isAsOpened();
    measure();
    if (untouched) showOpening();
    drawFrame();
  }).observe(canvas);
  recallPlace();
}

start();
