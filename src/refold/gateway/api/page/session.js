// One session: its figures, the chart of its calls, the conversation with what was done to it.
import { get, post } from "./api.js";
import { address, go, guard, stay } from "./app.js";
import { sessionChart } from "./charts.js";
import { bar, button, byId, copyButton, create, keepFocus, key, later, put, say } from "./dom.js";
import { clock, cut, day, money, number, plural, share, shortId, signed, strategy } from "./format.js";
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

  function paintHead() {
    const { row, calls } = session;
    const last = calls.at(-1);
    const sums = calls.reduce((all, call) => ({ input: all.input + call.input, read: all.read + call.read, would: all.would + call.wouldRead, original: all.original + (call.sent ? (call.original * call.input) / call.sent : 0) }), { input: 0, read: 0, would: 0, original: 0 });
    const times = `${day(row.began)}, ${clock(row.began)}–${clock(row.latest)}`;
    const parts = file ? fileFigures() : [
      ["Last call, tokens", last ? [number(last.original), create("span", { class: "quiet" }, " → "), create("span", { class: "teal" }, number(last.sent))] : ["–"],
        last ? [`${share(last.original - last.sent, last.original)} less`, session.levels.window ? `${share(last.sent, session.levels.window)} of the window` : ""].filter(Boolean).join(" · ") : "no call was answered"],
      ["Spent", [money(row.spent)], row.spent === null ? "no price is known" : `${money(row.spent + row.saved)} without Refold`],
      ["Saved", [create("span", { class: row.saved > 0 ? "teal" : "" }, money(row.saved)), " ", create("small", {}, row.saved ? share(row.saved, row.spent + row.saved) : "")], "after summaries and refetches"],
      ["Read from the cache", [share(sums.read, sums.input)], sums.input ? `${share(Math.min(sums.would, sums.original), sums.original)} without Refold` : "no usage was reported"],
      ["Edits in effect", [number(session.edits.length)], `${number(session.undone.size)} undone`]];
    put(head,
      create("div", { class: "head" }, create("div", { class: "grow" }, create("p", { class: "crumbs" }, create("a", { href: "#/" }, "Sessions"), " › ", create("span", { class: "mono" }, row.file || shortId(id))), create("h1", { title: nameOf(row) }, cut(nameOf(row), 110))),
        create("span", { class: "row" }, button("Edits", () => side.classList.toggle("shown"), { id: "show-side" }),
          create("button", { type: "button", id: "undo-last", disabled: isPast || !session.edits.length, onclick: askLast }, "Undo…", key("U")),
          create("button", { type: "button", class: "main", id: "preview", onclick: () => go(address(`s/${id}/preview`)) }, "Preview a compaction", key("C")))),
      create("p", { class: "about" }, [row.client, row.model, row.project, times, `${plural(row.calls, "call")}${hasText ? `, ${plural(session.sizes.length, "message")}` : ""}`].filter(Boolean).map((text) => create("span", {}, text)),
        row.is_shadow ? create("b", {}, "Shadow: sent as it came; Saved is what would have been") : null,
        file ? null : create("span", {}, hasText ? `Text kept until ${day(session.kept_until)}` : "Text not kept"), copyButton(file ? row.file : id, "Copy id", { class: "link" })),
      file ? aboutFile() : null,
      create("dl", { class: "panel figures" }, parts.map(([name, value, under]) => create("div", {}, create("dt", {}, name), create("dd", {}, ...value), create("dd", { class: "quiet" }, under)))));
  }

  function fileFigures() {
    const { row } = session;
    return [["Tokens", [number(row.original), create("span", { class: "quiet" }, " → "), create("span", { class: "teal" }, number(row.sent))], row.sent < row.original ? `${share(row.original - row.sent, row.original)} less with the edits` : "no edit shows"],
      ["Spent", [money(row.spent)], row.spent === null ? "the file says no usage, or no price is known" : "by the usage that the file reports"],
      ["Calls", [number(row.calls)], "whose usage is in the file"],
      ["Edits in effect", [number(session.edits.length)], `${number(session.undone.size)} undone`]];
  }

  /** What a file can, and which commands do the rest. */
  function aboutFile() {
    const name = session.row.file;
    return create("div", { class: "asking past", id: "about-file" }, create("p", {}, create("b", {}, "A client's file: "), create("span", { class: "mono" }, file.path), ". It is read and never written; what you accept here is kept beside it, as ", create("code", {}, "refold compact"), " does.",
      file.compactions ? ` Its client compacted it ${file.compactions === 1 ? "once" : `${number(file.compactions)} times`} itself: shown is all that was said.` : "",
      " Pins: ", create("code", {}, `refold compact ${name} --pin 'words'`), ".", file.resumes ? [" To go on with it, shortened: ", create("code", {}, `refold export ${name}`), "."] : null));
  }

  function paintChart() {
    if (file) return;
    chart.replaceChildren(create("div", { class: "charts single" }, sessionChart(session.calls, session.levels, session.marks, chosenCall, (call) => go(address(`s/${id}/call/${call}`)))));
  }

  /** Which call is shown, and the way to those beside it. */
  function paintPast() {
    if (!chosenCall) return;
    const call = session.calls[chosenCall - 1];
    const step = (to, text) => (to >= 1 && to <= session.calls.length ? button(text, () => go(address(`s/${id}/call/${to}`)), { id: to < chosenCall ? "call-before" : "call-after" }) : null);
    put(past, create("div", { class: "asking past", role: "status" },
      create("p", {}, missing || [create("b", {}, `As sent in call ${chosenCall} of ${number(session.calls.length)}`), call ? `, ${day(call.time)} ${clock(call.time)}: original ${number(call.original)}, sent ${number(call.sent)} tokens in ${plural(session.sizes.length, "message")} with ${plural(session.edits.length, "edit")}.` : ""]),
      step(chosenCall - 1, "‹ Call before"), step(chosenCall + 1, "Call after ›"), button("As it is now", () => go(address(`s/${id}`)), { id: "now", class: "main" })));
  }

  function paintSide() {
    const list = [...session.runs].reverse().map((run) => {
      const now = session.edits.filter((edit) => run.rows.some((row) => row.edit === edit.id));
      const saved = run.rows.reduce((sum, row) => sum + row.before - row.after, 0);
      const [row] = run.rows;
      const kinds = [...new Set(run.rows.map((item) => strategy(item.by)))].join(", ");
      const where = now.length === 1 ? `messages ${now[0].start}–${now[0].stop - 1}` : now.length ? plural(now.length, "edit") : "inside a later one";
      const first = now[0];
      return create("li", {}, create("div", { class: "line" }, create("span", { class: "round" }, String(run.number)),
        first ? button(kinds, () => showKey(`e${first.id}`), { class: "link" }) : create("b", {}, kinds), create("span", { class: "teal" }, signed(-saved))),
      create("p", { class: "quiet" }, `${where} · ${row.actor.startsWith("auto") ? "automatic" : `by ${row.actor}`} · ${clock(row.when)}`),
      first && session.runs.length > 1 ? button("Undo all since…", (event) => askSince(run, event.target.closest("li")), { class: "link" }) : null);
    });
    const undone = session.log.filter((row) => row.action === "revert").map((row) => create("li", { class: "undone" }, `${strategy(row.by)}, undone`, create("p", { class: "quiet" }, `by ${row.actor} · ${clock(row.when)}`)));
    const local = session.edits.filter((edit) => !edit.number);
    const locals = local.length ? [create("li", {}, create("div", { class: "line" }, button(`${plural(local.length, "edit")} as messages came`, () => showKey(`e${local[0].id}`), { class: "link" }), create("span", { class: "teal" }, signed(-local.reduce((sum, edit) => sum + edit.tokens_before - edit.tokens_after, 0)))))] : [];
    const together = session.original === null || (file && !session.edits.length) ? null : create("li", {}, create("div", { class: "line" }, create("b", {}, "Together"), create("b", { class: "teal" }, signed(session.sent - session.original))),
      create("p", { class: "quiet" }, `${number(session.original)} → ${number(session.sent)} by Refold's count. Each edit above counts what it took off what was sent then.`));
    const most = Math.max(1, ...session.shares.map((item) => item.original));
    const last = session.calls.at(-1);
    const off = file ? "" : last?.input ? `At the last call Refold counted ${number(last.sent)}, the provider ${number(last.input)}.` : "The provider reported no count.";
    put(side,
      create("section", { class: "panel pad" }, create("h2", {}, "Edits", create("span", { class: "quiet" }, `${number(session.edits.length)} in effect`)),
        create("ul", {}, list, locals, undone, together), list.length + locals.length + undone.length ? null : create("p", { class: "quiet" }, file ? "None." : "None: it is sent as it came.")),
      file ? null : pinList(),
      hasText ? create("section", { class: "panel pad" }, create("h2", {}, "Where the tokens are"),
        create("div", { class: "shares" }, [...session.shares.slice(0, 9), { name: "System", original: session.fixed, sent: session.fixed }].flatMap((item) =>
          [create("span", {}, item.name), bar(item.original, item.sent, most), create("span", {}, `${number(item.original)} → `, create("b", {}, number(item.sent)))])),
        create("p", { class: "quiet" }, `By Refold's count. ${off}`)) : null);
  }

  function pinList() {
    const items = session.pins.map((item) => create("li", {}, create("div", { class: "line" }, button(`Message ${item.message}`, () => showKey(`m${item.message}`), { class: "link" }),
      isPast ? null : button("Take back", (event) => pin(item.message, null, event.target.closest("li"), item), { class: "plain push", "aria-label": `Take back the pin of message ${item.message}` })),
    create("p", { class: "quiet" }, item.is_whole ? "the whole message" : item.words ? `“${cut(item.words, 300)}”` : "words in it")));
    return create("section", { class: "panel pad", id: "pins" }, create("h2", {}, "Pins", create("span", { class: "quiet" }, number(items.length))), create("ul", {}, items),
      create("p", { class: "quiet" }, items.length ? "They stay in sight whatever is compacted." : `Nothing is pinned. ${hasText ? "Open a message to pin it, or words in it: that stays in sight whatever is compacted." : ""}`));
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

// --- the map: one line a message, its length by tokens -------------------------------------------

function makeMap(jump) {
  const canvas = create("canvas");
  const frame = create("div", { class: "frame", hidden: true });
  const panel = create("div", { class: "panel map", "aria-hidden": "true" }, create("p", {}, "Messages"), canvas, frame,
    create("ul", {}, [["", "sent"], ["grey", "hidden"], ["dot", "you"], ["flag", "pin"]].map(([kind, name]) => create("li", {}, create("i", { class: kind }), name))));
  let session = null;
  const isFlat = () => innerWidth < 700;

  function draw(given = session) {
    session = given;
    if (!session || !canvas.clientWidth) return;
    const [width, height, scale] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    Object.assign(canvas, { width: width * scale, height: height * scale });
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const [teal, grey, dot] = [colour("accent"), colour("original"), colour("ink2")];
    const { sizes, speakers, hidden } = session;
    const [long, wide] = isFlat() ? [width, height] : [height, width];
    const most = Math.sqrt(Math.max(1, ...sizes));
    const bins = Math.min(sizes.length, Math.floor(long));
    const step = long / Math.max(1, bins);
    const put = (along, across, thick, length) => (isFlat() ? paint.fillRect(along, wide - across - length, thick, length) : paint.fillRect(across, along, length, thick));
    for (let bin = 0; bin < bins; bin += 1) {
      let [best, person] = [-1, false];
      for (let at = Math.floor((bin * sizes.length) / bins); at < Math.floor(((bin + 1) * sizes.length) / bins); at += 1) {
        if (best < 0 || sizes[at] > sizes[best]) best = at;
        person ||= speakers[at] === "y";
      }
      paint.fillStyle = hidden.has(best) ? grey : teal;
      put(bin * step, 10, Math.max(1, step - (step > 3 ? 1 : 0)), Math.max(2, ((wide - 20) * Math.sqrt(sizes[best])) / most));
      if (person) { paint.fillStyle = dot; put(bin * step, 3, Math.max(2, Math.min(4, step)), 4); }
    }
    paint.fillStyle = dot;
    for (const item of session.pins) put((item.message * long) / sizes.length, 0, 2, wide);
    for (const edit of session.edits) put((edit.start * long) / sizes.length, wide - 6, Math.max(1, ((edit.stop - edit.start) * long) / sizes.length), 2);
  }

  const go_ = (event) => {
    const box = canvas.getBoundingClientRect();
    const part = isFlat() ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height;
    jump(Math.max(0, Math.min(session.sizes.length - 1, Math.floor(part * session.sizes.length))));
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); go_(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) go_(event); });
  new ResizeObserver(() => draw()).observe(canvas);
  window.addEventListener("resize", () => draw());

  return {
    panel, draw,
    frame(first, last) {
      if (!session || !first || !last) return;
      const [from, to] = [first.at ?? 0, (last.edit?.stop ?? last.at ?? 0) + 1].map((at) => at / Math.max(1, session.sizes.length));
      frame.hidden = false;
      if (isFlat()) {
        Object.assign(frame.style, { left: `${canvas.offsetLeft + from * canvas.clientWidth}px`, width: `${Math.max(6, (to - from) * canvas.clientWidth)}px`, right: "auto", top: `${canvas.offsetTop}px`, height: `${canvas.clientHeight}px` });
      } else {
        Object.assign(frame.style, { left: "1px", right: "1px", width: "auto", top: `${canvas.offsetTop + from * canvas.clientHeight}px`, height: `${Math.max(6, (to - from) * canvas.clientHeight)}px` });
      }
    },
  };
}
