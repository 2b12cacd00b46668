// The history of this page. Refuses to know how anything is drawn.

const data = readData(JSON.parse(byId("data").textContent));

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
