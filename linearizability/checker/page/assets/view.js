// What the reader chose and what follows from it: the shown operations, their layout, and the part of the line that is
// in view. Refuses to know how it is drawn; whoever changes something here calls `rebuild` or `redraw`.

const ui = {
  part: data.open,
  focus: null, // "witness", the number of a finding, or null for everything
  finding: 0, // the finding that was shown last
  scale: "even",
  order: true,
  failed: true,
  only: false,
  possible: 0, // which of the states before the refusal
  selected: -1,
  hovered: -1,
  match: null, // mask of the operations that the search found
};

const view = { left: 0, zoom: 1, top: 0, width: 800, height: 400, layout: null, placed: null, marks: null, matches: [] };

// The part whose witness is told: the chosen one, else the one that the page opened at.
function toldPart() {
  const part = ui.part >= 0 ? ui.part : data.parts.length === 1 ? 0 : data.open;
  return part >= 0 ? part : -1;
}

function toldWitness() {
  const part = toldPart();
  return part < 0 ? null : (data.parts[part].witness ?? null);
}

function toldPossible() {
  const witness = toldWitness();
  return witness ? (witness.possible[ui.possible] ?? null) : null;
}

function focused() {
  if (ui.focus === "witness") return toldWitness()?.operations ?? null;
  return ui.focus === null ? null : data.findings[ui.focus].operations;
}

function shownMask() {
  const mask = new Uint8Array(data.count);
  const focus = focused();
  if (focus) {
    for (const operation of focus) mask[operation] = 1;
    return mask;
  }
  const inSet = data.keySets.map((parts) => ui.part < 0 || parts.includes(ui.part));
  for (let i = 0; i < data.count; i++) mask[i] = inSet[data.keySet[i]] && (ui.failed || data.outcome[i] !== FAIL) ? 1 : 0;
  if (ui.only && ui.match) for (let i = 0; i < data.count; i++) mask[i] &= ui.match[i];
  return mask;
}

// The order to draw. Among only the witness it is the one that leads to the chosen possible state; among all
// operations of the part, the longest that was found there.
function shownOrder() {
  if (!ui.order || typeof ui.focus === "number") return null;
  if (ui.focus === null && ui.part < 0 && data.parts.length > 1) return null;
  const part = toldPart();
  if (part < 0) return null;
  const witness = toldWitness();
  const own = toldPossible()?.order ?? witness?.order ?? null;
  return (ui.focus === "witness" ? own : (data.parts[part].order ?? own)) ?? null;
}

// Marks that operations carry whatever is drawn: refused ones with the reason, the witness, the steps of a finding.
function collectMarks() {
  const marks = { refused: new Map(), core: new Set(), steps: new Map(), line: -1 };
  const tell = (part) => {
    const { witness } = data.parts[part];
    if (!witness) return;
    for (const operation of witness.operations) marks.core.add(operation);
    if (!marks.refused.has(witness.refused)) marks.refused.set(witness.refused, "");
  };
  if (ui.part < 0) data.parts.forEach((_, part) => tell(part));
  else tell(ui.part);
  const witness = toldWitness();
  if (witness && typeof ui.focus !== "number") {
    for (const [operation, reason] of toldPossible()?.refusals ?? []) marks.refused.set(operation, data.texts[reason]);
    marks.line = witness.refused;
  }
  if (typeof ui.focus === "number") {
    marks.refused.clear();
    marks.core.clear();
    data.findings[ui.focus].operations.forEach((operation, place) => {
      if (!marks.steps.has(operation)) marks.steps.set(operation, place + 1);
    });
  }
  return marks;
}

// What stands in an operation's box: among operations of several objects also which one it belongs to.
function labelOf(operation) {
  if (!view.mixed) return textOf(operation);
  const names = partsOf(operation).map(partLabel).join(", ");
  return `${cut(names, 16)}: ${textOf(operation)}`;
}

// How many characters the even scale makes room for: the label, or what is written below it.
function roomFor(operation) {
  const { placed, marks } = view;
  let length = labelOf(operation).length + (data.outcome[operation] === INFO ? 2 : 0);
  if (ui.focus === null) return length;
  const place = placed ? placed.numberOf[operation] : -1;
  if (place >= 0) length = Math.max(length, stateAfter(placed, place).length + 8);
  return Math.max(length, Math.min(marks.refused.get(operation)?.length ?? 0, 30));
}

// Between two points there is room for the state's name, if the points are few enough to be read one by one.
function pointRoom() {
  const { placed } = view;
  if (ui.focus === null || !placed || placed.states.length > 16) return POINT_ROOM;
  const longest = placed.states.reduce((most, text) => Math.max(most, data.texts[text].length), 0);
  // The state at first has only half of the room before the first point, and the margin.
  return clamp(Math.max(longest, data.texts[placed.before].length * 1.5 - 2) * 6.8 + 18, POINT_ROOM, 120);
}

function rebuild() {
  view.layout = makeLayout(shownMask());
  view.marks = collectMarks();
  view.mixed = ui.part < 0 && ui.focus !== "witness" && data.parts.filter((part) => part.status).length > 1;
  view.placed = placeOrder(view.layout, shownOrder());
  applyScale(view.layout, ui.scale, view.placed?.crowd ?? new Map(), roomFor, pointRoom());
  spreadPoints(view.layout, view.placed);
  view.matches = ui.match ? Array.from(view.layout.shown).filter((operation) => ui.match[operation]) : [];
  view.overview = null;
  forgetLanes();
}

function toPixel(x) {
  return (x - view.left) * view.zoom;
}

function toPlace(pixel) {
  return view.left + pixel / view.zoom;
}

const MARGIN = 24; // pixels left free on either side of everything

function fitZoom() {
  return Math.max(view.width - 2 * MARGIN, 50) / view.layout.width;
}

function zoomLimits() {
  const fit = fitZoom() * (ui.focus === null ? 1 : 0.7);
  return ui.scale === "even" ? [Math.min(fit, 1), Math.max(4, Math.min(fit, 6))] : [fit, Math.max(fit * 8, 60)];
}

function clampView() {
  const { layout } = view;
  const [least, most] = zoomLimits();
  view.zoom = clamp(view.zoom, least, most);
  const first = layout.origin - MARGIN / view.zoom;
  const last = layout.origin + layout.width + (ui.focus === null ? MARGIN : 170) / view.zoom;
  const span = view.width / view.zoom;
  view.left = last - first <= span ? first : clamp(view.left, first, last - span);
  view.top = clamp(view.top, 0, Math.max(0, view.layout.rows.length * view.rowHeight - view.rowsHeight));
}

function zoomAt(pixel, factor) {
  const place = toPlace(pixel);
  const [least, most] = zoomLimits();
  view.zoom = clamp(view.zoom * factor, least, most);
  view.left = place - pixel / view.zoom;
  redraw();
}

function fitAll() {
  view.zoom = clamp(fitZoom(), ...zoomLimits());
  view.left = view.layout.origin - MARGIN / view.zoom;
  redraw();
}

// Bring a stretch into view; what does not fit at a readable size ends at `end`.
function showStretch(start, end, most = 1.6) {
  const room = view.width * 0.86;
  const [least] = zoomLimits();
  const wanted = room / Math.max(end - start, 1e-9);
  const readable = ui.scale === "even" ? Math.max(least, wanted < 0.8 ? 1 : 0.8) : least;
  view.zoom = clamp(wanted, readable, ui.scale === "even" ? most : wanted);
  const span = view.width / view.zoom;
  view.left = end - start <= span ? (start + end - span) / 2 : end - span * 0.8;
  redraw();
}

// Scroll so that the operation can be seen, moving as little as possible.
function reveal(operation) {
  const { layout } = view;
  if (!layout.mask[operation]) return;
  const from = toPixel(layout.start[operation]);
  const to = toPixel(layout.end[operation]);
  if (to - from < 24 && ui.scale === "even") view.zoom = clamp(1, ...zoomLimits());
  else if (to - from < 4) view.zoom = clamp((60 * view.zoom) / Math.max(to - from, 1e-6), ...zoomLimits());
  const margin = Math.min(80, view.width / 8);
  const left = toPixel(layout.start[operation]);
  const right = toPixel(layout.end[operation]);
  const wide = right - left > view.width - 2 * margin;
  if (left < margin || (wide && left > view.width - margin)) view.left += (left - margin) / view.zoom;
  else if (right > view.width - margin && !wide) view.left += (right - view.width + margin) / view.zoom;
  const row = layout.rowOf[operation] * view.rowHeight;
  if (row < view.top || row + view.rowHeight > view.top + view.rowsHeight) {
    view.top = row - (view.rowsHeight - view.rowHeight) / 2;
  }
  redraw();
}

// Where the page opens: at the witness, at the end of what could be explained, or at the beginning.
function showOpening() {
  const { layout, placed } = view;
  const witness = toldWitness();
  view.top = 0;
  if (ui.focus !== null) {
    // On the right there is room for what is said about the last return; without it if only so all can be read.
    const at = (beside) => (view.width - MARGIN - beside) / layout.width;
    const even = ui.scale === "even";
    const beside = at(170) < 1 && at(MARGIN) >= 0.8 && even ? MARGIN : 170;
    const room = view.width - MARGIN - beside;
    view.zoom = even ? (at(beside) >= 0.8 ? Math.min(at(beside), 1.6) : 1) : at(beside);
    const fits = layout.width * view.zoom <= room + 1;
    view.left = layout.origin + (fits ? -MARGIN / view.zoom : layout.width - room / view.zoom);
    rememberOpening();
    return;
  }
  if (ui.scale === "even" && fitZoom() >= 0.7) fitAll();
  else if (witness && layout.mask[witness.refused]) {
    const starts = witness.operations.filter((one) => layout.mask[one]).map((one) => layout.start[one]);
    showStretch(Math.min(...starts), layout.end[witness.refused]);
    reveal(witness.refused);
  } else if (data.status === "unknown" && placed) {
    const x = placed.x[placed.x.length - 1];
    showStretch(x - 300, x + 200);
    reveal(placed.operations[placed.operations.length - 1]);
  } else if (ui.scale === "even") {
    view.zoom = clamp(fitZoom(), 1, 1.6);
    view.left = layout.origin - MARGIN / view.zoom;
  } else fitAll();
  rememberOpening();
}

function rememberOpening() {
  clampView();
  view.opening = [view.left, view.zoom];
  redraw();
}

// When the page changes its size, what nobody has moved yet is fitted again.
function isAsOpened() {
  return view.opening !== undefined && view.opening[0] === view.left && view.opening[1] === view.zoom;
}
