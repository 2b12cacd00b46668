// The runs of this page: their operations as columns, and what else is known of them. Times are nanoseconds from the
// first call of each run, so that two runs share one axis.

const page = JSON.parse(byId("data").textContent);
const runs = page.runs.map(readRun);

const STATUS = { valid: "Valid", invalid: "Invalid", unknown: "Unknown" };

function readRun(raw, number) {
  const data = readData(raw);
  const rest = raw.run;
  const ends = [
    data.returns.length ? data.returned[data.returns[data.returns.length - 1]] : 0,
    data.count ? data.call[data.count - 1] : 0,
    ...rest.faults.map((fault) => fault.end ?? fault.start),
    ...rest.samples.times.slice(-1),
  ];
  const run = {
    number,
    data,
    told: raw.told,
    ...rest,
    returnTimes: Float64Array.from(data.returns, (operation) => data.returned[operation]),
    start: Math.min(0, ...rest.samples.times.slice(0, 1), ...rest.faults.map((fault) => fault.start)),
    end: ends.reduce((most, one) => Math.max(most, one), 1),
    latency: [1e6, 1e6],
  };
  run.errors = run.told.filter((told) => told.judgement === "error");
  run.stories = run.errors.flatMap((told) => told.stories.map((story) => ({ told, story })));
  run.keys = Object.keys(run.samples.partitions);
  const bad = new Set(run.stories.map(({ story }) => story.key));
  run.keys.sort((one, other) => bad.has(other) - bad.has(one) || (one < other ? -1 : 1));
  run.bad = bad;
  run.brokers = [...new Set([...Object.keys(run.samples.brokers), ...run.lines.map((line) => line[1])])].sort(
    (one, other) => one.localeCompare(other, "en", { numeric: true }),
  );
  readLatency(run);
  run.segments = readSegments(run);
  return run;
}

function readLatency(run) {
  const { data } = run;
  let low = INFINITE;
  let high = 0;
  for (const operation of data.returns) {
    const took = data.returned[operation] - data.call[operation];
    if (took > high) high = took;
    if (took < low) low = took;
  }
  if (high > 0) run.latency = [Math.max(low, 1e4), Math.max(high, 1e6)];
}

// Stretches of time in which nothing changed, of each lane: {from, to, value}.
function readSegments(run) {
  const { samples } = run;
  const { times } = samples;
  const step = times.length > 1 ? times[times.length - 1] - times[times.length - 2] : 1e9;
  const stretches = (valueAt, same) => {
    const found = [];
    times.forEach((time, place) => {
      const value = valueAt(place);
      const last = found[found.length - 1];
      if (last && same(last.value, value)) return;
      if (last) last.to = time;
      found.push({ from: time, to: run.end, value });
    });
    if (found.length) found[found.length - 1].to = Math.min(run.end, times[times.length - 1] + step);
    return found;
  };
  const plain = (one, other) => one === other;
  const partitions = {};
  for (const [key, column] of Object.entries(samples.partitions)) {
    const most = column.isr.reduce((size, isr) => Math.max(size, isr ? isr.length : 0), 1);
    partitions[key] = {
      most,
      list: stretches(
        (place) => ({ leader: column.leader[place], epoch: column.leader_epoch[place], isr: column.isr[place] }),
        (one, other) => one.leader === other.leader && one.epoch === other.epoch && String(one.isr) === String(other.isr),
      ),
    };
  }
  const brokers = {};
  for (const [broker, states] of Object.entries(samples.brokers)) brokers[broker] = stretches((place) => states[place], plain);
  return {
    partitions,
    brokers,
    quorum: stretches(
      (place) => ({ leader: samples.quorum[place], term: samples.term[place] }),
      (one, other) => one.leader === other.leader && one.term === other.term,
    ),
  };
}

function textOf(run, operation) {
  return run.data.texts[run.data.text[operation]];
}

function processOf(run, operation) {
  return run.data.processes[run.data.process[operation]];
}

// A stretch of time, to about three digits.
function duration(nanoseconds) {
  const [size, unit] = UNITS.find(([least]) => Math.abs(nanoseconds) >= least) ?? UNITS[3];
  return `${Number((nanoseconds / size).toPrecision(3)).toLocaleString("en-US")} ${unit}`;
}

// A moment in seconds, exact enough to tell it from another `apart` away.
function moment(time, apart = 1e6) {
  const digits = clamp(Math.ceil(-Math.log10(apart / 1e9) - 1e-9), 0, 9);
  return `${(time / 1e9 + 0).toFixed(digits)} s`;
}

function number(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 2 });
}

function faultLabel(fault) {
  return visible(`${fault.kind} ${fault.target}`.trim());
}

function evidenceOf(fault) {
  if (fault.error) return `could not be put in: ${visible(fault.error)}`;
  const counted = fault.evidence.filter(([, value]) => value !== "0" && value !== "0.0" && value !== "null");
  const told = counted.map(([name, value]) => `${visible(name)} ${visible(value)}`).join(", ");
  if (fault.effect === null) return told || "the run ended before its effect was known";
  return fault.effect ? told || "it happened" : "without effect";
}
