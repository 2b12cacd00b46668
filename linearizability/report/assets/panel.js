// The side: errors, faults, what was run, and the text form.

const SHEETS = { errors: "Errors", faults: "Faults", run: "Run", text: "Text" };

function showPanel() {
  byId("tabs").replaceChildren(...Object.entries(SHEETS).map(([name, label]) => {
    const counted = { errors: runs.reduce((sum, run) => sum + run.errors.length, 0), faults: runs.reduce((sum, run) => sum + run.faults.length, 0) }[name];
    return make("button", { type: "button", role: "tab", "data-sheet": name, "aria-selected": String(ui.sheet === name), onclick: () => openSheet(name) },
      label, counted === undefined ? "" : ` ${counted}`);
  }));
  byId("panel").classList.toggle("wide", ui.sheet === "text");
  const fill = { errors: fillErrors, faults: fillFaults, run: fillRun, text: fillText }[ui.sheet];
  byId("sheet").replaceChildren(...fill().filter(Boolean));
}

function openSheet(name) {
  ui.sheet = name;
  showPanel();
  byId("sheet").scrollTop = 0;
  resized();
}

function runHeading(run) {
  return runs.length > 1 ? make("h3", {}, `${"AB"[run.number]}  `, make("bdi", {}, run.data.title)) : "";
}

function fillErrors() {
  return runs.flatMap((run) => [
    runHeading(run),
    run.errors.length ? "" : make("p", { class: "soft" }, run.data.status === "valid" ? "No error was found." : "No error was found, but see why that says little: it is in the sheet Run."),
    ...run.errors.map((told, place) => errorSection(run, told, place)),
    ...otherFindings(run),
  ]);
}

function errorSection(run, told, place) {
  const chosen = run.number === ui.run && place === ui.told;
  const head = make("button", { type: "button", class: "state", "aria-expanded": String(chosen), onclick: () => chooseTold(run.number, place) },
    make("span", { class: "badge invalid" }, visible(told.severity)), make("span", {}, make("b", {}, visible(told.name)), ` ${told.count === 1 ? "once" : `${number(told.count)} times`}`),
    make("small", {}, visible(told.definition)));
  if (!chosen) return make("section", { class: "possible" }, head);
  const story = told.stories[ui.story];
  const pager = told.stories.length > 1 ? make("p", { class: "pager" },
    make("button", { type: "button", title: "Previous example (p)", onclick: () => stepStory(-1) }, "\u2190"),
    make("span", {}, `example ${ui.story + 1} of ${told.stories.length}${told.count > told.stories.length ? ` (${number(told.count)} in all)` : ""}`),
    make("button", { type: "button", title: "Next example (n)", onclick: () => stepStory(1) }, "\u2192")) : "";
  return make("section", { class: "possible chosen" }, head, make("div", { class: "story" }, pager, ...(story ? tellStory(run, told, story).filter(Boolean) : [])));
}

// What was found and is no error under this run's settings, and what could not be judged.
function otherFindings(run) {
  const rest = run.told.filter((told) => told.judgement !== "error");
  if (!rest.length) return [];
  return [make("p", { class: "soft rest" }, "Found, and no error here:"), ...rest.map((told) =>
    make("details", { class: "possible" },
      make("summary", { class: "state" }, make("span", { class: "badge note" }, visible(told.judgement)), make("span", {}, make("b", {}, visible(told.name)), ` ${told.count === 1 ? "once" : `${number(told.count)} times`}`)),
      make("p", {}, visible(told.definition)),
      told.stories.length ? make("p", { class: "soft" }, visible(told.stories[0].text)) : ""))];
}

function fillFaults() {
  return runs.flatMap((run) => {
    const idle = run.faults.filter((fault) => fault.effect === false).length;
    return [runHeading(run), make("p", { class: "soft" }, count(run.faults.length, "fault"), idle ? `, ${idle} without effect` : run.faults.length ? ", each with its evidence" : ""),
      ...run.faults.slice(0, 500).map((_, place) => faultEntry(run, place))];
  });
}

function fillRun() {
  return runs.flatMap((run) => {
    const list = make("dl", {});
    for (const [name, value] of run.about) if (value !== "") list.append(make("dt", {}, visible(name)), make("dd", {}, visible(value)));
    return [runHeading(run), ...run.doubts.map((doubt) => make("p", { class: "why" }, visible(doubt))), run.command ? tellCommand(run) : "", list,
      ...run.clients.flatMap(([name, text]) => [heading(`${visible(name)} wrote`), make("pre", { tabindex: "0" }, visible(text))])];
  });
}

function fillText() {
  const button = make("button", { type: "button", onclick: async () => said(button, await copyText(page.report)) }, "Copy");
  return [make("p", { class: "row" }, make("span", { class: "soft" }, "The same in plain text"), button), make("pre", { tabindex: "0" }, visible(page.report))];
}

// The chosen operation: all that the page knows of it.
function showCard() {
  const card = byId("card");
  card.hidden = !ui.operation;
  if (!ui.operation) return;
  const [place, operation] = ui.operation;
  const run = runs[place];
  const { data } = run;
  const returned = data.returned[operation];
  const words = ["", "failed: it did not happen", "unknown: it may have happened, and it may yet happen"][data.outcome[operation]];
  const list = make("dl", {});
  const entries = [
    ["client", processOf(run, operation)],
    ["time", `${moment(data.call[operation], 1e3)} \u2013 ${returned < INFINITE ? `${moment(returned, 1e3)}, took ${duration(returned - data.call[operation])}` : "never returned"}`],
    ["outcome", words],
    ["error", data.error[operation] < 0 ? "" : data.texts[data.error[operation]]],
    ["line", data.line[operation] ? `${number(data.line[operation])} of history.jsonl` : ""],
  ];
  for (const [name, value] of entries) if (value) list.append(make("dt", {}, name), make("dd", {}, make("bdi", {}, value)));
  card.replaceChildren(make("p", { class: "row" }, make("b", { class: "mono" }, make("bdi", {}, textOf(run, operation))),
    make("button", { type: "button", title: "Close (Esc)", onclick: () => chooseOperation(0, -1) }, "\u00d7")), list);
}
