// The history as columns. Knows the form that encode.py writes; refuses to know how anything is drawn.

const OK = 0;
const FAIL = 1;
const INFO = 2;
const OUTCOMES = ["ok", "failed", "unknown"];

const data = readData(JSON.parse(byId("data").textContent));

function readData(raw) {
  const total = raw.count;
  const texts = raw.texts.map(oneLine);
  const fill = (column, Type) => {
    const array = new Type(total);
    if (Array.isArray(column)) array.set(column);
    else array.fill(column.all ?? 0);
    return array;
  };
  const call = fill(raw.call, Float64Array);
  for (let i = 1; i < total; i++) call[i] += call[i - 1];
  const returned = fill(raw.duration, Float64Array);
  for (let i = 0; i < total; i++) returned[i] = returned[i] < 0 ? INFINITE : call[i] + returned[i];
  const columns = {
    process: fill(raw.process, Int32Array),
    functionOf: fill(raw.function, Int32Array),
    outcome: fill(raw.outcome, Uint8Array),
    text: fill(raw.text, Int32Array),
    input: fill(raw.input, Int32Array),
    output: fill(raw.output, Int32Array),
    error: fill(raw.error, Int32Array),
    line: fill(raw.line, Int32Array),
    keySet: fill(raw.keys, Int32Array),
  };
  const returns = [];
  for (let i = 0; i < total; i++) if (returned[i] < INFINITE) returns.push(i);
  returns.sort((one, other) => returned[one] - returned[other] || one - other);
  return {
    ...columns,
    count: total,
    call,
    returned,
    returns: Int32Array.from(returns),
    texts,
    processes: raw.processes.map(oneLine),
    functions: raw.functions.map(oneLine),
    keySets: raw.keySets,
    parts: raw.parts.map((part) => ({ ...part, name: oneLine(part.name) })),
    open: raw.open,
    annotations: raw.annotations
      .map((note) => ({ ...note, label: oneLine(note.label), lane: oneLine(note.lane) }))
      .sort((one, other) => one.start - other.start),
    findings: raw.findings,
    steps: raw.unit === "step",
    base: BigInt(raw.base),
    title: oneLine(raw.title),
    status: raw.status,
    words: visible(raw.words),
    facts: raw.facts,
    report: raw.report,
  };
}

function textOf(operation) {
  return data.texts[data.text[operation]];
}

function partsOf(operation) {
  return data.keySets.length ? data.keySets[data.keySet[operation]] : [];
}

function partLabel(part) {
  return data.parts[part].name || "the object";
}

function isIn(operation, part) {
  return part < 0 || partsOf(operation).includes(part);
}

// The latest time at which it may have taken effect.
function endOf(operation) {
  return data.outcome[operation] === INFO ? INFINITE : data.returned[operation];
}

function precedes(one, other) {
  return endOf(one) < data.call[other];
}

const UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "\u00b5s"],
  [1, "ns"],
];

// A stretch of time, to about four digits.
function duration(nanoseconds) {
  if (data.steps) return count(nanoseconds, "step");
  const [size, unit] = UNITS.find(([least]) => Math.abs(nanoseconds) >= least) ?? UNITS[3];
  const value = nanoseconds / size;
  return `${Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 3 })} ${unit}`;
}

// A moment, counted from the first call, exact enough to tell it from another `apart` away, in the unit that suits
// `greatest`.
function moment(time, apart, greatest = time) {
  if (data.steps) return `step ${(data.base + BigInt(Math.round(time))).toString()}`;
  const far = Math.max(Math.abs(greatest), apart);
  const [size, unit] = UNITS.find(([least]) => far >= least) ?? UNITS[3];
  const digits = clamp(Math.ceil(-Math.log10(apart / size)), 0, Math.log10(size));
  const value = (time / size + 0).toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return `${value} ${unit}`;
}

function stamp(time) {
  return (data.base + BigInt(Math.round(time))).toString();
}

// An operation as the line that the history format has for it, as far as the page knows its values.
function asJsonLine(operation) {
  const fields = {
    type: "operation",
    process: data.processes[data.process[operation]].replace(/^process (?=-?\d+$)/, ""),
    function: data.functions[data.functionOf[operation]],
  };
  if (/^-?\d+$/.test(fields.process)) fields.process = Number(fields.process);
  const parts = partsOf(operation).map((part) => data.parts[part].name);
  if (parts.length && parts[0]) fields.key = parts.length === 1 ? parts[0] : parts;
  const value = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  };
  fields.input = value(data.texts[data.input[operation]]);
  if (data.outcome[operation] === OK) fields.output = value(data.texts[data.output[operation]]);
  const times = `"call":${stamp(data.call[operation])}${
    data.returned[operation] < INFINITE ? `,"return":${stamp(data.returned[operation])}` : ""
  }`;
  const outcome = ["ok", "fail", "info"][data.outcome[operation]];
  const error = data.error[operation] < 0 ? "" : `,"error":${JSON.stringify(data.texts[data.error[operation]])}`;
  return `${JSON.stringify(fields).slice(0, -1)},${times},"outcome":"${outcome}"${error}}`;
}
