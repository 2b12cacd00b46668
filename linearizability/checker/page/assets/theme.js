// Colours: as the system says, until the reader chooses. The canvas takes them from the style sheet.

const THEMES = ["auto", "light", "dark"];
const paint = {};
let theme = "auto";

function readPaint() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  for (const name of ["ground", "raised", "line", "faint", "ink", "soft", "accent", "point", "bad", "bad-fill",
    "bad-wash", "found", "found-fill", "core", "band", "band-edge", "wash", "state", "mute-fill", "mute-edge", "window"]) {
    paint[name] = get(name);
  }
  paint.fills = [0, 1, 2, 3, 4, 5].map((hue) => get(`f${hue}`));
  paint.edges = [0, 1, 2, 3, 4, 5].map((hue) => get(`e${hue}`));
  paint.ui = get("ui-font");
  paint.mono = get("mono-font");
}

function storedTheme() {
  try {
    return localStorage.getItem("raftlog-theme") ?? "auto";
  } catch {
    return "auto"; // a page without storage, as some browsers open files
  }
}

function useTheme(chosen) {
  theme = THEMES.includes(chosen) ? chosen : "auto";
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = { auto: "\u25d0 Auto", light: "\u25cb Light", dark: "\u25cf Dark" }[theme];
  try {
    localStorage.setItem("raftlog-theme", theme);
  } catch {
    // Then the choice lasts as long as the page.
  }
  readPaint();
}

function nextTheme() {
  useTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  view.overview = null;
  redraw();
}
