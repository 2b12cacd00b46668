// The picture: only what is in view is drawn, and never more than one box a pixel of a row, so that a frame costs the
// same whatever the history's length. Knows pixels; refuses to know why something is marked (see marks.js).

const AXIS_HEIGHT = 26;
const LANE_HEIGHT = 22;
const STATE_HEIGHT = 28;
const LABEL_SIZE = 12;
const NARROW = 3; // pixels: a narrower box is a mere bar without edge and label

const canvas = byId("canvas");
const pen = canvas.getContext("2d", { alpha: false });
let characterWidth = 7.2;
let drawing = 0;

function redraw() {
  if (!drawing) drawing = requestAnimationFrame(drawFrame);
}

function drawFrame() {
  drawing = 0;
  clampView();
  drawAll();
  drawOverview();
}

// Fit the canvas to its place on the page and decide how high rows are.
function measure() {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = `${LABEL_SIZE}px ${paint.mono}`;
  characterWidth = pen.measureText("0".repeat(40)).width / 40;
  arrange(width, height);
  view.overview = null;
}

function arrange(width = canvas.clientWidth, height = canvas.clientHeight) {
  const { layout } = view;
  pen.font = `12px ${paint.ui}`;
  const names = [...layout.rows.map((row) => data.processes[row.process]), ...laneNames().map((lane) => lane.name)];
  const longest = names.reduce((most, name) => (name.length > most.length ? name : most), "process 0");
  view.gutter = clamp(Math.ceil(pen.measureText(longest).width) + 26, 84, Math.max(84, Math.min(220, width * 0.25)));
  view.width = Math.max(50, width - view.gutter);
  view.height = height;
  view.lanesTop = AXIS_HEIGHT;
  view.stateTop = view.lanesTop + laneNames().length * LANE_HEIGHT;
  view.rowsTop = view.stateTop + (view.placed ? STATE_HEIGHT : 0) + 4;
  view.rowsHeight = Math.max(20, height - view.rowsTop);
  const rows = Math.max(1, layout.rows.length);
  const most = ui.focus !== null ? 64 : 56;
  const room = view.rowsHeight / rows;
  view.rowHeight = room >= 58 ? Math.min(most, room) : room >= 42 ? 42 : room >= 30 ? Math.floor(room) : 26;
  view.boxHeight = view.rowHeight >= 46 ? 24 : view.rowHeight >= 42 ? 22 : view.rowHeight >= 30 ? 20 : 18;
}

function drawAll() {
  const { width, gutter, height } = view;
  pen.fillStyle = paint.ground;
  pen.fillRect(0, 0, gutter + width, height);
  pen.textBaseline = "middle";
  pen.save();
  pen.beginPath();
  pen.rect(gutter, 0, width, height);
  pen.clip();
  pen.translate(gutter, 0);
  drawBands();
  drawAfterRefusal();
  pen.save();
  pen.beginPath();
  pen.rect(0, view.rowsTop, width, height - view.rowsTop);
  pen.clip();
  drawRowLines();
  drawOrderLine();
  drawRows();
  pen.restore();
  drawHairlines();
  drawRefusalLine();
  drawStates();
  drawLanes();
  drawAxis();
  pen.restore();
  drawGutter();
  drawScrollBar();
}

function rowTop(row) {
  return view.rowsTop + row * view.rowHeight - view.top;
}

// Where the last row ends, or the canvas.
function rowsBottom() {
  return Math.min(view.height, rowTop(view.layout.rows.length));
}

// The box lies a little above the middle: below it is what is said about it.
function boxTop(row) {
  const free = view.rowHeight - view.boxHeight;
  return rowTop(row) + (view.rowHeight >= 42 ? Math.min(9, free / 4) : free / 2);
}

function rowsInView() {
  const first = Math.floor(view.top / view.rowHeight);
  const last = Math.min(view.layout.rows.length, Math.ceil((view.top + view.rowsHeight) / view.rowHeight));
  return [Math.max(0, first), last];
}

function drawRowLines() {
  const [first, last] = rowsInView();
  pen.fillStyle = paint.faint;
  for (let row = first; row <= last; row++) {
    const own = view.layout.rows[row];
    if (!own || own.first) pen.fillRect(0, Math.round(rowTop(row)), view.width, 1);
  }
}

function hueOf(operation) {
  return data.functionOf[operation] % 6;
}

function drawRows() {
  const [first, last] = rowsInView();
  const bars = new Map(); // colour -> x, y, width, height of the narrow boxes
  const wide = [];
  for (let row = first; row < last; row++) gatherRow(row, bars, wide);
  for (const [style, list] of bars) {
    const [alpha, colour] = style.split("|");
    pen.globalAlpha = Number(alpha);
    pen.fillStyle = colour;
    for (let i = 0; i < list.length; i += 4) pen.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
  }
  pen.globalAlpha = 1;
  for (const operation of wide) drawTail(operation);
  for (const operation of wide) drawBox(operation);
  for (const operation of wide) drawLabel(operation);
  drawNotes(wide);
  drawStandouts(first, last);
}

// The operations of one row that are in view. Several that share a pixel are one bar; after one that ends in a pixel
// the next to look at is found by halving, not by going through all.
function gatherRow(row, bars, wide) {
  const { layout, width } = view;
  const { operations } = layout.rows[row];
  const { start, end } = layout;
  const total = operations.length;
  const y = boxTop(row);
  let place = lowerBoundBy(total, (one) => end[operations[one]], toPlace(0));
  let covered = -1;
  while (place < total) {
    const operation = operations[place];
    const from = toPixel(start[operation]);
    if (from > width) break;
    const to = toPixel(end[operation]);
    if (to - from >= NARROW) {
      wide.push(operation);
      covered = to;
      place++;
      continue;
    }
    const left = Math.max(Math.floor(from), covered);
    const right = Math.max(Math.ceil(to), left + 1);
    const style = barStyle(operation);
    let list = bars.get(style);
    if (!list) bars.set(style, (list = []));
    list.push(left, y, right - left, view.boxHeight);
    covered = right;
    const beyond = toPlace(right);
    place++;
    if (place < total && end[operations[place]] < beyond) {
      const from = place;
      place += lowerBoundBy(total - from, (one) => end[operations[from + one]], beyond);
    }
  }
}

function barStyle(operation) {
  const alpha = ui.match && !ui.match[operation] ? 0.22 : 1;
  if (data.outcome[operation] === FAIL) return `${alpha * 0.6}|${paint["mute-edge"]}`;
  return `${alpha * 0.8}|${paint.edges[hueOf(operation)]}`;
}

function boxOf(operation) {
  const { layout } = view;
  const left = Math.max(toPixel(layout.start[operation]), -20);
  const right = Math.min(toPixel(layout.end[operation]), view.width + 20);
  return [left, boxTop(layout.rowOf[operation]), Math.max(right - left, 1), view.boxHeight];
}

// An operation of unknown outcome may take effect at any later time.
function drawTail(operation) {
  if (data.outcome[operation] !== INFO) return;
  const [left, top, width, height] = boxOf(operation);
  if (left + width >= view.width) return;
  pen.strokeStyle = paint.edges[hueOf(operation)];
  pen.globalAlpha = ui.match && !ui.match[operation] ? 0.25 : 0.8;
  pen.lineWidth = 1.5;
  pen.setLineDash([1.5, 4]);
  pen.beginPath();
  pen.moveTo(left + width + 3, top + height - 1);
  pen.lineTo(view.width, top + height - 1);
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function drawBox(operation) {
  const [left, top, width, height] = boxOf(operation);
  const refused = view.marks.refused.has(operation);
  const outcome = data.outcome[operation];
  pen.globalAlpha = ui.match && !ui.match[operation] ? 0.3 : 1;
  pen.beginPath();
  pen.roundRect(left + 0.5, top + 0.5, Math.max(width - 1, 1), height - 1, Math.min(4, width / 2));
  pen.fillStyle = refused ? paint["bad-fill"] : outcome === FAIL ? paint.ground : paint.fills[hueOf(operation)];
  pen.fill();
  pen.lineWidth = 1;
  pen.strokeStyle = refused ? paint.bad : outcome === FAIL ? paint["mute-edge"] : paint.edges[hueOf(operation)];
  if (outcome !== OK) pen.setLineDash([4, 3]);
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function drawLabel(operation) {
  const [left, top, width, height] = boxOf(operation);
  const from = Math.max(left, 0) + 7;
  const room = Math.min(left + width, view.width) - from - (view.marks.refused.has(operation) ? 18 : 5);
  const length = Math.floor(room / characterWidth + 0.02);
  if (length < 2) return;
  const text = cut(labelOf(operation), length);
  const outcome = data.outcome[operation];
  pen.globalAlpha = ui.match && !ui.match[operation] ? 0.4 : 1;
  pen.font = `${LABEL_SIZE}px ${paint.mono}`;
  pen.fillStyle = view.marks.refused.has(operation) ? paint.bad : outcome === FAIL ? paint.soft : paint.ink;
  pen.fillText(text, from, top + height / 2 + 0.5);
  if (outcome === FAIL) pen.fillRect(from, Math.round(top + height / 2), text.length * characterWidth, 1);
  pen.globalAlpha = 1;
}

// Times along the top. In the even scale a line stands at an event; lines keep their events while the view moves.
function drawAxis() {
  pen.fillStyle = paint.raised;
  pen.fillRect(0, 0, view.width, AXIS_HEIGHT);
  pen.fillStyle = paint.line;
  pen.fillRect(0, AXIS_HEIGHT - 1, view.width, 1);
  pen.font = `11px ${paint.ui}`;
  let free = -1;
  const ticks = ui.scale === "clock" ? clockTicks() : evenTicks();
  const apart = ticks.reduce((least, [, time], place) => {
    const step = place > 0 ? time - ticks[place - 1][1] : 0;
    return step > 0 ? Math.min(least, step) : least;
  }, 1e9);
  const greatest = ticks.length ? ticks[ticks.length - 1][1] : 0;
  for (const [x, time] of ticks) {
    const pixel = toPixel(x);
    if (pixel < free) continue;
    pen.fillStyle = paint.line;
    pen.fillRect(Math.round(pixel), AXIS_HEIGHT - 7, 1, 7);
    pen.fillStyle = paint.soft;
    const label = moment(time, apart, greatest);
    const until = pixel + 5 + pen.measureText(label).width;
    if (until > view.width) break;
    pen.fillText(label, pixel + 5, AXIS_HEIGHT / 2 - 0.5);
    free = until + 17;
  }
}

function clockTicks() {
  const wanted = 110 / view.zoom;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = Math.max([1, 2, 5, 10].map((part) => part * power).find((size) => size >= wanted), 1);
  const ticks = [];
  for (let time = Math.ceil(toPlace(0) / step) * step; time <= toPlace(view.width); time += step) ticks.push([time, time + 0]);
  return ticks;
}

function evenTicks() {
  const { at, times } = view.layout;
  const step = 2 ** Math.ceil(Math.log2(110 / view.zoom));
  const ticks = [];
  let last = -1;
  for (let x = Math.floor(toPlace(0) / step) * step; x <= toPlace(view.width); x += step) {
    const place = lowerBound(at, x);
    if (place >= at.length || place === last || at[place] >= x + step) continue;
    last = place;
    ticks.push([at[place], times[place]]);
  }
  return ticks;
}

function drawGutter() {
  const { gutter, height } = view;
  const [first, last] = rowsInView();
  pen.fillStyle = paint.raised;
  pen.fillRect(0, 0, gutter, height);
  pen.fillStyle = paint.line;
  pen.fillRect(gutter - 1, 0, 1, height);
  pen.fillRect(0, AXIS_HEIGHT - 1, gutter, 1);
  pen.save();
  pen.beginPath();
  pen.rect(0, view.rowsTop, gutter - 1, height - view.rowsTop);
  pen.clip();
  pen.font = `12px ${paint.ui}`;
  for (let row = first; row < last; row++) {
    const own = view.layout.rows[row];
    if (own.first || row === first) {
      pen.fillStyle = paint.ink;
      pen.fillText(fitText(data.processes[own.process], gutter - 24), 12, boxTop(row) + view.boxHeight / 2 + 0.5);
    }
    pen.fillStyle = paint.faint;
    if (own.first) pen.fillRect(0, Math.round(rowTop(row)), gutter - 1, 1);
  }
  pen.restore();
  pen.fillStyle = paint.soft;
  laneNames().forEach((lane, place) => {
    if (!lane.first) return;
    pen.fillText(fitText(lane.name, gutter - 24), 12, view.lanesTop + place * LANE_HEIGHT + LANE_HEIGHT / 2);
  });
  if (view.placed) pen.fillText("state", 12, view.stateTop + STATE_HEIGHT / 2 + 1);
  pen.fillText(data.steps ? "order" : "time", 12, AXIS_HEIGHT / 2 - 0.5);
}

function drawScrollBar() {
  const whole = view.layout.rows.length * view.rowHeight;
  if (whole <= view.rowsHeight + 1) return;
  const length = Math.max(24, (view.rowsHeight * view.rowsHeight) / whole);
  const top = view.rowsTop + ((view.rowsHeight - length) * view.top) / (whole - view.rowsHeight);
  pen.fillStyle = paint["mute-edge"];
  pen.globalAlpha = 0.7;
  pen.beginPath();
  pen.roundRect(view.gutter + view.width - 8, top, 5, length, 2.5);
  pen.fill();
  pen.globalAlpha = 1;
}

// The operation under a pixel of the canvas, or -1. Narrow ones may be missed by three pixels.
function operationAt(pixelX, pixelY) {
  const x = pixelX - view.gutter;
  if (x < 0 || pixelY < view.rowsTop) return -1;
  const row = Math.floor((pixelY - view.rowsTop + view.top) / view.rowHeight);
  const own = view.layout.rows[row];
  if (!own) return -1;
  const { start, end } = view.layout;
  const place = lowerBoundBy(own.operations.length, (one) => end[own.operations[one]], toPlace(x));
  let best = -1;
  let distance = 4;
  for (const candidate of [own.operations[place - 1], own.operations[place]]) {
    if (candidate === undefined) continue;
    const away = Math.max(toPixel(start[candidate]) - x, x - toPixel(end[candidate]), 0);
    if (away < distance) {
      best = candidate;
      distance = away;
    }
  }
  return best;
}
