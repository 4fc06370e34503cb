// One session: figures, chart of its calls, and the conversation with its edits.
import { get, post } from "./api.js";
import { address, go, guard, stay } from "./app.js";
import { sessionChart } from "./charts.js";
import { button, create, keepFocus, key, later, put, say } from "./dom.js";
import { number, plural, strategy, thenHas } from "./format.js";
import { makeScroller } from "./scroller.js";
import { makeMap } from "./session_map.js";
import { drawHead, drawPast, drawSide, nameOfPinned } from "./session_parts.js";
import { makeSearch } from "./session_search.js";
import { nameOf } from "./sessions.js";
import { copyable } from "./setup.js";
import { answerRow, callSince, foldRow, hiddenBy, listItems, makeBriefs, markPins, messageRow, showOriginals, systemRow } from "./timeline.js";

const VIEWS = [["sent", "Sent"], ["original", "Original"], ["beside", "Side by side"]];
const SPEAKERS = [["all", "All"], ["y", "You"], ["a", "Assistant"], ["r", "Tools"], ["h", "Hidden"]];
const BESIDE_ROWS = 12; // hidden messages shown beside a fold before Show more
const REDO_SECONDS = 30;

/** Return the API's answer with numbered compactions. Chart, timeline, list and map use the same numbers. */
function readSession(answer, call = 0) {
  const calls = answer.calls.map(([time, original, sent, edits, input, read, wouldRead, cost, without]) =>
    ({ time, original, sent, edits, input, read, wouldRead, cost, without }));
  const first = answer.file ? 1 : answer.row.calls - calls.length + 1; // the number of the first call that is listed: older ones are deleted
  calls.forEach((each, at) => { each.number = first + at; });
  const shown = new Set(answer.edits.map((edit) => edit.id));
  const undone = new Map(answer.log.filter((row) => row.action === "revert" && !shown.has(row.edit)).map((row) => [row.edit, row]));
  const smaller = answer.log.filter((row) => row.action !== "revert" && row.before > row.after);
  const latest = new Map(smaller.map((row) => [row.edit, row])); // an edit that was undone and accepted again is listed once
  const runs = [...Map.groupBy(latest.values(), (row) => row.run).values()]
    .filter((rows) => rows.some((row) => shown.has(row.edit) || !undone.has(row.edit)))
    .sort(([a], [b]) => a.when - b.when)
    .map((rows, at) => ({ rows, number: at + 1, when: rows[0].when, call: callSince(calls, rows[0].when) ?? first + calls.length }));
  const buried = runs.filter((run) => !run.rows.some((row) => shown.has(row.edit))); // hidden by later edits
  const numbers = new Map(runs.flatMap((run) => run.rows.map((row) => [row.edit, run.number])));
  const edits = answer.edits.map((edit) => ({ ...edit, number: numbers.get(edit.id) ?? 0, call: call || undefined }));
  const folds = edits.filter((edit) => edit.stop > edit.start + 1);
  if (folds.length === 1) folds[0].contains = buried.filter((run) => run.number < folds[0].number).map((run) => run.number).join(", ");
  return { ...answer, first, calls, edits, runs, buried, undone, hidden: hiddenBy(edits) };
}

export async function showSession(root, route) {
  const id = route.path[1];
  const chosenCall = route.path[2] === "call" ? Number(route.path[3]) : 0;
  let missing = ""; // why the chosen call cannot be shown
  const load = async () => {
    const call = missing ? 0 : chosenCall;
    try {
      return readSession(await get("session", { session: id, call: call || undefined }), call);
    } catch (error) {
      if (!["not_kept", "no_call"].includes(error.code)) throw error;
      missing = error.message;
      return load();
    }
  };
  let session = await load();
  let view = route.query.get("view") ?? "sent";
  let speaker = "all";
  let scroller = null;
  const answers = new Map(); // notices of actions, by the message that they appear at
  const open = new Set(); // open rows, which stay open when redrawn
  const { file } = session; // set for a session in a client's file, which has no calls here
  const hasText = session.kept_until !== null || file !== null;
  if (root.isConnected) document.title = `${nameOf(session.row)} · Refold`;

  // --- the parts ---

  const page = { // shared state and actions of the parts
    id, chosenCall, file, hasText, isPast: chosenCall > 0 && !missing, // a past call is read-only
    get session() { return session; },
    get largest() { return Math.max(1, session.fixed, ...session.sizes); },
    isOpen: (name) => open.has(name),
    setOpen: (name, isOpen) => (isOpen ? open.add(name) : open.delete(name)),
    pinsOf: (at) => session.pins.filter((item) => item.message === at),
    toggleSide: () => side.classList.toggle("shown"),
    undo, restore, pin, askLast, askSince, showKey,
  };
  const briefs = makeBriefs(id, (changed) => {
    paintRows((item) => item.kind === "message" && changed.has(item.at) && (changed.get(item.at) || !open.has(item.at)));
  });
  const search = makeSearch(page);
  const map = makeMap((at) => goTo(at));
  const [head, past, chart, body] = ["div", "div", "div", "div"].map((tag) => create(tag));
  const tools = create("div", { class: "tools" });
  const side = create("div", { class: "side" });
  const lines = create("div", { class: "lines panel", role: "region", "aria-label": "Conversation" });

  function paint() {
    put(head, ...drawHead(page));
    put(past, drawPast(page, missing));
    if (!file) put(chart, create("div", { class: "charts single" }, sessionChart(session, chosenCall, (call) => go(address(`s/${id}/call/${call}`)))));
    paintTools();
    if (!side.querySelector(".asking")) paintSide();
  }

  const paintSide = () => put(side, ...drawSide(page));

  function paintTools() {
    if (!hasText) return;
    const count = (letter) => number(letter === "h" ? session.hidden.size : session.speakers.split(letter).length - 1);
    put(tools,
      create("div", { class: "switch", role: "group", "aria-label": "View" }, VIEWS.map(([name, text]) => button(text, () => choose(name), { "aria-pressed": String(view === name), id: name === "beside" ? "beside" : null, data: { view: name } }))),
      search.form,
      create("div", { class: "switch push", role: "group", "aria-label": "Speaker" }, SPEAKERS.map(([name, text]) =>
        button([text, create("span", { class: "quiet" }, name === "all" ? "" : ` ${count(name)}`)], () => change(view, name), { "aria-pressed": String(speaker === name) }))));
  }

  // --- the conversation ---

  const drawItem = (item) => (view === "beside" && item.kind !== "answer" ? drawBeside(item) : drawSingle(item));

  function drawSingle(item) {
    if (item.kind === "system") return systemRow(page);
    if (item.kind === "answer") return answerRow(item.answer);
    if (item.kind === "fold") return foldRow(item.edit, page);
    return messageRow(item.at, briefs.of(item.at), item.edit, page);
  }

  /** Draw the original and what is sent instead in one row of two columns, so that they stay aligned. */
  function drawBeside(item) {
    const isFold = item.kind === "fold";
    const [left, right] = [create("div"), create("div", {}, isFold ? create("div", { class: "stick" }, drawSingle(item)) : drawSingle(item))];
    if (isFold) showOriginals(left, item.edit, page, item.edit.start, BESIDE_ROWS);
    else left.append(drawSingle(item));
    return create("div", { class: `columns pair${isFold ? " folded" : ""}` }, left, create("div", { class: "ribbon", "aria-hidden": "true" }), right);
  }

  /** Update the rows, and redraw those for which *isOld* is true. */
  const paintRows = (isOld) => scroller?.set(listItems(session, view, speaker, answers), isOld);

  function paintLines() {
    scroller?.close();
    lines.replaceChildren();
    body.classList.toggle("beside", view === "beside");
    if (!hasText) {
      lines.append(textNotKept(), ...session.edits.map((edit) => foldRow(edit, page)));
      return;
    }
    if (view === "beside") {
      lines.append(create("div", { class: "columns tops" }, create("header", {}, "Original", create("span", { class: "quiet" }, `${plural(session.sizes.length, "message")} · ${number(session.original ?? 0)} tokens`)), create("div"),
        create("header", {}, "Sent", create("span", { class: "quiet" }, `${number(session.sent ?? 0)} tokens`))));
    }
    const box = create("div", { class: "rows" });
    lines.append(box);
    scroller = makeScroller(box, "div", 31, drawItem, () => map.frame(...scroller ? scroller.span() : []));
    paintRows();
    map.draw(session);
  }

  const textNotKept = () => create("div", { class: "stack pad" },
    create("p", {}, create("b", {}, "The transcript of this session is not kept. "), "Calls, tokens, cost and edits are shown, but no conversation, search or losses. To keep transcripts from now on:"),
    copyable("refold serve --record 7d"));

  function change(nextView, nextSpeaker) {
    [view, speaker] = [nextView, nextSpeaker];
    paintTools();
    paintLines();
  }

  function choose(name) {
    stay(address(chosenCall ? `s/${id}/call/${chosenCall}` : `s/${id}`, name === "sent" ? {} : { view: name }));
    change(name, speaker);
  }

  /** Scroll to a message (`m7`) or an edit (`e` and its id), in a view that contains it. Return its row. */
  function showKey(name, focus = true) {
    if (!scroller) return lines.querySelector(`[data-edit="${CSS.escape(name.slice(1))}"]`);
    if (!scroller.items.some((item) => item.key === name)) {
      const isHidden = name.startsWith("m") && session.hidden.has(Number(name.slice(1)));
      change(isHidden ? "original" : name.startsWith("e") && view === "original" ? "sent" : view, "all");
    }
    return scroller.show(name, focus);
  }

  function goTo(at) {
    const edit = session.hidden.get(at);
    showKey(view !== "original" && speaker !== "h" && edit ? `e${edit.id}` : `m${at}`, false);
  }

  // --- actions ---

  const refresh = async (next = null) => {
    const before = new Map(session.edits.map((edit) => [edit.id, JSON.stringify(edit)]));
    const { hidden } = session;
    session = next ?? await load();
    briefs.forget();
    const isRehidden = (at) => !open.has(at) && hidden.get(at)?.id !== session.hidden.get(at)?.id;
    keepFocus(root, () => {
      paint();
      if (!hasText) paintLines();
      paintRows((item) => (item.kind === "fold" ? before.get(item.edit.id) !== JSON.stringify(item.edit) : item.kind === "message" && (!briefs.of(item.at) || isRehidden(item.at)))); // the rest when it is fetched again
      map.draw(session);
    });
  };

  /** Show a notice at message *at* for a while, with a button that calls *back*. Return the key of its row. */
  function tell(at, text, back, label) {
    const answer = { key: `answer ${performance.now()}`, text, label, back };
    answers.set(at, answer);
    setTimeout(() => {
      if (answers.get(at) !== answer) return;
      answers.delete(at);
      paintRows();
    }, 1000 * REDO_SECONDS);
    say(text);
    return answer.key;
  }

  async function undo(edit, since = false) {
    const done = await post("revert", { session: id, edits: [edit.id], since, actor: "page" });
    const next = await load();
    const what = since ? plural(done.reverted.length, "edit") : strategy(edit.by);
    const redo = (place) => guard(async () => {
      await post("accept", { preview: done.redo, actor: "page" });
      answers.delete(edit.start);
      await refresh();
      say(`${what} redone.`);
      showKey(`e${edit.id}`);
    }, place);
    const news = since ? [] : inSightAgain(edit, next.hidden);
    const row = tell(edit.start, `${what} undone. ${sentence(news)}${tokensNow(done)}`, redo, "Redo");
    open.delete(edit.id);
    const top = scroller?.row(`e${edit.id}`)?.getBoundingClientRect().top ?? 0;
    await refresh(next);
    scroller?.show(row, true, Math.min(Math.max(top, 120), innerHeight - 120)); // at the position of the fold
  }

  /** Describe the messages that *edit* had hidden. An earlier edit may still hide some. */
  function inSightAgain(edit, hidden) {
    const count = edit.stop - edit.start;
    const still = Array.from({ length: count }, (_, at) => edit.start + at).filter((at) => hidden.has(at)).length;
    return [still < count ? `${plural(count - still, "message")} ${file ? "shown" : "sent"} again` : "",
      still ? `${plural(still, "message")} hidden by an earlier edit` : ""];
  }

  const tokensNow = ({ tokens_after: tokens, fits = true }) => `${thenHas(session)} ${number(tokens)} tokens${fits ? "" : ", which do not fit: the session will be compacted again"}.`;

  /** Pin a message, or *words* of it. With *item*, remove that pin. */
  async function pin(at, words, place, item = null) {
    await guard(async () => {
      const done = item ? await post("unpin", { session: id, pin: item.id }) : await post("pin", { session: id, message: at, words });
      session.pins = done.pins;
      keepFocus(root, () => {
        paintSide();
        markPins(lines, page);
        map.draw(session);
      });
      say(item ? `Unpinned ${nameOfPinned(item)}.` : `${words ? "Words of message" : "Message"} ${at} pinned. Later compactions keep it.`);
    }, place);
  }

  async function restore(at, place) {
    await guard(async () => {
      const done = await post("restore", { session: id, message: at, actor: "page" });
      const text = `Message ${at} is sent again. ${tokensNow(done)}`;
      const undone = `Message ${at} is hidden again.`;
      const back = (row) => guard(async () => {
        await (done.edit ? post("revert", { session: id, edits: [done.edit], actor: "page" }) : post("accept", { preview: done.redo, actor: "page" }));
        answers.delete(at);
        put(place, create("p", { class: "answer" }, `✓ ${undone}`));
        await refresh();
        say(undone);
      }, row);
      tell(at, text, back, "Undo");
      put(place, answerRow({ text, label: "Undo", back }));
      await refresh();
    }, place);
  }

  function askSince(run, place) {
    place.querySelector(".asking")?.remove();
    const edit = session.edits.find((item) => run.rows.some((row) => row.edit === item.id));
    if (!edit) { // undone meanwhile, and not redrawn because of a question
      paintSide();
      return;
    }
    const after = session.edits.filter((item) => item.when && item.when >= run.when);
    const more = after.reduce((sum, item) => sum + item.tokens_before - item.tokens_after, 0);
    const box = create("div", { class: "asking" }, create("p", {}, `Undo ${plural(after.length, "edit")}? ${thenHas(session)} about ${number((session.sent ?? 0) + more)} tokens.`),
      button("Cancel", paintSide), button("Undo all", () => { box.remove(); guard(() => undo(edit, true), place); }, { class: "main" }));
    place.append(box);
    box.querySelector(".main").focus();
  }

  function askLast() {
    const ofRuns = session.edits.filter((edit) => edit.when);
    const last = (ofRuns.length ? ofRuns : session.edits).reduce((best, edit) => ((edit.when ?? 0) >= (best?.when ?? 0) ? edit : best), null);
    if (!last || page.isPast) return;
    showKey(`e${last.id}`, false)?.querySelector(".undo")?.click();
  }

  // --- keys ---

  function move(by) {
    const rows = [...lines.querySelectorAll(".rows article")].filter((row) => !row.parentElement.closest("article"));
    const current = rows.findIndex((row) => row.contains(document.activeElement));
    const from = rows.findIndex((row) => row.getBoundingClientRect().bottom > 110);
    const next = rows[current < 0 ? Math.max(0, from) : Math.max(0, Math.min(rows.length - 1, current + by))];
    const target = next?.querySelector("button") ?? next;
    if (!target) return;
    target.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  function nextEdit(by) {
    const list = session.edits.toSorted((a, b) => by * (a.start - b.start));
    const now = Number(document.activeElement?.closest("[data-at]")?.dataset.at ?? -1);
    const next = list.find((edit) => by * (edit.start - now) > 0) ?? list[0];
    if (next) showKey(`e${next.id}`);
  }

  function pinCurrent() {
    const row = document.activeElement?.closest("article.message[data-at]");
    const at = Number(row?.dataset.at);
    if (row && hasText && !page.isPast && !file) pin(at, "", row, page.pinsOf(at).find((item) => item.is_whole));
  }

  const views = VIEWS.map(([name]) => name);
  const nextView = () => choose(views[(views.indexOf(view) + 1) % (innerWidth < 700 ? 2 : 3)]);
  const keys = {
    f: () => search.begin(), g: () => search.begin("#"), j: () => move(1), k: () => move(-1), c: () => go(address(`s/${id}/preview`)), u: askLast,
    n: () => search.move(1) || nextEdit(1), N: () => search.move(-1) || nextEdit(-1), p: pinCurrent, s: nextView };

  let findsOwn = false;
  function onKey(event) {
    const isFind = (event.ctrlKey || event.metaKey) && event.key === "f";
    if (event.ctrlKey || event.metaKey) {
      findsOwn = isFind && !findsOwn; // the second press opens the browser's own search
      if (findsOwn) search.begin();
      return findsOwn;
    }
    findsOwn = false;
    if (event.key === "Escape") {
      if (!side.classList.contains("shown")) return search.close();
      side.classList.remove("shown");
      return true;
    }
    keys[event.key]?.();
    return event.key in keys;
  }

  // --- start ---

  body.className = hasText ? "body" : "body without-map";
  map.panel.hidden = !hasText;
  body.append(map.panel, lines, side);
  root.replaceChildren(head, past, chart, tools, search.results, body);
  paint();
  paintLines();
  const target = route.path[2] === "message" ? route.path[3] : null;
  const edit = route.query.get("edit");
  if (target !== null && hasText) showKey(`m${Number(target)}`);
  else if (edit) showKey(`e${edit}`);

  const changed = later(300, () => root.isConnected && guard(refresh));
  return {
    changed: (changes) => { if (changes.some((change) => change.session === id)) changed(); },
    key: onKey,
    close: () => scroller?.close(),
  };
}

/** Join the parts that are not empty into a sentence: "A; b. ". */
function sentence(parts) {
  const text = parts.filter(Boolean).join("; ");
  return text && `${text[0].toUpperCase()}${text.slice(1)}. `;
}
