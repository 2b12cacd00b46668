// The columns of operations as encode.py writes them, read into arrays; shared with the report of a run.

const OK = 0;
const FAIL = 1;
const INFO = 2;
const OUTCOMES = ["ok", "failed", "unknown"];

const UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "\u00b5s"],
  [1, "ns"],
];

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
