"use strict";
// All data goes through textContent: no message can become markup.

const KEY = "refold-admin-token";
const byId = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const money = new Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumFractionDigits: 4 });
const PAGE = 100; // sessions listed at a time
const TOKEN = /^[\x20-\x7e]+$/; // what a header can carry
let selected = null; // the session that is looked at
let detailRequest = 0; // so that a late answer does not replace a newer one
let listRequest = 0; // the same, of the list
const NAMES_SHOWN = 20; // names listed at once
const PART = 100_000; // characters fetched at once
const MOST_ATTEMPTS = 1_000; // attempts that an answer can hold
const TRIES = 40; // for what another process of the gateway has
const FORGOTTEN = "Not seen for a week: its next request shows it again.";
let attempts = PAGE; // attempts that are listed
let offset = 0; // sessions before those that are listed
let token = sessionStorage.getItem(KEY); // kept there once it was right
if (token !== null && !TOKEN.test(token)) forgetToken();

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// What only another process of the gateway can do is asked again, over another connection, until that one answers.
async function send(path, options = {}, tries = TRIES) {
  const headers = { ...options.headers };
  const current = token;
  if (current) headers.authorization = `Bearer ${current}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) {
    if (current && current === token) sessionStorage.setItem(KEY, current);
    return answer;
  }
  const error = await answer.json().then((body) => body.error, () => null);
  if (error?.code?.endsWith("_elsewhere") && tries > 1) return send(path, options, tries - 1);
  throw new Refused(answer.status, error?.code, error?.message ?? `The gateway answered ${answer.status}.`);
}

const get = async (name, query) => (await send(`/refold/api/${name}?${new URLSearchParams(query)}`)).json();
const post = async (name, body) =>
  (await send(`/refold/api/${name}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  })).json();

// --- making elements ---------------------------------------------------------------------------

function create(tag, more = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(more)) {
    if (name === "on") element.addEventListener("click", value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...inside.filter((item) => item !== null && item !== undefined));
  return element;
}

const cell = (text, kind) => create("td", { class: kind }, text);
const tokens = (number) => count.format(number);
const when = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleString());
const dollars = (amount) => (amount === null ? "unknown" : money.format(amount));
const short = (id) => id.slice(0, 8);
const strategy = (by) => by.split("(")[0].trim() || "by hand";
const isReverted = (item) => item.by.startsWith("as said"); // a local strategy would do it again, so that is kept

function forgetToken() {
  token = null;
  sessionStorage.removeItem(KEY);
}

function announce(text, bad = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad", bad);
}

// --- what is shown -----------------------------------------------------------------------------

function figures(text) {
  const result = { requests: 0, retried: 0, failures: 0, inProgress: 0 };
  for (const line of text.split("\n")) {
    const parts = /^refold_(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const [, name, labels = "", value] = parts;
    if (name === "requests") result.requests += Number(value);
    if (name === "context_errors" && labels.includes('result="retried"')) result.retried += Number(value);
    if (name === "failures") result.failures += Number(value);
    if (name === "http_requests_in_progress") result.inProgress = Number(value);
  }
  return result;
}

function showTiles(id, named) {
  byId(id).replaceChildren(...named.map(([name, value]) => create("div", {}, create("dt", {}, name), create("dd", {}, value))));
}

// What the store says of all calls, and what this gateway has counted: two scopes, each under its own heading.
function showFigures(result, totals) {
  const other = totals?.unreported;
  showTiles("books", [
    ["Sessions", totals ? tokens(totals.sessions) : "unknown"],
    ["Answered requests", totals ? tokens(totals.calls + other.calls) : "unknown"],
    ["Tokens saved, as billed", totals ? tokens(totals.would_input - totals.input + other.would_input - other.input) : "unknown"],
    ["Saved net", totals && totals.calls > totals.unpriced ? money.format(totals.saved) : "unknown"],
  ]);
  showTiles("metrics", [
    ["Requests", tokens(result.requests)],
    ["Saved from a context error", tokens(result.retried)],
    ["Passed through after a failure", tokens(result.failures)],
    ["Under way now", tokens(result.inProgress)],
  ]);
}

function showSessions(sessions, total) {
  byId("rows").replaceChildren(...sessions.map(row));
  byId("none").hidden = total > 0;
  byId("pages").hidden = offset === 0 && total <= PAGE;
  byId("newer").disabled = offset === 0;
  byId("older").disabled = offset + PAGE >= total;
  byId("span").textContent = `Sessions ${tokens(offset + 1)} to ${tokens(offset + sessions.length)} of ${tokens(total)}`;
}

const amount = (number) => cell(number === null ? "–" : tokens(number), "number");

function row(item) {
  const isKnown = item.remembered;
  const share = isKnown && item.tokens_before ? Math.min(1, item.tokens_after / item.tokens_before) : 1;
  const label = `${Math.round(share * 100)} %`;
  const nameCell = isKnown ? create("button", {
    type: "button", class: "link", "aria-label": `Open session ${short(item.id)}`, on: () => openSession(item.id, true),
  }, short(item.id)) : create("span", { class: "mono", title: FORGOTTEN }, short(item.id));
  return create("tr", { "data-session": item.id, "aria-current": item.id === selected ? "true" : null },
    create("th", { scope: "row" }, nameCell), cell(item.model || item.api || "unknown"),
    cell(isKnown ? when(item.last_seen) : `from ${when(item.last_seen)}`),
    ...(isKnown ? [
      amount(item.tokens_before), amount(item.tokens_after),
      create("td", {}, create("progress", { max: "1", value: String(share), "aria-label": `${label} of the tokens are sent` }), ` ${label}`),
      amount(item.edits),
    ] : [create("td", { colspan: "4", class: "hint" }, FORGOTTEN)]),
    amount(item.requests), amount(item.saved_tokens), cell(dollars(item.saved_dollars), "number"));
}

// A text of which only the beginning came along: the rest is fetched part by part, until the end.
function expandableText(text, remaining, target, label) {
  const shown = create("pre", { tabindex: "0", "aria-label": label }, text);
  if (!remaining) return [shown];
  const rest = create("span", { class: "hint", role: "status" });
  const button = create("button", { type: "button" }, "Show more");
  let next = [...text].length; // characters as the gateway counts them
  const update = (count) => {
    rest.textContent = count ? `${tokens(count)} more characters.` : "That is all of it.";
    button.hidden = !count;
  };
  button.addEventListener("click", () => guard(async () => {
    const part = await get("edit_text", { ...target, offset: next, limit: PART });
    shown.append(part.text);
    next = part.next;
    update(next === null ? 0 : part.total - next);
  }, button));
  update(remaining);
  return [shown, create("p", { class: "row" }, rest, button)];
}

function edit(item, undo, from) {
  const target = { ...from, edit: item.id };
  const place = item.stop - item.start === 1 ? `message ${item.start}` : `messages ${item.start} to ${item.stop - 1}`;
  const about = [
    place, isReverted(item) ? "shown unedited" : `${tokens(item.tokens_before)} tokens become ${tokens(item.tokens_after)} · ${item.grade}`,
    item.actor && `by ${item.actor}`, when(item.when), item.cost ? `made for ${money.format(item.cost)}` : "",
  ];
  return create(undo ? "li" : "div", { class: "card", "data-edit": item.id },
    create("div", { class: "row spread" }, create("h4", {}, `${strategy(item.by)} · ${short(item.id)}`), undo),
    create("p", { class: "hint" }, about.filter(Boolean).join(" · ")),
    ...(item.text ? expandableText(item.text, item.text_more, { ...target, of: "text" }, "Replacement text")
      : [create("p", { class: "hint" }, isReverted(item) ? "This was reverted." : "It shows no text of its own.")]),
    item.hidden ? create("details", {}, create("summary", {}, "Original messages"),
      ...expandableText(item.hidden, item.hidden_more, { ...target, of: "hidden" }, "Original messages")) : null);
}

function revertButton(session, item) {
  const name = isReverted(item) ? "Redo" : "Undo";
  const button = create("button", { type: "button" });
  let isArmed;
  const arm = (armed) => {
    isArmed = armed;
    button.textContent = armed ? `Really ${name.toLowerCase()}?` : name;
    button.setAttribute("aria-label", armed ? `Really ${name.toLowerCase()} edit ${short(item.id)}?` : `${name} edit ${short(item.id)}`);
  };
  button.addEventListener("click", () => {
    if (!isArmed) {
      arm(true);
      return;
    }
    arm(false);
    guard(async () => {
      const done = await post("revert", { session, edits: [item.id], actor: "page" });
      await refresh();
      announce(revertMessage(done));
      if (selected === session) byId("detail").focus();
    }, button);
  });
  button.addEventListener("blur", () => arm(false));
  arm(false);
  return button;
}

function revertMessage(done) {
  if (done.fits) return `Done: the next request sends ${tokens(done.tokens_after)} tokens instead of ${tokens(done.tokens_before)}.`;
  return `Done, but ${tokens(done.tokens_after)} tokens do not fit: the next request of session ${short(done.session)} is compacted again.`;
}

function showDetail(history) {
  const session = history.session;
  byId("detail-title").textContent = `Session ${short(session.id)}`;
  byId("about").textContent = `${session.api} · ${session.model} · through ${session.upstream} · messages: ${tokens(session.messages)} · `
    + `unedited ${tokens(session.tokens_before)} tokens, sent ${tokens(session.tokens_after)}, by Refold's count`;
  const edits = history.edits.map((item) => edit(item, revertButton(session.id, item), { session: session.id }));
  byId("edits").replaceChildren(...(edits.length ? edits : [create("li", { class: "hint" }, "None: it is sent unedited.")]));
  showAttempts(history);
  byId("detail").hidden = false;
}

function showAttempts(history) {
  byId("attempts").replaceChildren(...[...history.attempts].reverse().map((item) => create("tr", {},
    cell(when(item.when)), cell(item.action), cell(item.outcome), cell(strategy(item.by)),
    cell(tokens(item.before - item.after), "number"), cell(item.actor),
    cell([item.trigger, item.reason].filter(Boolean).join("; "), "wide"))));
  const [shown, all] = [history.attempts.length, history.attempts_total];
  byId("attempts-of").textContent = shown < all ? `The latest ${tokens(shown)} of ${tokens(all)}.` : "";
  byId("earlier").hidden = shown >= all || attempts >= MOST_ATTEMPTS;
  if (shown < all && attempts >= MOST_ATTEMPTS) byId("attempts-of").textContent += " /refold/api/history has the others, by offset.";
}

function names(texts) {
  if (texts.length <= NAMES_SHOWN) return `: ${texts.join(", ")}`;
  const rest = create("span", { hidden: "" }, `, ${texts.slice(NAMES_SHOWN).join(", ")}`);
  const button = create("button", { type: "button", class: "link", on: () => { rest.hidden = false; button.remove(); } },
    `and ${tokens(texts.length - NAMES_SHOWN)} more`);
  return create("span", {}, `: ${texts.slice(0, NAMES_SHOWN).join(", ")}`, rest, " ", button);
}

function lossList(losses) {
  const result = Object.entries(losses).filter(([, item]) => item.count);
  if (!result.length) return create("p", { class: "hint" }, "No names would be lost.");
  const items = result.map(([name, item]) =>
    create("li", {}, `${tokens(item.count)} ${name}`, item.names.length ? names(item.names) : ""));
  return create("div", {}, create("p", {}, "Names that would be in the request no more:"), create("ul", {}, ...items));
}

function showPreview(offer) {
  const panel = byId("offer");
  const title = create("h3", {}, `Preview of session ${short(offer.session)}`);
  const close = create("button", { type: "button", on: () => { panel.hidden = true; byId("preview").focus(); } }, "Close");
  if (!offer.preview) {
    panel.replaceChildren(title, create("p", {}, "There is nothing to make smaller."), close);
  } else {
    const areas = Object.entries(offer.summaries).map(([id, text]) => {
      const area = create("textarea", { id: `summary-${id}`, "data-summary": id });
      area.value = text;
      area.defaultValue = text;
      return create("details", {}, create("summary", {}, "Amend the summary"),
        create("label", { for: `summary-${id}` }, `Summary of ${short(id)}`), area);
    });
    const keep = create("button", { type: "button", class: "main", on: () => accept(offer, keep) }, "Accept");
    panel.replaceChildren(
      title,
      create("p", {}, `${tokens(offer.tokens_before)} tokens become ${tokens(offer.tokens_after)} by Refold's count: each further request is `
        + `${tokens(offer.saved_tokens)} tokens smaller. Model calls for this: ${tokens(offer.calls)} (${money.format(offer.cost)}).`),
      create("div", { class: "edits-of-offer" }, ...offer.edits.map((item) => edit(item, null, { session: offer.session, preview: offer.preview }))),
      lossList(offer.losses), ...areas, create("p", { class: "row" }, keep, close));
  }
  panel.hidden = false;
  panel.querySelector("button").focus();
}

function askForHistory(session) {
  const area = create("textarea", { id: "history" });
  const panel = byId("offer");
  const button = create("button", { type: "button", class: "main" }, "Preview this");
  button.addEventListener("click", () => {
    let request;
    try {
      request = JSON.parse(area.value);
    } catch {
      announce("That is not JSON.", true);
      return;
    }
    preview(session, button, { request });
  });
  panel.replaceChildren(create("h3", {}, `The history of session ${short(session)} is needed`),
    create("p", {}, "Images and the like are not remembered, nor is anything from before a restart. Paste the request as the client sends it."),
    create("label", { for: "history" }, "Request (JSON)"), area, create("p", { class: "row" }, button));
  panel.hidden = false;
  area.focus();
}

// --- what is done ------------------------------------------------------------------------------

async function guard(act, button = null) {
  if (button) button.disabled = true;
  announce(""); // what it says is of what was done before
  try {
    await act();
  } catch (error) {
    if (error.status === 401) {
      askForToken(token !== null);
    } else {
      byId("forget").hidden = token === null;
      if (byId("glance").hidden) byId("entry").hidden = false; // nothing is there yet: another token, or the same again
      announce(error instanceof Refused ? error.message : "The gateway cannot be reached.", true);
    }
  } finally {
    if (button) button.disabled = false;
  }
}

function askForToken(wrong) {
  forgetToken();
  ++detailRequest;
  ++listRequest;
  offset = 0;
  for (const id of ["glance", "sessions", "detail", "forget"]) byId(id).hidden = true;
  for (const id of ["rows", "metrics", "books", "edits", "attempts", "offer"]) byId(id).replaceChildren();
  selected = null;
  byId("entry").hidden = false;
  byId("token").focus();
  announce(wrong ? "That is not the admin token." : "", wrong);
}

async function refresh() {
  const current = ++listRequest;
  const result = await get("sessions", { limit: PAGE, offset });
  const metrics = await (await send("/metrics")).text();
  const totals = await get("totals", {}).catch((error) => {
    if (error.status === 401) throw error;
    return null; // what else is known is shown all the same
  });
  if (current !== listRequest) return;
  if (!result.sessions.length && result.total) { // some were forgotten since
    offset = Math.floor((result.total - 1) / PAGE) * PAGE;
    await refresh();
    return;
  }
  byId("entry").hidden = true;
  byId("token").value = "";
  byId("forget").hidden = token === null;
  byId("glance").hidden = byId("sessions").hidden = false;
  showFigures(figures(metrics), totals);
  showSessions(result.sessions, result.total);
  if (selected) await load(selected);
}

async function load(id) {
  const current = ++detailRequest;
  let history;
  try {
    history = await get("history", { session: id, limit: attempts });
  } catch (error) {
    if (current !== detailRequest) return;
    select(null); // what is there is of no session that is known to be
    throw error;
  }
  if (current === detailRequest) showDetail(history);
}

// Another session is open from now on, or none. Nothing of the former stays.
function select(id) {
  selected = id;
  attempts = PAGE;
  byId("detail").hidden = byId("offer").hidden = true;
  byId("offer").replaceChildren();
  byId("preview").disabled = false;
  for (const item of byId("rows").children) {
    if (item.dataset.session === id) item.setAttribute("aria-current", "true");
    else item.removeAttribute("aria-current");
  }
}

const openSession = (id, focus) => guard(async () => {
  if (selected !== id) select(id);
  await load(id);
  if (focus && selected === id) byId("detail").focus();
});

const WORKING = "Working on a preview…";
const NEEDED = new Set(["history_needed", "history_elsewhere"]);
const preview = (session, button, more = {}) => guard(async () => {
  announce(WORKING);
  let offer = null;
  try {
    offer = await post("preview", { session, actor: "page", ...more });
  } catch (error) {
    if (!NEEDED.has(error.code) && selected === session) throw error;
  } finally {
    if (byId("status").textContent === WORKING) announce("");
  }
  if (selected !== session) return; // another one is looked at by now
  if (offer) showPreview(offer);
  else askForHistory(session);
}, button);

const accept = (offer, button) => guard(async () => {
  const areas = [...byId("offer").querySelectorAll("[data-summary]")].filter((item) => item.value !== item.defaultValue);
  const amend = Object.fromEntries(areas.map((item) => [item.dataset.summary, item.value]));
  const done = await post("accept", { preview: offer.preview, actor: "page", ...(areas.length ? { amend } : {}) });
  if (selected === done.session) byId("offer").hidden = true;
  await refresh();
  announce(`Accepted: the next request of session ${short(done.session)} has about ${tokens(done.tokens_after)} tokens.`);
  if (selected === done.session) byId("detail").focus();
}, button);

byId("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  const entered = byId("token").value.trim();
  if (!TOKEN.test(entered)) {
    announce("A token has letters, digits and signs of ASCII alone.", true);
    return;
  }
  token = entered;
  guard(refresh);
});

function turnPage(by) {
  const before = offset;
  offset = Math.max(0, offset + by);
  guard(async () => {
    try {
      await refresh();
    } catch (error) {
      offset = before;
      throw error;
    }
    byId("sessions").focus();
  });
}

byId("newer").addEventListener("click", () => turnPage(-PAGE));
byId("older").addEventListener("click", () => turnPage(PAGE));
byId("refresh").addEventListener("click", () => guard(refresh, byId("refresh")));
byId("earlier").addEventListener("click", () => guard(async () => {
  attempts = MOST_ATTEMPTS;
  await load(selected);
}, byId("earlier")));
byId("forget").addEventListener("click", () => askForToken(false));
byId("preview").addEventListener("click", () => preview(selected, byId("preview")));
guard(refresh);
