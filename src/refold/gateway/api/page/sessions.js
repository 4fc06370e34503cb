// The list of sessions: totals, charts, filters and a virtual table.
import { get } from "./api.js";
import { address, go, guard } from "./app.js";
import { callsChart, moneyChart } from "./charts.js";
import { bar, button, byId, copyButton, create, figures, keepFocus, key, later, say } from "./dom.js";
import { DASH, brief, clock, cut, day, dayName, midnight, money, number, plural, share, shortId, shortModel } from "./format.js";
import { gap, makeScroller } from "./scroller.js";
import { setupContent, unwrittenCalls } from "./setup.js";

const PAGE = 100;
const ROW = 48; // row height in pixels
const WORKING = 60; // a session is active for so many seconds after a call
const PERIODS = [["today", "Today", 0], ["7", "7 days", 6], ["30", "30 days", 29], ["all", "All", null]];
const SOURCES = { gateway: "Gateway", file: "File only" };
const COLUMNS = [
  ["session", "Session", ""], ["model", "Model", ""], ["latest", "When", ""], ["calls", "Calls", "right"], ["tokens", "Tokens, last call", ""],
  ["spent", "Spent", "right"], ["saved", "Saved", "right"], ["failed", "State", ""]];
const CLASSES = ["session", "model", "when", "calls", "tokens", "money", "money", "state"];

export async function showSessions(root, first) {
  let state = read(first.query);
  let answer = await load(state);
  let list = null;
  let waits = null; // the setup instructions shown before the first session

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

  /** Load the answer for *state*. Return false if the user has changed the view meanwhile. */
  async function reload() {
    const asked = state;
    const next = await load(asked);
    if (asked !== state || !root.isConnected) return false;
    answer = next;
    return true;
  }

  const refresh = later(250, () => root.isConnected && guard(async () => {
    if (!await reload()) return;
    if (waits || !list) {
      paint();
      return;
    }
    keepFocus(root, () => {
      byId("totals").replaceChildren(totals(answer));
      root.querySelector(".charts").replaceChildren(...charts(state, answer));
    });
    list.take(answer, paint);
  }));

  paint();
  return {
    async update(route) {
      const had = document.activeElement?.dataset.keep;
      state = read(route.query);
      if (!await reload()) return;
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

function filtersOf(state) {
  const today = midnight(Date.now() / 1000);
  const days = PERIODS.find(([name]) => name === state.period)?.[2];
  return { query: state.q, client: state.client, project: state.project, model: state.model, source: state.source, day: state.day || undefined,
    sort: state.sort, ascending: state.up ? "true" : undefined, today,
    since: days === null || days === undefined ? 0 : midnight(today + 43_200, days) };
}

const load = (state) => get("overview", { ...filtersOf(state), limit: PAGE });

// --- above the table ---------------------------------------------------------------------------

function periods(state) {
  return create("div", { class: "switch push", role: "group", "aria-label": "Period" }, PERIODS.map(([name, text]) =>
    button(text, () => go(inAddress({ ...state, period: name })), { "aria-pressed": String(state.period === name), data: { keep: `period-${name}` } })));
}

function totals({ totals: sums, unwritten }) {
  const missing = sums.unpriced ? ` · ${plural(sums.unpriced, "call")} without usage or price` : "";
  const parts = [
    ["Spent", money(sums.spent), `${money(sums.spent + sums.saved)} without Refold${missing}`, "Usage reported by the provider times price, plus the cost of summaries."],
    ["Saved", [create("span", { class: sums.saved > 0 ? "teal" : "" }, money(sums.saved)), " ", create("small", {}, share(sums.saved, sums.spent + sums.saved))],
      sums.shadow_calls ? `${money(sums.would_save)} more without shadow` : `after ${money(sums.summaries)} for summaries`, "Estimated cost without Refold at the same cache hits, minus the cost of refetches and what was spent. `refold report` lists the parts."],
    ["Tokens sent", [brief(sums.sent), " ", create("small", {}, `of ${brief(sums.original)}`)], bar(sums.original, sums.sent, sums.original), "Total over all calls, as counted by the provider."],
    ["Calls", number(sums.calls), `${number(sums.edited)} shortened${sums.shadow_calls ? `, ${number(sums.shadow_calls)} in shadow` : ""}${sums.unlisted ? `, ${number(sums.unlisted)} without a session` : ""}${unwritten ? ` · ${unwrittenCalls(unwritten)}` : ""}`,
      "Calls without a session generate titles and the like, or belong to deleted sessions. Charts and lists leave them out."],
    ["Compactions", number(sums.compactions), `${number(sums.undone)} undone, ${plural(sums.lookups, "refetch", "refetches")}`, "A refetch: the agent fetched a hidden result again."],
    ["Window errors avoided", number(sums.avoided), `${plural(sums.faults, "Refold failure")}`, "Answered calls whose original does not fit the model's window."]];
  return figures(parts);
}

function charts(state, answer) {
  const { today, since } = filtersOf(state);
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
    state.q ? create("span", { class: "quiet" }, `matching “${state.q}”`) : null,
    choose("client", "Client", choices.client), choose("model", "Model", choices.model, shortModel), choose("project", "Project", dearest, (name) => (spent.has(name) ? `${cut(name, 40)} · ${money(spent.get(name))}` : cut(name, 40))),
    files || state.source ? choose("source", "Source", Object.keys(SOURCES), (name) => SOURCES[name]) : null,
    state.day ? choose("day", "Day", days, (value) => day(Number(value))) : null, clear,
    create("label", { class: "push" }, "Sort", sortChoice(state)));
}

function sortChoice(state) {
  const names = [["latest", "Latest"], ["spent", "Most spent"], ["saved", "Most saved"], ["tokens", "Most tokens"], ["calls", "Most calls"], ["failed", "Most failed"], ["session", "Client, project"], ["model", "Model"]];
  const select = create("select", { data: { keep: "sort" }, onchange: () => go(inAddress({ ...state, sort: select.value, up: "" })) },
    names.map(([value, text]) => create("option", { value, selected: value === state.sort }, text)));
  return select;
}

// --- the table ---------------------------------------------------------------------------------

function sessionState(row, now) {
  if (row.failed) return ["failed", `${plural(row.failed, "call")} failed`];
  if (row.is_shadow) return ["", "Shadow"];
  if (now - row.latest < WORKING) return ["working", "Active"];
  return ["", row.is_recorded ? "Idle" : "No transcript"];
}

export const nameOf = (row) => row.title || `Session ${row.file || shortId(row.id)}`;

/** The table. It fetches pages of rows as they scroll into view. */
function makeList(state, answer) {
  const { files, total } = answer;
  let { now, largest } = answer;
  const rows = new Map(); // loaded rows, by position in the whole list
  const begins = new Map(); // cursor of each page, by number
  const asked = new Set(); // pages being fetched
  let here = -1; // the row selected by keyboard
  const newer = create("div", { class: "newer", hidden: true });
  const span = create("span", { id: "span" }, total ? "" : "No sessions match these filters.");
  const table = create("table", { class: "sessions", "aria-rowcount": total + 1, "aria-label": "Sessions" },
    create("colgroup", {}, CLASSES.map((name) => create("col", { class: `c-${name}` }))),
    create("thead", {}, create("tr", {}, COLUMNS.map(([name, text, kind], at) => heading(state, name, text, kind, CLASSES[at])))));
  const items = Array.from({ length: total }, (_, at) => ({ key: at, at }));
  const scroller = makeScroller(table, "tbody", ROW, drawItem, () => {
    const [first, last] = scroller.span();
    if (last) span.textContent = `Sessions ${number(first.at + 1)}–${number(last.at + 1)} of ${number(total)}`;
    readSoon();
  });
  keep(0, answer);

  function keep(page, part) {
    part.sessions.forEach((row, at) => rows.set(page * PAGE + at, row));
    begins.set(page + 1, part.next);
    largest = Math.max(largest, part.largest);
  }

  /** Redraw the rows that changed. */
  const paint = () => scroller.set(items, (item, row) => !drawItem(item).isEqualNode(row));

  function drawItem({ at }) {
    if (rows.has(at)) return create("tbody", {}, headingOf(at), sessionRow(rows.get(at), at, now, largest, at === here));
    fetchPage(Math.floor(at / PAGE));
    return gap("tbody", ROW);
  }

  function headingOf(at) {
    if (state.sort !== "latest") return at === total - files ? headRow("Session files, latest first", "not sorted: files are read as you scroll") : null;
    const begin = midnight(rows.get(at).latest);
    const isFirst = at === 0 || (rows.has(at - 1) && midnight(rows.get(at - 1).latest) !== begin);
    return isFirst ? dayRow(begin, now, answer) : null;
  }

  async function fetchPage(page) {
    if (asked.has(page)) return;
    asked.add(page);
    const after = begins.get(page); // a page without a known cursor is fetched by offset
    await guard(async () => {
      keep(page, await get("overview", { ...filtersOf(state), limit: PAGE, ...(after ? { after } : { offset: page * PAGE }), rows_only: "true" }));
      paint();
    });
    asked.delete(page);
  }

  const places = () => new Map([...rows].map(([at, row]) => [row.id, at]));

  function unread() {
    const [first, last] = scroller.span();
    const seen = items.slice(first?.at, (last?.at ?? -1) + 1).map(({ at }) => rows.get(at));
    return seen.filter((row) => row?.file && !row.is_read).map((row) => row.id).slice(0, PAGE);
  }

  let isReading = false;
  /** Fetch the contents of the session files on screen, a batch at a time. */
  async function readFiles() {
    if (isReading || !table.isConnected) return;
    isReading = true;
    await guard(async () => {
      for (let ids = unread(); ids.length; ids = unread()) {
        const part = await get("file_rows", { sessions: ids.join(",") });
        const at = places();
        for (const row of part.sessions) if (at.has(row.id)) rows.set(at.get(row.id), row);
        largest = Math.max(largest, ...part.sessions.map((row) => row.original));
        paint();
        if (!part.sessions.some((row) => row.is_read)) break; // the files no longer exist
      }
    });
    isReading = false;
  }
  const readSoon = later(30, readFiles);

  function move(by) {
    if (!total) return;
    here = here < 0 ? scroller.span()[0]?.at ?? 0 : Math.max(0, Math.min(total - 1, here + by));
    paint();
    const row = scroller.row(here) ?? scroller.show(here, false);
    row.querySelector("a, button")?.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  return {
    panel: create("div", { class: "list" }, newer, create("div", { class: "panel" }, table)),
    foot: create("div", { class: "foot" }, span, create("a", { class: "narrow push", href: "#/setup" }, "Set up an agent"), create("span", { class: "keys" }, key("J"), key("K"), " move ", key("Enter"), " open ", key("C"), " preview a compaction ", key("?"), " all shortcuts")),
    begin: paint,
    close: scroller.close,
    /** Update rows in place. New and moved rows wait behind a button, so that nothing jumps. */
    take(next, reload) {
      const at = places();
      let jumps = 0;
      ({ now, largest } = next);
      next.sessions.forEach((row, place) => {
        if (!at.has(row.id)) jumps += 1;
        else {
          jumps += state.sort === "latest" && at.get(row.id) > place && at.get(row.id) > 5 ? 1 : 0;
          rows.set(at.get(row.id), row);
        }
      });
      paint();
      newer.hidden = !jumps;
      newer.replaceChildren(button(`${number(jumps)} newer`, reload, { class: "main" }));
    },
    key(event) {
      if (event.key === "j" || event.key === "ArrowDown") move(1);
      else if (event.key === "k" || event.key === "ArrowUp") move(-1);
      else if (event.key === "c" && rows.has(here)) go(address(`s/${rows.get(here).id}/preview`));
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

function dayRow(begin, now, { days, files }) {
  const sums = days.find(([at]) => Math.abs(at - begin) < 7200);
  const text = sums ? `${plural(sums[3], "session")}${files ? " through the gateway" : ""} · ${money(sums[1])} spent · ${money(sums[2])} saved` : "";
  return headRow(dayName(begin, now), text);
}

const headRow = (name, text) => create("tr", { class: "day" }, create("th", { colspan: 8, scope: "rowgroup" }, name, create("span", {}, text)));

function sessionRow(row, at, now, largest, isHere) {
  const kinds = [row.file ? "file" : "", row.file && !row.original ? "bare" : "", isHere ? "here" : ""].filter(Boolean).join(" ");
  return create("tr", { data: { id: row.id, at }, class: kinds || null, "aria-rowindex": at + 2, onclick: (event) => openRow(event, row) },
    nameCell(row), modelCell(row), whenCell(row, now), row.file ? fileCells(row, largest) : callCells(row, now, largest));
}

function callCells(row, now, largest) {
  const [kind, state] = sessionState(row, now);
  const sent = row.would_send ?? row.sent;
  const tokens = row.would_send !== null && sent < row.original
    ? [number(row.original), create("span", { class: "quiet" }, " would be "), create("b", {}, number(sent))] : tokensOf(row);
  const isSaving = row.saved > 0;
  const saved = row.saved !== null && create("span", { class: row.is_shadow && isSaving ? "would" : "unseen" }, row.is_shadow ? "would save " : "saved ");
  return [cell("k-calls right", number(row.calls)), cell("k-tokens", create("span", {}, tokens), bar(row.original, sent, largest)), cell("k-money right", money(row.spent)),
    cell("k-money right", create(isSaving ? "b" : "span", { class: isSaving ? "teal" : "quiet" }, saved, money(row.saved))),
    cell("k-state", create("span", { class: `state ${kind}` }, state))];
}

/** Cells of a session in a client's file. Its model, tokens and cost are known once the file is read. */
function fileCells(row, largest) {
  const command = `refold stats ${row.file}`;
  return [cell("k-calls right", row.calls ? number(row.calls) : DASH),
    cell("k-tokens", row.original ? [create("span", {}, tokensOf(row)), bar(row.original, row.sent, largest)] : DASH),
    cell("k-money right", money(row.spent)), cell("k-money right", DASH),
    cell("k-state", create("span", { class: "state", title: "Not sent through this gateway" }, SOURCES.file),
      copyButton(command, row.file, { class: "link mono", "aria-label": `Copy ${command}`, title: `Copy ${command}; also refold view, refold compact --preview` }))];
}

const cell = (kind, ...inside) => create("td", { class: kind }, inside);

/** Original tokens and sent tokens. */
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
