// One example of an error, told: what it is, under which faults, what happened, its witness, the log at that place,
// what the brokers logged, and how to run it again.

function heading(text, ...more) {
  return make("h2", {}, text, ...more);
}

function timeButton(run, time) {
  return make("button", { type: "button", class: "time", title: "Look there", onclick: () => lookAt(time) }, moment(time));
}

function tellStory(run, told, story) {
  return [
    make("p", { class: "sentence" }, visible(story.text)),
    heading("Under which faults"),
    tellFaults(run, story),
    heading("What happened"),
    tellEvents(run, story),
    heading(story.minimal ? "The smallest witness" : "Witness", make("small", {}, ` ${count(story.operations.length, "operation")}, ${story.minimal ? "without any one of them nothing is wrong" : "in the order of events"}`)),
    drawWitness(run, story),
    story.log ? heading(`The log of ${visible(story.log.key)} around offset ${number(story.log.focus)}`) : "",
    story.log ? tellLog(run, story.log) : "",
    story.lines.length ? heading("What the brokers logged", make("small", {}, ` ${count(story.lines.length, "line")} around these moments`)) : "",
    story.lines.length ? tellLines(run, story) : "",
    run.command ? heading("Run it again") : "",
    run.command ? tellCommand(run) : "",
  ];
}

function tellFaults(run, story) {
  if (!story.under.length) {
    const before = story.before < 0 ? "nor had one been before." : "the last one before:";
    return make("div", {}, make("p", { class: "soft" }, `None was in force, ${before}`),
      story.before < 0 ? "" : faultEntry(run, story.before));
  }
  return make("div", {}, ...story.under.map((place) => faultEntry(run, place)));
}

function faultEntry(run, place) {
  const fault = run.faults[place];
  const until = fault.end === null ? "the end" : moment(fault.end, 1e8);
  const sign = make("i", { class: "swatch" });
  sign.style.background = faultHue(fault.kind);
  return make("button", { type: "button", class: `entry fault${fault.effect === false ? " idle" : ""}`, title: "Zoom to it",
    onclick: () => chooseFault(run.number, place) },
    sign, make("b", {}, faultLabel(fault)),
    make("small", {}, `${moment(fault.start, 1e8)} \u2013 ${until}: `, make("span", { class: fault.effect === false ? "why" : "" }, evidenceOf(fault))));
}

// The changes of the cluster and the operations of the witness, in one order.
function tellEvents(run, story) {
  const { data } = run;
  const entries = story.events.map(([time, kind, text]) => ({ time, kind, text: visible(text) }));
  story.operations.slice(0, 12).forEach((operation, place) => {
    const began = `${processOf(run, operation)}: ${textOf(run, operation)}`;
    entries.push({ time: data.call[operation], kind: "operation", text: began, mark: place + 1 });
  });
  entries.sort((one, other) => one.time - other.time);
  return make("ol", { class: "events" }, ...entries.map(({ time, kind, text, mark }) =>
    make("li", { class: kind + (time === story.pivot && kind === "truncated" ? " pivot" : "") },
      timeButton(run, time), make("span", {}, mark ? make("i", { class: "mark" }, String(mark)) : "", make("bdi", {}, cut(text, 220))))));
}

// Boxes in the order of events: two share a column exactly when they overlapped.
function drawWitness(run, story) {
  const { data } = run;
  const shown = story.operations.slice(0, 40);
  const events = shown.flatMap((operation, place) => [
    { time: data.call[operation], kind: 0, place },
    { time: data.returned[operation], kind: 1, place },
  ]).sort((one, other) => one.time - other.time || one.kind - other.kind);
  const left = [];
  const right = [];
  let x = 0;
  const labels = shown.map((operation) => cut(textOf(run, operation), shown.length > 1 ? 27 : 60));
  for (const { kind, place } of events) {
    if (kind === 0) left[place] = x;
    else x = Math.max(x, left[place] + labels[place].length * 6.9 + 40);
    if (kind === 1) right[place] = x;
    x += 10;
  }
  const rows = [...new Set(shown.map((operation) => data.process[operation]))].sort((one, other) => one - other);
  const body = make("div", { class: "witness" });
  for (const process of rows) {
    const lane = make("div", { class: "lane" });
    lane.style.width = `${x}px`;
    shown.forEach((operation, place) => {
      if (data.process[operation] !== process) return;
      const box = make("button", { type: "button", class: `box ${["ok", "fail", "info"][data.outcome[operation]]}`, title: textOf(run, operation),
        onclick: () => chooseOperation(run.number, operation) }, make("i", { class: "mark" }, String(place + 1)), labels[place]);
      box.style.left = `${left[place]}px`;
      box.style.width = `${right[place] - left[place]}px`;
      lane.append(box);
    });
    body.append(make("div", { class: "who" }, make("bdi", {}, data.processes[process])), lane);
  }
  return make("div", { class: "scroll", tabindex: "0" }, body);
}

// A column for each offset: what the log holds there, and below who wrote or read what.
function tellLog(run, log) {
  const offsets = log.values.map((_, place) => log.first + place);
  const last = log.values.reduce((most, values, place) => (values.length ? place : most), 0);
  const shown = offsets.slice(0, Math.max(last, log.focus - log.first) + 1);
  const story = chosenStory();
  const cell = (content, names) => make("td", { class: names.filter(Boolean).join(" ") }, content);
  const focused = (offset) => (offset === log.focus ? "focus" : "");
  const head = make("tr", {}, make("th", {}, "offset"), ...shown.map((offset) => make("th", { class: focused(offset) }, String(offset))));
  const holds = make("tr", { class: "holds" }, make("th", {}, "the log holds"), ...shown.map((offset, place) => {
    const values = log.values[place];
    return cell(values.length > 1 ? values.slice(0, 3).map(visible).join(" \u2260 ") : values.map((value) => cut(visible(value), 14)).join(""), [focused(offset), values.length > 1 ? "conflict" : "", values.length ? "" : "empty"]);
  }));
  const rows = log.rows.map((row) => {
    const place = story ? story.operations.indexOf(row.operation) : -1;
    const who = make("button", { type: "button", class: "who", title: textOf(run, row.operation), onclick: () => chooseOperation(run.number, row.operation) },
      place >= 0 ? make("i", { class: "mark" }, String(place + 1)) : "", make("bdi", {}, processOf(run, row.operation)), row.wrote ? " wrote" : " read");
    return make("tr", { class: place >= 0 ? "told" : "" }, make("th", {}, who), ...shown.map((offset, at) => {
      const value = row.cells[at];
      const hole = value === null && !row.wrote && offset >= row.from && offset <= row.to;
      const outcome = ["ok", "fail", "info"][run.data.outcome[row.operation]];
      const clash = value !== null && log.values[at].length > 1 ? `clash${log.values[at].indexOf(value) % 2}` : "";
      return cell(value === null ? (hole ? "\u2013" : "") : cut(visible(value), 14), [focused(offset), value === null ? "" : row.wrote ? `wrote ${outcome}` : "read", clash, hole ? "hole" : ""]);
    }));
  });
  const scroll = make("div", { class: "scroll", tabindex: "0" }, make("table", { class: "matrix" }, head, holds, ...rows));
  setTimeout(() => {
    const column = head.querySelector(".focus");
    if (column) scroll.scrollLeft = column.offsetLeft + column.offsetWidth / 2 - (scroll.clientWidth + head.firstChild.offsetWidth) / 2;
  });
  return make("div", {},
    scroll,
    make("p", { class: "soft legend" }, ...[
      ["wrote", "wrote"], ["read", "read"], ["clash0", "one value and"], ["clash1", "another at the same offset"], ["hole", "passed over by a poll"],
    ].map(([name, words]) => make("span", {}, make("i", { class: `cell ${name}` }, name === "hole" ? "\u2013" : ""), words))));
}

function tellLines(run, story) {
  const brokers = [...new Set(story.lines.map((place) => run.lines[place][1]))].sort();
  const list = make("div", { class: "lines scroll", tabindex: "0" });
  const fill = (only) => {
    list.replaceChildren(...story.lines.filter((place) => !only || run.lines[place][1] === only).map((place) => {
      const [time, broker, level, text] = run.lines[place];
      const grave = GRAVE.includes(level) ? (level.startsWith("WARN") ? "warn" : "error") : "";
      const about = story.key !== null && text.includes(story.key) ? "about" : "";
      const tag = make("i", { class: `tag hue${hueOf(broker)}` }, broker);
      return make("p", { class: `${grave} ${about}` }, timeButton(run, time), tag, make("span", {}, `${level ? `${level} ` : ""}`), make("bdi", {}, visible(text)));
    }));
  };
  const buttons = ["", ...brokers].map((broker) => make("button", { type: "button", "aria-pressed": String(!broker), onclick: (event) => {
    for (const other of event.currentTarget.parentElement.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
    fill(broker);
  } }, broker ? `broker ${visible(broker)}` : "all"));
  fill("");
  const grave = list.querySelector(".error, .about");
  setTimeout(() => { if (grave) list.scrollTop = grave.offsetTop - list.offsetTop - 60; });
  return make("div", {}, make("div", { class: "group small" }, ...buttons), list);
}

function tellCommand(run) {
  const copy = make("button", { type: "button", title: "Copy the command (c)", onclick: async () => said(copy, await copyText(run.command)) }, "Copy");
  return make("p", { class: "command" }, make("code", {}, visible(run.command)), copy);
}
