// The tool bar, the pointer and the tool tip: what the reader does becomes a change of `ui` or `view`.

// Something that decides what is shown has changed: lay everything out again.
function refresh(keepPlace = false) {
  const anchor = ui.selected >= 0 ? ui.selected : (toldWitness()?.refused ?? -1);
  const before = anchor >= 0 && view.layout?.mask[anchor] ? toPixel(view.layout.end[anchor]) : null;
  rebuild();
  measure();
  if (keepPlace && before !== null && view.layout.mask[anchor]) {
    view.zoom = clamp(view.zoom, ...zoomLimits());
    view.left = view.layout.end[anchor] - before / view.zoom;
  } else if (keepPlace) clampView();
  showControls();
  showPanel();
  showMatches();
  redraw();
}

function focusOn(focus) {
  ui.focus = focus;
  if (typeof focus === "number") sheet = "findings";
  else if (focus === "witness" && toldWitness()) sheet = "reason";
  refresh();
  showOpening();
}

function choosePart(part) {
  closeParts();
  ui.part = part;
  ui.possible = 0;
  ui.selected = -1;
  ui.focus = part >= 0 && toldWitness() ? "witness" : null;
  if (part >= 0) sheet = toldWitness() ? "reason" : "order";
  refresh();
  showOpening();
}

function select(operation) {
  ui.selected = operation;
  if (operation >= 0) reveal(operation);
  if (sheet === "order" && view.placed) {
    byId("sheet").replaceChildren(...fillOrder());
    followOrder();
  }
  showCard();
  showMatches();
  rememberPlace();
  redraw();
}

// Select an operation that may not be among those shown: then more is shown.
function choose(operation) {
  if (!view.layout.mask[operation]) {
    ui.focus = null;
    ui.only = false;
    if (!isIn(operation, ui.part)) ui.part = -1;
    if (data.outcome[operation] === FAIL) ui.failed = true;
    ui.selected = operation;
    refresh();
    view.zoom = clamp(1, ...zoomLimits());
  }
  select(operation);
}

function showControls() {
  const single = data.parts.length < 2;
  const part = byId("part");
  part.hidden = single;
  part.replaceChildren(ui.part < 0 ? `All ${count(data.parts.length, "key")}` : make("span", {}, make("small", {}, "key "), make("bdi", {}, cut(partLabel(ui.part), 28))), " \u25be");
  const witness = toldWitness();
  const choices = [];
  if (witness) choices.push([`Witness ${witness.operations.length}`, "witness", "Only the operations that show the violation (w)"]);
  if (typeof ui.focus === "number") ui.finding = ui.focus;
  if (data.findings.length) choices.push([`Finding ${ui.finding + 1}`, ui.finding, "Only the operations of the finding (f)"]);
  if (choices.length) {
    const total = ui.part >= 0 ? partSize(ui.part) : data.count;
    choices.push([`${ui.part >= 0 && !single ? "Whole key" : "All"} ${total.toLocaleString("en-US")}`, null, "All operations (a)"]);
  }
  byId("scope").hidden = !choices.length;
  byId("scope").replaceChildren(...choices.map(([label, focus, title]) =>
    make("button", { type: "button", "aria-pressed": String(ui.focus === focus), title, onclick: () => focusOn(focus) }, label)));
  byId("even").setAttribute("aria-pressed", String(ui.scale === "even"));
  byId("clock").setAttribute("aria-pressed", String(ui.scale === "clock"));
  byId("clock").hidden = byId("even").hidden = data.steps;
  byId("order").setAttribute("aria-pressed", String(ui.order));
  byId("order").hidden = !data.parts.some((one) => one.order || one.witness);
  byId("order").disabled = !view.placed && ui.order; // of several keys at once there is no one order
  byId("failed").setAttribute("aria-pressed", String(ui.failed));
  byId("failed").hidden = !data.outcome.includes(FAIL);
  byId("nothing").hidden = view.layout.shown.length > 0;
  byId("nothing").textContent = data.count ? "No operation to show with these filters." : "The history has no operations.";
}

function setScale(scale) {
  if (data.steps) return;
  const [from, to] = [timeAt(view.layout, view.left), timeAt(view.layout, view.left + view.width / view.zoom)];
  const whole = view.width / view.zoom >= view.layout.width;
  ui.scale = scale;
  refresh();
  if (ui.focus !== null) showOpening();
  else if (whole) fitAll();
  else {
    const left = placeOf(view.layout, from);
    view.zoom = clamp(view.width / Math.max(placeOf(view.layout, to) - left, 1e-6), ...zoomLimits());
    view.left = left;
    redraw();
  }
}

function toggle(name) {
  ui[name] = !ui[name];
  refresh(true);
}

// ---- choosing a part

function openParts() {
  if (data.parts.length < 2) return;
  const popup = byId("parts");
  const place = byId("part").getBoundingClientRect();
  popup.style.left = `${place.left}px`;
  popup.style.top = `${place.bottom + 4}px`;
  popup.hidden = false;
  byId("part-query").value = "";
  listParts();
  byId("part-query").focus();
}

function closeParts() {
  if (byId("parts").hidden) return;
  byId("parts").hidden = true;
  canvas.focus();
}

function listParts() {
  const wanted = byId("part-query").value.trim().toLowerCase();
  const found = data.parts.map((_, place) => place).filter((place) => {
    const { name, status } = data.parts[place];
    return !wanted || name.toLowerCase().includes(wanted) || status === wanted;
  }).sort((one, other) => rankOf(one) - rankOf(other) || one - other);
  const all = make("li", { role: "option", "aria-selected": String(ui.part < 0) },
    make("button", { type: "button", class: "entry", onclick: () => choosePart(-1) },
      make("span", { class: "dot" }), `All ${count(data.parts.length, "key")}`,
      make("small", {}, count(data.count, "operation"))));
  byId("part-list").replaceChildren(wanted ? "" : all, ...found.slice(0, LIST_MOST).map((place) => partEntry(place)),
    found.length > LIST_MOST ? make("li", { class: "soft" }, `\u2026 and ${found.length - LIST_MOST} more`) : "");
}

// ---- the pointer

function onWheel(event) {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
  const inGutter = event.currentTarget === canvas && event.offsetX < view.gutter;
  if (inGutter) view.top += dy;
  else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) view.left += (Math.abs(dx) > Math.abs(dy) ? dx : dy) / view.zoom;
  else {
    const pixel = event.currentTarget === canvas ? event.offsetX - view.gutter : view.width / 2;
    zoomAt(pixel, Math.exp(clamp(-dy, -240, 240) * (event.ctrlKey ? 0.01 : 0.0022)));
    return;
  }
  redraw();
}

let drag = null;

function onDown(event) {
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  drag = { x: event.offsetX, y: event.offsetY, left: view.left, top: view.top, moved: false };
  hideTip();
}

function onMove(event) {
  if (!drag) {
    pointAt(event);
    return;
  }
  const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
  if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
  drag.moved = true;
  canvas.classList.add("dragging");
  view.left = drag.left - dx / view.zoom;
  view.top = drag.top - dy;
  redraw();
}

function onUp(event) {
  canvas.classList.remove("dragging");
  if (drag && !drag.moved) select(operationAt(event.offsetX, event.offsetY));
  drag = null;
}

function onDouble(event) {
  const operation = operationAt(event.offsetX, event.offsetY);
  if (operation >= 0) zoomTo(operation);
}

function zoomTo(operation) {
  const { start, end } = view.layout;
  const around = ui.scale === "even" ? 120 : end[operation] - start[operation];
  showStretch(start[operation] - around, end[operation] + around, 3);
  reveal(operation);
}

// ---- the tool tip

function pointAt(event) {
  const operation = operationAt(event.offsetX, event.offsetY);
  const note = operation < 0 ? noteAt(event.offsetX, event.offsetY) : null;
  if (operation !== ui.hovered) {
    ui.hovered = operation;
    redraw();
  }
  canvas.classList.toggle("pointing", operation >= 0);
  if (operation < 0 && !note) {
    hideTip();
    return;
  }
  const tip = byId("tip");
  tip.replaceChildren(...(operation >= 0 ? operationTip(operation) : noteTip(note)));
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const x = event.clientX + 14 + width > window.innerWidth ? event.clientX - width - 10 : event.clientX + 14;
  const y = event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 12 : event.clientY + 18;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}

function operationTip(operation) {
  const [before, after] = statesOf(operation);
  const reason = view.marks.refused.get(operation);
  const returned = data.returned[operation];
  const parts = partsOf(operation).map((part) => data.parts[part].name).filter(Boolean).slice(0, 4).join(", ");
  const lines = [make("b", { class: "mono" }, make("bdi", {}, cut(textOf(operation), 120))),
    make("span", { class: "soft" }, make("bdi", {}, processOf(operation)), parts ? ` \u00b7 key ${parts}` : "",
      returned < INFINITE && !data.steps ? ` \u00b7 took ${duration(returned - data.call[operation])}` : "")];
  if (data.outcome[operation] !== OK) lines.push(make("span", {}, outcomeWords(operation)));
  if (after !== null) {
    lines.push(make("span", {}, `${view.placed.numberOf[operation] + 1}. `, make("bdi", { class: "mono" }, cut(before, 60)),
      " \u2192 ", make("bdi", { class: "mono" }, cut(after, 60))));
  }
  if (reason !== undefined) lines.push(make("span", { class: "why" }, reason ? make("bdi", {}, cut(reason, 200)) : "nothing explains its answer"));
  return lines;
}

function noteTip(note) {
  const until = note.end === undefined ? "" : ` \u2013 ${moment(note.end, 1e3)} \u00b7 ${duration(note.end - note.start)}`;
  return [make("b", {}, note.label), make("span", { class: "soft" }, moment(note.start, 1e3), until),
    note.details ? make("span", {}, visible(note.details)) : ""];
}

function hideTip() {
  byId("tip").hidden = true;
}

function listen() {
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("dblclick", onDouble);
  canvas.addEventListener("pointerleave", () => {
    ui.hovered = -1;
    hideTip();
    redraw();
  });
  const click = (id, action) => byId(id).addEventListener("click", action);
  click("even", () => setScale("even"));
  click("clock", () => setScale("clock"));
  click("order", () => toggle("order"));
  click("failed", () => toggle("failed"));
  click("zoom-in", () => zoomAt(view.width / 2, 1.5));
  click("zoom-out", () => zoomAt(view.width / 2, 1 / 1.5));
  click("zoom-fit", fitAll);
  click("previous", () => stepMatch(false));
  click("next", () => stepMatch(true));
  click("only", () => toggle("only"));
  click("theme", nextTheme);
  click("help-button", showHelp);
  click("part", openParts);
  byId("part-query").addEventListener("input", listParts);
  byId("query").addEventListener("input", () => {
    const was = ui.only;
    search(byId("query").value);
    if (was || ui.only) refresh(true);
    else {
      view.matches = ui.match ? Array.from(view.layout.shown).filter((operation) => ui.match[operation]) : [];
      view.overview = null;
      showMatches();
      redraw();
    }
  });
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest("#parts, #part")) byId("parts").hidden = true;
  });
}
