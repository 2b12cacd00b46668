// Lanes: faults, errors, brokers, leaders and in-sync replicas, warnings, clients; and the axis above them.

const DRAW = {
  overview: drawOverview,
  axis: drawAxis,
  phase: drawPhase,
  faults: drawFaults,
  errors: drawErrors,
  latency: drawLatency,
  rate: drawRate,
  unseen: drawUnseen,
  lag: drawLag,
  group: drawGroup,
  broker: drawBroker,
  quorum: drawQuorum,
  partition: drawPartition,
  offsets: drawOffsets,
  log: drawLog,
  client: drawClient,
};

function hueOf(broker) {
  return (((Number(broker) || 1) - 1) % 6 + 6) % 6;
}

function faultHue(kind) {
  return paint.faults[faultKinds.indexOf(kind) % paint.faults.length];
}

// The whole run in small: how much was done, faults and errors, and which part is in view.
function drawOverview(run, { height }) {
  const { width } = view;
  const span = whole.to - whole.from;
  const x = (time) => ((time - whole.from) / span) * width;
  pen.fillStyle = paint.raised;
  pen.fillRect(0, 0, width, height);
  for (const fault of run.faults) {
    pen.fillStyle = faultHue(fault.kind);
    pen.globalAlpha = fault.effect === false ? 0.12 : 0.32;
    pen.fillRect(x(fault.start), 0, Math.max(x(fault.end ?? run.end) - x(fault.start), 1), height);
  }
  pen.globalAlpha = 1;
  if (!run.small || run.small.length !== Math.ceil(width)) {
    run.small = new Uint32Array(Math.ceil(width));
    for (const time of run.returnTimes) run.small[clamp(Math.floor(x(time)), 0, run.small.length - 1)]++;
    run.smallMost = run.small.reduce((most, one) => Math.max(most, one), 1);
  }
  pen.fillStyle = paint.soft;
  for (let at = 0; at < run.small.length; at++) {
    const tall = (run.small[at] / run.smallMost) * (height - 12);
    pen.fillRect(at, height - 1 - tall, 1, tall);
  }
  for (const { story } of run.stories) cross(x(story.start), 7, 3.5);
  const from = x(view.from);
  const to = x(view.to);
  pen.fillStyle = paint.window;
  pen.fillRect(0, 0, Math.max(from, 0), height);
  pen.fillRect(to, 0, Math.max(width - to, 0), height);
  pen.strokeStyle = paint.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(from + 0.75, 0.75, Math.max(to - from - 1.5, 2), height - 2);
}

function cross(x, y, size) {
  pen.strokeStyle = paint.bad;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x - size, y - size);
  pen.lineTo(x + size, y + size);
  pen.moveTo(x + size, y - size);
  pen.lineTo(x - size, y + size);
  pen.stroke();
}

function drawAxis(run, { height }) {
  pen.fillStyle = paint.raised;
  pen.fillRect(0, 0, view.width, height);
  const step = niceStep(((view.to - view.from) / view.width) * 84);
  pen.font = `11px ${paint.ui}`;
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    const x = toPixel(time);
    pen.fillStyle = paint["mute-edge"];
    pen.fillRect(Math.round(x), height - 6, 1, 6);
    pen.fillStyle = paint.soft;
    const label = moment(time, step);
    if (x + pen.measureText(label).width + 6 < view.width) pen.fillText(label, x + 4, height / 2 + 1);
  }
}

// Over all curves, very light: what was in force.
function drawFaultBands(run) {
  run.faults.forEach((fault, place) => {
    if (fault.effect === false) return;
    const from = toPixel(fault.start);
    const to = toPixel(fault.end ?? run.end);
    if (to < 0 || from > view.width) return;
    const chosen = ui.fault && ui.fault[0] === run.number && ui.fault[1] === place;
    pen.fillStyle = faultHue(fault.kind);
    pen.globalAlpha = chosen ? 0.26 : 0.09;
    pen.fillRect(from, 0, Math.max(to - from, 1), view.height);
    if (to - from < 12) return; // edges of many would hide the curves
    pen.globalAlpha = 0.35;
    pen.fillRect(from, 0, 1, view.height);
    pen.fillRect(to, 0, 1, view.height);
  });
  pen.globalAlpha = 1;
}

function drawFaults(run, { fault: kind, lane, height }) {
  const own = lanesOfFaults[run.number].get(kind)?.[lane];
  for (const place of own?.faults ?? []) {
    const fault = run.faults[place];
    const from = toPixel(fault.start);
    const to = toPixel(fault.end ?? run.end);
    if (to < 0 || from > view.width) continue;
    const wide = Math.max(to - from, 2);
    const idle = fault.effect === false;
    const target = visible(fault.target) || faultLabel(fault);
    const chosen = ui.fault && ui.fault[0] === run.number && ui.fault[1] === place;
    pen.fillStyle = faultHue(kind);
    pen.globalAlpha = idle ? 0.12 : 0.85;
    const edge = height < 13 ? 1 : 2;
    pen.fillRect(from, edge, wide, height - 2 * edge);
    pen.globalAlpha = 1;
    if (idle || chosen) {
      pen.strokeStyle = chosen ? paint.ink : faultHue(kind);
      pen.setLineDash(idle ? [3, 3] : []);
      pen.lineWidth = chosen ? 2 : 1;
      pen.strokeRect(from + 0.5, edge + 0.5, wide - 1, height - 2 * edge - 1);
      pen.setLineDash([]);
    }
    inBox(from, to, height, idle ? [`${target}: ${evidenceOf(fault)}`, target] : [target, target.replace(/^broker /, "")], idle ? paint.soft : paint["on-fault"]);
  }
}

// The longest of the labels that fits, or the beginning of the last.
function inBox(from, to, height, labels, colour) {
  const left = Math.max(from, 0) + 5;
  const room = Math.min(to, view.width) - left - 3;
  if (room < 7 || height < 13) return;
  pen.font = `11px ${paint.ui}`;
  pen.fillStyle = colour;
  const label = labels.find((one) => pen.measureText(one).width <= room) ?? fitText(labels[labels.length - 1], room);
  pen.fillText(label, left, height / 2 + 0.5);
}

// From the moment at which each story begins to the one on which it turned.
function drawErrors(run, { height }) {
  const chosen = chosenStory();
  for (const { story } of run.stories) {
    if (story === chosen) continue;
    pen.globalAlpha = 0.55;
    cross(toPixel(story.start), height / 2, 4);
  }
  pen.globalAlpha = 1;
  if (!chosen || run.number !== ui.run) return;
  const from = toPixel(chosen.start);
  const to = toPixel(chosen.pivot);
  pen.fillStyle = paint.bad;
  pen.fillRect(from, height / 2 - 1, Math.max(to - from, 0), 2);
  pen.fillRect(to - 1, 4, 2, height - 8);
  pen.beginPath();
  pen.arc(from, height / 2, 8, 0, 7);
  pen.fillStyle = paint["bad-fill"];
  pen.fill();
  pen.strokeStyle = paint.bad;
  pen.lineWidth = 1.5;
  pen.stroke();
  cross(from, height / 2, 3.5);
}

const STATES = { down: "soft", paused: "found" };

function drawBroker(run, { broker, height }) {
  for (const { from, to, value } of run.segments.brokers[broker] ?? []) {
    const left = toPixel(from);
    const right = toPixel(to);
    if (right < 0 || left > view.width || value === null) continue;
    pen.fillStyle = STATES[value] ? paint[STATES[value]] : paint.edges[hueOf(broker)];
    pen.globalAlpha = STATES[value] ? 0.8 : 0.75;
    if (value === "up") pen.fillRect(left, height / 2 - 2, right - left, 4);
    else pen.fillRect(left, 2, Math.max(right - left, 1), height - 4);
    pen.globalAlpha = 1;
    if (value !== "up") inBox(left, right, height, [value], paint["on-fault"]);
  }
}

function drawQuorum(run, { height }) {
  for (const { from, to, value } of run.segments.quorum) {
    const known = value.leader !== null;
    segment(from, to, height, known ? value.leader : null, null, known ? [`${value.leader}, term ${value.term ?? "?"}`, String(value.leader)] : ["nobody answered"]);
  }
}

// Below the leader as many lines as there are replicas, and those bold that are in sync.
function drawPartition(run, { key, height }) {
  const lane = run.segments.partitions[key];
  for (const { from, to, value } of lane?.list ?? []) {
    const insync = value.isr ? [value.isr.length, lane.most] : null;
    const known = value.leader !== null;
    const isr = value.isr ? ` \u00b7 ISR ${value.isr.join(",") || "none"}` : "";
    const epoch = value.epoch === null ? "" : ` \u00b7 epoch ${value.epoch}`;
    const labels = [`leader ${value.leader}${epoch}${isr}`, `leader ${value.leader}${isr}`, `${value.leader}${isr}`, String(value.leader)];
    segment(from, to, height, value.leader, insync, known ? labels : ["nobody answered"]);
  }
}

function segment(from, to, height, broker, insync, labels) {
  const left = toPixel(from);
  const right = toPixel(to);
  if (right < 0 || left > view.width) return;
  const wide = Math.max(right - left - 1, 1);
  const most = Math.min(insync ? insync[1] : 0, 5);
  const tall = height - 4 - most * 2.5;
  pen.fillStyle = broker === null ? paint["mute-fill"] : paint.fills[hueOf(broker)];
  pen.fillRect(left, 2, wide, height - 4);
  if (broker !== null) {
    pen.fillStyle = paint.edges[hueOf(broker)];
    pen.globalAlpha = 0.5;
    pen.fillRect(left, 2, wide, tall);
    pen.globalAlpha = 1;
    pen.fillRect(left, 2, 2, height - 4);
    for (let line = 0; line < most; line++) {
      pen.fillStyle = line >= insync[0] ? paint.ground : insync[0] < insync[1] ? paint.found : paint.edges[hueOf(broker)];
      pen.fillRect(left, height - 3.5 - line * 2.5, wide, 1.8);
    }
  }
  inBox(left, right, tall + 4, labels, broker === null ? paint.soft : paint.ink);
}

function drawPhase(run, { height }) {
  for (const [name, begin, end] of run.phases) {
    const left = toPixel(begin);
    const right = toPixel(end ?? run.end);
    if (right < 0 || left > view.width) continue;
    pen.fillStyle = paint["mute-edge"];
    pen.fillRect(left, 3, 1, height - 4);
    inBox(left, right, height, [visible(name)], paint.soft);
  }
}

const GRAVE = ["WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"];

function drawLog(run, { broker, height }) {
  const lines = run.lines;
  const from = lowerBoundBy(lines.length, (place) => lines[place][0], view.from);
  let drawn = { warning: -2, error: -2 };
  for (let place = from; place < lines.length && lines[place][0] <= view.to; place++) {
    const [time, own, level] = lines[place];
    if ((broker !== null && own !== broker) || !GRAVE.includes(level)) continue;
    const kind = level.startsWith("WARN") ? "warning" : "error";
    const x = Math.round(toPixel(time));
    if (x === drawn[kind]) continue;
    drawn[kind] = x;
    pen.fillStyle = kind === "error" ? paint.bad : paint.found;
    pen.fillRect(x - 1, kind === "error" ? 2 : 5, 2, height - (kind === "error" ? 4 : 10));
  }
}

// One client's operations: boxes where there is room, and one bar a pixel where there is none.
function drawClient(run, { process, height }) {
  const { data } = run;
  const only = onlyIn(run);
  const list = operationsOf(run, process);
  const story = run.number === ui.run ? chosenStory() : null;
  let covered = -1;
  let place = lowerBoundBy(list.length, (at) => Math.min(data.returned[list[at]], 9e15), view.from);
  pen.font = `10.5px ${paint.mono}`;
  while (place < list.length) {
    const operation = list[place];
    const from = toPixel(data.call[operation]);
    if (from > view.width) break;
    if (only !== -1 && data.functionOf[operation] !== only) {
      place++;
      continue;
    }
    const to = toPixel(Math.min(data.returned[operation], run.end));
    pen.fillStyle = paint[OUTCOME_PAINT[data.outcome[operation]]];
    if (to - from > 3) {
      pen.globalAlpha = 0.35;
      pen.fillRect(from, 3, to - from, height - 6);
      pen.globalAlpha = 1;
      pen.fillRect(from, 3, 1.5, height - 6);
      if (to - from > 40) {
        const left = Math.max(from, 0) + 5;
        const length = Math.floor((Math.min(to, view.width) - left) / 6.6);
        pen.fillStyle = paint.ink;
        if (length > 4) pen.fillText(cut(textOf(run, operation), length), left, height / 2 + 0.5);
      }
      place++;
      continue;
    }
    const left = Math.max(Math.floor(from), covered);
    pen.globalAlpha = 0.7;
    pen.fillRect(left, 4, 1, height - 8);
    pen.globalAlpha = 1;
    covered = left + 1;
    const beyond = toTime(covered);
    place++;
    if (place < list.length && data.call[list[place]] < beyond) {
      const base = place;
      place += lowerBoundBy(list.length - base, (at) => data.call[list[base + at]], beyond);
    }
  }
  const marked = story ? story.operations.filter((operation) => data.process[operation] === process) : [];
  for (const operation of marked) {
    const from = toPixel(data.call[operation]);
    const to = toPixel(Math.min(data.returned[operation], run.end));
    pen.strokeStyle = paint.bad;
    pen.lineWidth = 2;
    pen.strokeRect(from - 1.5, 2, Math.max(to - from, 1) + 3, height - 4);
  }
}
