// Finding operations: words that must all be there, in the operation's own words or its values, or in the named field.
// Each distinct text is looked at once, however many operations share it.

const FIELDS = {
  process: (term) => byTable(data.process, data.processes, term),
  client: (term) => byTable(data.process, data.processes, term),
  function: (term) => byTable(data.functionOf, data.functions, term),
  outcome: (term) => byTable(data.outcome, OUTCOMES.map((word, place) => `${word} ${["ok", "fail", "info"][place]}`), term),
  key: byKey,
  partition: byKey,
  line: (term) => (operation) => data.line[operation] === Number(term),
  input: (term) => byTable(data.input, data.texts, term),
  output: (term) => byTable(data.output, data.texts, term),
  error: (term) => byTable(data.error, data.texts, term),
};

function byTable(column, table, term) {
  const holds = Uint8Array.from(table, (text) => (text.toLowerCase().includes(term) ? 1 : 0));
  return (operation) => column[operation] >= 0 && holds[column[operation]] === 1;
}

function byKey(term) {
  const named = data.parts.map((part) => part.name.toLowerCase() === term);
  const wanted = named.includes(true) ? named : data.parts.map((part) => part.name.toLowerCase().includes(term));
  const holds = data.keySets.map((parts) => parts.some((part) => wanted[part]));
  return (operation) => holds[data.keySet[operation]];
}

function byWord(term) {
  const holds = Uint8Array.from(data.texts, (text) => (text.toLowerCase().includes(term) ? 1 : 0));
  const named = byTable(data.process, data.processes, term);
  return (operation) =>
    holds[data.text[operation]] === 1 ||
    holds[data.input[operation]] === 1 ||
    (data.outcome[operation] === OK && holds[data.output[operation]] === 1) ||
    (data.error[operation] >= 0 && holds[data.error[operation]] === 1) ||
    named(operation);
}

// `read "a b" process:3 -outcome:ok #17`: terms in quotation marks are taken as they are, a minus turns one round.
function parseQuery(query) {
  const terms = [];
  for (const [, minus, field, quoted, plain] of query.matchAll(/(-?)(?:([a-z]+):)?(?:"([^"]*)"?|(\S+))/gi)) {
    const term = (quoted ?? plain).toLowerCase();
    const number = quoted === undefined && !field ? /^#(\d+)$/.exec(term) : null;
    let test;
    if (number) test = (operation) => operation === Number(number[1]);
    else if (field && Object.hasOwn(FIELDS, field.toLowerCase())) test = FIELDS[field.toLowerCase()](term);
    else test = byWord(field ? `${field.toLowerCase()}:${term}` : term);
    terms.push(minus ? (operation) => !test(operation) : test);
  }
  return terms;
}

function search(query) {
  const terms = parseQuery(query.trim());
  if (!terms.length) {
    ui.match = null;
    ui.only = false;
    return;
  }
  ui.match = new Uint8Array(data.count);
  for (let i = 0; i < data.count; i++) ui.match[i] = terms.every((test) => test(i)) ? 1 : 0;
}

// The match after the selected operation, or before it.
function stepMatch(forward) {
  const { matches } = view;
  if (!matches.length) return;
  // Without a selection it is the first in view, or the last before it.
  const { start } = view.layout;
  const place = ui.selected >= 0 ? lowerBound(matches, ui.selected)
    : lowerBoundBy(matches.length, (one) => start[matches[one]], view.left);
  const at = ui.selected >= 0 && matches[place] === ui.selected;
  const next = forward ? (at ? place + 1 : place) : place - 1;
  select(matches[(next + matches.length) % matches.length]);
  showMatches();
}

function showMatches() {
  const { matches } = view;
  const place = lowerBound(matches, ui.selected);
  let text = "";
  if (ui.match) {
    const which = matches[place] === ui.selected ? `${(place + 1).toLocaleString("en-US")} of ` : "";
    text = matches.length ? which + matches.length.toLocaleString("en-US") : "none";
  }
  byId("matches").textContent = text;
  for (const id of ["previous", "next", "only"]) byId(id).disabled = !ui.match;
  byId("only").setAttribute("aria-pressed", String(ui.only));
}
