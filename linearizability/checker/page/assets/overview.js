// The strip above the timeline: everything at once, how busy it was, and which part of it is in view.

const strip = byId("overview");
const stripPen = strip.getContext("2d");
const STRIP_LINE = 4; // pixels at the bottom, for annotations and matches

function stripScale() {
  const { layout } = view;
  return (strip.clientWidth - view.gutter - 16) / layout.width;
}

function stripX(x) {
  return view.gutter + 8 + (x - view.layout.origin) * stripScale();
}

function drawOverview() {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = strip;
  if (!view.overview) view.overview = paintOverview(width, height, ratio);
  if (strip.width !== view.overview.width) strip.width = view.overview.width;
  if (strip.height !== view.overview.height) strip.height = view.overview.height;
  stripPen.setTransform(1, 0, 0, 1, 0, 0);
  stripPen.drawImage(view.overview, 0, 0);
  stripPen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const from = clamp(stripX(view.left), view.gutter, width);
  const to = clamp(stripX(view.left + view.width / view.zoom), view.gutter, width);
  stripPen.fillStyle = paint.window;
  stripPen.fillRect(view.gutter, 0, from - view.gutter, height - 1);
  stripPen.fillRect(to, 0, width - to, height - 1);
  stripPen.strokeStyle = paint.accent;
  stripPen.lineWidth = 1.5;
  stripPen.beginPath();
  stripPen.roundRect(from + 0.75, 1.5, Math.max(to - from - 1.5, 4), height - 4, 3);
  stripPen.stroke();
}

// What does not change while the view moves, painted once.
function paintOverview(width, height, ratio) {
  const still = document.createElement("canvas");
  still.width = Math.round(width * ratio);
  still.height = Math.round(height * ratio);
  const g = still.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.fillStyle = paint.raised;
  g.fillRect(0, 0, width, height);
  const busy = busyness(Math.max(1, Math.floor(width - view.gutter - 16)));
  const most = busy.reduce((high, value) => Math.max(high, value), 1);
  const floor = height - STRIP_LINE - 3;
  g.fillStyle = paint["mute-edge"];
  busy.forEach((value, place) => {
    const tall = (value / most) * (floor - 5);
    if (tall > 0) g.fillRect(view.gutter + 8 + place, floor - tall, 1, tall);
  });
  g.fillStyle = paint["band-edge"];
  for (const note of data.annotations) {
    const from = stripX(clampPlace(placeOf(view.layout, note.start)));
    const to = note.end === undefined ? from : stripX(clampPlace(placeOf(view.layout, note.end)));
    g.fillRect(from, floor + 1, Math.max(to - from, 2), STRIP_LINE);
  }
  g.fillStyle = paint.found;
  let covered = -1;
  for (const operation of view.matches) {
    const x = stripX(view.layout.start[operation]);
    if (x < covered + 1) continue;
    covered = x;
    g.fillRect(x, 4, 1.5, 6);
  }
  g.fillStyle = paint.bad;
  for (const operation of [...view.marks.refused.keys(), ...view.marks.steps.keys()]) {
    if (view.layout.mask[operation]) g.fillRect(stripX(view.layout.end[operation]) - 1, 3, 2, floor - 3);
  }
  g.font = `11px ${paint.ui}`;
  g.textBaseline = "middle";
  g.fillStyle = paint.soft;
  g.fillText("overview", 12, height / 2);
  g.fillStyle = paint.line;
  g.fillRect(0, height - 1, width, 1);
  g.fillRect(view.gutter - 1, 0, 1, height);
  return still;
}

function clampPlace(x) {
  return clamp(x, view.layout.origin, view.layout.origin + view.layout.width);
}

// How many operations were open in each of so many equal stretches of the line.
function busyness(stretches) {
  const { layout } = view;
  const changes = new Float64Array(stretches + 1);
  const scale = (stretches - 1) / layout.width;
  for (const operation of layout.shown) {
    changes[Math.floor((layout.start[operation] - layout.origin) * scale)] += 1;
    changes[Math.floor((layout.end[operation] - layout.origin) * scale) + 1] -= 1;
  }
  let open = 0;
  return Array.from(changes.subarray(0, stretches), (change) => (open += change));
}

function moveTo(event) {
  const x = view.layout.origin + (event.offsetX - view.gutter - 8) / stripScale();
  view.left = x - view.width / view.zoom / 2;
  redraw();
}

function listenToOverview() {
  strip.addEventListener("pointerdown", (event) => {
    strip.setPointerCapture(event.pointerId);
    moveTo(event);
  });
  strip.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) moveTo(event);
  });
  strip.addEventListener("wheel", onWheel, { passive: false });
}
