// The keyboard, and the page that tells about it.

const KEYS = [
  ["w", "the witness alone", () => toldWitness() && focusOn("witness")],
  ["f", "the finding shown last", () => data.findings.length && focusOn(ui.finding)],
  ["a", "all operations", () => focusOn(null)],
  ["k / j", "one step back / on in the order", null],
  ["[ / ]", "the state before / after among those possible", null],
  ["\u2190 / \u2192", "the operation before / after, of the same client", null],
  ["\u2191 / \u2193", "the client above / below", null],
  ["+ / \u2212", "zoom in / out (the wheel does, too)", null],
  ["0", "everything in view", () => fitAll()],
  ["z", "zoom to the selected operation", () => ui.selected >= 0 && zoomTo(ui.selected)],
  ["h / l", "move left / right (or drag, or Shift and the wheel)", null],
  ["/", "search", () => byId("query").focus()],
  ["n / N", "the match after / before", null],
  ["m", "matches only", () => ui.match && toggle("only")],
  ["p", "choose a key or partition", () => openParts()],
  ["t", "even scale or clock", () => setScale(ui.scale === "even" ? "clock" : "even")],
  ["o", "the order, on or off", () => !byId("order").disabled && toggle("order")],
  ["x", "failed operations, on or off", () => toggle("failed")],
  ["c", "copy the text form", () => copyReport()],
  ["d", "colours: as the system, light, dark", () => nextTheme()],
  ["Escape", "let go", null],
];

const SIGNS = [
  ["box", "an operation, from its call to its return: it took effect somewhere inside"],
  ["box unknown", "unknown outcome: it may have happened, or may yet happen at any later time"],
  ["box failed", "failed: it did not happen"],
  ["point", "where it takes effect in the order shown, with its number; below it the state it leaves"],
  ["refused", "the next step that does not fit: what it answered is impossible in the state before"],
  ["line", "the return that no order survives"],
  ["core", "belongs to the witness"],
];

const MOVES = {
  j: () => stepOrder(1),
  k: () => stepOrder(-1),
  "[": () => stepPossible(-1),
  "]": () => stepPossible(1),
  ArrowLeft: () => stepInRow(-1),
  ArrowRight: () => stepInRow(1),
  ArrowUp: () => stepRow(-1),
  ArrowDown: () => stepRow(1),
  "+": () => zoomAt(view.width / 2, 1.4),
  "=": () => zoomAt(view.width / 2, 1.4),
  "-": () => zoomAt(view.width / 2, 1 / 1.4),
  h: () => move(-0.25),
  l: () => move(0.25),
  n: () => stepMatch(true),
  N: () => stepMatch(false),
  Home: () => moveToEdge(false),
  End: () => moveToEdge(true),
  PageUp: () => scrollRows(-1),
  PageDown: () => scrollRows(1),
  "?": () => showHelp(),
  Escape: () => letGo(),
};

for (const [key, , action] of KEYS) if (action) MOVES[key] = action;

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const inField = event.target instanceof HTMLInputElement;
  if (inField) {
    if (event.key === "Escape") leaveField(event.target);
    else if (event.key === "Enter" && event.target.id === "query") stepMatch(!event.shiftKey);
    else if (event.key === "Enter") byId("part-list").querySelector("button")?.click();
    else return;
    event.preventDefault();
    return;
  }
  const scrolls = /^(Arrow|Page|Home|End)/.test(event.key) && event.target.closest?.("#sheet, #card, #parts");
  if (scrolls || !Object.hasOwn(MOVES, event.key)) return;
  MOVES[event.key]();
  event.preventDefault();
}

function leaveField(field) {
  if (field.id === "part-query") closeParts();
  else {
    field.value = "";
    field.dispatchEvent(new Event("input"));
    canvas.focus();
  }
}

function letGo() {
  closeParts();
  if (ui.selected >= 0) select(-1);
  else if (ui.match) {
    byId("query").value = "";
    byId("query").dispatchEvent(new Event("input"));
  }
}

function move(part) {
  view.left += (part * view.width) / view.zoom;
  redraw();
}

function moveToEdge(last) {
  view.left = view.layout.origin + (last ? view.layout.width : -MARGIN / view.zoom);
  redraw();
}

function scrollRows(pages) {
  view.top += pages * view.rowsHeight * 0.9;
  redraw();
}

// Without a selection the walk begins at the first or the last step.
function stepOrder(by) {
  const { placed } = view;
  if (!placed) return;
  const at = ui.selected >= 0 ? placed.numberOf[ui.selected] : -1;
  const from = at >= 0 ? at + by : by > 0 ? 0 : placed.operations.length - 1;
  select(placed.operations[clamp(from, 0, placed.operations.length - 1)]);
}

function stepPossible(by) {
  const total = toldWitness()?.possible.length ?? 0;
  if (total > 1) choosePossible((ui.possible + by + total) % total);
}

function stepInRow(by) {
  const { layout } = view;
  if (ui.selected < 0 || !layout.mask[ui.selected]) {
    selectInView();
    return;
  }
  const row = layout.rows[layout.rowOf[ui.selected]].operations;
  const next = row[row.indexOf(ui.selected) + by];
  if (next !== undefined) select(next);
}

// The operation of the next row that is nearest in time.
function stepRow(by) {
  const { layout } = view;
  if (ui.selected < 0 || !layout.mask[ui.selected]) {
    selectInView();
    return;
  }
  const row = layout.rows[layout.rowOf[ui.selected] + by];
  if (!row) return;
  const wanted = (layout.start[ui.selected] + layout.end[ui.selected]) / 2;
  const place = lowerBoundBy(row.operations.length, (one) => layout.end[row.operations[one]], wanted);
  select(row.operations[Math.min(place, row.operations.length - 1)]);
}

function selectInView() {
  const { layout } = view;
  const found = layout.shown[lowerBoundBy(layout.shown.length, (place) => layout.start[layout.shown[place]], toPlace(0))];
  if (found !== undefined) select(found);
}

async function copyReport() {
  const done = await copyText(data.report);
  const button = byId("help-button");
  said(button, done);
}

function showHelp() {
  const help = byId("help");
  const rows = KEYS.map(([key, what]) =>
    make("tr", {}, make("th", {}, ...key.split(" / ").map((one) => make("kbd", {}, one))), make("td", {}, what)));
  const signs = SIGNS.map(([sign, what]) =>
    make("tr", {}, make("th", {}, make("span", { class: `sign ${sign}` })), make("td", {}, what)));
  help.replaceChildren(
    make("div", { class: "row" }, make("h2", {}, "Keys and signs"),
      make("button", { type: "button", onclick: () => help.close() }, "Close")),
    make("div", { class: "columns" },
      make("table", {}, ...rows),
      make("div", {}, make("table", {}, ...signs),
        make("p", {}, "Search: words that must all be there, in quotation marks to keep them together; ",
          make("code", {}, "process:3 key:x function:read outcome:unknown input:4 output:5 error:timeout line:120 #17"),
          "; a minus before a term turns it round."),
        make("p", {}, "Even scale: only the order of events counts, so that every label fits. Overlap on the page is overlap in time."))));
  help.showModal();
}
