// The parts around a session's conversation: figures, chosen call, edits and pins.
import { address, go } from "./app.js";
import { bar, button, copyButton, create, figures, key } from "./dom.js";
import { byWhom, clock, cut, day, money, number, plural, share, shortId, signed, strategy, whichMessages } from "./format.js";
import { nameOf, tokensOf } from "./sessions.js";
import { SPEAKER_NAMES } from "./timeline.js";

/** A session's name, actions and figures. *page* is the shared state of `showSession`. */
export function drawHead(page) {
  const { id, file, hasText, session } = page;
  const { row } = session;
  const times = `${day(row.began)}, ${clock(row.began)}–${clock(row.latest)}`;
  const unlisted = file ? 0 : row.calls - session.calls.length; // single calls are deleted before their totals
  const counts = `${plural(row.calls, "call")}${unlisted ? `, latest ${number(session.calls.length)} listed` : ""}${row.failed ? `, plus ${number(row.failed)} failed` : ""}${hasText ? `, ${plural(session.sizes.length, "message")}` : ""}`;
  return [
    create("div", { class: "head" },
      create("div", { class: "grow" }, create("p", { class: "crumbs" }, create("a", { href: "#/" }, "Sessions"), " › ", create("span", { class: "mono" }, row.file || shortId(id))), create("h1", { title: nameOf(row) }, cut(nameOf(row), 110))),
      create("span", { class: "row" }, button("Edits", page.toggleSide, { id: "show-side" }),
        button(["Undo…", key("U")], page.askLast, { id: "undo-last", disabled: page.isPast || !session.edits.length }),
        button(["Preview a compaction", key("C")], () => go(address(`s/${id}/preview`)), { class: "main", id: "preview" }))),
    create("p", { class: "about" }, [row.client, row.model, row.project, times, counts].filter(Boolean).map((text) => create("span", {}, text)),
      row.is_shadow ? create("b", {}, "Shadow: calls are sent unchanged, Saved is what Refold would have saved") : null,
      file ? null : create("span", {}, hasText ? `Transcript kept until ${day(session.kept_until)}` : "No transcript"), copyButton(file ? row.file : id, "Copy ID", { class: "link" })),
    file ? aboutFile(session) : null,
    figures([...(file ? fileFigures(row) : callFigures(session)), ["Edits in effect", number(session.edits.length), `${number(session.undone.size)} undone`]]),
  ];
}

function callFigures({ row, calls, levels }) {
  const last = calls.at(-1);
  const input = sum(calls.map((call) => call.input));
  const read = sum(calls.map((call) => call.read));
  const original = sum(calls.map((call) => (call.sent ? (call.original * call.input) / call.sent : 0)));
  const wouldRead = Math.min(sum(calls.map((call) => call.wouldRead)), original);
  return [
    ["Tokens, last call", last ? tokensOf(last) : "–", last ? [less(last), levels.window ? `${share(last.sent, levels.window)} of the window` : `no window known for ${row.model || "an unnamed model"}: set [windows] in refold.toml`].filter(Boolean).join(" · ") : "no answered calls"],
    ["Spent", money(row.spent), row.spent === null ? (input ? `no price known for ${row.model || "an unnamed model"}: set [prices] in refold.toml` : "no usage reported") : `${money(row.spent + row.saved)} without Refold`],
    ["Saved", [create("span", { class: row.saved > 0 ? "teal" : "" }, money(row.saved)), " ", create("small", {}, row.saved ? share(row.saved, row.spent + row.saved) : "")], "after summaries and refetches"],
    ["Cache hits", share(read, input), input ? `${share(wouldRead, original)} without Refold` : "no usage reported"]];
}

const fileFigures = (row) => [
  ["Tokens", tokensOf(row), less(row) ? `${less(row)} with edits` : "no edits in effect"],
  ["Spent", money(row.spent), row.spent === null ? "no usage in the file, or no price known" : "from the usage in the file"],
  ["Calls", number(row.calls), "with usage in the file"]];

const less = ({ original, sent }) => (sent < original ? `${share(original - sent, original)} less` : "");

/** A note about a session file, and the commands for what the page cannot do with it. */
function aboutFile(session) {
  const { file, row } = session;
  const name = row.file;
  return create("div", { class: "asking past", id: "about-file" }, create("p", {}, create("b", {}, "Session file: "), create("span", { class: "mono" }, file.path), ". Refold reads it and never writes to it. Accepted edits are kept beside it, as by ", create("code", {}, "refold compact"), ".",
    file.compactions ? ` Its client compacted it ${file.compactions === 1 ? "once" : `${number(file.compactions)} times`}; all original messages are shown.` : "",
    " To pin: ", create("code", {}, `refold compact ${name} --pin 'words'`), ".", file.resumes ? [" To resume it compacted: ", create("code", {}, `refold export ${name}`), "."] : null));
}

/** The chosen call, with buttons for the previous and the next one. */
export function drawPast({ id, chosenCall, session }, missing) {
  if (!chosenCall) return null;
  const call = session.calls[chosenCall - session.first];
  const step = (to, text) => (to >= session.first && to <= session.row.calls ? button(text, () => go(address(`s/${id}/call/${to}`)), { id: to < chosenCall ? "call-before" : "call-after" }) : null);
  return create("div", { class: "asking past", role: "status" },
    create("p", {}, missing || [create("b", {}, `As sent in call ${chosenCall} of ${number(session.row.calls)}`), call ? `, ${day(call.time)} ${clock(call.time)}: original ${number(call.original)}, sent ${number(call.sent)} tokens in ${plural(session.sizes.length, "message")} with ${plural(session.edits.length, "edit")}.` : ""]),
    step(chosenCall - 1, "‹ Previous call"), step(chosenCall + 1, "Next call ›"), button("Show latest", () => go(address(`s/${id}`)), { id: "now", class: "main" }));
}

/** The side panel: edits, pins and tokens by source. */
export const drawSide = (page) => [button("Close", page.toggleSide, { id: "hide-side" }),
  editList(page), page.file ? null : pinList(page), page.hasText ? shareList(page) : null];

function editList(page) {
  const { file, session } = page;
  const local = session.edits.filter((edit) => !edit.number);
  const items = [...session.runs.toReversed().map((run) => runItem(run, page)),
    local.length ? create("li", {}, line(button(`${plural(local.length, "edit")} on arrival of messages`, () => page.showKey(`e${local[0].id}`), { class: "link" }), sum(local.map((edit) => edit.tokens_after - edit.tokens_before)))) : null,
    ...[...session.undone.values()].map((row) => create("li", { class: "undone" }, `${strategy(row.by)}, undone`, create("p", { class: "quiet" }, `${byWhom(row.actor)} · ${clock(row.when)}`)))].filter(Boolean);
  return create("section", { class: "panel pad" }, create("h2", {}, "Edits", create("span", { class: "quiet" }, `${number(session.edits.length)} in effect`)),
    create("ul", {}, items, session.original === null || !session.edits.length ? null : create("li", {}, line(create("b", {}, "Total"), session.sent - session.original),
      create("p", { class: "quiet" }, `${number(session.original)} → ${number(session.sent)}. ${counted(file)}. Each edit above shows what it saved when it was made.`))),
    items.length ? null : create("p", { class: "quiet" }, file ? "No edits." : "No edits. The session is sent unchanged."));
}

const counted = (file) => (file ? "Counted by Refold" : "Estimate of the provider's count");
const sum = (numbers) => numbers.reduce((all, value) => all + value, 0);
const line = (what, tokens) => create("div", { class: "line" }, what, create("b", { class: "teal" }, signed(tokens)));

/** A compaction and its visible edits. */
function runItem(run, page) {
  const { chosenCall, isPast, session } = page;
  const [row] = run.rows;
  const ids = new Set(run.rows.map((item) => item.edit));
  const [first, ...more] = session.edits.filter((edit) => ids.has(edit.id));
  const kinds = [...new Set(run.rows.map((item) => strategy(item.by)))].join(", ");
  const where = more.length ? plural(more.length + 1, "edit") : first ? whichMessages(first)
    : isPast && run.call > chosenCall ? "made later" : "inside a later edit";
  return create("li", {}, line([create("span", { class: "round" }, String(run.number)), first ? button(kinds, () => page.showKey(`e${first.id}`), { class: "link" }) : create("b", {}, kinds)], run.rows.at(-1).after - row.before),
    create("p", { class: "quiet" }, `${where} · ${byWhom(row.actor)} · ${clock(row.when)}`),
    first && session.runs.length > 1 && !isPast ? button("Undo all since…", (event) => page.askSince(run, event.target.closest("li")), { class: "link" }) : null);
}

function shareList({ file, session }) {
  const { calls, fixed, shares } = session;
  const last = calls.at(-1);
  const most = Math.max(1, ...shares.map((item) => item.original));
  const reported = file ? "" : last?.input ? `Last call: ${number(last.sent)} estimated, ${number(last.input)} counted by the provider.` : "The provider reported no count.";
  return create("section", { class: "panel pad" }, create("h2", {}, "Tokens by source"),
    create("div", { class: "shares" }, [...shares.slice(0, 9), { name: "System", original: fixed, sent: fixed }].flatMap((item) =>
      [create("span", {}, SPEAKER_NAMES[item.name.toLowerCase()] ?? item.name), bar(item.original, item.sent, most), create("span", {}, `${number(item.original)} → `, create("b", {}, number(item.sent)))])),
    create("p", { class: "quiet" }, `${counted(file)}. ${reported}`));
}

/** The name of a pinned message. The client may have removed it since. */
export const nameOfPinned = ({ message }) => (message === null ? "a removed message" : `message ${message}`);

function pinList(page) {
  const place = ({ message }) => (message === null ? create("span", {}, "Message removed") : button(`Message ${message}`, () => page.showKey(`m${message}`), { class: "link" }));
  const items = page.session.pins.map((item) => create("li", {}, create("div", { class: "line" }, place(item),
    page.isPast ? null : button("Unpin", (event) => page.pin(item.message, null, event.target.closest("li"), item), { class: "plain push", "aria-label": `Unpin ${nameOfPinned(item)}` })),
  create("p", { class: "quiet" }, item.is_whole ? "the whole message" : item.words ? `“${cut(item.words, 300)}”` : "part of the message")));
  return create("section", { class: "panel pad", id: "pins" }, create("h2", {}, "Pins", create("span", { class: "quiet" }, number(items.length))), create("ul", {}, items),
    create("p", { class: "quiet" }, items.length ? "Later compactions keep pinned text." : `Nothing pinned. ${page.hasText ? "Open a message to pin it, or a selection in it. Later compactions keep pinned text." : ""}`));
}
