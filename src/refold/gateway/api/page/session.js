// One session: its figures, the chart of its calls, the conversation with what was done to it.
import { get, post } from "./api.js";
import { address, go, guard, stay } from "./app.js";
import { sessionChart } from "./charts.js";
import { button, byId, copyButton, create, keepFocus, key, later, put, say } from "./dom.js";
import { number, plural, strategy } from "./format.js";
import { makeMap } from "./session_map.js";
import { drawHead, drawPast, drawSide } from "./session_parts.js";
import { nameOf } from "./sessions.js";
import { answerRow, foldRow, hiddenBy, listItems, makeBriefs, makeScroller, messageRow, redoUntil, systemRow } from "./timeline.js";

const VIEWS = [["sent", "Sent"], ["original", "Original"], ["beside", "Side by side"]];
const SPEAKERS = [["all", "All"], ["y", "You"], ["a", "Assistant"], ["r", "Tools"], ["h", "Hidden"]];
const BESIDE_ROWS = 12; // hidden messages beside a fold, before more are asked for

/** The answer of the API, with compactions numbered: chart, timeline, list and map name them alike. */
function readSession(answer, call = 0) {
  const calls = answer.calls.map(([time, original, sent, edits, input, read, wouldRead, cost, without]) =>
    ({ time, original, sent, edits, input, read, wouldRead, cost, without }));
  const undone = new Set(answer.log.filter((row) => row.action === "revert").map((row) => row.edit));
  const runs = new Map();
  for (const row of answer.log.filter((item) => item.action !== "revert" && item.before > item.after)) {
    const run = runs.get(row.run) ?? { run: row.run, when: row.when, rows: [] };
    run.rows.push(row);
    runs.set(row.run, run);
  }
  const byEdit = new Map([...runs.values()].flatMap((run) => run.rows.map((row) => [row.edit, run])));
  const shown = new Set(answer.edits.map((edit) => edit.id));
  const kept = [...runs.values()].filter((run) => run.rows.some((row) => shown.has(row.edit) || !undone.has(row.edit))).sort((a, b) => a.when - b.when);
  kept.forEach((run, at) => { run.number = at + 1; });
  const edits = answer.edits.map((edit) => ({ ...edit, number: byEdit.get(edit.id)?.number ?? 0, call: call || undefined }));
  const folds = edits.filter((edit) => edit.stop > edit.start + 1);
  const buried = kept.filter((run) => !run.rows.some((row) => shown.has(row.edit))); // under later edits
  if (folds.length === 1) folds[0].contains = buried.filter((run) => run.number < folds[0].number).map((run) => run.number).join(", ");
  const marks = kept.map((run) => {
    const call = calls.findIndex((one) => one.time >= run.when - 1);
    return { number: run.number, call: call < 0 ? calls.length : call };
  });
  return { ...answer, calls, edits, runs: kept, buried, undone, marks, hidden: hiddenBy(edits) };
}

export async function showSession(root, route) {
  const id = route.path[1];
  const chosenCall = route.path[2] === "call" ? Number(route.path[3]) : 0;
  let missing = ""; // why a call cannot be shown as it was sent
  const load = async () => {
    try {
      return readSession(await get("session", { session: id, call: missing ? undefined : chosenCall || undefined }), missing ? 0 : chosenCall);
    } catch (error) {
      if (error.code !== "not_kept") throw error;
      missing = error.message;
      return load();
    }
  };
  let session = await load();
  const isPast = chosenCall > 0 && !missing; // nothing of it can be changed any more
  let view = route.query.get("view") ?? "sent";
  let speaker = "all";
  let answers = [];
  let scroller = null;
  let hits = null;
  const drawnEdits = new Map(session.edits.map((edit) => [edit.id, JSON.stringify(edit)]));
  const open = new Set(); // what is open stays so when rows are drawn again
  const file = session.file; // a session in a client's file: it has no calls here
  const hasText = session.kept_until !== null || file !== null;
  const briefs = makeBriefs(id, (numbers) => scroller?.set(listItems(session, view, speaker, answers), (item) => isAbout(item, new Set(numbers))));
  const isAbout = (item, numbers) => item.kind === "message" && numbers.has(item.at) && !open.has(item.at);
  if (root.isConnected) document.title = `${nameOf(session.row)} · Refold`;

  // --- the parts ---

  const head = create("div");
  const past = create("div");
  const chart = create("div");
  const side = create("div", { class: "side" });
  const lines = create("div", { class: "lines panel", role: "region", "aria-label": "Conversation" });
  const results = create("div");
  const map = makeMap((at) => goTo(at));
  const field = create("input", { type: "search", id: "find", "aria-label": "Find in this session, hidden text too", placeholder: "Find, hidden text too", maxlength: "500" });
  const tools = create("div", { class: "tools" });
  const body = create("div", { class: "body" });

  const largest = () => Math.max(1, session.fixed, ...session.sizes);
  const keptBefore = (at) => session.fixed + session.sizes.slice(0, at).reduce((sum, size, place) => sum + (session.hidden.has(place) ? 0 : size), 0);
  const hooks = {
    get largest() { return largest(); },
    keptBefore,
    isOpen: (name) => open.has(name),
    opened: (name, isOpen) => (isOpen ? open.add(name) : open.delete(name)),
    undo, restore, pin, isPast, isFile: file !== null,
    pinned: (at) => session.pins.filter((item) => item.message === at),
  };

  const page = {
    id, chosenCall, isPast, file, hasText, askLast, askSince, pin, showKey,
    toggleSide: () => side.classList.toggle("shown"),
  };
  const paintHead = () => put(head, ...drawHead(session, page));
  const paintPast = () => put(past, drawPast(session, page, missing));
  const paintSide = () => put(side, ...drawSide(session, page));

  function paintChart() {
    if (file) return;
    chart.replaceChildren(create("div", { class: "charts single" }, sessionChart(session.calls, session.levels, session.marks, chosenCall, (call) => go(address(`s/${id}/call/${call}`)))));
  }

  function paintTools() {
    const counts = { all: "", y: count("y"), a: count("a"), r: count("r"), h: number(session.hidden.size) };
    tools.replaceChildren(
      create("div", { class: "switch", role: "group", "aria-label": "View" }, VIEWS.map(([name, text]) => button(text, () => choose(name), { "aria-pressed": String(view === name), id: name === "beside" ? "beside" : null, data: { view: name } }))),
      create("form", { class: "find", role: "search", "aria-label": "This session", onsubmit: (event) => { event.preventDefault(); find(); } }, field, key("F")),
      create("div", { class: "switch push", role: "group", "aria-label": "Who speaks" }, SPEAKERS.map(([name, text]) =>
        create("button", { type: "button", "aria-pressed": String(speaker === name), onclick: () => { speaker = name; paintTools(); paintLines(); } }, text, create("span", { class: "quiet" }, counts[name] ? ` ${counts[name]}` : "")))));
  }
  const count = (letter) => number([...session.speakers].filter((one) => one === letter).length);

  // --- the conversation ---

  const drawItem = (item) => (view === "beside" ? drawBeside(item) : drawSingle(item));

  function drawSingle(item) {
    if (item.kind === "system") return systemRow(item.size, largest(), file !== null);
    if (item.kind === "answer") return answerRow(item.answer);
    if (item.kind === "fold") return foldRow(id, item.edit, session, hooks);
    return messageRow(id, item.at, briefs.of(item.at), item.edit, hooks);
  }

  /** Both columns of one stretch: what it was, and what is sent instead. They cannot part. */
  function drawBeside(item) {
    const [left, right] = [create("div"), create("div")];
    if (item.kind === "fold") {
      const { edit } = item;
      const put = (from, most) => {
        const stop = Math.min(edit.stop, from + most);
        guard(async () => {
          const { messages } = await get("messages", { session: id, start: from, count: stop - from });
          left.append(...messages.map((brief) => messageRow(id, brief.number, brief, edit, hooks)));
          if (stop === edit.stop) return;
          const more = create("div", { class: "row pad quiet" }, `${stop}–${edit.stop - 1} · ${plural(edit.stop - stop, "message")} more`, button("Show 50 more", () => { more.remove(); put(stop, 50); }, { class: "link push" }));
          left.append(more);
        }, left);
      };
      put(edit.start, BESIDE_ROWS);
      right.append(create("div", { class: "stick" }, foldRow(id, edit, session, hooks)));
    } else if (item.kind === "answer") return answerRow(item.answer);
    else {
      left.append(drawSingle(item));
      right.append(drawSingle(item));
    }
    return create("div", { class: `columns pair${item.kind === "fold" ? " folded" : ""}` }, left, create("div", { class: "ribbon", "aria-hidden": "true" }), right);
  }

  function paintLines() {
    scroller?.close();
    lines.replaceChildren();
    body.classList.toggle("beside", view === "beside");
    if (!hasText) {
      lines.append(textNotKept(), ...session.edits.map((edit) => foldRow(id, edit, session, hooks)));
      return;
    }
    if (view === "beside") {
      lines.append(create("div", { class: "columns tops" }, create("header", {}, "Original", create("span", { class: "quiet" }, `${plural(session.sizes.length, "message")} · ${number(session.original ?? 0)} tokens`)), create("div"),
        create("header", {}, "Sent", create("span", { class: "quiet" }, `${number(session.sent ?? 0)} tokens`))));
    }
    const box = create("div", { class: "rows" });
    lines.append(box);
    scroller = makeScroller(box, drawItem, () => map.frame(...scroller ? scroller.span() : []));
    scroller.set(listItems(session, view, speaker, answers));
    map.draw(session);
  }

  function textNotKept() {
    const line = "refold serve --record 7d";
    return create("div", { class: "row pad" }, create("p", {}, create("b", {}, "The text of this session is not kept. "), "Calls, tokens, money and edits are known; conversation, search and loss report are not. ", create("code", {}, line)), copyButton(line, "Copy", { class: "push" }));
  }

  function choose(name) {
    view = name;
    stay(address(chosenCall ? `s/${id}/call/${chosenCall}` : `s/${id}`, view === "sent" ? {} : { view }));
    paintTools();
    paintLines();
  }

  function showKey(name, focus = true) {
    if (!scroller) return byId("main").querySelector(`[data-edit="${name.slice(1)}"]`);
    if (!scroller.items.some((item) => item.key === name)) {
      speaker = "all";
      if (name.startsWith("m") && view === "sent" && session.hidden.has(Number(name.slice(1)))) view = "original";
      if (name.startsWith("e") && view === "original") view = "sent";
      paintTools();
      paintLines();
    }
    return scroller.show(name, focus);
  }

  function goTo(at, focus = false) {
    const edit = session.hidden.get(at);
    const name = view !== "original" && speaker !== "h" && edit ? `e${edit.id}` : `m${at}`;
    return showKey(name, focus);
  }

  // --- what is done ---

  /** Is an edit not as it was when its row was drawn? What is asked there stays. */
  function hasChanged(edit) {
    const now = JSON.stringify(edit);
    const before = drawnEdits.get(edit.id);
    drawnEdits.set(edit.id, now);
    return before !== now;
  }

  const refresh = async (given = null) => {
    session = given ?? await load();
    briefs.forget(session.sizes.length - 1);
    answers = answers.filter((answer) => answer.until > Date.now());
    keepFocus(root, paintAgain);
  };

  function paintAgain() {
    paintHead();
    paintPast();
    if (!side.querySelector(".asking")) paintSide();
    paintTools();
    paintChart();
    if (scroller) {
      scroller.set(listItems(session, view, speaker, answers), (item) => item.kind === "fold" && hasChanged(item.edit));
      map.draw(session);
    } else paintLines();
  }

  function tell(at, name, text, redo, label = "Redo") {
    const answer = { id: name, at, text, redo, label, until: redoUntil() };
    answers = [...answers.filter((other) => other.at !== at), answer];
    setTimeout(() => guard(async () => {
      if (answers.includes(answer)) { answers = answers.filter((other) => other !== answer); scroller?.set(listItems(session, view, speaker, answers)); }
    }), answer.until - Date.now() + 50);
    say(text);
    return answer;
  }

  async function undo(edit, since = false) {
    const done = await post("revert", { session: id, edits: [edit.id], since, actor: "page" });
    const next = await load();
    const count = edit.stop - edit.start;
    const stay = [...Array(count).keys()].filter((at) => next.hidden.has(edit.start + at)).length; // an earlier edit shows again
    const again = `${stay < count ? `${plural(count - stay, "message")} ${file ? "shown" : "sent"} again; ` : ""}${stay ? `${plural(stay, "message")} hidden by an earlier edit; ` : ""}`;
    const what = since ? plural(done.reverted.length, "edit") : strategy(edit.by);
    const sends = file ? `it has ${number(done.tokens_after)} tokens.` : `the next call has ${number(done.tokens_after)} tokens${done.fits ? "." : ", which do not fit: it is compacted again."}`;
    const text = `${what} undone. ${since ? sends[0].toUpperCase() : `${again}${sends[0]}`}${sends.slice(1)}`;
    tell(edit.start, edit.id, text, () => guard(async () => {
      await post("accept", { preview: done.redo, actor: "page" });
      answers = answers.filter((answer) => answer.id !== edit.id);
      await refresh();
      say(`${what} shows again.`);
      showKey(`e${edit.id}`);
    }));
    open.delete(edit.id);
    const top = scroller?.row(`e${edit.id}`)?.getBoundingClientRect().top ?? 0;
    await refresh(next);
    scroller?.show(`answer ${edit.id}`, true, Math.min(Math.max(top, 120), innerHeight - 120)); // where the fold was
  }

  /** Keep a message in sight, or *words* of it; with *item* take that pin back. */
  async function pin(at, words, place, item = null) {
    await guard(async () => {
      const done = item ? await post("unpin", { session: id, pin: item.id }) : await post("pin", { session: id, message: at, words });
      session.pins = done.pins;
      keepFocus(root, () => {
        paintSide();
        for (const row of lines.querySelectorAll("article.message")) row.showPins?.();
        map.draw(session);
      });
      say(item ? `The pin of message ${at} is taken back.` : `${words ? "Words of message" : "Message"} ${at} pinned: it stays in sight whatever is compacted.`);
    }, place);
  }

  async function restore(at, place) {
    await guard(async () => {
      const done = await post("restore", { session: id, message: at, actor: "page" });
      const text = `Message ${at} is sent again; the next call has ${number(done.tokens_after)} tokens.`;
      const back = () => guard(async () => {
        await (done.edit ? post("revert", { session: id, edits: [done.edit], actor: "page" }) : post("accept", { preview: done.redo, actor: "page" }));
        answers = answers.filter((answer) => answer.id !== `restored ${at}`);
        place?.replaceChildren(create("p", { class: "answer" }, `✓ Message ${at} is hidden as before.`));
        await refresh();
        say(`Message ${at} is hidden as before.`);
      }, place);
      tell(at, `restored ${at}`, text, back, "Undo");
      place?.replaceChildren(create("div", { class: "answer" }, create("p", {}, `✓ ${text}`), button("Undo", back)));
      await refresh();
    }, place);
  }

  function askSince(run, place) {
    place.querySelector(".asking")?.remove();
    const edit = session.edits.find((item) => run.rows.some((row) => row.edit === item.id));
    const after = session.edits.filter((item) => item.when && item.when >= run.when);
    const more = after.reduce((sum, item) => sum + item.tokens_before - item.tokens_after, 0);
    const box = create("div", { class: "asking" }, create("p", {}, `Undo ${plural(after.length, "edit")}? ${file ? "It then has" : "The next call sends"} about ${number((session.sent ?? 0) + more)} tokens.`),
      button("Keep", () => box.remove()), button("Undo all", () => guard(() => undo(edit, true), box), { class: "main" }));
    place.append(box);
    box.querySelector(".main").focus();
  }

  function askLast() {
    if (isPast) return;
    const made = session.edits.filter((edit) => edit.when);
    const last = (made.length ? made : session.edits).reduce((best, edit) => (!best || (edit.when ?? 0) >= (best.when ?? 0) ? edit : best), null);
    if (!last) return;
    const row = scroller ? showKey(`e${last.id}`, false) : lines.querySelector(`[data-edit="${last.id}"]`);
    (row?.ask ? row : row?.querySelector(".fold"))?.ask();
  }

  // --- search ---

  const find = () => guard(async () => {
    const words = field.value.trim();
    if (!words) { hits = null; results.replaceChildren(); return; }
    const found = /^#\d+$/.test(words) ? Number(words.slice(1)) : null;
    if (found !== null) { showKey(`m${found}`); return; }
    const call = Number(/^call (\d+)$/i.exec(words)?.[1] ?? 0);
    if (call >= 1 && call <= session.calls.length) { go(address(`s/${id}/call/${call}`)); return; }
    const answer = await get("search", { session: id, query: words });
    hits = { list: answer.hits, at: -1, words, more: answer.has_more };
    paintHits();
    say(`${plural(hits.list.length, "place")} found`);
    next(1);
  }, results);

  function paintHits() {
    const { list, at, more } = hits;
    const hidden = list.filter((hit) => hit.edit).length;
    const numbers = new Map(session.edits.map((edit) => [edit.id, edit.number]));
    const about = list.length ? `${at + 1} of ${number(list.length)}${more ? " or more" : ""}, ${number(hidden)} hidden · ${list[0].exact ? "exact words" : "similar words: the exact ones are nowhere"}` : "Nothing found.";
    const first = Math.max(0, at - 4);
    results.replaceChildren(create("div", { class: "panel", id: "hits" },
      create("div", { class: "row pad" }, create("b", {}, about), button("Close", () => { hits = null; results.replaceChildren(); field.focus(); }, { class: "plain push" })),
      create("ul", { class: "hits" }, list.slice(first, first + 12).map((hit, place) => create("li", { "aria-current": first + place === at ? "true" : null },
        create("span", { class: "quiet" }, `${hit.message}${hit.line ? `, line ${hit.line}` : ""}`), create("span", { class: "grow mono" }, highlight(hit.text, hits.words)),
        hit.edit ? create("span", { class: "chip" }, `hidden${numbers.get(hit.edit) ? ` in ${numbers.get(hit.edit)}` : ""}`) : null,
        hit.edit && !file ? button("Restore", (event) => restore(hit.message, event.target.closest("li")), { class: "link" }) : null,
        isPast || file ? null : button("Pin", (event) => pin(hit.message, wordsOf(hit), event.target.closest("li")), { class: "link", "aria-label": `Pin these words of message ${hit.message}` }),
        button("Show in place", () => { hits.at = first + place; paintHits(); showHit(hit); }, { class: "link" }))))));
  }

  /** The words that were searched for as the message has them; nothing, so the whole message, if they are only similar. */
  function wordsOf(hit) {
    const at = hit.exact ? hit.text.toLowerCase().indexOf(hits.words.toLowerCase()) : -1;
    return at < 0 ? "" : hit.text.slice(at, at + hits.words.length);
  }

  function showHit(hit) {
    if (hit.edit && view === "sent") { view = "original"; paintTools(); paintLines(); }
    const row = showKey(`m${hit.message}`, false);
    row?.classList.add("found");
  }

  function next(by) {
    if (!hits?.list.length) return;
    hits.at = (hits.at + by + hits.list.length) % hits.list.length;
    paintHits();
  }

  // --- keys ---

  function move(by) {
    const rows = [...lines.querySelectorAll(".rows article")].filter((row) => !row.parentElement.closest("article"));
    const current = rows.findIndex((row) => row.contains(document.activeElement));
    const from = rows.findIndex((row) => row.getBoundingClientRect().bottom > 110);
    const next_ = rows[current < 0 ? Math.max(0, from) : Math.max(0, Math.min(rows.length - 1, current + by))];
    const target = next_?.querySelector("button") ?? next_;
    if (!target) return;
    target.focus({ preventScroll: true });
    next_.scrollIntoView({ block: "nearest" });
  }

  function nextEdit(by) {
    const list = [...session.edits].sort((a, b) => a.start - b.start);
    const now = Number(document.activeElement?.closest("[data-at]")?.dataset.at ?? -1);
    const found = by > 0 ? list.find((edit) => edit.start > now) ?? list[0] : [...list].reverse().find((edit) => edit.start < now) ?? list.at(-1);
    if (found) showKey(`e${found.id}`);
  }

  let findsOwn = false;
  function onKey(event) {
    const name = event.key;
    if (event.ctrlKey || event.metaKey) {
      if (name !== "f" || findsOwn) { findsOwn = false; return false; }
      findsOwn = true;
      field.focus();
      return true;
    }
    findsOwn = false;
    if (name === "Escape") {
      if (side.classList.contains("shown")) side.classList.remove("shown");
      else if (hits) { hits = null; results.replaceChildren(); } else return false;
      return true;
    }
    const act = { f: () => field.select() ?? field.focus(), j: () => move(1), k: () => move(-1), c: () => go(address(`s/${id}/preview`)), u: askLast,
      n: () => (hits ? next(1) : nextEdit(1)), N: () => (hits ? next(-1) : nextEdit(-1)), g: () => { field.value = "#"; field.focus(); },
      p: () => {
        const row = document.activeElement?.closest("article.message[data-at]");
        const at = Number(row?.dataset.at);
        if (row && hasText && !isPast && !file) pin(at, "", row, session.pins.find((item) => item.message === at && item.is_whole));
      },
      s: () => choose(VIEWS[(VIEWS.findIndex(([one]) => one === view) + 1) % (innerWidth < 700 ? 2 : 3)][0]) }[name];
    act?.();
    return Boolean(act);
  }

  // --- begin ---

  body.append(map.panel, lines, side);
  if (!hasText) { map.panel.hidden = true; body.classList.add("without-map"); }
  root.replaceChildren(head, past, chart, hasText ? tools : create("div", { class: "tools" }), results, body);
  paintHead();
  paintPast();
  paintChart();
  paintTools();
  paintSide();
  paintLines();
  const target = route.path[2] === "message" ? Number(route.path[3]) : null;
  const edit = route.query.get("edit");
  if (target !== null && hasText) showKey(`m${target}`);
  else if (edit) showKey(`e${edit}`);

  const changed = later(300, () => guard(refresh));
  return {
    changed: (changes) => { if (changes.some((change) => change.session === id)) changed(); },
    key: onKey,
    close: () => scroller?.close(),
  };
}

function highlight(text, words) {
  const at = text.toLowerCase().indexOf(words.toLowerCase());
  return at < 0 ? [text] : [text.slice(0, at), create("mark", {}, text.slice(at, at + words.length)), text.slice(at + words.length)];
}
