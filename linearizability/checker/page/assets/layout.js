// Where operations lie: which row, and which stretch of a line as long as the scale makes it.
// Knows a set of operations and their times; refuses to know pixels, zoom and colours.
//
// Two scales. "clock": a place is a time. "even": only the order of events is kept, and every operation is as wide as
// its label needs; of two events the later lies further right, so overlap on the page is overlap in time.

const CHARACTER = 7.3; // width of a character of a label, in units of the even scale
const EVENT_GAP = 13; // between two events
const POINT_ROOM = 28; // that a point of the order gets
const LABEL_MOST = 44; // characters; what is longer is cut

// `mask[i]` says whether operation i is shown.
function makeLayout(mask) {
  const shown = [];
  for (let i = 0; i < data.count; i++) if (mask[i]) shown.push(i);
  const layout = {
    mask,
    shown: Int32Array.from(shown),
    rows: [],
    events: null, // operations in the order of events: i for its call, ~i for its return
    callPlace: new Int32Array(data.count), // places in `events`
    endPlace: new Int32Array(data.count).fill(0x7fffffff),
    start: new Float64Array(data.count),
    end: new Float64Array(data.count),
    width: 1,
    origin: 0, // where the first event lies
    times: new Float64Array(0), // the times of events, each with its place in `at`
    at: new Float64Array(0),
    kind: "even",
  };
  orderEvents(layout);
  packRows(layout);
  return layout;
}

function orderEvents(layout) {
  const { shown, mask } = layout;
  const returns = data.returns.filter((operation) => mask[operation]);
  const events = new Int32Array(shown.length + returns.length);
  let one = 0;
  let other = 0;
  for (let place = 0; place < events.length; place++) {
    const isCall =
      one < shown.length && (other >= returns.length || data.call[shown[one]] <= data.returned[returns[other]]);
    if (isCall) {
      layout.callPlace[shown[one]] = place;
      events[place] = shown[one++];
    } else {
      layout.endPlace[returns[other]] = place;
      events[place] = ~returns[other++];
    }
  }
  layout.events = events;
}

// Each client has a row, and as many more as it had operations open at once.
function packRows(layout) {
  const lanes = data.processes.map(() => []);
  for (const operation of layout.shown) {
    const own = lanes[data.process[operation]];
    const from = layout.callPlace[operation];
    let lane = own.find((candidate) => candidate.busyUntil < from);
    if (!lane) own.push((lane = { operations: [], busyUntil: -1 }));
    lane.operations.push(operation);
    const until = layout.endPlace[operation];
    lane.busyUntil = until === 0x7fffffff ? from : until; // one that never returned holds nobody up
  }
  layout.rowOf = new Int32Array(data.count).fill(-1);
  lanes.forEach((own, process) => {
    own.forEach((lane, place) => {
      for (const operation of lane.operations) layout.rowOf[operation] = layout.rows.length;
      layout.rows.push({ process, first: place === 0, lanes: own.length, operations: Int32Array.from(lane.operations) });
    });
  });
}

// Give every event its place on the line. `points[p]` is how many points of the order follow event p before the next.
function applyScale(layout, kind, points, labelLength, pointRoom = POINT_ROOM) {
  layout.kind = kind;
  const { events, start, end } = layout;
  const at = new Float64Array(events.length);
  const times = new Float64Array(events.length);
  let x = 0;
  let time = Number.NEGATIVE_INFINITY;
  let wasCall = true;
  for (let place = 0; place < events.length; place++) {
    const isCall = events[place] >= 0;
    const operation = isCall ? events[place] : ~events[place];
    const now = isCall ? data.call[operation] : data.returned[operation];
    if (kind === "clock") x = now;
    else if (place > 0) {
      const together = now === time && isCall === wasCall && !points.get(place - 1);
      x += together ? 0 : Math.max(EVENT_GAP, (points.get(place - 1) ?? 0) * pointRoom);
      if (!isCall) x = Math.max(x, start[operation] + Math.min(labelLength(operation), LABEL_MOST) * CHARACTER + 14);
    }
    if (isCall) start[operation] = x;
    else end[operation] = x;
    at[place] = x;
    times[place] = now;
    time = now;
    wasCall = isCall;
  }
  layout.at = at;
  layout.times = times;
  layout.origin = at.length ? at[0] : 0;
  closeOpen(layout, labelLength, (points.get(events.length - 1) ?? 0) * pointRoom);
}

// Operations that never returned get as much room as is free: to the next of their row, or to the end of everything.
function closeOpen(layout, labelLength, roomAfter) {
  const last = layout.at.length ? layout.at[layout.at.length - 1] : 0;
  let far = last + (layout.kind === "even" ? roomAfter : 0);
  for (const row of layout.rows) {
    const operation = row.operations[row.operations.length - 1];
    if (data.returned[operation] < INFINITE || layout.kind !== "even") continue;
    far = Math.max(far, layout.start[operation] + Math.min(labelLength(operation), LABEL_MOST) * CHARACTER + 14);
  }
  layout.width = Math.max(far - layout.origin, layout.kind === "even" ? 40 : 1);
  for (const row of layout.rows) {
    row.operations.forEach((operation, place) => {
      if (data.returned[operation] < INFINITE) return;
      const next = row.operations[place + 1];
      layout.end[operation] = next === undefined ? layout.origin + layout.width : layout.start[next];
    });
  }
}

// The place of a time that need not be an event's.
function placeOf(layout, time) {
  if (layout.kind === "clock") return time;
  const { times, at } = layout;
  if (!times.length) return 0;
  const after = lowerBound(times, time);
  if (after === times.length) return at[after - 1] + EVENT_GAP;
  if (times[after] === time) return at[after];
  if (after === 0) return at[0] - EVENT_GAP;
  const part = (time - times[after - 1]) / (times[after] - times[after - 1]);
  return at[after - 1] + part * (at[after] - at[after - 1]);
}

// The time of a place: the other way round.
function timeAt(layout, x) {
  if (layout.kind === "clock") return x;
  const { times, at } = layout;
  if (!times.length) return 0;
  const after = lowerBound(at, x);
  if (after === 0) return times[0];
  if (after === at.length) return times[after - 1];
  const room = at[after] - at[after - 1];
  return times[after - 1] + (room ? (x - at[after - 1]) / room : 0) * (times[after] - times[after - 1]);
}
