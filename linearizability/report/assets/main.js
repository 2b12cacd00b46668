// The start: the verdict at the top, the gravest error chosen, the time around it in view.

const REPORT_PAINT = ["ok", "info", "fail", "curve", "end", "stable", "on-fault", "unsure", "found", "good"];
const readShared = readPaint;

readPaint = () => {
  readShared();
  const style = getComputedStyle(document.documentElement);
  for (const name of REPORT_PAINT) paint[name] = style.getPropertyValue(`--${name}`).trim();
  paint.faults = [0, 1, 2, 3, 4, 5, 6].map((hue) => style.getPropertyValue(`--fault${hue}`).trim());
};

function showHead() {
  byId("head").replaceChildren(...runs.map((run) => {
    const { data } = run;
    return make("div", { class: "verdict" },
      make("div", { class: "bar" },
        make("span", { class: `badge ${data.status}` }, STATUS[data.status]),
        make("h1", {}, runs.length > 1 ? `${"AB"[run.number]}  ` : "", make("bdi", {}, data.title)),
        make("ul", { class: "facts" }, ...data.facts.map(([name, value]) => make("li", {}, name ? `${visible(name)} ` : "", make("b", {}, visible(value)))))),
      make("div", { class: "words" }, ...data.words.split("\n").map((line, place) => make("p", { class: place ? "" : "lead" }, line))));
  }));
}

function start() {
  byId("stage").replaceChildren(...canvases);
  byId("stage").classList.toggle("two", runs.length > 1);
  useTheme(storedTheme());
  showHead();
  fillHelp();
  const first = runs.findIndex((run) => run.errors.length);
  ui.run = Math.max(first, 0);
  if (first < 0) ui.sheet = runs.some((run) => run.data.status === "unknown") ? "run" : "faults";
  buildTracks();
  view.from = whole.from;
  view.to = whole.to;
  showPanel();
  showControls();
  measure();
  const story = chosenStory();
  if (story) {
    showStory(story);
    revealPartition(story);
  } else showWhole();
  canvases.forEach(listen);
  const press = { previous: () => stepStory(-1), next: () => stepStory(1), which: () => chosenStory() && showStory(chosenStory()), expand, function: nextFunction,
    "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), "zoom-fit": showWhole, theme: nextTheme, "help-button": () => byId("help").showModal() };
  for (const [id, action] of Object.entries(press)) byId(id).addEventListener("click", action);
  document.addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    useTheme(theme);
    redraw();
  });
  new ResizeObserver(resized).observe(byId("stage"));
  recallPlace();
}

start();
