// Curves and points. Only what is in view is looked at, and what falls on the same pixels is drawn once.

const DENSE = 6000; // points in view; with more of them it is their density that is drawn
const CELL = 2; // pixels of a cell of density

const OUTCOME_PAINT = ["ok", "fail", "info"]; // by outcome: 0 ok, 1 fail, 2 info
const DRAWN_ORDER = [0, 2, 1]; // the rarer on top

// A height from the logarithm of a latency; all runs have the same scale.
const latencyRange = [
  Math.log10(Math.min(...runs.map((run) => run.latency[0]))),
  Math.log10(Math.max(...runs.map((run) => run.latency[1]))) + 0.05,
];

function latencyHeight(took, height) {
  const part = (Math.log10(Math.max(took, 1e3)) - latencyRange[0]) / (latencyRange[1] - latencyRange[0]);
  return height - 5 - clamp(part, 0, 1) * (height - 12);
}

function drawLatency(run, { height }) {
  const { data } = run;
  for (let power = Math.ceil(latencyRange[0]); power <= latencyRange[1]; power++) {
    gridLine(latencyHeight(10 ** power, height), duration(10 ** power));
  }
  const from = lowerBound(data.call, view.from);
  const to = lowerBound(data.call, view.to);
  if (to - from > DENSE) drawDensity(run, height, from, to);
  else drawDots(run, height, from, to);
  drawRings(run, height);
}

function drawDots(run, height, from, to) {
  const { data } = run;
  const only = onlyIn(run);
  const size = to - from < 800 ? 4 : to - from < 2500 ? 3 : 2;
  for (const outcome of DRAWN_ORDER) {
    pen.fillStyle = paint[OUTCOME_PAINT[outcome]];
    for (let operation = from; operation < to; operation++) {
      if (data.outcome[operation] !== outcome || data.returned[operation] === INFINITE) continue;
      if (only !== -1 && data.functionOf[operation] !== only) continue;
      const y = latencyHeight(data.returned[operation] - data.call[operation], height);
      pen.fillRect(toPixel(data.call[operation]) - size / 2, y - size / 2, size, size);
    }
  }
}

// How many operations fall on each cell, by outcome; each of five shades is set once.
function drawDensity(run, height, from, to) {
  const { data } = run;
  const columns = Math.ceil(view.width / CELL) + 1;
  const rows = Math.ceil(height / CELL) + 1;
  const scale = view.width / (view.to - view.from) / CELL;
  const counts = [0, 1, 2].map(() => new Uint16Array(columns * rows));
  const only = onlyIn(run);
  const low = latencyRange[0];
  const tall = (height - 12) / (latencyRange[1] - latencyRange[0]);
  for (let operation = from; operation < to; operation++) {
    const took = data.returned[operation] - data.call[operation];
    if (took === INFINITE || (only !== -1 && data.functionOf[operation] !== only)) continue;
    const y = height - 5 - clamp((Math.log10(took < 1e3 ? 1e3 : took) - low) * tall, 0, height - 12);
    counts[data.outcome[operation]][((data.call[operation] - view.from) * scale | 0) + columns * ((y / CELL) | 0)]++;
  }
  for (const outcome of DRAWN_ORDER) {
    const own = counts[outcome];
    const shades = [[], [], [], [], []];
    for (let cell = 0; cell < own.length; cell++) {
      if (own[cell]) shades[outcome ? 4 : Math.min(4, 31 - Math.clz32(own[cell]))].push(cell);
    }
    pen.fillStyle = paint[OUTCOME_PAINT[outcome]];
    shades.forEach((cells, shade) => {
      pen.globalAlpha = 0.36 + shade * 0.16;
      for (const cell of cells) pen.fillRect((cell % columns) * CELL, Math.floor(cell / columns) * CELL, CELL, CELL);
    });
  }
  pen.globalAlpha = 1;
  drawQuantiles(counts[0], columns, rows);
}

// The median and the 99th of a hundred, of stretches of eight cells.
function drawQuantiles(counts, columns, rows) {
  for (const [part, colour] of [[0.5, paint.ground], [0.99, paint.ink]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.3;
    pen.beginPath();
    let drawn = false;
    for (let left = 0; left < columns; left += 8) {
      let total = 0;
      for (let row = 0; row < rows; row++) for (let at = left; at < left + 8 && at < columns; at++) total += counts[row * columns + at];
      if (total < 20) {
        drawn = false;
        continue;
      }
      let above = total * (1 - part);
      let row = 0;
      for (; row < rows; row++) {
        for (let at = left; at < left + 8 && at < columns; at++) above -= counts[row * columns + at];
        if (above <= 0) break;
      }
      const point = [(left + 4) * CELL, row * CELL + 1];
      if (drawn) pen.lineTo(...point);
      else pen.moveTo(...point);
      drawn = true;
    }
    pen.stroke();
  }
}

// The operations of the chosen story, and the chosen operation.
function drawRings(run, height) {
  const { data } = run;
  const ring = (operation, colour) => {
    const took = data.returned[operation] === INFINITE ? 1e9 : data.returned[operation] - data.call[operation];
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(toPixel(data.call[operation]), latencyHeight(took, height), 6, 0, 7);
    pen.stroke();
  };
  const story = chosenStory();
  if (story && run.number === ui.run) for (const operation of story.operations) ring(operation, paint.bad);
  if (ui.operation && ui.operation[0] === run.number) ring(ui.operation[1], paint.accent);
}

// A line across the lane; what it stands for is written beside it, left of the curves.
function gridLine(y, label) {
  pen.fillStyle = paint.faint;
  pen.fillRect(0, Math.round(y), view.width, 1);
  if (label) ticks.push([y, label]);
}

function rateStep() {
  return niceStep(((view.to - view.from) / view.width) * 5);
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((part) => part * power).find((size) => size >= least);
}

// Operations that ended, a second, in steps of a round length: stacked by outcome.
function rateColumns(run) {
  const step = rateStep();
  const first = Math.floor(view.from / step);
  const total = Math.ceil(view.to / step) - first + 1;
  const counts = [0, 1, 2].map(() => new Uint32Array(total));
  const { returns, outcome, functionOf } = run.data;
  const only = onlyIn(run);
  const from = lowerBound(run.returnTimes, first * step);
  for (let place = from; place < returns.length; place++) {
    const column = Math.floor(run.returnTimes[place] / step) - first;
    if (column >= total) break;
    if (only === -1 || functionOf[returns[place]] === only) counts[outcome[returns[place]]][column]++;
  }
  return { step, first, total, counts };
}

function drawRate(run, { height }) {
  const all = runs.map(rateColumns);
  const { step, first, total, counts } = all[run.number];
  let most = 1;
  for (const one of all) for (let at = 0; at < one.total; at++) most = Math.max(most, one.counts[0][at] + one.counts[1][at] + one.counts[2][at]);
  gridLine(6, `${number((most * 1e9) / step)}`);
  const wide = (step / (view.to - view.from)) * view.width;
  for (let at = 0; at < total; at++) {
    let base = height;
    const left = toPixel((first + at) * step);
    for (const outcome of DRAWN_ORDER) {
      const tall = (counts[outcome][at] / most) * (height - 8);
      pen.fillStyle = paint[OUTCOME_PAINT[outcome]];
      pen.fillRect(left, base - tall, Math.max(wide - (wide > 3 ? 1 : 0), 1), tall);
      base -= tall;
    }
  }
}

// A curve of steps with the space below it filled: times and values of equal length, null where nothing is known.
function drawSteps(times, values, y, { fill = null, colour, until, lineWidth = 1.5, bottom = 0 }) {
  pen.strokeStyle = colour;
  pen.lineWidth = lineWidth;
  const from = Math.max(0, lowerBound(times, view.from) - 1);
  const to = Math.min(times.length, lowerBound(times, view.to) + 1);
  const stretches = []; // points without a gap between them
  let open = null;
  for (let place = from; place < to; place++) {
    const value = values[place];
    if (value === null || value === undefined) {
      open = null;
      continue;
    }
    if (!open) stretches.push((open = []));
    const height = y(value);
    open.push([toPixel(times[place]), height], [toPixel(place + 1 < times.length ? times[place + 1] : until), height]);
  }
  for (const points of stretches) {
    const trace = () => {
      pen.beginPath();
      for (const [x, height] of points) pen.lineTo(x, height);
    };
    if (fill) {
      trace();
      pen.lineTo(points[points.length - 1][0], bottom);
      pen.lineTo(points[0][0], bottom);
      pen.fillStyle = fill;
      pen.fill();
    }
    trace();
    pen.stroke();
  }
}

// A curve whose scale is that of its greatest value in any run.
function drawCurve(run, series, height, most, label) {
  gridLine(6, label(most));
  const y = (value) => height - 2 - (value / Math.max(most, 1)) * (height - 9);
  drawSteps(series.times, series.values, y, { fill: paint.curve, colour: paint.accent, until: run.end, bottom: height });
}

function greatest(of) {
  return runs.reduce((most, run) => of(run).reduce((high, value) => Math.max(high, value ?? 0), most), 0);
}

function drawUnseen(run, { height }) {
  drawCurve(run, run.unseen, height, greatest((one) => one.unseen.values), number);
}

function drawLag(run, { height }) {
  drawCurve(run, run.lag, height, greatest((one) => one.lag.values), duration);
}

function drawGroup(run, { group, height }) {
  const values = run.samples.groups[group];
  if (!values) return;
  const most = greatest((one) => one.samples.groups[group] ?? []);
  drawCurve(run, { times: run.samples.times, values }, height, most, number);
}

// High watermark, last stable offset and log end of a partition. The scale fits what is in view.
function drawOffsets(run, { key, height }) {
  const column = run.samples.partitions[key];
  if (!column) return;
  const { times } = run.samples;
  const [low, high] = offsetRange(run, column);
  const y = (value) => height - 5 - ((value - low) / Math.max(high - low, 1)) * (height - 13);
  gridLine(8, number(high));
  ticks.push([height - 7, number(low)]);
  for (const [name, colour, lineWidth] of OFFSET_LINES) {
    drawSteps(times, column[name], y, { colour: paint[colour], until: run.end, lineWidth });
  }
  drawFalls(run, column, y, height);
  drawFocus(run, key, y, height);
}

const OFFSET_LINES = [["log_end", "end", 1.2], ["last_stable", "stable", 1.2], ["high_watermark", "accent", 1.8]];

function offsetRange(run, column) {
  const { times } = run.samples;
  const from = Math.max(0, lowerBound(times, view.from) - 1);
  const to = Math.min(times.length, lowerBound(times, view.to) + 1);
  let low = INFINITE;
  let high = 0;
  for (const [name] of OFFSET_LINES) {
    for (let place = from; place < to; place++) {
      const value = column[name][place];
      if (value === null || value === undefined) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return low > high ? [0, 1] : [low, high];
}

// Where the log end or the high watermark went back.
function drawFalls(run, column, y, height) {
  for (const name of ["high_watermark", "log_end"]) {
    let known = null;
    column[name].forEach((value, place) => {
      if (value === null) return;
      if (known !== null && value < known) {
        const x = toPixel(run.samples.times[place]);
        pen.fillStyle = paint.bad;
        pen.fillRect(x - 1, y(known), 2.5, Math.max(y(value) - y(known), 3));
        pen.beginPath();
        pen.moveTo(x - 4.5, Math.min(y(value), height - 3) - 4);
        pen.lineTo(x + 5, Math.min(y(value), height - 3) - 4);
        pen.lineTo(x + 0.25, Math.min(y(value), height - 3) + 2);
        pen.fill();
      }
      known = value;
    });
  }
}

// The offset that the chosen story is about.
function drawFocus(run, key, y, height) {
  const story = chosenStory();
  if (!story?.log || story.key !== key || run.number !== ui.run) return;
  const x = toPixel(story.start);
  const at = clamp(y(story.log.focus), 4, height - 4);
  pen.fillStyle = paint.bad;
  pen.beginPath();
  pen.arc(x, at, 4, 0, 7);
  pen.fill();
  pen.font = `600 10px ${paint.ui}`;
  pen.fillText(`offset ${number(story.log.focus)}`, x + 7, clamp(at, 8, height - 8));
}
