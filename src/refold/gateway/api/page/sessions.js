// The list of sessions: totals, charts, filters, and a table of any length of which 300 rows are in the document.
import { get } from "./api.js";
import { address, go, guard } from "./app.js";
import { callsChart, moneyChart } from "./charts.js";
import { afterFrame, bar, button, byId, copyButton, create, figures, key, later, say } from "./dom.js";
import { DASH, brief, clock, cut, day, dayName, midnight, money, number, plural, share, shortId, shortModel } from "./format.js";
import { setupContent } from "./setup.js";

const PAGE = 100;
const PAGES = 3; // in the document at once
const SEEN = 30; // rows that are drawn before the first frame: more than a window shows
const WORKING = 60; // seconds since the latest call
const PERIODS = [["today", "Today", 0], ["7", "7 days", 6], ["30", "30 days", 29], ["all", "All", null]];
const SOURCES = { gateway: "Gateway", file: "File only" };
const COLUMNS = [
  ["session", "Session", ""], ["model", "Model", ""], ["latest", "When", ""], ["calls", "Calls", "right"], ["tokens", "Tokens of the last call", ""],
  ["spent", "Spent", "right"], ["saved", "Saved", "right"], ["failed", "State", ""]];
const CLASSES = ["session", "model", "when", "calls", "tokens", "money", "money", "state"];

export async function showSessions(root, first) {
  let state = read(first.query);
  let answer = await load(state);
  let list = null;
  let waits = null; // the content that is there before the first session

  function paint() {
    byId("query").value = state.q;
    if (root.isConnected) document.title = "Sessions · Refold";
    list?.close();
    list = null;
    const isEmpty = answer.total === answer.files && !answer.totals.sessions && !isFiltered(state);
    waits = isEmpty ? waits ?? setupContent(answer) : null;
    if (isEmpty && !answer.files) {
      root.replaceChildren(waits);
      return;
    }
    list = makeList(state, answer);
    if (isEmpty) root.replaceChildren(waits, create("h2", { class: "pad" }, "Session files on this machine"), list.panel, list.foot);
    else root.replaceChildren(
      create("div", { class: "head" }, create("h1", {}, "Sessions"), periods(state)),
      create("div", { id: "totals" }, totals(answer)), create("div", { class: "charts" }, ...charts(state, answer)),
      filters(state, answer), list.panel, list.foot);
    list.begin();
  }

  const refresh = later(250, () => guard(async () => {
    const next = await load(state);
    if (!root.isConnected) return; // the reader has gone elsewhere meanwhile
    const isFirst = waits || !list;
    answer = next;
    if (isFirst) {
      paint();
      return;
    }
    byId("totals").replaceChildren(totals(answer));
    root.querySelector(".charts").replaceChildren(...charts(state, answer));
    list.take(answer, () => { paint(); });
  }));

  paint();
  return {
    async update(route) {
      const had = document.activeElement?.dataset.keep;
      const next = read(route.query);
      answer = await load(next);
      state = next;
      if (!root.isConnected) return;
      paint();
      if (had) root.querySelector(`[data-keep="${had}"]`)?.focus({ preventScroll: true });
      say(`${plural(answer.total, "session")}`);
    },
    changed: refresh,
    key: (event) => list?.key(event) ?? false,
    close: () => list?.close(),
  };
}

// --- the address -------------------------------------------------------------------------------

function read(query) {
  const of = (name, other = "") => query.get(name) ?? other;
  return { q: of("q"), client: of("client"), project: of("project"), model: of("model"), day: of("day"), source: of("source"), period: of("period", "7"),
    sort: of("sort", "latest"), up: of("up") };
}

const isFiltered = (state) => ["q", "client", "project", "model", "day", "source"].some((name) => state[name]);
const inAddress = (state) => address("", { ...state, period: state.period === "7" ? "" : state.period, sort: state.sort === "latest" ? "" : state.sort });

function asked(state) {
  const today = midnight(Date.now() / 1000);
  const days = PERIODS.find(([name]) => name === state.period)?.[2];
  return { query: state.q, client: state.client, project: state.project, model: state.model, source: state.source, day: state.day || undefined,
    sort: state.sort, ascending: state.up ? "true" : undefined, today,
    since: days === null || days === undefined ? 0 : midnight(today + 43_200, days) };
}

const load = (state) => get("overview", { ...asked(state), limit: PAGE });

// --- above the table ---------------------------------------------------------------------------

function periods(state) {
  return create("div", { class: "switch push", role: "group", "aria-label": "Period" }, PERIODS.map(([name, text]) =>
    button(text, () => go(inAddress({ ...state, period: name })), { "aria-pressed": String(state.period === name), data: { keep: `period-${name}` } })));
}

function totals({ totals: sums }) {
  const missing = sums.unpriced ? ` · ${plural(sums.unpriced, "call")} without a price` : "";
  const parts = [
    ["Spent", money(sums.spent), `${money(sums.spent + sums.saved)} without Refold${missing}`, "Provider's usage of each call times its price, and what summaries cost."],
    ["Saved", [create("span", { class: sums.saved > 0 ? "teal" : "" }, money(sums.saved)), " ", create("small", {}, share(sums.saved, sums.spent + sums.saved))],
      sums.shadow_calls ? `would be ${money(sums.would_save)} more without shadow` : `after ${money(sums.summaries)} for summaries`, "What the original would have cost under the same cache, less what was spent."],
    ["Tokens sent", [brief(sums.sent), " ", create("small", {}, `of ${brief(sums.original)}`)], bar(sums.original, sums.sent, sums.original), "Sums over calls, as the provider counted them."],
    ["Calls", number(sums.calls), `${number(sums.edited)} of them shortened${sums.shadow_calls ? `, ${number(sums.shadow_calls)} in shadow` : ""}`, ""],
    ["Compactions", number(sums.compactions), `${number(sums.undone)} undone, ${plural(sums.lookups, "lookup")}`, "Lookups: hidden results that were fetched again."],
    ["Window errors avoided", number(sums.avoided), `${plural(sums.faults, "failure")} of Refold`, "Calls whose original is longer than the model's window, and that were answered."]];
  return figures(parts);
}

function charts(state, answer) {
  const { today, since } = asked(state);
  const calls = answer.calls.map(([session, time, original, sent]) => ({ session, time, original, sent }));
  return [moneyChart(answer.days, today, since, (begin) => go(inAddress({ ...state, day: String(begin) === state.day ? "" : begin }))),
    callsChart(calls, (session) => go(address(`s/${session}`)))];
}

function filters(state, { choices, projects, total, files }) {
  const spent = new Map(projects.filter(([, dollars]) => dollars >= 0.005));
  const dearest = [...choices.project].sort((a, b) => (spent.get(b) ?? 0) - (spent.get(a) ?? 0));
  const choose = (name, label, values, text = (value) => value) => {
    if (!values.length) return null;
    const select = create("select", { data: { keep: name }, onchange: () => go(inAddress({ ...state, [name]: select.value })) },
      create("option", { value: "" }, "Any"), values.map((value) => create("option", { value, selected: value === state[name] }, text(value))));
    return create("label", {}, label, select);
  };
  const days = state.day ? [state.day] : [];
  const clear = isFiltered(state) ? button("Clear filters", () => go(inAddress({ ...state, q: "", client: "", project: "", model: "", day: "", source: "" })), { class: "link" }) : null;
  return create("div", { class: "filters" }, create("b", { id: "total" }, plural(total, "session")),
    state.q ? create("span", { class: "quiet" }, `with “${state.q}”`) : null,
    choose("client", "Client", choices.client), choose("model", "Model", choices.model, shortModel), choose("project", "Project", dearest, (name) => (spent.has(name) ? `${cut(name, 40)} · ${money(spent.get(name))}` : cut(name, 40))),
    files || state.source ? choose("source", "Source", Object.keys(SOURCES), (name) => SOURCES[name]) : null,
    state.day ? choose("day", "Day", days, (value) => day(Number(value))) : null, clear,
    create("label", { class: "push" }, "Sort", sortChoice(state)));
}

function sortChoice(state) {
  const names = [["latest", "Latest first"], ["spent", "Spent most"], ["saved", "Saved most"], ["tokens", "Most tokens"], ["calls", "Most calls"], ["failed", "Failed calls"], ["session", "Client, project"], ["model", "Model"]];
  const select = create("select", { data: { keep: "sort" }, onchange: () => go(inAddress({ ...state, sort: select.value, up: "" })) },
    names.map(([value, text]) => create("option", { value, selected: value === state.sort }, text)));
  return select;
}

// --- the table ---------------------------------------------------------------------------------

function sessionState(row, now) {
  if (row.file) return ["", SOURCES.file];
  if (row.failed) return ["failed", `${plural(row.failed, "call")} failed`];
  if (row.is_shadow) return ["", "Shadow"];
  if (now - row.latest < WORKING) return ["working", "Working"];
  return ["", row.is_recorded ? "Idle" : "Text not kept"];
}

export const nameOf = (row) => row.title || `Session ${row.file || shortId(row.id)}`;

function makeList(state, answer) {
  const rows = new Map(answer.sessions.map((row, at) => [at, row])); // by place in the whole list
  let { total, now, largest } = answer;
  const begins = new Map([[0, ""], [1, answer.next]]); // where pages begin, by their numbers
  let pages = [0, Math.min(PAGES, Math.ceil(total / PAGE))]; // those in the document: from, to
  let height = 49;
  let here = -1; // the row that keys are at
  const body = create("tbody");
  const newer = create("div", { class: "newer", hidden: true });
  const span = create("span", { id: "span" });
  const table = create("table", { class: "sessions", "aria-rowcount": total + 1, "aria-label": "Sessions" },
    create("colgroup", {}, CLASSES.map((name) => create("col", { class: `c-${name}` }))),
    create("thead", {}, create("tr", {}, COLUMNS.map(([name, text, kind], at) => heading(state, name, text, kind, CLASSES[at])))), body);

  function drawRows(first, last) {
    const made = [];
    let before = state.sort === "latest" && rows.has(first - 1) ? midnight(rows.get(first - 1).latest) : null;
    for (let at = first; at < last; at += 1) {
      const row = rows.get(at);
      if (!row) {
        made.push(create("tr", { class: "gap", vars: { height: `${height}px` } }, create("td", { colspan: 8 })));
        continue;
      }
      if (state.sort === "latest") {
        const begin = midnight(row.latest);
        if (begin !== before) made.push(dayRow(begin, now, answer.days));
        before = begin;
      } else if (at === total - answer.files) made.push(headRow("Session files, the latest first", "not sorted: each is read when it is seen"));
      made.push(sessionRow(row, at, now, largest, at === here));
    }
    return made;
  }

  const gap = (count) => (count > 0 ? [create("tr", { class: "gap", "aria-hidden": "true", vars: { height: `${count * height}px` } }, create("td", { colspan: 8 }))] : []);
  const shown = () => [pages[0] * PAGE, Math.min(total, pages[1] * PAGE)];
  function paint(most = Infinity) {
    const [first, last] = shown();
    const end = Math.min(last, first + most);
    body.replaceChildren(...gap(first), ...drawRows(first, end), ...gap(total - end));
    const drawn = [...body.querySelectorAll("tr[data-id]")].slice(0, 20);
    if (drawn.length) height = drawn.reduce((sum, row) => sum + row.offsetHeight, 0) / drawn.length || height;
    span.textContent = total ? `Sessions ${number(first + 1)}–${number(last)} of ${number(total)}` : "No session fits these filters.";
  }

  async function fetchPages(from, to) {
    for (let page = from; page < to; page += 1) {
      const at = page * PAGE;
      if (rows.has(at) || at >= total) continue;
      const after = begins.get(page); // a page that is jumped to is counted from the beginning
      const part = await get("overview", { ...asked(state), limit: PAGE, ...(after ? { after } : { offset: at }), rows_only: "true" });
      begins.set(page + 1, part.next);
      part.sessions.forEach((row, place) => rows.set(at + place, row));
      largest = Math.max(largest, part.largest);
    }
    for (const at of rows.keys()) if (Math.abs(at / PAGE - from) > 12) rows.delete(at); // far away: asked again
  }

  function middle() {
    const drawn = [...body.querySelectorAll("tr[data-id]")];
    const at = innerHeight / 2;
    const row = drawn.find((item) => item.getBoundingClientRect().bottom > at);
    if (row && (row !== drawn[0] || row.getBoundingClientRect().top < at)) return [Number(row.dataset.at), row];
    const top = body.getBoundingClientRect().top;
    return [Math.max(0, Math.min(total - 1, Math.round((at - top) / height))), null];
  }

  let busy = false;
  async function follow() {
    if (busy || total <= PAGE) return;
    const [at, row] = middle();
    const page = Math.floor(at / PAGE);
    const most = Math.ceil(total / PAGE);
    const from = Math.max(0, Math.min(page - 1, most - PAGES));
    const wanted = [from, Math.min(most, from + PAGES)];
    const isThere = wanted.every((value, place) => value === pages[place]) && [...Array(wanted[1] - wanted[0]).keys()].every((k) => rows.has((from + k) * PAGE));
    if (isThere) return;
    busy = true;
    await guard(() => fetchPages(...wanted));
    busy = false;
    const before = row?.isConnected ? row.getBoundingClientRect().top : null;
    pages = wanted;
    paint();
    const same = before === null ? null : body.querySelector(`tr[data-at="${at}"]`);
    if (same) window.scrollBy(0, same.getBoundingClientRect().top - before);
    fill();
    follow();
  }

  function redraw() {
    for (const drawn of body.querySelectorAll("tr[data-id]")) {
      const at = Number(drawn.dataset.at);
      const fresh = sessionRow(rows.get(at), at, now, largest, drawn.classList.contains("here"));
      if (fresh.isEqualNode(drawn)) continue;
      const hadFocus = drawn.contains(document.activeElement);
      drawn.replaceWith(fresh);
      if (hadFocus) fresh.querySelector("a, button").focus({ preventScroll: true });
    }
  }

  const places = () => new Map([...rows].map(([at, row]) => [row.id, at]));
  const isSeen = (box) => box.bottom > 0 && box.top < innerHeight;
  const unread = () => [...body.querySelectorAll("tr.file")].filter((item) => isSeen(item.getBoundingClientRect()))
    .map((item) => rows.get(Number(item.dataset.at))).filter((row) => row && !row.is_read).map((row) => row.id).slice(0, PAGE);

  let filling = false;
  /** What the files of the rows that are seen say is asked for, some at a time. */
  async function fill() {
    if (filling) return;
    filling = true;
    await guard(async () => {
      for (let ids = unread(); ids.length; ids = unread()) {
        const part = await get("file_rows", { sessions: ids.join(",") });
        const at = places();
        for (const row of part.sessions) if (at.has(row.id)) rows.set(at.get(row.id), row);
        largest = Math.max(largest, ...part.sessions.map((row) => row.original));
        redraw();
        if (!part.sessions.some((row) => row.is_read)) break; // they are gone
      }
    });
    filling = false;
  }

  const scrolled = later(30, () => { follow(); fill(); });
  function move(by) {
    const places = [...body.querySelectorAll("tr[data-id]")];
    const current = places.findIndex((row) => Number(row.dataset.at) === here);
    const next = places[current < 0 ? 0 : Math.max(0, Math.min(places.length - 1, current + by))];
    if (!next) return;
    body.querySelector("tr.here")?.classList.remove("here");
    here = Number(next.dataset.at);
    next.classList.add("here");
    next.querySelector("a, button").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  return {
    panel: create("div", { class: "list" }, newer, create("div", { class: "panel" }, table)),
    foot: create("div", { class: "foot" }, span, create("span", { class: "keys" }, key("J"), key("K"), " move ", key("Enter"), " open ", key("C"), " preview a compaction ", key("?"), " all keys")),
    begin() {
      paint(SEEN);
      afterFrame(() => {
        if (!body.isConnected) return;
        const [, last] = shown();
        if (last > SEEN) body.lastElementChild.replaceWith(...drawRows(SEEN, last), ...gap(total - last));
        window.addEventListener("scroll", scrolled, { passive: true });
        window.addEventListener("resize", scrolled);
        follow();
        fill();
      });
    },
    close() {
      window.removeEventListener("scroll", scrolled);
      window.removeEventListener("resize", scrolled);
    },
    /** Rows change in place; those that would jump wait behind a button. */
    take(next, reload) {
      const known = places();
      let jumps = 0;
      ({ now, largest } = next);
      next.sessions.forEach((row, at) => {
        if (!known.has(row.id)) jumps += 1;
        else {
          jumps += state.sort === "latest" && known.get(row.id) > at && known.get(row.id) > 5 ? 1 : 0;
          rows.set(known.get(row.id), row);
        }
      });
      redraw();
      fill();
      newer.hidden = !jumps;
      newer.replaceChildren(button(`${number(jumps)} newer`, reload, { class: "main" }));
    },
    key(event) {
      if (event.key === "j" || event.key === "ArrowDown") move(1);
      else if (event.key === "k" || event.key === "ArrowUp") move(-1);
      else if (event.key === "c" && here >= 0) go(address(`s/${rows.get(here).id}/preview`));
      else return false;
      return true;
    },
  };
}

function heading(state, name, text, kind, column) {
  const isSorted = state.sort === name;
  const isUp = Boolean(state.up);
  return create("th", { scope: "col", class: `${kind} k-${column}`, "aria-sort": isSorted ? (isUp ? "ascending" : "descending") : null },
    button(`${text}${isSorted ? (isUp ? " ↑" : " ↓") : ""}`, () => go(inAddress({ ...state, sort: name, up: isSorted && !isUp ? "1" : "" })), { data: { keep: `sort-${name}` } }));
}

function dayRow(begin, now, days) {
  const sums = days.find(([at]) => Math.abs(at - begin) < 7200);
  const text = sums ? `${plural(sums[3], "session")} · ${money(sums[1])} spent · ${money(sums[2])} saved` : "";
  return headRow(dayName(begin, now), text);
}

const headRow = (name, text) => create("tr", { class: "day" }, create("th", { colspan: 8, scope: "rowgroup" }, name, create("span", {}, text)));

function sessionRow(row, at, now, largest, isHere) {
  const [kind, state] = sessionState(row, now);
  if (row.file) return fileRow(row, at, now, largest, isHere);
  const sent = row.would_send ?? row.sent;
  const tokens = row.would_send !== null && sent < row.original
    ? [number(row.original), create("span", { class: "quiet" }, " would be "), create("b", {}, number(sent))] : tokensOf(row);
  return create("tr", { data: { id: row.id, at }, class: isHere ? "here" : null, "aria-rowindex": at + 2, onclick: (event) => openRow(event, row) },
  nameCell(row), modelCell(row), whenCell(row, now),
  create("td", { class: "k-calls right" }, number(row.calls)),
  create("td", { class: "k-tokens" }, create("span", {}, tokens), bar(row.original, sent, largest)),
  create("td", { class: "k-money right" }, money(row.spent)),
  create("td", { class: "k-money right" }, create(row.saved > 0 ? "b" : "span", { class: row.saved > 0 ? "teal" : "quiet" }, row.saved > 0 ? create("span", { class: row.is_shadow ? "would" : "unseen" }, row.is_shadow ? "would save " : "saved ") : null, money(row.saved))),
  create("td", { class: "k-state" }, create("span", { class: `state ${kind}` }, state)));
}

/** Tokens as they came and as they are sent. */
export const tokensOf = (row) => (row.sent < row.original ? [number(row.original), " → ", create("b", {}, number(row.sent))]
  : [number(row.original), " ", create("span", { class: "quiet" }, "unchanged")]);

function openRow(event, row) {
  if (!event.target.closest("a, button") && !getSelection().toString()) go(address(`s/${row.id}`));
}

function nameCell(row) {
  const name = nameOf(row);
  return create("td", { class: "k-session" }, create("a", { class: "title", href: address(`s/${row.id}`), title: name }, name),
    create("span", { class: "where" }, [row.client, row.project].filter(Boolean).join(" · ") || DASH));
}

const whenCell = (row, now) => create("td", { class: "k-when", title: new Date(row.latest * 1000).toLocaleString() },
  midnight(row.latest) === midnight(now) || now - row.latest < 43_200 ? clock(row.latest) : day(row.latest));

const modelCell = (row) => create("td", { class: "k-model" }, create("span", { class: "where", title: row.model }, shortModel(row.model)));

/** A session in a client's own file: its model, tokens and money are known once it is read. */
function fileRow(row, at, now, largest, isHere) {
  const command = `refold stats ${row.file}`;
  const figure = (kind, text) => create("td", { class: `${kind} right` }, text);
  return create("tr", { data: { id: row.id, at }, class: ["file", row.original ? "" : "bare", isHere ? "here" : ""].filter(Boolean).join(" "), "aria-rowindex": at + 2, onclick: (event) => openRow(event, row) },
    nameCell(row), modelCell(row), whenCell(row, now), figure("k-calls", row.calls ? number(row.calls) : DASH),
    create("td", { class: "k-tokens" }, row.original ? [create("span", {}, tokensOf(row)), bar(row.original, row.sent, largest)] : DASH),
    figure("k-money", money(row.spent)), figure("k-money", DASH),
    create("td", { class: "k-state" }, create("span", { class: "state", title: "Not through this gateway" }, SOURCES.file),
      copyButton(command, row.file, { class: "link mono", "aria-label": `Copy ${command}`, title: `Copy ${command}; also refold view, refold compact --preview` })));
}
