// The part of the time that is in view, and what is drawn when. Two canvases at most, one a run, moved as one.

const SHORTEST = 1e4; // nanoseconds that fill the view at the most

const canvases = runs.map((run) =>
  make("canvas", { tabindex: "0", role: "application", "aria-label": `Time line of the run ${run.data.title}` }));
const pens = canvases.map((canvas) => canvas.getContext("2d", { alpha: false }));
let pen = pens[0];
let drawing = 0;
let ticks = []; // heights and labels of the lane that is drawn

function redraw() {
  if (!drawing) drawing = requestAnimationFrame(drawFrame);
}

function drawFrame() {
  drawing = 0;
  clampView();
  runs.forEach((run, place) => {
    pen = pens[place];
    drawRun(run);
  });
}

function measure() {
  const ratio = window.devicePixelRatio || 1;
  canvases.forEach((canvas, place) => {
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pens[place].setTransform(ratio, 0, 0, ratio, 0, 0);
    pen = pens[place];
    if (place === 0) {
      pen.font = `12px ${paint.ui}`;
      const names = [...view.pinned, ...view.tracks].map((track) => pen.measureText(track.name ?? "").width);
      view.gutter = clamp(Math.ceil(Math.max(...names)) + 20, 70, Math.max(70, Math.min(170, width * 0.24)));
      view.width = Math.max(60, width - view.gutter);
      view.height = height;
      view.room = Math.max(30, height - view.pinnedHeight);
    }
  });
}

function clampView() {
  const most = (whole.to - whole.from) * 1.02;
  const span = clamp(view.to - view.from, SHORTEST, most);
  const from = clamp(view.from, whole.from - span * 0.3, whole.to - span * 0.7);
  view.from = span === most ? whole.from - (whole.to - whole.from) * 0.01 : from;
  view.to = view.from + span;
  view.top = clamp(view.top, 0, Math.max(0, view.total - view.room));
}

function toPixel(time) {
  return ((time - view.from) / (view.to - view.from)) * view.width;
}

function toTime(pixel) {
  return view.from + (pixel / view.width) * (view.to - view.from);
}

function show(from, to) {
  view.from = from;
  view.to = to;
  redraw();
}

function showWhole() {
  show(whole.from, whole.to);
}

function zoom(factor, at = (view.from + view.to) / 2) {
  const span = clamp((view.to - view.from) * factor, SHORTEST, (whole.to - whole.from) * 1.02);
  const part = (at - view.from) / (view.to - view.from);
  show(at - span * part, at + span * (1 - part));
}

function pan(part) {
  const step = (view.to - view.from) * part;
  show(view.from + step, view.to + step);
}

// The time of a story, and as much around it.
function showStory(story) {
  const from = Math.min(story.start, ...story.events.slice(0, 1).map(([time]) => time));
  const to = Math.max(story.pivot, story.start + 5e8);
  const room = Math.max((to - from) * 0.15, 1e8);
  show(from - room, to + 3 * room);
}

// Which lane is at a height, of those that are drawn.
function trackAt(y) {
  if (y < view.pinnedHeight) return view.pinned.find((track) => y < track.top + track.height) ?? null;
  const inside = y - view.pinnedHeight + view.top;
  return view.tracks.find((track) => inside < track.top + track.height) ?? null;
}

function topOf(track) {
  return view.pinned.includes(track) ? track.top : view.pinnedHeight + track.top - view.top;
}

function drawRun(run) {
  const { gutter, width, height } = view;
  pen.fillStyle = paint.ground;
  pen.fillRect(0, 0, gutter + width, height);
  pen.textBaseline = "middle";
  pen.save();
  pen.beginPath();
  pen.rect(0, view.pinnedHeight, gutter + width, height);
  pen.clip();
  inside(() => drawFaultBands(run), 0, view.pinnedHeight, height);
  for (const track of view.tracks) {
    const top = topOf(track);
    if (top > height || top + track.height < view.pinnedHeight) continue;
    drawTrack(run, track, top);
  }
  pen.restore();
  for (const track of view.pinned) drawTrack(run, track, track.top);
  pen.fillStyle = paint.line;
  pen.fillRect(0, view.pinnedHeight - 1, gutter + width, 1);
  pen.fillRect(gutter - 1, 0, 1, height);
  inside(() => drawMoments(run), 0, view.pinned[1].top, height);
  drawScrollBar();
}

// Draw with the origin at the left end of the lane, and nothing outside of it.
function inside(draw, top, from = top, to = top + 1) {
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, from, view.width, to - from);
  pen.clip();
  pen.translate(view.gutter, top);
  draw();
  pen.restore();
}

function drawTrack(run, track, top) {
  ticks = [];
  inside(() => DRAW[track.kind](run, track), top, top, top + track.height);
  pen.fillStyle = paint.raised;
  pen.fillRect(0, top, view.gutter - 1, track.height);
  const apart = !["client", "broker", "log", "faults", "offsets"].includes(track.kind) || track.lane === 0;
  pen.fillStyle = paint.faint;
  if (apart) pen.fillRect(0, Math.round(top), view.gutter + view.width, 1);
  if (!track.name) return;
  pen.font = `${track.kind === "partition" ? "600 " : ""}${track.height < 13 ? 9.5 : 12}px ${paint.ui}`;
  pen.fillStyle = track.kind === "offsets" ? paint.soft : track.kind === "errors" || (track.kind === "partition" && run.bad.has(track.key)) ? paint.bad : paint.ink;
  pen.textAlign = "left";
  const name = fitText(track.name, view.gutter - 18);
  pen.fillText(name, 10, top + Math.min(track.height / 2 + 0.5, 13));
  drawTicks(top, track.height, 14 + pen.measureText(name).width);
}

// Beside the curves, where the name leaves room.
function drawTicks(top, height, named) {
  pen.font = `10px ${paint.ui}`;
  pen.fillStyle = paint.soft;
  pen.textAlign = "right";
  let free = 0;
  for (const [y, label] of ticks.sort((one, other) => one[0] - other[0])) {
    const wide = pen.measureText(label).width;
    let at = clamp(y, 7, height - 6);
    if (at < 20 && wide > view.gutter - 6 - named) at = 26;
    if (at < free || at > height - 5 || wide > view.gutter - 10) continue;
    pen.fillText(label, view.gutter - 6, top + at);
    free = at + 11;
  }
  pen.textAlign = "left";
}

// The chosen story's time over all lanes, and the line under the pointer.
function drawMoments(run) {
  const story = chosenStory();
  if (story && run.number === ui.run) {
    const from = toPixel(story.start);
    const to = toPixel(story.pivot);
    pen.fillStyle = paint["bad-wash"];
    pen.fillRect(from, view.pinnedHeight, Math.max(to - from, 1), view.height);
    pen.fillStyle = paint.bad;
    pen.globalAlpha = 0.8;
    for (const pixel of [from, to]) pen.fillRect(Math.round(pixel), view.pinned[1].top + 10, 1, view.height);
    pen.globalAlpha = 1;
  }
  if (ui.hover) {
    pen.fillStyle = paint.soft;
    pen.globalAlpha = 0.7;
    pen.fillRect(Math.round(toPixel(ui.hover.time)), view.pinned[1].top, 1, view.height);
    pen.globalAlpha = 1;
  }
}

function drawScrollBar() {
  if (view.total <= view.room + 1) return;
  const length = Math.max(24, (view.room * view.room) / view.total);
  const top = view.pinnedHeight + ((view.room - length) * view.top) / (view.total - view.room);
  pen.fillStyle = paint["mute-edge"];
  pen.globalAlpha = 0.8;
  pen.beginPath();
  pen.roundRect(view.gutter + view.width - 8, top, 5, length, 2.5);
  pen.fill();
  pen.globalAlpha = 1;
}
