// The side: the reason, the order, the findings and the text form in sheets, and below them the selected operation.

const LIST_MOST = 200; // entries of one list; the rest is counted
let sheet = "reason";

const SHEETS = {
  reason: { title: "Reason", has: () => toldWitness() !== null, fill: fillReason },
  findings: { title: "Findings", has: () => data.findings.length > 0, fill: fillFindings },
  order: { title: "Order", has: () => view.placed !== null, fill: fillOrder },
  parts: { title: "Parts", has: () => data.parts.length > 1, fill: fillParts },
  text: { title: "Text", has: () => true, fill: fillText },
};

function showPanel() {
  const names = Object.keys(SHEETS).filter((name) => SHEETS[name].has());
  if (!names.includes(sheet)) sheet = names[0];
  byId("tabs").replaceChildren(
    ...names.map((name) =>
      make("button", { type: "button", role: "tab", "aria-selected": String(name === sheet), "data-sheet": name,
        onclick: () => openSheet(name) }, SHEETS[name].title),
    ),
  );
  byId("panel").classList.toggle("wide", sheet === "text");
  byId("sheet").replaceChildren(...SHEETS[sheet].fill());
  showCard();
}

function openSheet(name) {
  sheet = name;
  showPanel();
  byId("sheet").scrollTop = 0;
  if (name === "order") followOrder();
}

// A word for an operation that selects it.
function chip(operation, extra = "") {
  const refused = view.marks.refused.has(operation) ? " refused" : "";
  return make("button", { type: "button", class: `chip${refused}`, title: `operation #${operation}`,
    onclick: () => choose(operation) }, make("bdi", {}, cut(textOf(operation), 60)), extra);
}

function processOf(operation) {
  return data.processes[data.process[operation]];
}

function fillReason() {
  const witness = toldWitness();
  const part = toldPart();
  const several = data.parts.length > 1;
  const core = count(witness.operations.length, "operation");
  const parts = [];
  if (several) parts.push(make("p", { class: "lead" }, "Key ", make("b", {}, make("bdi", {}, partLabel(part)))));
  if (several && !data.words.startsWith(visible(witness.words))) parts.push(make("p", {}, visible(witness.words)));
  parts.push(
    make("p", { class: "soft" }, witness.operations.length === 1 ? "This operation alone shows it." : witness.minimal
      ? `${core} are enough to show it: without any one of them the rest can be explained.`
      : `${core} show it. There may be fewer that do: the search for fewer ran out of its budget.`),
  );
  if (!witness.possible.length) return parts;
  parts.push(make("h2", {}, `Just before ${processOf(witness.refused)} got its answer`));
  if (witness.states > 1) {
    parts.push(make("p", { class: "soft" }, `${count(witness.states, "state")} were possible, and none goes on.`));
  }
  witness.possible.forEach((possible, place) => parts.push(possibleCard(witness, possible, place)));
  if (witness.states > witness.possible.length) {
    parts.push(make("p", { class: "soft" }, `\u2026 and ${count(witness.states - witness.possible.length, "more state")}.`));
  }
  return parts;
}

function possibleCard(witness, possible, place) {
  const chosen = place === ui.possible;
  const only = witness.possible.length === 1;
  const own = possible.refusals.find(([operation]) => operation === witness.refused);
  const heading = make("button", { type: "button", class: "state", "aria-expanded": String(chosen), disabled: only,
    onclick: () => choosePossible(place) },
    only ? null : make("span", { class: "number" }, String(place + 1)),
    make("span", {}, make("bdi", { class: "mono" }, data.texts[possible.state]),
      own && !chosen ? make("small", { class: "why" }, make("bdi", {}, cut(data.texts[own[1]], 160))) : ""));
  if (!chosen) return make("section", { class: "possible" }, heading);
  return make("section", { class: "possible chosen" }, heading,
    make("ul", { class: "refusals" }, ...possible.refusals.map(([operation, reason]) =>
      make("li", {}, chip(operation), make("span", { class: "why" }, make("bdi", {}, data.texts[reason]))))),
    ...orderSteps(possible.order));
}

const STEPS_MOST = 12; // of a possible state's order, the last; the others on demand

function orderSteps({ operations, states }) {
  if (!operations.length) return [make("p", { class: "soft" }, "It is so at the start, with nothing done.")];
  const entry = (operation, step) =>
    make("li", {}, chip(operation), make("span", { class: "after" }, make("bdi", {}, data.texts[states[step]])));
  const hidden = operations.length > STEPS_MOST + 3 ? operations.length - STEPS_MOST : 0;
  const list = make("ol", { class: "steps", start: hidden + 1 },
    ...operations.slice(hidden).map((operation, step) => entry(operation, hidden + step)));
  const more = make("button", { type: "button", class: "more", onclick: () => {
    list.start = 1;
    list.prepend(...operations.slice(0, hidden).map(entry));
    more.remove();
  } }, `\u2026 ${count(hidden, "operation")} before`);
  return [make("p", { class: "soft" }, "It gets there by this order:"), hidden ? more : null, list];
}

function choosePossible(place) {
  ui.possible = place;
  refresh();
}

function fillFindings() {
  return [
    make("p", { class: "soft" }, count(data.findings.length, "finding")),
    ...data.findings.slice(0, LIST_MOST).map((finding, number) => {
      const chosen = ui.focus === number;
      const heading = make("button", { type: "button", class: "state", "aria-expanded": String(chosen),
        onclick: () => focusOn(chosen ? null : number) },
        make("span", { class: `badge ${finding.severity}` }, finding.severity),
        make("span", {}, visible(finding.title)));
      if (!chosen) return make("section", { class: "possible" }, heading);
      return make("section", { class: "possible chosen" }, heading,
        make("p", { class: "lines" }, visible(finding.text)),
        make("ol", { class: "steps" }, ...finding.operations.slice(0, LIST_MOST).map((operation) =>
          make("li", {}, chip(operation), make("span", { class: "after" }, make("bdi", {}, processOf(operation)))))));
    }),
    data.findings.length > LIST_MOST ? make("p", { class: "soft" }, `\u2026 and ${data.findings.length - LIST_MOST} more`) : "",
  ];
}

// The steps around the selected one; all of a short order.
function fillOrder() {
  const { placed } = view;
  const total = placed.operations.length;
  const at = ui.selected >= 0 ? placed.numberOf[ui.selected] : -1;
  const from = total <= LIST_MOST ? 0 : clamp((at < 0 ? total : at) - LIST_MOST / 2, 0, total - LIST_MOST);
  const to = Math.min(total, from + LIST_MOST);
  const entries = [];
  for (let place = from; place < to; place++) {
    const operation = placed.operations[place];
    entries.push(make("li", { class: place === at ? "at" : "", value: place + 1 }, chip(operation),
      make("span", { class: "after" }, make("bdi", {}, stateAfter(placed, place)))));
  }
  const part = data.parts[toldPart()];
  const whole = part.status === "valid" ? "One order that explains every answer" : "The longest order that was found";
  const before = data.texts[placed.before];
  return [
    make("p", { class: "soft" }, `${ui.focus === "witness" ? "How the witness gets to its last state" : whole}: `,
      `${count(total, "step")}. Walk along it with j and k.`),
    before ? make("p", { class: "after" }, "at first: ", make("bdi", { class: "mono" }, before)) : "",
    from > 0 ? make("p", { class: "soft" }, `\u2026 ${count(from, "step")} before`) : "",
    make("ol", { class: "steps", start: from + 1 }, ...entries),
    to < total ? make("p", { class: "soft" }, `\u2026 ${count(total - to, "step")} after`) : "",
  ];
}

function followOrder() {
  const at = byId("sheet").querySelector("li.at");
  if (at) at.scrollIntoView({ block: "nearest" });
}

function fillParts() {
  const places = data.parts.map((_, place) => place).sort((one, other) => rankOf(one) - rankOf(other) || one - other);
  return [
    make("p", { class: "soft" }, count(data.parts.length, "part"), ". Each is checked on its own."),
    make("ul", { class: "plain" }, ...places.slice(0, LIST_MOST).map((place) => partEntry(place))),
    places.length > LIST_MOST ? make("p", { class: "soft" }, `\u2026 and ${places.length - LIST_MOST} more: type p to search`) : "",
  ];
}

function rankOf(part) {
  return { invalid: 0, unknown: 1, valid: 3 }[data.parts[part].status] ?? 2;
}

function partEntry(place, onclick = () => choosePart(place)) {
  const part = data.parts[place];
  const about = [partSize(place) === null ? "" : count(partSize(place), "operation"), part.algorithm ?? "",
    part.configurations ? count(part.configurations, "configuration") : "", part.limit ? `out of ${part.limit}` : ""];
  return make("li", { role: "option", "aria-selected": String(place === ui.part) },
    make("button", { type: "button", class: "entry", onclick },
      make("span", { class: `dot ${part.status ?? ""}`, title: part.status ?? "" }),
      make("bdi", { class: "mono" }, cut(partLabel(place), 80)),
      make("small", {}, about.filter(Boolean).join(" \u00b7 "))));
}

let sizes = null;

function partSize(part) {
  if (!sizes) {
    sizes = new Int32Array(data.parts.length);
    for (let i = 0; i < data.count; i++) for (const own of partsOf(i)) sizes[own]++;
  }
  return sizes[part];
}

function fillText() {
  const button = make("button", { type: "button", onclick: async () => said(button, await copyText(data.report)) }, "Copy (c)");
  return [make("p", { class: "row" }, make("span", { class: "soft" }, "The same in plain text"), button),
    make("pre", { tabindex: "0" }, visible(data.report))];
}

function facts(pairs) {
  const list = make("dl", {});
  for (const [name, ...value] of pairs) {
    if (value.some((piece) => piece !== "" && piece !== null)) list.append(make("dt", {}, name), make("dd", {}, ...value));
  }
  return list;
}

// The selected operation: everything that is known about it.
function showCard() {
  const card = byId("card");
  const operation = ui.selected;
  if (operation < 0) {
    card.replaceChildren(make("p", { class: "soft" }, "Select an operation for its times, values and states."));
    return;
  }
  const copy = make("button", { type: "button", title: "As a line of the history format",
    onclick: async () => said(copy, await copyText(`${asJsonLine(operation)}\n`)) }, "Copy");
  const [before, after] = statesOf(operation);
  const reason = view.marks.refused.get(operation);
  const returned = data.returned[operation];
  const took = returned < INFINITE ? duration(returned - data.call[operation]) : "";
  const apart = Math.max(returned < INFINITE ? (returned - data.call[operation]) / 20 : 1e3, 1);
  card.replaceChildren(
    make("p", { class: "row" }, make("b", { class: "mono" }, make("bdi", {}, textOf(operation))), copy),
    facts([
      ["client", make("bdi", {}, processOf(operation)), ` \u00b7 operation #${operation}`,
        data.line[operation] ? ` \u00b7 line ${data.line[operation].toLocaleString("en-US")}` : ""],
      ["key", ...partsOf(operation).map((part) => data.parts[part].name).filter(Boolean).slice(0, 8).flatMap((name, place) =>
        [place ? ", " : "", make("bdi", { class: "mono" }, name)])],
      ["outcome", outcomeWords(operation)],
      ["time", moment(data.call[operation], apart), returned < INFINITE ? ` \u2013 ${moment(returned, apart)}` : " \u2013 never returned",
        took && !data.steps ? ` \u00b7 took ${took}` : ""],
      ["before", before === null ? "" : make("bdi", { class: "mono" }, before)],
      ["after", after === null ? "" : make("bdi", { class: "mono" }, after)],
      ["refused", reason === undefined ? "" : make("span", { class: "why" }, make("bdi", {}, reason || "nothing explains its answer"))],
      ["input", valueOf(data.input[operation])],
      ["output", data.outcome[operation] === OK ? valueOf(data.output[operation]) : ""],
      ["error", data.error[operation] < 0 ? "" : make("bdi", {}, data.texts[data.error[operation]])],
      ["meets", ...concurrentWith(operation)],
    ]),
  );
}

function valueOf(text) {
  return data.texts[text] === "null" ? "" : make("bdi", { class: "mono value" }, data.texts[text]);
}

function outcomeWords(operation) {
  if (data.outcome[operation] === INFO) return "unknown: it may have happened, and it may yet happen";
  return data.outcome[operation] === FAIL ? "failed: it did not happen" : "";
}

function statesOf(operation) {
  const { placed } = view;
  const number = placed ? placed.numberOf[operation] : -1;
  return number < 0 ? [null, null] : [stateBefore(placed, number), stateAfter(placed, number)];
}

// Shown operations that overlap it in time, as chips.
function concurrentWith(operation) {
  const found = [];
  let total = 0;
  for (const other of view.layout.shown) {
    if (other === operation || precedes(other, operation) || precedes(operation, other)) continue;
    total += 1;
    if (found.length < 6) found.push(chip(other));
  }
  if (!total) return ["no other operation"];
  return [...found, total > found.length ? make("span", { class: "soft" }, ` and ${total - found.length} more`) : ""];
}
