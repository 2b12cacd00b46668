// Pointer, keys and buttons: what the reader does becomes a change of `ui` or `view`.

function resized() {
  measure();
  drawFrame();
}

function chooseTold(run, told, story = 0) {
  ui.run = run;
  ui.told = told;
  ui.story = story;
  ui.fault = null;
  ui.sheet = "errors";
  showPanel();
  showControls();
  const own = chosenStory();
  if (own) showStory(own);
  revealPartition(own);
  const open = byId("sheet").querySelector(".chosen");
  if (open) open.scrollIntoView({ block: "start" });
  rememberPlace();
  redraw();
}

function stepStory(step) {
  const told = chosenTold();
  if (!told?.stories.length) return;
  const scrolled = byId("sheet").scrollTop;
  ui.story = (ui.story + step + told.stories.length) % told.stories.length;
  showPanel();
  showControls();
  byId("sheet").scrollTop = scrolled;
  const story = chosenStory();
  if (story.start < view.from || story.pivot > view.to) showStory(story);
  rememberPlace();
  redraw();
}

function stepTold(step) {
  const all = runs.flatMap((run) => run.errors.map((_, told) => [run.number, told]));
  if (!all.length) return;
  const at = all.findIndex(([run, told]) => run === ui.run && told === ui.told);
  chooseTold(...all[(at + step + all.length) % all.length]);
}

// Scroll so that the lanes of the story's partition are in view.
function revealPartition(story) {
  const track = story && view.tracks.find((one) => one.kind === "partition" && one.key === story.key);
  if (!track) return;
  const bottom = track.top + 110;
  if (bottom > view.top + view.room) view.top = bottom - view.room;
}

function chooseFault(run, place) {
  ui.fault = [run, place];
  const fault = runs[run].faults[place];
  const end = fault.end ?? runs[run].end;
  const room = Math.max((end - fault.start) * 0.4, 5e8);
  show(fault.start - room, end + room);
}

function stepFault(step) {
  const all = runs.flatMap((run) => run.faults.map((_, place) => [run.number, place]));
  if (!all.length) return;
  const at = ui.fault ? all.findIndex(([run, place]) => run === ui.fault[0] && place === ui.fault[1]) : -1;
  chooseFault(...all[(at + step + all.length) % all.length]);
}

function chooseOperation(run, operation) {
  ui.operation = operation < 0 ? null : [run, operation];
  showCard();
  if (operation >= 0) {
    const { data } = runs[run];
    const time = data.call[operation];
    if (time < view.from || time > view.to) lookAt(time);
  }
  redraw();
}

// Bring a moment into the middle, as near as needed to see it.
function lookAt(time) {
  const span = view.to - view.from;
  show(time - span / 2, time + span / 2);
  ui.hover = { run: ui.run, x: 0, y: -1, time };
}

function showControls() {
  const all = runs.flatMap((run) => run.errors.map((told, place) => [run, told, place]));
  byId("kinds").hidden = !all.length;
  byId("kinds").replaceChildren(...all.slice(0, 5).map(([run, told, place]) =>
    make("button", { type: "button", "aria-pressed": String(run.number === ui.run && place === ui.told), title: told.definition,
      onclick: () => chooseTold(run.number, place) }, `${runs.length > 1 ? `${"AB"[run.number]} ` : ""}${visible(told.name)}`)));
  const told = chosenTold();
  for (const id of ["previous", "which", "next"]) byId(id).hidden = !told?.stories.length;
  byId("which").textContent = told ? `${ui.story + 1} / ${told.stories.length}` : "";
  byId("function").hidden = functionNames.length < 2;
  byId("function").textContent = ui.only || "All operations";
  byId("function").setAttribute("aria-pressed", String(Boolean(ui.only)));
  byId("expand").setAttribute("aria-pressed", String(ui.expanded));
}

function nextFunction() {
  const all = ["", ...functionNames];
  ui.only = all[(all.indexOf(ui.only) + 1) % all.length];
  showControls();
  redraw();
}

// The chosen example is kept in the address, so that a link leads to it.
function rememberPlace() {
  try {
    history.replaceState(null, "", `#run=${ui.run}&error=${ui.told}&example=${ui.story}`);
  } catch {
    // A page without an address of its own has nothing to remember in.
  }
}

function recallPlace() {
  const found = /^#run=(\d+)&error=(\d+)&example=(\d+)$/.exec(location.hash);
  const [run, told, story] = found ? found.slice(1).map(Number) : [];
  if (runs[run]?.errors[told]?.stories[story]) chooseTold(run, told, story);
}

function expand() {
  ui.expanded = !ui.expanded;
  buildTracks();
  showControls();
  resized();
}

// ---- pointer

function placeOn(event) {
  const run = canvases.indexOf(event.currentTarget);
  const box = event.currentTarget.getBoundingClientRect();
  const x = event.clientX - box.left - view.gutter;
  return { run, x, y: event.clientY - box.top, time: toTime(x) };
}

function listen(canvas) {
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    const at = placeOn(event);
    drag = { ...at, from: view.from, to: view.to, top: view.top, moved: false, small: trackAt(at.y)?.kind === "overview" };
    try {
      canvas.setPointerCapture(event.pointerId);
    } catch {
      // A pointer that is gone already.
    }
    if (drag.small) centre(at.x);
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = placeOn(event);
    ui.hover = at.x >= 0 ? at : null;
    if (drag?.small) centre(at.x);
    else if (drag) {
      drag.moved ||= Math.abs(at.x - drag.x) + Math.abs(at.y - drag.y) > 4;
      const step = ((drag.x - at.x) / view.width) * (drag.to - drag.from);
      if (drag.moved) {
        view.from = drag.from + step;
        view.to = drag.to + step;
        view.top = drag.top + drag.y - at.y;
      }
    } else showTip(event, at);
    canvas.classList.toggle("dragging", Boolean(drag?.moved));
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved && !drag.small) click(placeOn(event));
    drag = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    ui.hover = null;
    byId("tip").hidden = true;
    redraw();
  });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, placeOn(event).time));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const size = event.deltaMode === 1 ? 30 : 1;
    const { time } = placeOn(event);
    if (event.shiftKey) view.top += (event.deltaY || event.deltaX) * size;
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX * size) / view.width);
    else zoom(1.0016 ** (event.deltaY * size), time);
    redraw();
  }, { passive: false });
}

function centre(x) {
  const time = whole.from + (x / view.width) * (whole.to - whole.from);
  const span = view.to - view.from;
  show(time - span / 2, time + span / 2);
}

function click({ run, x, y }) {
  const track = trackAt(y);
  const own = runs[run];
  if (x < 0) {
    if (track?.kind === "partition") expand();
    return;
  }
  if (track?.kind === "errors") {
    const found = nearestStory(own, x);
    if (found) chooseTold(run, own.errors.indexOf(found.told), found.told.stories.indexOf(found.story));
  } else if (track?.kind === "faults") {
    const place = faultAt(own, track, x);
    if (place >= 0) chooseFault(run, place);
  } else if (track?.kind === "latency" || track?.kind === "client") chooseOperation(run, operationAt(own, track, x, y));
}

// The told kind's own examples come before others at the same place.
function nearestStory(run, x) {
  let best = null;
  let distance = 9;
  const told = chosenTold();
  for (const entry of run.stories) {
    const away = Math.abs(toPixel(entry.story.start) - x) - (entry.told === told ? 0.5 : 0);
    if (away < distance) {
      distance = away;
      best = entry;
    }
  }
  return best;
}

function faultAt(run, track, x) {
  const lane = lanesOfFaults[run.number].get(track.fault)?.[track.lane];
  return (lane?.faults ?? []).find((place) => {
    const fault = run.faults[place];
    return toPixel(fault.start) - 3 <= x && x <= Math.max(toPixel(fault.end ?? run.end), toPixel(fault.start) + 2) + 3;
  }) ?? -1;
}

function operationAt(run, track, x, y) {
  const { data } = run;
  const list = track.kind === "client" ? operationsOf(run, track.process) : null;
  const total = list ? list.length : data.count;
  const at = (place) => (list ? list[place] : place);
  let best = -1;
  let distance = 64;
  const from = Math.max(0, lowerBoundBy(total, (place) => data.call[at(place)], toTime(x - 8)) - (list ? 1 : 0));
  for (let place = from; place < total && place < from + 20000; place++) {
    const operation = at(place);
    const left = toPixel(data.call[operation]);
    if (left > x + 8) break;
    const away = list
      ? Math.max(left - x, x - toPixel(Math.min(data.returned[operation], run.end)), 0) ** 2
      : (left - x) ** 2 + (latencyHeight(data.returned[operation] - data.call[operation], track.height) + topOf(track) - y) ** 2;
    if (away < distance) {
      distance = away;
      best = operation;
    }
  }
  return best;
}

// ---- the tip under the pointer

function showTip(event, at) {
  const tip = byId("tip");
  const track = trackAt(at.y);
  const told = at.x < 0 || !track ? null : tipOf(runs[at.run], track, at);
  tip.hidden = !told;
  if (!told) return;
  tip.replaceChildren(make("span", { class: "soft" }, moment(at.time, (view.to - view.from) / view.width)), ...told.filter(Boolean).map((line) => make("span", {}, line)));
  const right = event.clientX + 16 + tip.offsetWidth > window.innerWidth;
  tip.style.left = `${Math.max(4, right ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16)}px`;
  tip.style.top = `${clamp(event.clientY + 14, 4, window.innerHeight - tip.offsetHeight - 4)}px`;
}

function held(times, values, time) {
  const place = lowerBound(times, time + 1) - 1;
  return place < 0 ? null : (values[place] ?? null);
}

function tipOf(run, track, at) {
  const { samples } = run;
  const held_ = (values) => held(samples.times, values, at.time);
  const told = (name, value, say = number) => `${name} ${value === null ? "unknown" : say(value)}`;
  switch (track.kind) {
    case "faults": {
      const place = faultAt(run, track, at.x);
      return place < 0 ? null : [faultLabel(run.faults[place]), evidenceOf(run.faults[place])];
    }
    case "errors": {
      const found = nearestStory(run, at.x);
      return found ? [found.told.name, cut(visible(found.story.text), 240)] : null;
    }
    case "latency":
    case "client": {
      const operation = operationAt(run, track, at.x, at.y);
      if (operation < 0) return track.kind === "client" ? null : [];
      const took = run.data.returned[operation] - run.data.call[operation];
      return [cut(textOf(run, operation), 160), `${processOf(run, operation)}, ${OUTCOMES[run.data.outcome[operation]]}${took < INFINITE ? `, took ${duration(took)}` : ""}`];
    }
    case "rate": {
      const { step, first, counts, total } = rateColumns(run);
      const column = Math.floor(at.time / step) - first;
      if (column < 0 || column >= total) return null;
      return [0, 2, 1].filter((outcome) => outcome === 0 || counts[outcome][column]).map((outcome) => `${OUTCOMES[outcome]}: ${number((counts[outcome][column] * 1e9) / step)} a second`);
    }
    case "unseen":
      return [told("acknowledged and not yet read:", held(run.unseen.times, run.unseen.values, at.time))];
    case "lag":
      return [told("worst lag of a poll:", held(run.lag.times, run.lag.values, at.time), duration)];
    case "group":
      return [told("records behind:", held_(samples.groups[track.group] ?? []))];
    case "broker":
      return [`broker ${track.broker}: ${held_(samples.brokers[track.broker] ?? []) ?? "unknown"}`];
    case "quorum":
      return [told("leader", held_(samples.quorum)), told("term", held_(samples.term))];
    case "partition":
    case "offsets": {
      const column = samples.partitions[track.key];
      if (!column) return null;
      const isr = held_(column.isr);
      return [visible(track.key), `${told("leader", held_(column.leader))}, ${told("epoch", held_(column.leader_epoch))}, ISR ${isr ? isr.join(",") : "unknown"}`,
        told("log end", held_(column.log_end)), told("high watermark", held_(column.high_watermark)), told("last stable offset", held_(column.last_stable))];
    }
    case "log": {
      const near = run.lines.filter((line) => (track.broker === null || line[1] === track.broker) && GRAVE.includes(line[2]) && Math.abs(toPixel(line[0]) - at.x) < 4);
      return near.length ? near.slice(0, 5).map((line) => `broker ${line[1]} ${line[2]} ${cut(visible(line[3]), 160)}`) : null;
    }
    default:
      return null;
  }
}

// ---- keys

const KEYS = [
  ["\u2190 \u2192", "move along the time"],
  ["+ \u2212", "zoom in and out"],
  ["0", "the whole run"],
  ["\u2191 \u2193", "scroll the lanes"],
  ["j k", "next and previous kind of error"],
  ["n p", "next and previous example"],
  ["z", "zoom to the example"],
  ["f F", "next and previous fault"],
  ["o", "operations of one function alone"],
  ["e", "all lanes"],
  ["1 2 3 4", "errors, faults, run, text"],
  ["c", "copy the command that runs it again"],
  ["d", "colours"],
  ["Esc", "let go of operation and fault"],
];

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, dialog")) return;
  const inSheet = event.target.closest("#sheet");
  const actions = {
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: showWhole,
    j: () => stepTold(1), k: () => stepTold(-1), n: () => stepStory(1), p: () => stepStory(-1),
    z: () => chosenStory() && showStory(chosenStory()), f: () => stepFault(1), F: () => stepFault(-1), e: expand, o: nextFunction, d: nextTheme,
    1: () => openSheet("errors"), 2: () => openSheet("faults"), 3: () => openSheet("run"), 4: () => openSheet("text"),
    c: () => copyText(runs[ui.run].command), "?": () => byId("help").showModal(),
    Escape: () => { ui.fault = null; chooseOperation(0, -1); },
  };
  if (!inSheet) {
    actions.ArrowLeft = () => pan(-0.15);
    actions.ArrowRight = () => pan(0.15);
    actions.ArrowUp = () => { view.top -= 60; redraw(); };
    actions.ArrowDown = () => { view.top += 60; redraw(); };
  }
  const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
  if (!action) return;
  event.preventDefault();
  action();
}

function fillHelp() {
  const sign = (name, text) => make("p", {}, make("i", { class: `sign ${name}` }), text);
  byId("help").replaceChildren(
    make("h2", {}, "Keys and signs"),
    make("div", { class: "columns" },
      make("table", {}, ...KEYS.map(([keys, words]) => make("tr", {}, make("th", {}, ...keys.split(" ").map((key) => make("kbd", {}, key))), make("td", {}, words)))),
      make("div", {},
        sign("ok", "an operation that was acknowledged"), sign("info", "one of unknown outcome"), sign("fail", "one that failed"),
        sign("end", "log end"), sign("hw", "high watermark"), sign("stable", "last stable offset"),
        make("p", {}, "A partition's lane has its leader's colour, and below it a line for each replica in sync; yellow ones say that some are not. In dense latency the lower line is the median, the upper the 99th percentile."),
        make("p", {}, "Wheel zooms, drag moves, Shift and wheel scroll, double click zooms in. Vertical red lines: where the example begins, and where it turned."))),
    make("form", { method: "dialog" }, make("button", {}, "Close")));
}
