// Small things that every other file uses. Text reaches the page through here, and only ever as text.

const INFINITE = Number.POSITIVE_INFINITY;

function byId(id) {
  return document.getElementById(id);
}

// A new element: children are elements or text; text is never read as markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function clamp(value, low, high) {
  return value < low ? low : value > high ? high : value;
}

// The first place in `array[0..length)` whose value is not below `value`; the array is sorted.
function lowerBound(array, value, length = array.length) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The same over the places of something that is not an array.
function lowerBoundBy(length, valueAt, value) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (valueAt(middle) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function count(number, noun, nouns = `${noun}s`) {
  return `${number.toLocaleString("en-US")} ${number === 1 ? noun : nouns}`;
}

// Control characters and marks that turn the direction of writing are shown as what they are.
function visible(text) {
  return text.replace(
    /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/g,
    (character, place, whole) => {
      const code = character.charCodeAt(0);
      if (code >= 0xd800 && code <= 0xdfff) {
        const high = code <= 0xdbff ? code : whole.charCodeAt(place - 1);
        const low = code <= 0xdbff ? whole.charCodeAt(place + 1) : code;
        if (high >= 0xd800 && high <= 0xdbff && low >= 0xdc00 && low <= 0xdfff) return character;
      }
      return `\\u${code.toString(16).padStart(4, "0")}`;
    },
  );
}

function oneLine(text) {
  return visible(text).replace(/\n/g, "\u21b5");
}

function cut(text, length) {
  return text.length <= length ? text : length < 2 ? "" : `${text.slice(0, length - 1)}\u2026`;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // An older browser, or a page that was opened in a way that gives it no clipboard.
    const area = make("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function said(button, done) {
  const before = button.textContent;
  button.textContent = done ? "Copied" : "Could not copy";
  setTimeout(() => {
    button.textContent = before;
  }, 1500);
}

// The beginning of a text that fits, by the font that the page's pen has now.
function fitText(text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = Math.max(1, Math.floor((text.length * width) / pen.measureText(text).width));
  while (length > 1 && pen.measureText(cut(text, length)).width > width) length--;
  return length > 1 ? cut(text, length) : "";
}
