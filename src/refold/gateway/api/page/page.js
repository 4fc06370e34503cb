"use strict";
// Everything that is shown of data goes through textContent: nothing that was said can become markup.

const KEY = "refold-admin-token";
const at = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const money = new Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumFractionDigits: 4 });
const PAGE = 100; // sessions listed at a time
const TOKEN = /^[\x20-\x7e]+$/; // what a header can carry
let open = null; // the session that is looked at
let asked = 0; // so that a late answer does not replace a newer one
let listed = 0; // likewise, of the list
const FEW = 20; // names listed at once
const MORE = 100_000; // characters fetched at once
const MOST = 1_000; // attempts that can be told at once
const TRIES = 40; // for what another process of the gateway has
const FORGOTTEN = "Not seen for a week: its next request shows it again.";
let attempts = PAGE; // attempts that are listed
let first = 0; // sessions before those that are listed
let token = sessionStorage.getItem(KEY); // kept there once it was right
if (token !== null && !TOKEN.test(token)) forget();

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// What only another process of the gateway can do is asked again, over another connection, until that one answers.
async function fetched(path, options = {}, tries = TRIES) {
  const headers = { ...options.headers };
  const mine = token;
  if (mine) headers.authorization = `Bearer ${mine}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) {
    if (mine && mine === token) sessionStorage.setItem(KEY, mine);
    return answer;
  }
  const error = await answer.json().then((body) => body.error, () => null);
  if (error?.code?.endsWith("_elsewhere") && tries > 1) return fetched(path, options, tries - 1);
  throw new Refused(answer.status, error?.code, error?.message ?? `The gateway answered ${answer.status}.`);
}

const get = async (name, query) => (await fetched(`/refold/api/${name}?${new URLSearchParams(query)}`)).json();
const post = async (name, body) =>
  (await fetched(`/refold/api/${name}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  })).json();

// --- making elements ---------------------------------------------------------------------------

function make(tag, more = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(more)) {
    if (name === "on") element.addEventListener("click", value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...inside.filter((one) => one !== null && one !== undefined));
  return element;
}

const cell = (text, kind) => make("td", { class: kind }, text);
const tokens = (number) => count.format(number);
const when = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleString());
const dollars = (amount) => (amount === null ? "unknown" : money.format(amount));
const short = (id) => id.slice(0, 8);
const strategy = (by) => by.split("(")[0].trim() || "by hand";
const isUndone = (one) => one.by.startsWith("as said"); // a local strategy would do it again, so that is kept

function forget() {
  token = null;
  sessionStorage.removeItem(KEY);
}

function say(text, bad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", bad);
}

// --- what is shown -----------------------------------------------------------------------------

function figures(text) {
  const found = { requests: 0, retried: 0, failures: 0, under: 0 };
  for (const line of text.split("\n")) {
    const parts = /^refold_(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const [, name, labels = "", value] = parts;
    if (name === "requests") found.requests += Number(value);
    if (name === "context_errors" && labels.includes('result="retried"')) found.retried += Number(value);
    if (name === "failures") found.failures += Number(value);
    if (name === "http_requests_in_progress") found.under = Number(value);
  }
  return found;
}

function tiles(id, named) {
  at(id).replaceChildren(...named.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// What the store says of all calls, and what this gateway has counted: two scopes, each under its own heading.
function showFigures(found, books) {
  const other = books?.unreported;
  tiles("books", [
    ["Sessions", books ? tokens(books.sessions) : "unknown"],
    ["Answered requests", books ? tokens(books.calls + other.calls) : "unknown"],
    ["Tokens left out, as billed", books ? tokens(books.would_input - books.input + other.would_input - other.input) : "unknown"],
    ["Saved net", books && books.calls > books.unpriced ? money.format(books.saved) : "unknown"],
  ]);
  tiles("metrics", [
    ["Requests", tokens(found.requests)],
    ["Saved from a context error", tokens(found.retried)],
    ["Passed through after a failure", tokens(found.failures)],
    ["Under way now", tokens(found.under)],
  ]);
}

function showSessions(sessions, total) {
  at("rows").replaceChildren(...sessions.map(row));
  at("none").hidden = total > 0;
  at("pages").hidden = first === 0 && total <= PAGE;
  at("newer").disabled = first === 0;
  at("older").disabled = first + PAGE >= total;
  at("span").textContent = `Sessions ${tokens(first + 1)} to ${tokens(first + sessions.length)} of ${tokens(total)}`;
}

const amount = (number) => cell(number === null ? "–" : tokens(number), "number");

function row(one) {
  const told = one.remembered;
  const share = told && one.tokens_before ? Math.min(1, one.tokens_after / one.tokens_before) : 1;
  const label = `${Math.round(share * 100)} %`;
  const look = told ? make("button", {
    type: "button", class: "link", "aria-label": `Open session ${short(one.id)}`, on: () => show(one.id, true),
  }, short(one.id)) : make("span", { class: "mono", title: FORGOTTEN }, short(one.id));
  return make("tr", { "data-session": one.id, "aria-current": one.id === open ? "true" : null },
    make("th", { scope: "row" }, look), cell(one.model || one.api || "unknown"),
    cell(told ? when(one.last_seen) : `from ${when(one.last_seen)}`),
    ...(told ? [
      amount(one.tokens_before), amount(one.tokens_after),
      make("td", {}, make("progress", { max: "1", value: String(share), "aria-label": `${label} of the tokens are sent` }), ` ${label}`),
      amount(one.edits),
    ] : [make("td", { colspan: "4", class: "hint" }, FORGOTTEN)]),
    amount(one.requests), amount(one.saved_tokens), cell(dollars(one.saved_dollars), "number"));
}

// A text of which only the beginning came along: the rest is fetched part by part, until the end.
function whole(words, left, where, label) {
  const shown = make("pre", { tabindex: "0", "aria-label": label }, words);
  if (!left) return [shown];
  const rest = make("span", { class: "hint", role: "status" });
  const button = make("button", { type: "button" }, "Show more");
  let next = [...words].length; // characters as the gateway counts them
  const tell = (count) => {
    rest.textContent = count ? `${tokens(count)} more characters.` : "That is all of it.";
    button.hidden = !count;
  };
  button.addEventListener("click", () => guarded(async () => {
    const part = await get("words", { ...where, offset: next, limit: MORE });
    shown.append(part.text);
    next = part.next;
    tell(next === null ? 0 : part.total - next);
  }, button));
  tell(left);
  return [shown, make("p", { class: "row" }, rest, button)];
}

function edit(one, undo, from) {
  const where = { ...from, edit: one.id };
  const place = one.stop - one.start === 1 ? `message ${one.start}` : `messages ${one.start} to ${one.stop - 1}`;
  const about = [
    place, isUndone(one) ? "shown as it was said" : `${tokens(one.tokens_before)} tokens become ${tokens(one.tokens_after)} · ${one.grade}`,
    one.actor && `by ${one.actor}`, when(one.when), one.cost ? `made for ${money.format(one.cost)}` : "",
  ];
  return make(undo ? "li" : "div", { class: "card", "data-edit": one.id },
    make("div", { class: "row spread" }, make("h4", {}, `${strategy(one.by)} · ${short(one.id)}`), undo),
    make("p", { class: "hint" }, about.filter(Boolean).join(" · ")),
    ...(one.text ? whole(one.text, one.text_more, { ...where, of: "text" }, "What stands there instead")
      : [make("p", { class: "hint" }, isUndone(one) ? "This was undone." : "No words of ours stand there.")]),
    one.hidden ? make("details", {}, make("summary", {}, "What was said"),
      ...whole(one.hidden, one.hidden_more, { ...where, of: "hidden" }, "What was said")) : null);
}

function undoing(session, one) {
  const name = isUndone(one) ? "Redo" : "Undo";
  const button = make("button", { type: "button" });
  let sure;
  const arm = (armed) => {
    sure = armed;
    button.textContent = armed ? `Really ${name.toLowerCase()}?` : name;
    button.setAttribute("aria-label", armed ? `Really ${name.toLowerCase()} edit ${short(one.id)}?` : `${name} edit ${short(one.id)}`);
  };
  button.addEventListener("click", () => {
    if (!sure) {
      arm(true);
      return;
    }
    arm(false);
    guarded(async () => {
      const done = await post("revert", { session, edits: [one.id], actor: "page" });
      await refresh();
      say(undone(done));
      if (open === session) at("detail").focus();
    }, button);
  });
  button.addEventListener("blur", () => arm(false));
  arm(false);
  return button;
}

function undone(done) {
  if (done.fits) return `Done: the next request sends ${tokens(done.tokens_after)} tokens instead of ${tokens(done.tokens_before)}.`;
  return `Done, but ${tokens(done.tokens_after)} tokens do not fit: the next request of session ${short(done.session)} is compacted again.`;
}

function showDetail(history) {
  const session = history.session;
  at("detail-title").textContent = `Session ${short(session.id)}`;
  at("about").textContent = `${session.api} · ${session.model} · through ${session.upstream} · messages: ${tokens(session.messages)} · `
    + `as said ${tokens(session.tokens_before)} tokens, as sent ${tokens(session.tokens_after)}, by Refold's count`;
  const edits = history.edits.map((one) => edit(one, undoing(session.id, one), { session: session.id }));
  at("edits").replaceChildren(...(edits.length ? edits : [make("li", { class: "hint" }, "None: it is sent as it was said.")]));
  showAttempts(history);
  at("detail").hidden = false;
}

function showAttempts(history) {
  at("attempts").replaceChildren(...[...history.attempts].reverse().map((one) => make("tr", {},
    cell(when(one.when)), cell(one.action), cell(one.outcome), cell(strategy(one.by)),
    cell(tokens(one.before - one.after), "number"), cell(one.actor),
    cell([one.trigger, one.reason].filter(Boolean).join("; "), "wide"))));
  const [shown, all] = [history.attempts.length, history.attempts_total];
  at("attempts-of").textContent = shown < all ? `The latest ${tokens(shown)} of ${tokens(all)}.` : "";
  at("earlier").hidden = shown >= all || attempts >= MOST;
  if (shown < all && attempts >= MOST) at("attempts-of").textContent += " /refold/api/history has the others, by offset.";
}

function names(those) {
  if (those.length <= FEW) return `: ${those.join(", ")}`;
  const rest = make("span", { hidden: "" }, `, ${those.slice(FEW).join(", ")}`);
  const button = make("button", { type: "button", class: "link", on: () => { rest.hidden = false; button.remove(); } },
    `and ${tokens(those.length - FEW)} more`);
  return make("span", {}, `: ${those.slice(0, FEW).join(", ")}`, rest, " ", button);
}

function gone(vanished) {
  const found = Object.entries(vanished).filter(([, one]) => one.count);
  if (!found.length) return make("p", { class: "hint" }, "Nothing that was said by name would vanish.");
  const items = found.map(([name, one]) =>
    make("li", {}, `${tokens(one.count)} ${name}`, one.names.length ? names(one.names) : ""));
  return make("div", {}, make("p", {}, "What would stand nowhere any more, in these words:"), make("ul", {}, ...items));
}

function showOffer(made) {
  const panel = at("offer");
  const title = make("h3", {}, `Preview of session ${short(made.session)}`);
  const close = make("button", { type: "button", on: () => { panel.hidden = true; at("preview").focus(); } }, "Close");
  if (!made.preview) {
    panel.replaceChildren(title, make("p", {}, "There is nothing to make smaller."), close);
  } else {
    const areas = Object.entries(made.summaries).map(([id, words]) => {
      const area = make("textarea", { id: `summary-${id}`, "data-summary": id });
      area.value = words;
      area.defaultValue = words;
      return make("details", {}, make("summary", {}, "Amend the summary"),
        make("label", { for: `summary-${id}` }, `Summary of ${short(id)}`), area);
    });
    const keep = make("button", { type: "button", class: "main", on: () => accept(made, keep) }, "Accept");
    panel.replaceChildren(
      title,
      make("p", {}, `${tokens(made.tokens_before)} tokens become ${tokens(made.tokens_after)} by Refold's count: each further request is `
        + `${tokens(made.saved_tokens)} tokens smaller. Model calls for this: ${tokens(made.calls)} (${money.format(made.cost)}).`),
      make("div", { class: "edits-of-offer" }, ...made.edits.map((one) => edit(one, null, { session: made.session, preview: made.preview }))),
      gone(made.vanished), ...areas, make("p", { class: "row" }, keep, close));
  }
  panel.hidden = false;
  panel.querySelector("button").focus();
}

function askForHistory(session) {
  const area = make("textarea", { id: "history" });
  const panel = at("offer");
  const send = make("button", { type: "button", class: "main" }, "Preview this");
  send.addEventListener("click", () => {
    let request;
    try {
      request = JSON.parse(area.value);
    } catch {
      say("That is not JSON.", true);
      return;
    }
    preview(session, send, { request });
  });
  panel.replaceChildren(make("h3", {}, `The history of session ${short(session)} is needed`),
    make("p", {}, "Images and the like are not remembered, nor is anything from before a restart. Paste the request as the client sends it."),
    make("label", { for: "history" }, "Request (JSON)"), area, make("p", { class: "row" }, send));
  panel.hidden = false;
  area.focus();
}

// --- what is done ------------------------------------------------------------------------------

async function guarded(act, button = null) {
  if (button) button.disabled = true;
  say(""); // what it says is of what was done before
  try {
    await act();
  } catch (error) {
    if (error.status === 401) {
      askForToken(token !== null);
    } else {
      at("forget").hidden = token === null;
      if (at("glance").hidden) at("entry").hidden = false; // nothing is there yet: another token, or the same again
      say(error instanceof Refused ? error.message : "The gateway cannot be reached.", true);
    }
  } finally {
    if (button) button.disabled = false;
  }
}

function askForToken(wrong) {
  forget();
  ++asked;
  ++listed;
  first = 0;
  for (const id of ["glance", "sessions", "detail", "forget"]) at(id).hidden = true;
  for (const id of ["rows", "metrics", "books", "edits", "attempts", "offer"]) at(id).replaceChildren();
  open = null;
  at("entry").hidden = false;
  at("token").focus();
  say(wrong ? "That is not the admin token." : "", wrong);
}

async function refresh() {
  const mine = ++listed;
  const found = await get("sessions", { limit: PAGE, offset: first });
  const metrics = await (await fetched("/metrics")).text();
  const books = await get("totals", {}).catch((error) => {
    if (error.status === 401) throw error;
    return null; // what else is known is shown all the same
  });
  if (mine !== listed) return;
  if (!found.sessions.length && found.total) { // some were forgotten since
    first = Math.floor((found.total - 1) / PAGE) * PAGE;
    await refresh();
    return;
  }
  at("entry").hidden = true;
  at("token").value = "";
  at("forget").hidden = token === null;
  at("glance").hidden = at("sessions").hidden = false;
  showFigures(figures(metrics), books);
  showSessions(found.sessions, found.total);
  if (open) await load(open);
}

async function load(id) {
  const mine = ++asked;
  let history;
  try {
    history = await get("history", { session: id, limit: attempts });
  } catch (error) {
    if (mine !== asked) return;
    turnTo(null); // what is there is of no session that is known to be
    throw error;
  }
  if (mine === asked) showDetail(history);
}

// Another session is open from now on, or none. Nothing of the former stays.
function turnTo(id) {
  open = id;
  attempts = PAGE;
  at("detail").hidden = at("offer").hidden = true;
  at("offer").replaceChildren();
  at("preview").disabled = false;
  for (const one of at("rows").children) {
    if (one.dataset.session === id) one.setAttribute("aria-current", "true");
    else one.removeAttribute("aria-current");
  }
}

const show = (id, focus) => guarded(async () => {
  if (open !== id) turnTo(id);
  await load(id);
  if (focus && open === id) at("detail").focus();
});

const WORKING = "Working on a preview…";
const NEEDED = new Set(["history_needed", "history_elsewhere"]);
const preview = (session, button, more = {}) => guarded(async () => {
  say(WORKING);
  let made = null;
  try {
    made = await post("preview", { session, actor: "page", ...more });
  } catch (error) {
    if (!NEEDED.has(error.code) && open === session) throw error;
  } finally {
    if (at("status").textContent === WORKING) say("");
  }
  if (open !== session) return; // another one is looked at by now
  if (made) showOffer(made);
  else askForHistory(session);
}, button);

const accept = (made, button) => guarded(async () => {
  const areas = [...at("offer").querySelectorAll("[data-summary]")].filter((one) => one.value !== one.defaultValue);
  const amend = Object.fromEntries(areas.map((one) => [one.dataset.summary, one.value]));
  const done = await post("accept", { preview: made.preview, actor: "page", ...(areas.length ? { amend } : {}) });
  if (open === done.session) at("offer").hidden = true;
  await refresh();
  say(`Accepted: the next request of session ${short(done.session)} has about ${tokens(done.tokens_after)} tokens.`);
  if (open === done.session) at("detail").focus();
}, button);

at("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("token").value.trim();
  if (!TOKEN.test(given)) {
    say("A token has letters, digits and signs of ASCII alone.", true);
    return;
  }
  token = given;
  guarded(refresh);
});

function turn(by) {
  const was = first;
  first = Math.max(0, first + by);
  guarded(async () => {
    try {
      await refresh();
    } catch (error) {
      first = was;
      throw error;
    }
    at("sessions").focus();
  });
}

at("newer").addEventListener("click", () => turn(-PAGE));
at("older").addEventListener("click", () => turn(PAGE));
at("refresh").addEventListener("click", () => guarded(refresh, at("refresh")));
at("earlier").addEventListener("click", () => guarded(async () => {
  attempts = MOST;
  await load(open);
}, at("earlier")));
at("forget").addEventListener("click", () => askForToken(false));
at("preview").addEventListener("click", () => preview(open, at("preview")));
guarded(refresh);
