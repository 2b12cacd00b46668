// Which lanes and curves there are, and in which order: the same for both runs, so that they lie side by side.
// Above the line that does not scroll: the whole run in small, the axis, faults, and errors.

const ui = {
  run: 0, // whose error is told
  told: 0, // which kind of error
  story: 0,
  fault: null, // [run, number] of the chosen fault
  operation: null, // [run, number] of the chosen operation
  expanded: false,
  only: "", // the function whose operations are drawn; all if empty
  hover: null, // {run, x, y, time}
  sheet: "errors",
};

const view = { from: 0, to: 1, top: 0, width: 800, height: 400, gutter: 132, pinned: [], tracks: [], pinnedHeight: 0, room: 1 };
const whole = { from: Math.min(...runs.map((run) => run.start)), to: Math.max(...runs.map((run) => run.end)) };

const FAULTS_ROOM = 170; // pixels
const PARTITIONS_OPEN = 3; // with more, only those with errors show their offsets at first

function chosenTold() {
  return runs[ui.run].errors[ui.told] ?? null;
}

function chosenStory() {
  return chosenTold()?.stories[ui.story] ?? null;
}

// Lanes of faults: one a kind, and more where faults of a kind overlap.
function faultLanes(run) {
  const byKind = new Map();
  run.faults.forEach((fault, place) => {
    const lanes = byKind.get(fault.kind) ?? [];
    byKind.set(fault.kind, lanes);
    let lane = lanes.find((candidate) => candidate.until <= fault.start);
    if (!lane && lanes.length < 3) lanes.push((lane = { kind: fault.kind, faults: [], until: 0 }));
    if (!lane) lane = lanes[lanes.length - 1];
    lane.faults.push(place);
    lane.until = Math.max(lane.until, fault.end ?? run.end);
  });
  return byKind;
}

const faultKinds = [...new Set(runs.flatMap((run) => run.faults.map((fault) => fault.kind)))];
const lanesOfFaults = runs.map(faultLanes);

function buildTracks() {
  const pinned = [{ kind: "overview", height: 34 }, { kind: "axis", height: 24 }];
  if (runs.some((run) => run.phases.length)) pinned.push({ kind: "phase", name: "phase", height: 17 });
  const faults = faultKinds.flatMap((kind) => {
    const most = Math.max(...lanesOfFaults.map((lanes) => lanes.get(kind)?.length ?? 0));
    return Array.from({ length: most }, (_, lane) => ({ kind: "faults", name: lane ? "" : kind, fault: kind, lane }));
  });
  // Many kinds share the room of a few: the curves below need theirs.
  const height = clamp(Math.floor(FAULTS_ROOM / Math.max(faults.length, 1)), 9, 19);
  pinned.push(...faults.map((track) => ({ ...track, height })));
  if (runs.some((run) => run.stories.length)) pinned.push({ kind: "errors", name: "errors", height: 22 });
  view.pinned = pinned;
  view.tracks = [
    { kind: "latency", name: "latency", height: 112 },
    { kind: "rate", name: "operations / s", height: 62 },
    ...curve("unseen", "unseen records"),
    ...curve("lag", "worst lag of polls"),
    ...groupTracks(),
    ...stateTracks(),
    ...partitionTracks(),
    ...logTracks(),
    ...clientTracks(),
  ];
  let top = 0;
  for (const list of [view.pinned, view.tracks]) {
    top = 0;
    for (const track of list) {
      track.top = top;
      top += track.height;
    }
    if (list === view.pinned) view.pinnedHeight = top + 1;
  }
  view.total = top;
}

function curve(kind, name) {
  return runs.some((run) => run[kind].values.some(Boolean)) ? [{ kind, name, height: 44 }] : [];
}

function groupTracks() {
  const lags = runs.flatMap((run) => Object.entries(run.samples.groups));
  const groups = [...new Set(lags.filter(([, values]) => values.some(Boolean)).map(([group]) => group))].sort();
  return groups.slice(0, ui.expanded ? 100 : 4).map((group) => ({ kind: "group", name: `lag of group ${group}`, group, height: 44 }));
}

function stateTracks() {
  const brokers = [...new Set(runs.flatMap((run) => Object.keys(run.segments.brokers)))].sort();
  const known = runs.some((run) => run.samples.quorum.some((leader) => leader !== null));
  return [
    ...brokers.map((broker) => ({ kind: "broker", name: `broker ${broker}`, broker, height: 18 })),
    ...(known ? [{ kind: "quorum", name: "Raft leader, term", height: 22 }] : []),
  ];
}

function partitionTracks() {
  const keys = [...new Set(runs.flatMap((run) => run.keys))];
  const tracks = [];
  for (const key of keys) {
    tracks.push({ kind: "partition", name: key, key, height: 27 });
    const bad = runs.some((run) => run.bad.has(key));
    if (ui.expanded || bad || keys.length <= PARTITIONS_OPEN) tracks.push({ kind: "offsets", name: "offsets", key, height: bad ? 84 : 50 });
  }
  return tracks;
}

function logTracks() {
  const brokers = [...new Set(runs.flatMap((run) => run.lines.map((line) => line[1])))].sort();
  if (ui.expanded) return brokers.map((broker) => ({ kind: "log", name: `log of broker ${broker}`, broker, height: 18 }));
  return brokers.length ? [{ kind: "log", name: "warnings in logs", broker: null, height: 20 }] : [];
}

function clientTracks() {
  const most = Math.max(...runs.map((run) => run.data.processes.length));
  const tracks = [];
  for (let process = 0; process < (ui.expanded ? most : Math.min(most, 24)); process++) {
    const name = runs.map((run) => run.data.processes[process]).find(Boolean);
    tracks.push({ kind: "client", name, process, height: 17 });
  }
  return tracks;
}

// Each client's operations in the order of calls; made when they are first drawn.
function operationsOf(run, process) {
  if (!run.byProcess) {
    const lists = run.data.processes.map(() => []);
    for (let operation = 0; operation < run.data.count; operation++) lists[run.data.process[operation]].push(operation);
    run.byProcess = lists.map((list) => Int32Array.from(list));
  }
  return run.byProcess[process] ?? new Int32Array(0);
}

const functionNames = [...new Set(runs.flatMap((run) => run.data.functions))];

// The number of the chosen function in a run; -1 for all of them, and -2 where there is none.
function onlyIn(run) {
  return ui.only ? (run.data.functions.includes(ui.only) ? run.data.functions.indexOf(ui.only) : -2) : -1;
}
