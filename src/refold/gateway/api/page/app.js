// The frame around the views: routes, keyboard shortcuts, connection status, theme and token.
import { canBeToken, follow, forgetToken, hasToken, queryOf, recall, remember, useToken } from "./api.js";
import { button, byId, copy, create, put, say } from "./dom.js";
import { clockWithSeconds } from "./format.js";
import { showSessions } from "./sessions.js";

const main = byId("main");
const SHOW = { // loaded on demand, so the list does not wait for the other views
  sessions: async () => showSessions, setup: async () => (await import("./setup.js")).showSetup,
  session: async () => (await import("./session.js")).showSession, preview: async () => (await import("./preview.js")).showPreview };
const THEME = "refold-theme";
const KEYS_OFF = "refold-keys-off";
let view = null; // the current view: {update, changed, key, close}
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
/** Update the address without a new history entry. */
export const stay = (hash) => history.replaceState(null, "", hash);

async function route() {
  const { path, query } = readRoute();
  const kind = path[0] === "setup" ? "setup" : path[0] === "s" && path[1] ? (path[2] === "preview" ? "preview" : "session") : "sessions";
  const name = `${kind} ${kind === "sessions" || kind === "setup" ? "" : path[1]}`;
  for (const [id, kinds] of [["to-sessions", ["sessions", "session", "preview"]], ["to-setup", ["setup"]]]) {
    if (kinds.includes(kind)) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  if (!isOffline()) byId("gone").hidden = true; // a warning about what was shown before
  if (view && shown === name && view.update) {
    await guard(() => view.update({ path, query }));
    return;
  }
  view?.close?.();
  if (kind !== "sessions") byId("query").value = "";
  shown = name;
  view = null;
  const place = create("div"); // late answers for an earlier view are drawn into its detached element
  const hadFocus = main.contains(document.activeElement);
  main.replaceChildren(place);
  if (hadFocus) main.focus({ preventScroll: true }); // the tab order would otherwise restart at the top of the page
  window.scrollTo(0, 0);
  await guard(async () => {
    const made = await (await SHOW[kind]())(place, { path, query });
    if (place.isConnected) view = made;
    else made?.close?.();
    lastNews = Date.now() / 1000;
    begin();
    requestAnimationFrame(() => setTimeout(loadRest)); // after the first paint
  }, place, route);
}

/** Preload the modules of sessions while the gateway answers: browsers cache a failed import. */
const loadRest = () => Promise.all([SHOW.session(), SHOW.preview()]).catch(() => null);

/** Run *act*. Show an error in *place* with a button that calls *again*, or without a *place* above the view, unless the user has left it. */
export async function guard(act, place = null, again = () => guard(act, place)) {
  const current = main.firstElementChild;
  try {
    return await act();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (error.status === 401) askForToken(hasToken());
    else if (place) refuse(place, error, again);
    else if (current?.isConnected) warn(`${error.message} This view may be out of date.`, "Try again", () => { byId("gone").hidden = true; catchUp(); });
    return undefined;
  }
}

/** Show an error in *place* with a button to try again. */
function refuse(place, error, again) {
  place.querySelector(":scope > .refused")?.remove();
  const why = again === route && error.status === 400 ? `This link is incomplete or invalid. ${error.message}` : error.message;
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
  tellState("live"); // the gateway answers, it only needs a token
  const field = create("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const problem = create("p", { role: "alert", class: "teal" }, wrong ? "Wrong admin token." : "");
  const form = create("form", { class: "panel pad entry", id: "entry", onsubmit: (event) => {
    event.preventDefault();
    const given = field.value.trim();
    if (!canBeToken(given)) {
      problem.textContent = "Tokens contain only ASCII characters.";
      return;
    }
    useToken(given);
    route();
  } }, create("label", { for: "token" }, "Admin token"), field,
  create("p", { class: "quiet" }, "Stored in this tab only, until you close it."), problem,
  create("button", { type: "submit", class: "main" }, "Continue"));
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

/** A hidden page closes its event stream: browsers allow few connections per host. */
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

const isOffline = () => byId("live").classList.contains("off");

/** Show whether the page is live. *why* is the gateway's message, if it sent one. */
function tellState(state, why = "") {
  const isGone = state === "gone";
  if (!isGone && !byId("gone").hidden) catchUp();
  byId("live").classList.toggle("off", isGone);
  byId("live-word").textContent = !isGone ? "Live" : why ? "Not live" : "Offline";
  byId("gone").hidden = !isGone;
  if (isGone) {
    warn([create("b", {}, why || "The gateway does not respond."), ` Last updated ${clockWithSeconds(lastNews)}. Retrying.${why ? "" : " Agents that use it get errors now."}`],
      "Try now", () => { stopFollowing(); begin(); });
  }
}

/** Show a warning above the view, with a button *name* that runs *act*. */
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
  remember("localStorage", THEME, next);
  window.dispatchEvent(new Event("resize")); // redraws the canvas in the new colours
});

const KEYS = [["/", "Search all sessions"], ["S", "Switch view: sent, original, side by side"], ["F", "Find in this session"], ["C", "Preview a compaction"],
  ["J K", "Next or previous row"], ["P", "Pin or unpin a message"], ["Enter", "Open or close"], ["U", "Undo the last edit"],
  ["N", "Next edit or match (Shift: previous)"], ["Y", "Copy link"], ["G", "Go to a message (#7) or call (call 7)"], ["Esc", "Back or close"]];

const areKeysOff = () => recall("localStorage", KEYS_OFF) === "1";

function showKeys() {
  const off = create("input", { type: "checkbox", id: "keys-off" });
  off.checked = areKeysOff();
  off.addEventListener("change", () => remember("localStorage", KEYS_OFF, off.checked ? "1" : ""));
  const dialog = create("dialog", { "aria-label": "Keyboard shortcuts" }, create("h2", {}, "Keyboard shortcuts"),
    create("dl", {}, ...KEYS.flatMap(([name, text]) => [create("dt", {}, create("kbd", {}, name)), create("dd", {}, text)])),
    create("div", { class: "row" }, create("label", { class: "row" }, off, "Turn off single-key shortcuts"),
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
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || areKeysOff()) return;
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

// --- start -------------------------------------------------------------------------------------

setTheme(recall("localStorage", THEME) ?? "");
byId("host").textContent = location.host;
window.addEventListener("hashchange", route);
window.addEventListener("pagehide", stopFollowing);
window.addEventListener("pageshow", followIfSeen);
document.addEventListener("visibilitychange", followIfSeen);
route();
