// Everything drawn over and under the boxes: annotations, the order and its states, refusals, the selection.

let lanes = null;

// The lines of annotations above the clients: one a lane, and one more where two overlap.
function laneNames() {
  if (!lanes) lanes = packLanes();
  return lanes;
}

function forgetLanes() {
  lanes = null;
}

const LANES_MOST = 8;

function packLanes() {
  const { layout } = view;
  const { times } = layout;
  const byName = new Map();
  for (const note of data.annotations) {
    const until = note.end ?? note.start;
    const beside = times.length > 0 && note.start <= times[times.length - 1] && until >= times[0];
    if (!beside && (ui.focus !== null || !times.length)) continue;
    const own = byName.get(note.lane) ?? [];
    byName.set(note.lane, own);
    let lane = own.find((candidate) => candidate.busyUntil <= note.start);
    if (!lane && own.length < 3) own.push((lane = { name: note.lane, first: own.length === 0, notes: [] }));
    if (!lane) lane = own[own.length - 1];
    lane.notes.push(note);
    lane.busyUntil = Math.max(lane.busyUntil ?? until, until);
  }
  const packed = [...byName.values()].flat().slice(0, LANES_MOST);
  for (const lane of packed) {
    lane.from = Float64Array.from(lane.notes, (note) => placeOf(layout, note.start));
    lane.to = Float64Array.from(lane.notes, (note, place) =>
      note.end === undefined ? lane.from[place] : Math.max(lane.from[place], placeOf(layout, note.end)));
  }
  return packed;
}

// The annotations of a lane that are in view, at most one a pixel.
function* notesInView(lane) {
  const left = toPlace(-2);
  let covered = -10;
  for (let place = lowerBound(lane.to, left); place < lane.notes.length; place++) {
    const from = toPixel(lane.from[place]);
    if (from > view.width) return;
    const to = toPixel(lane.to[place]);
    if (to < covered + 1) continue;
    covered = to;
    yield [lane.notes[place], from, to];
  }
}

function drawBands() {
  for (const lane of laneNames()) {
    for (const [note, from, to] of notesInView(lane)) {
      let [top, height] = [AXIS_HEIGHT, rowsBottom() - AXIS_HEIGHT];
      if (note.process !== undefined) {
        const row = view.layout.rows.findIndex((own) => data.processes[own.process] === note.process);
        if (row < 0) continue;
        [top, height] = [Math.max(rowTop(row), view.rowsTop), view.rowHeight * view.layout.rows[row].lanes];
      }
      pen.fillStyle = paint.wash;
      if (to - from >= 1) pen.fillRect(from, top, to - from, height);
      pen.fillStyle = paint["band-edge"];
      pen.globalAlpha = 0.4;
      pen.fillRect(Math.round(from), top, 1, height);
      if (to - from >= 3) pen.fillRect(Math.round(to) - 1, top, 1, height);
      pen.globalAlpha = 1;
    }
  }
}

function drawLanes() {
  const all = laneNames();
  if (!all.length) return;
  pen.fillStyle = paint.raised;
  pen.fillRect(0, view.lanesTop, view.width, all.length * LANE_HEIGHT);
  pen.font = `11px ${paint.ui}`;
  all.forEach((lane, place) => {
    const top = view.lanesTop + place * LANE_HEIGHT;
    const drawn = [...notesInView(lane)];
    drawn.forEach(([note, from, to], number) => {
      const next = number + 1 < drawn.length ? drawn[number + 1][1] : view.width;
      const wide = Math.max(to - from, 3);
      pen.fillStyle = note.end === undefined ? paint["band-edge"] : paint.band;
      pen.fillRect(from, top + 3, wide, LANE_HEIGHT - 6);
      pen.fillStyle = paint["band-edge"];
      pen.fillRect(from, top + 3, note.end === undefined ? 3 : 2, LANE_HEIGHT - 6);
      const left = Math.max(from, 0) + 7;
      const text = fitText(note.label, Math.min(Math.max(to, next) - 4, view.width) - left);
      pen.fillStyle = paint.ink;
      if (text.length > 1) pen.fillText(text, left, top + LANE_HEIGHT / 2 + 0.5);
    });
  });
  pen.fillStyle = paint.faint;
  pen.fillRect(0, view.stateTop - 1, view.width, 1);
}

function noteAt(pixelX, pixelY) {
  const lane = laneNames()[Math.floor((pixelY - view.lanesTop) / LANE_HEIGHT)];
  if (!lane || pixelX < view.gutter || pixelY < view.lanesTop) return null;
  const x = pixelX - view.gutter;
  let best = null;
  for (const [note, from, to] of notesInView(lane)) {
    if (x >= from - 3 && x <= Math.max(to, from + 60)) best = note;
  }
  return best;
}

// Points of the order that are in view, with one more on either side for the line between them.
function pointsInView() {
  const { x } = view.placed;
  return [Math.max(0, lowerBound(x, toPlace(0)) - 1), Math.min(x.length, lowerBound(x, toPlace(view.width)) + 1)];
}

function pointY(operation) {
  return boxTop(view.layout.rowOf[operation]) + view.boxHeight;
}

// Points so dense that a line through them would be a blot are left out.
function areDense(first, last) {
  return last - first > view.width / 5;
}

function drawOrderLine() {
  if (!view.placed) return;
  const { operations, x } = view.placed;
  const [first, last] = pointsInView();
  if (areDense(first, last)) return;
  pen.strokeStyle = paint.point;
  pen.globalAlpha = 0.4;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.beginPath();
  for (let place = first; place < last; place++) {
    const pixel = toPixel(x[place]);
    const y = pointY(operations[place]);
    if (place === first) pen.moveTo(pixel, y);
    else {
      pen.lineTo(pixel, pointY(operations[place - 1]));
      pen.lineTo(pixel, y);
    }
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

// Points on the boxes' lower edges, and below them what is to be said: number and state after, or why not.
function drawNotes(wide) {
  const { marks, placed } = view;
  if (placed) {
    const [first, last] = pointsInView();
    const sparse = last - first < view.width / 14;
    const narrow = areDense(first, last);
    for (let number = first; number < last && !narrow; number++) drawPoint(placed.operations[number], number, sparse);
  }
  for (const operation of wide) {
    if (!marks.refused.has(operation) || (placed && placed.numberOf[operation] >= 0)) continue;
    const [left, top, width, height] = boxOf(operation);
    drawCross(Math.min(left + width, refusalX()), top + height, marks.refused.get(operation), operation);
  }
}

function noteRoom(operation, from) {
  const { layout } = view;
  const row = layout.rows[layout.rowOf[operation]].operations;
  const next = row[lowerBoundBy(row.length, (one) => layout.start[row[one]], layout.start[operation] + 1e-9)];
  const until = next === undefined || next === operation ? view.width : Math.min(view.width, toPixel(layout.start[next]));
  return until - from - 8;
}

function drawPoint(operation, number, sparse) {
  const x = toPixel(view.placed.x[number]);
  const y = pointY(operation);
  if (x < -20 || x > view.width + 20) return;
  const chosen = operation === ui.selected;
  pen.fillStyle = paint.ground;
  pen.beginPath();
  pen.arc(x, y, chosen ? 6.5 : 5, 0, 7);
  pen.fill();
  pen.fillStyle = paint.point;
  pen.beginPath();
  pen.arc(x, y, chosen ? 5 : 3.5, 0, 7);
  pen.fill();
  const below = rowTop(view.layout.rowOf[operation]) + view.rowHeight - y;
  if (below < 14 || !sparse) return;
  pen.font = `600 10.5px ${paint.ui}`;
  const label = String(number + 1);
  pen.fillText(label, x + 8, y + 9);
  if (ui.focus === null || below < 18 || stateBefore(view.placed, number) === stateAfter(view.placed, number)) return;
  const from = x + 8 + pen.measureText(label).width + 6;
  pen.font = `11px ${paint.ui}`;
  pen.fillStyle = paint.soft;
  const text = fitText(stateAfter(view.placed, number), noteRoom(operation, from));
  if (text.length > 1) pen.fillText(text, from, y + 9);
}

function drawCross(right, bottom, reason, operation) {
  const x = Math.min(right - 9, view.width - 12);
  const y = bottom - view.boxHeight / 2;
  pen.strokeStyle = paint.bad;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x - 3.5, y - 3.5);
  pen.lineTo(x + 3.5, y + 3.5);
  pen.moveTo(x + 3.5, y - 3.5);
  pen.lineTo(x - 3.5, y + 3.5);
  pen.stroke();
  const below = rowTop(view.layout.rowOf[operation]) + view.rowHeight - bottom;
  if (!reason || below < 18) return;
  // Below the box, and to the left of it where there is more room.
  pen.font = `11.5px ${paint.ui}`;
  const { layout } = view;
  const row = layout.rows[layout.rowOf[operation]].operations;
  const before = row[lowerBoundBy(row.length, (one) => layout.start[row[one]], layout.start[operation]) - 1];
  const least = before === undefined ? 6 : Math.max(6, toPixel(layout.end[before]) + 8);
  const box = Math.max(boxOf(operation)[0], 0) + 2;
  const until = box + noteRoom(operation, box);
  const from = Math.max(Math.min(box, until - pen.measureText(reason).width), Math.min(least, box));
  pen.fillStyle = paint.bad;
  pen.fillText(fitText(reason, until - from), from, bottom + 11);
}

function drawStep(step, operation) {
  const [left, top, width] = boxOf(operation);
  if (left > view.width || left + width < 0) return;
  pen.font = `600 10.5px ${paint.ui}`;
  const label = String(step);
  const wide = Math.max(pen.measureText(label).width + 9, 16);
  const x = Math.max(left, 0) - 5;
  pen.fillStyle = paint.bad;
  pen.beginPath();
  pen.roundRect(x, top - 8, wide, 16, 8);
  pen.fill();
  pen.fillStyle = paint.ground;
  pen.textAlign = "center";
  pen.fillText(label, x + wide / 2, top + 0.5);
  pen.textAlign = "left";
}

// The states between the points, as one line of segments.
function drawStates() {
  if (!view.placed) return;
  const { placed, layout, width } = view;
  const top = view.stateTop + 3;
  const height = STATE_HEIGHT - 7;
  pen.fillStyle = paint.ground;
  pen.fillRect(0, view.stateTop, width, STATE_HEIGHT + 3);
  const isTold = refusalX() < INFINITE;
  const stop = isTold ? refusalX() : toPixel(layout.origin + layout.width);
  const [first, last] = pointsInView();
  pen.font = `11px ${paint.mono}`;
  if (areDense(first, last)) {
    const text = `${(last - first).toLocaleString("en-US")} steps: zoom in to see the states`;
    drawState(text, toPixel(layout.origin), Math.min(stop, width), top, height);
  }
  let covered = -1;
  for (let place = areDense(first, last) ? last : first - 1; place < last; ) {
    // One segment for as long as the state stays what it is.
    let next = place + 1;
    while (next < last && placed.states[next] === (place < 0 ? placed.before : placed.states[place])) next++;
    const from = place < 0 ? toPixel(layout.origin) - MARGIN + 4 : toPixel(placed.x[place]);
    const to = Math.min(next < placed.x.length ? toPixel(placed.x[next]) : Math.max(stop, from), width);
    if (to >= Math.max(0, covered + 2)) {
      covered = to;
      drawState(stateBefore(placed, place + 1), from, to, top, height);
    }
    place = next;
  }
  if (isTold && stop < width) {
    pen.fillStyle = paint["bad-fill"];
    pen.fillRect(stop + 1, top, width - stop, height);
    pen.fillStyle = paint.bad;
    pen.font = `600 11px ${paint.ui}`;
    const text = fitText("no state explains this", width - stop - 16);
    if (text.length > 1) pen.fillText(text, stop + 9, top + height / 2 + 0.5);
  }
  pen.fillStyle = paint.faint;
  pen.fillRect(0, view.stateTop + STATE_HEIGHT + 2, width, 1);
}

function drawState(state, from, to, top, height) {
  const left = Math.max(from, 0);
  pen.fillStyle = paint.state;
  pen.fillRect(left, top, Math.max(to - left - 1, 1), height);
  pen.fillStyle = paint.point;
  if (from > 0 && from > toPixel(view.layout.origin)) pen.fillRect(from, top, 1.5, height);
  const text = fitText(state, to - left - 13);
  pen.fillStyle = paint.ink;
  if (text.length > 1) pen.fillText(text, left + 7, top + height / 2 + 0.5);
}

// The return that no order survives, and all that comes after it.
function refusalX() {
  const line = view.marks.line;
  if (line < 0 || !view.layout.mask[line] || data.returned[line] === INFINITE) return INFINITE;
  return toPixel(view.layout.end[line]);
}

function drawAfterRefusal() {
  const x = Math.max(refusalX(), 0);
  if (x >= view.width) return;
  pen.fillStyle = paint["bad-wash"];
  pen.fillRect(x, view.stateTop, view.width - x, rowsBottom() - view.stateTop);
}

function drawRefusalLine() {
  const x = refusalX();
  if (x < 0 || x > view.width) return;
  pen.fillStyle = paint.bad;
  pen.fillRect(Math.round(x) - 1, view.stateTop, 2, rowsBottom() - view.stateTop);
}

// Call and return of the operation that is pointed at or selected, through all rows.
function drawHairlines() {
  const operation = ui.hovered >= 0 ? ui.hovered : ui.selected;
  if (operation < 0 || !view.layout.mask[operation]) return;
  pen.fillStyle = operation === ui.selected ? paint.accent : paint.soft;
  pen.globalAlpha = 0.55;
  const places = [view.layout.start[operation]];
  if (data.returned[operation] < INFINITE) places.push(view.layout.end[operation]);
  for (const place of places) {
    const x = Math.round(toPixel(place));
    for (let y = view.rowsTop; y < rowsBottom(); y += 6) pen.fillRect(x, y, 1, 3);
  }
  pen.globalAlpha = 1;
}

// What must be seen at any zoom: the witness, refusals, findings, matches, and the selected operation.
function drawStandouts(first, last) {
  const { marks } = view;
  if (ui.match) drawMatches(first, last);
  if (ui.focus === null) for (const operation of marks.core) outline(operation, paint.core, 1.5);
  for (const [operation, step] of marks.steps) {
    outline(operation, paint.bad, 1.5);
    if (view.layout.mask[operation]) drawStep(step, operation);
  }
  for (const operation of marks.refused.keys()) outline(operation, paint.bad, 2);
  if (ui.hovered >= 0) outline(ui.hovered, paint.soft, 1.5);
  if (ui.selected >= 0) outline(ui.selected, paint.accent, 2.5, 2);
}

function outline(operation, colour, thickness, away = 0) {
  const { layout } = view;
  const row = layout.rowOf[operation];
  if (!layout.mask[operation] || row < 0) return;
  const [left, top, width, height] = boxOf(operation);
  if (left > view.width || left + width < 0 || top > view.height || top + height < view.rowsTop) return;
  pen.strokeStyle = colour;
  if (width < NARROW) {
    pen.fillStyle = colour;
    pen.fillRect(left - 1, top - 3, Math.max(width, 3), height + 6);
    return;
  }
  pen.lineWidth = thickness;
  const edge = thickness / 2 - away;
  pen.beginPath();
  pen.roundRect(left + edge, top + edge, width - 2 * edge, height - 2 * edge, 4 + away);
  pen.stroke();
}

function drawMatches(first, last) {
  const { layout, matches } = view;
  const { start, end, rowOf } = layout;
  const from = lowerBoundBy(matches.length, (place) => start[matches[place]], toPlace(-4000));
  const covered = new Float64Array(layout.rows.length).fill(-1);
  for (let place = from; place < matches.length; place++) {
    const operation = matches[place];
    if (toPixel(start[operation]) > view.width) break;
    const row = rowOf[operation];
    const to = toPixel(end[operation]);
    if (row < first || row >= last || to < covered[row] + 1) continue;
    covered[row] = to;
    const [left, top, width, height] = boxOf(operation);
    pen.fillStyle = paint.found;
    pen.fillRect(left, top + height - 2, Math.max(width, 2), 2);
    if (width >= NARROW) outline(operation, paint.found, 1.5);
  }
}
