// What stands around a session's conversation: its figures, which call is shown, edits and pins.
import { address, go } from "./app.js";
import { bar, button, copyButton, create, key } from "./dom.js";
import { clock, cut, day, money, number, plural, share, shortId, signed, strategy } from "./format.js";
import { nameOf } from "./sessions.js";

/** A session's name and figures; *page* says which it is and what may be done. */
export function drawHead(session, page) {
  const { row, calls } = session;
  const { id, file, hasText } = page;
  const last = calls.at(-1);
  const sums = calls.reduce((all, call) => ({ input: all.input + call.input, read: all.read + call.read, would: all.would + call.wouldRead, original: all.original + (call.sent ? (call.original * call.input) / call.sent : 0) }), { input: 0, read: 0, would: 0, original: 0 });
  const times = `${day(row.began)}, ${clock(row.began)}–${clock(row.latest)}`;
  const parts = file ? fileFigures(session) : [
    ["Last call, tokens", last ? [number(last.original), create("span", { class: "quiet" }, " → "), create("span", { class: "teal" }, number(last.sent))] : ["–"],
      last ? [`${share(last.original - last.sent, last.original)} less`, session.levels.window ? `${share(last.sent, session.levels.window)} of the window` : ""].filter(Boolean).join(" · ") : "no call was answered"],
    ["Spent", [money(row.spent)], row.spent === null ? "no price is known" : `${money(row.spent + row.saved)} without Refold`],
    ["Saved", [create("span", { class: row.saved > 0 ? "teal" : "" }, money(row.saved)), " ", create("small", {}, row.saved ? share(row.saved, row.spent + row.saved) : "")], "after summaries and refetches"],
    ["Read from the cache", [share(sums.read, sums.input)], sums.input ? `${share(Math.min(sums.would, sums.original), sums.original)} without Refold` : "no usage was reported"],
    ["Edits in effect", [number(session.edits.length)], `${number(session.undone.size)} undone`]];
  return [
    create("div", { class: "head" }, create("div", { class: "grow" }, create("p", { class: "crumbs" }, create("a", { href: "#/" }, "Sessions"), " › ", create("span", { class: "mono" }, row.file || shortId(id))), create("h1", { title: nameOf(row) }, cut(nameOf(row), 110))),
      create("span", { class: "row" }, button("Edits", page.toggleSide, { id: "show-side" }),
        create("button", { type: "button", id: "undo-last", disabled: page.isPast || !session.edits.length, onclick: page.askLast }, "Undo…", key("U")),
        create("button", { type: "button", class: "main", id: "preview", onclick: () => go(address(`s/${id}/preview`)) }, "Preview a compaction", key("C")))),
    create("p", { class: "about" }, [row.client, row.model, row.project, times, `${plural(row.calls, "call")}${hasText ? `, ${plural(session.sizes.length, "message")}` : ""}`].filter(Boolean).map((text) => create("span", {}, text)),
      row.is_shadow ? create("b", {}, "Shadow: sent as it came; Saved is what would have been") : null,
      file ? null : create("span", {}, hasText ? `Text kept until ${day(session.kept_until)}` : "Text not kept"), copyButton(file ? row.file : id, "Copy id", { class: "link" })),
    file ? aboutFile(session) : null,
    create("dl", { class: "panel figures" }, parts.map(([name, value, under]) => create("div", {}, create("dt", {}, name), create("dd", {}, ...value), create("dd", { class: "quiet" }, under)))),
  ];
}

function fileFigures(session) {
  const { row } = session;
  return [["Tokens", [number(row.original), create("span", { class: "quiet" }, " → "), create("span", { class: "teal" }, number(row.sent))], row.sent < row.original ? `${share(row.original - row.sent, row.original)} less with the edits` : "no edit shows"],
    ["Spent", [money(row.spent)], row.spent === null ? "the file says no usage, or no price is known" : "by the usage that the file reports"],
    ["Calls", [number(row.calls)], "whose usage is in the file"],
    ["Edits in effect", [number(session.edits.length)], `${number(session.undone.size)} undone`]];
}

/** What a file can, and which commands do the rest. */
function aboutFile(session) {
  const { file, row } = session;
  const name = row.file;
  return create("div", { class: "asking past", id: "about-file" }, create("p", {}, create("b", {}, "A client's file: "), create("span", { class: "mono" }, file.path), ". It is read and never written; what you accept here is kept beside it, as ", create("code", {}, "refold compact"), " does.",
    file.compactions ? ` Its client compacted it ${file.compactions === 1 ? "once" : `${number(file.compactions)} times`} itself: shown is all that was said.` : "",
    " Pins: ", create("code", {}, `refold compact ${name} --pin 'words'`), ".", file.resumes ? [" To go on with it, shortened: ", create("code", {}, `refold export ${name}`), "."] : null));
}

/** Which call is shown, and the way to those beside it. */
export function drawPast(session, page, missing) {
  const { id, chosenCall } = page;
  if (!chosenCall) return null;
  const call = session.calls[chosenCall - 1];
  const step = (to, text) => (to >= 1 && to <= session.calls.length ? button(text, () => go(address(`s/${id}/call/${to}`)), { id: to < chosenCall ? "call-before" : "call-after" }) : null);
  return create("div", { class: "asking past", role: "status" },
    create("p", {}, missing || [create("b", {}, `As sent in call ${chosenCall} of ${number(session.calls.length)}`), call ? `, ${day(call.time)} ${clock(call.time)}: original ${number(call.original)}, sent ${number(call.sent)} tokens in ${plural(session.sizes.length, "message")} with ${plural(session.edits.length, "edit")}.` : ""]),
    step(chosenCall - 1, "‹ Call before"), step(chosenCall + 1, "Call after ›"), button("As it is now", () => go(address(`s/${id}`)), { id: "now", class: "main" }));
}

/** Edits, pins, and where the tokens are. */
export function drawSide(session, page) {
  const { file, hasText, showKey } = page;
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
    first && session.runs.length > 1 ? button("Undo all since…", (event) => page.askSince(run, event.target.closest("li")), { class: "link" }) : null);
  });
  const undone = session.log.filter((row) => row.action === "revert").map((row) => create("li", { class: "undone" }, `${strategy(row.by)}, undone`, create("p", { class: "quiet" }, `by ${row.actor} · ${clock(row.when)}`)));
  const local = session.edits.filter((edit) => !edit.number);
  const locals = local.length ? [create("li", {}, create("div", { class: "line" }, button(`${plural(local.length, "edit")} as messages came`, () => showKey(`e${local[0].id}`), { class: "link" }), create("span", { class: "teal" }, signed(-local.reduce((sum, edit) => sum + edit.tokens_before - edit.tokens_after, 0)))))] : [];
  const together = session.original === null || (file && !session.edits.length) ? null : create("li", {}, create("div", { class: "line" }, create("b", {}, "Together"), create("b", { class: "teal" }, signed(session.sent - session.original))),
    create("p", { class: "quiet" }, `${number(session.original)} → ${number(session.sent)} by Refold's count. Each edit above counts what it took off what was sent then.`));
  const most = Math.max(1, ...session.shares.map((item) => item.original));
  const last = session.calls.at(-1);
  const off = file ? "" : last?.input ? `At the last call Refold counted ${number(last.sent)}, the provider ${number(last.input)}.` : "The provider reported no count.";
  return [
    create("section", { class: "panel pad" }, create("h2", {}, "Edits", create("span", { class: "quiet" }, `${number(session.edits.length)} in effect`)),
      create("ul", {}, list, locals, undone, together), list.length + locals.length + undone.length ? null : create("p", { class: "quiet" }, file ? "None." : "None: it is sent as it came.")),
    file ? null : pinList(session, page),
    hasText ? create("section", { class: "panel pad" }, create("h2", {}, "Where the tokens are"),
      create("div", { class: "shares" }, [...session.shares.slice(0, 9), { name: "System", original: session.fixed, sent: session.fixed }].flatMap((item) =>
        [create("span", {}, item.name), bar(item.original, item.sent, most), create("span", {}, `${number(item.original)} → `, create("b", {}, number(item.sent)))])),
      create("p", { class: "quiet" }, `By Refold's count. ${off}`)) : null,
  ];
}

function pinList(session, page) {
  const items = session.pins.map((item) => create("li", {}, create("div", { class: "line" }, button(`Message ${item.message}`, () => page.showKey(`m${item.message}`), { class: "link" }),
    page.isPast ? null : button("Take back", (event) => page.pin(item.message, null, event.target.closest("li"), item), { class: "plain push", "aria-label": `Take back the pin of message ${item.message}` })),
  create("p", { class: "quiet" }, item.is_whole ? "the whole message" : item.words ? `“${cut(item.words, 300)}”` : "words in it")));
  return create("section", { class: "panel pad", id: "pins" }, create("h2", {}, "Pins", create("span", { class: "quiet" }, number(items.length))), create("ul", {}, items),
    create("p", { class: "quiet" }, items.length ? "They stay in sight whatever is compacted." : `Nothing is pinned. ${page.hasText ? "Open a message to pin it, or words in it: that stays in sight whatever is compacted." : ""}`));
}
