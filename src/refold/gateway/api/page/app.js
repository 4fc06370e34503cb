// The frame: addresses, keys, the live line, the theme, the token. What is shown is in the views.
import { canBeToken, follow, forgetToken, hasToken, queryOf, useToken } from "./api.js";
import { button, byId, copy, create, put, say } from "./dom.js";
import { clockWithSeconds } from "./format.js";
import { showSessions } from "./sessions.js";

const main = byId("main");
const SHOW = { // the list does not wait for the others
  sessions: async () => showSessions, setup: async () => (await import("./setup.js")).showSetup,
  session: async () => (await import("./session.js")).showSession, preview: async () => (await import("./preview.js")).showPreview };
const THEME = "refold-theme";
const KEYS_OFF = "refold-keys-off";
let view = null; // what is shown: {update, changed, key, close}
let shown = ""; // its kind and session
let following = null;
let lastNews = Date.now() / 1000;

// --- addresses: #/?client=…, #/s/ID, #/s/ID/message/7, #/s/ID/call/96, #/s/ID/preview, #/setup -----

function readRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean), query: new URLSearchParams(query) };
}

export const address = (path, query = {}) => `#/${path}?${queryOf(query)}`.replace(/\?$/, "");
export const go = (hash) => { location.hash = hash; };
/** The address says where one is, without another entry for Back. */
export const stay = (hash) => history.replaceState(null, "", hash);

async function route() {
  const { path, query } = readRoute();
  const kind = path[0] === "setup" ? "setup" : path[0] === "s" && path[1] ? (path[2] === "preview" ? "preview" : "session") : "sessions";
  const name = `${kind} ${kind === "sessions" || kind === "setup" ? "" : path[1]}`;
  for (const [id, kinds] of [["to-sessions", ["sessions", "session", "preview"]], ["to-setup", ["setup"]]]) {
    if (kinds.includes(kind)) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  if (view && shown === name && view.update) {
    await guard(() => view.update({ path, query }));
    return;
  }
  view?.close?.();
  if (kind !== "sessions") byId("query").value = "";
  shown = name;
  view = null;
  const place = create("div"); // what comes late is drawn where nobody looks any more
  const hadFocus = main.contains(document.activeElement);
  main.replaceChildren(place);
  if (hadFocus) main.focus({ preventScroll: true }); // not back to the beginning of the page
  window.scrollTo(0, 0);
  await guard(async () => {
    const made = await (await SHOW[kind]())(place, { path, query });
    if (place.isConnected) view = made;
    else made?.close?.();
    lastNews = Date.now() / 1000;
    begin();
    requestAnimationFrame(() => setTimeout(loadRest)); // once what is drawn is on the screen
  });
}

/** What a session needs comes while the gateway surely answers: a browser remembers an import that failed. */
const loadRest = () => Promise.all([SHOW.session(), SHOW.preview()]).catch(() => null);

/** Run *act*; what went wrong is said in *place*, or instead of the view, with a button to do it *again*. */
export async function guard(act, place = null, again = () => guard(act, place)) {
  try {
    return await act();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (error.status === 401) askForToken(hasToken());
    else if (place) refuse(place, error, again);
    else if (!main.firstElementChild?.children.length) refuse(main.firstElementChild ?? main, error, route);
    else warn(`${error.message} What is shown may be older.`, "Try again", () => { byId("gone").hidden = true; catchUp(); });
    return undefined;
  }
}

/** Say in *place* why something was not done, and offer to try again. */
function refuse(place, error, again) {
  place.querySelector(":scope > .refused")?.remove();
  const why = again === route && error.status === 400 ? `This address is not complete or not right. ${error.message}` : error.message;
  const box = create("div", { class: "asking refused", role: "alert" }, create("p", {}, why),
    button("Try again", () => { box.remove(); again(); }));
  place.append(box);
}

// --- the token ---------------------------------------------------------------------------------

function askForToken(wrong) {
  forgetToken();
  stopFollowing();
  view?.close?.();
  view = null;
  shown = "";
  tellState("live"); // it answers, and wants a token
  const field = create("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const problem = create("p", { role: "alert", class: "teal" }, wrong ? "That is not the admin token." : "");
  const form = create("form", { class: "panel pad entry", id: "entry", onsubmit: (event) => {
    event.preventDefault();
    const given = field.value.trim();
    if (!canBeToken(given)) {
      problem.textContent = "A token has letters, digits and signs of ASCII alone.";
      return;
    }
    useToken(given);
    route();
  } }, create("label", { for: "token" }, "Admin token"), field,
  create("p", { class: "quiet" }, "Kept in this tab alone, until it is closed."), problem,
  create("button", { type: "submit", class: "main" }, "Enter"));
  main.replaceChildren(form);
  field.focus();
}

// --- live --------------------------------------------------------------------------------------

function begin() {
  if (following || document.hidden) return;
  following = new AbortController();
  guard(() => follow((changes) => {
    lastNews = Date.now() / 1000;
    view?.changed?.(changes);
  }, tellState, following.signal));
}

/** A page that is not seen holds none of the few connections that a browser has for a gateway. */
function followIfSeen() {
  if (document.hidden) stopFollowing();
  else if (view && !following) {
    begin();
    catchUp();
  }
}

const catchUp = () => view?.changed?.([{ session: shown.split(" ")[1] }]);

function stopFollowing() {
  following?.abort();
  following = null;
}

/** *why* is the gateway's own word, if it has one. */
function tellState(state, why = "") {
  const isGone = state === "gone";
  if (!isGone && !byId("gone").hidden) catchUp();
  byId("live").classList.toggle("off", isGone);
  byId("live-word").textContent = !isGone ? "Live" : why ? "Not live" : "Gone";
  byId("gone").hidden = !isGone;
  if (isGone) {
    warn([create("b", {}, why || "The gateway does not answer."), ` Shown as of ${clockWithSeconds(lastNews)}; it is tried again.${why ? "" : " Agents that use it get errors now."}`],
      "Try now", () => { stopFollowing(); begin(); });
  }
}

/** Say above the view what is wrong with it, and what *act* is there. */
function warn(words, name, act) {
  put(byId("gone"), create("span", {}, words), button(name, act));
  byId("gone").hidden = false;
}

// --- theme and keys ----------------------------------------------------------------------------

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

byId("theme").addEventListener("click", () => {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  setTheme(next);
  localStorage.setItem(THEME, next);
  window.dispatchEvent(new Event("resize")); // what is painted is painted anew
});

const KEYS = [["/", "Search all sessions"], ["S", "Sent, original, side by side"], ["F", "Find in this session"], ["C", "Preview a compaction"],
  ["J K", "Next, previous"], ["P", "Pin or unpin a message"], ["Enter", "Open, close"], ["U", "Undo the last edit"],
  ["N", "Next edit or hit; Shift: previous"], ["Y", "Copy the link"], ["G", "Go to a message: #7, or call 7"], ["Esc", "Back, close"]];

function showKeys() {
  const off = create("input", { type: "checkbox", id: "keys-off" });
  off.checked = localStorage.getItem(KEYS_OFF) === "1";
  off.addEventListener("change", () => localStorage.setItem(KEYS_OFF, off.checked ? "1" : ""));
  const dialog = create("dialog", { "aria-label": "Keys" }, create("h2", {}, "Keys"),
    create("dl", {}, ...KEYS.flatMap(([name, text]) => [create("dt", {}, create("kbd", {}, name)), create("dd", {}, text)])),
    create("div", { class: "row" }, create("label", { class: "row" }, off, "Switch keys of one letter off"),
      button("Close", () => dialog.close(), { class: "push" })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

byId("help").addEventListener("click", showKeys);

const isTyping = (target) => target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, dialog");

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (isTyping(event.target)) event.target.blur();
    else if (!document.querySelector("dialog[open]") && !view?.key?.(event) && shown && !shown.startsWith("sessions")) history.back();
    return;
  }
  if (view?.key && (event.ctrlKey || event.metaKey)) {
    if ((event.key === "Enter" || event.key === "f") && view.key(event)) event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || localStorage.getItem(KEYS_OFF) === "1") return;
  if (event.key === "/") byId("query").focus();
  else if (event.key === "?") showKeys();
  else if (event.key.toLowerCase() === "y") copy(location.href).then(() => say("Link copied"));
  else if (!view?.key?.(event)) return;
  event.preventDefault();
});

byId("search-all").addEventListener("submit", (event) => {
  event.preventDefault();
  go(address("", { q: byId("query").value.trim() }));
});

// --- begin -------------------------------------------------------------------------------------

setTheme(localStorage.getItem(THEME) ?? "");
byId("host").textContent = location.host;
window.addEventListener("hashchange", route);
window.addEventListener("pagehide", stopFollowing);
window.addEventListener("pageshow", followIfSeen);
document.addEventListener("visibilitychange", followIfSeen);
route();
