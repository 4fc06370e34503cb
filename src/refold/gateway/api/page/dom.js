// Helpers that create elements. All data goes through text nodes, so no message can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, more, inside) {
  for (const [name, value] of Object.entries(more)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "vars") for (const [key, text] of Object.entries(value)) element.style.setProperty(`--${key}`, text);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const item of inside.flat(Infinity)) if (item !== null && item !== undefined && item !== false) element.append(item);
  return element;
}

/** create("button", {class: "main", onclick: act}, "Undo") */
export const create = (tag, more = {}, ...inside) => fill(document.createElement(tag), more, inside);
export const draw = (tag, more = {}, ...inside) => fill(document.createElementNS(SVG, tag), more, inside);
/** Replace the children of *element*. Null and false are skipped. */
export function put(element, ...inside) {
  element.replaceChildren();
  return fill(element, {}, inside);
}
export const button = (text, onclick, more = {}) => create("button", { type: "button", onclick, ...more }, text);
export const key = (name) => create("kbd", { "aria-hidden": "true" }, name);
/** The key that the browser's own shortcuts use. */
export const COMMAND_KEY = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
export const byId = (id) => document.getElementById(id);

/** Announce *text* to screen readers. */
export function say(text) {
  byId("news").textContent = text;
}

/** Run *act*, which redraws parts of *root*, and keep the focus on the same element or on its replacement. */
export function keepFocus(root, act) {
  const had = document.activeElement;
  if (had === root || !root.contains(had)) return act();
  const nameOf = (item) => `${item.id} ${item.ariaLabel ?? item.textContent} ${item.closest("[data-at], li")?.dataset.at}`;
  const name = nameOf(had);
  const path = [];
  for (let item = had; item !== root; item = item.parentElement) path.unshift([...item.parentElement.children].indexOf(item));
  const result = act();
  const now = document.activeElement;
  if (now === had || (now !== document.body && now !== null)) return result;
  const inPlace = path.reduce((item, at) => item?.children[at], root);
  const target = had.isConnected ? had : [...root.querySelectorAll(had.tagName)].find((item) => nameOf(item) === name)
    ?? (inPlace?.tagName === had.tagName ? inPlace : null);
  target?.focus({ preventScroll: true });
  return result;
}

/** A bar: teal is sent, grey is hidden. *scale* is the value of the full width. */
export function bar(original, sent, scale, root = false) {
  const size = (value) => 100 * (root ? Math.sqrt(value / Math.max(1, scale)) : value / Math.max(1, scale));
  const whole = Math.max(original, sent);
  const part = whole ? (100 * sent) / whole : 0;
  return create("span", { class: "size", "aria-hidden": "true" },
    create("i", { vars: { width: `${Math.min(100, size(whole))}%`, part: `${part}%` } }));
}

/** A strip of figures, each [name, value, note below, tooltip]. */
export const figures = (parts) => create("dl", { class: "panel figures" }, parts.map(([name, value, below, title]) =>
  create("div", { title: title || null }, create("dt", {}, name), create("dd", {}, value), create("dd", { class: "quiet" }, below))));

/** A button that copies *text*, or the result of *text*(), and shows the outcome for two seconds. */
export function copyButton(text, name = "Copy", more = {}) {
  const result = button(name, async () => {
    const outcome = await Promise.resolve(typeof text === "function" ? text() : text).then(copy).then(() => "Copied", () => "Copy failed");
    result.textContent = outcome;
    say(outcome);
    setTimeout(() => { result.textContent = name; }, 2000);
  }, { class: "plain", ...more });
  return result;
}

export async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return;
    } catch { /* not allowed: use the old API */ }
  }
  const area = create("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Debounce: call *act* once there was no call for *milliseconds*. */
export function later(milliseconds, act) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), milliseconds);
  };
}
