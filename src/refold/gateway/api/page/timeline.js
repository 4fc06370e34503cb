// The rows of the conversation and their expanded contents.
import { get, getText } from "./api.js";
import { address, go, guard } from "./app.js";
import { bar, button, copyButton, create, put } from "./dom.js";
import { byWhom, clock, editTitle, isSummary, money, number, plural, thenHas } from "./format.js";

const WINDOW = 100; // messages fetched at a time
const ORIGINALS = 50; // hidden messages shown at a time

/** Return the rows of a view: `system`, `message` (with its edit, if any), `fold`, and `answer` (a notice) before its message. */
export function listItems(session, view, speaker, answers) {
  const items = [];
  const wants = (at) => speaker === "all" || session.speakers[at] === speaker;
  const folds = new Map(session.edits.filter((edit) => view !== "original").map((edit) => [edit.start, edit]));
  const hiding = hiddenBy(session.edits);
  if (speaker === "all") items.push({ kind: "system", key: "system", size: session.fixed });
  for (let at = 0; at < session.sizes.length; at += 1) {
    const answer = answers.get(at);
    if (answer) items.push({ kind: "answer", key: answer.key, answer });
    const edit = folds.get(at);
    if (speaker === "h") {
      if (hiding.has(at)) items.push({ kind: "message", key: `m${at}`, at, edit: hiding.get(at) });
    } else if (edit && edit.stop > at) {
      if (speaker === "all" || (edit.stop === at + 1 && wants(at))) items.push({ kind: "fold", key: `e${edit.id}`, at, edit });
      at = edit.stop - 1;
    } else if (wants(at)) items.push({ kind: "message", key: `m${at}`, at, edit: hiding.get(at) });
  }
  return items;
}

export function hiddenBy(edits) {
  const result = new Map();
  for (const edit of edits) for (let at = edit.start; at < edit.stop; at += 1) result.set(at, edit);
  return result;
}

/**
 * A cache of message excerpts, fetched in windows. When one has loaded, calls *arrived* with a map of the messages that
 * changed, each with whether its text changed.
 */
export function makeBriefs(id, arrived) {
  const known = new Map();
  const fresh = new Set(); // windows that are up to date
  const asked = new Set(); // windows being fetched
  const windowOf = (at) => Math.floor(at / WINDOW) * WINDOW;
  return {
    /** Return the excerpt of a message, if loaded. Fetch its window unless it is fresh. */
    of(at) {
      const start = windowOf(at);
      if (!fresh.has(start) && !asked.has(start)) {
        asked.add(start);
        guard(async () => {
          const { messages } = await get("messages", { session: id, start, count: WINDOW }).finally(() => asked.delete(start));
          fresh.add(start);
          const isChanged = (brief) => JSON.stringify(brief) !== JSON.stringify(known.get(brief.number));
          const changed = messages.filter(isChanged).map((brief) => [brief, known.get(brief.number)]);
          for (const [brief] of changed) known.set(brief.number, brief);
          arrived(new Map(changed.map(([brief, old]) => [brief.number, old !== undefined && old.digest !== brief.digest])));
        });
      }
      return known.get(at);
    },
    /** Fetch windows again when they are next needed. */
    forget: () => fresh.clear(),
  };
}

// --- rows --------------------------------------------------------------------------------------

export const SPEAKER_NAMES = { you: "You", assistant: "Assistant", result: "Result", user: "Client", system: "System", developer: "Developer", tool: "Result" };

function speakerOf(brief) {
  if (brief.speaker !== "result") return SPEAKER_NAMES[brief.speaker] ?? brief.speaker;
  const tools = [...new Set(brief.tools.filter(Boolean))];
  return `↳ ${tools.length === 1 && brief.tools.length === 1 ? tools[0] : brief.tools.length > 1 ? `${brief.tools.length} results` : "Result"}`;
}

function wordsOf(brief) {
  if (brief.speaker === "result") {
    const lines = brief.line_count > 1 ? ` · ${number(brief.line_count)} lines` : "";
    return [create("code", {}, brief.lines[0] ?? (brief.kinds.length ? brief.kinds.join(", ") : "no output"), create("span", { class: "quiet" }, lines))];
  }
  const calls = brief.calls.map(([tool, gist]) => create("code", {}, create("b", {}, tool), ` ${gist}`));
  const media = brief.kinds.filter((kind) => kind !== "thinking");
  return [brief.lines.length ? create("span", { class: "prose" }, brief.lines.join("\n")) : null, ...calls,
    media.length ? create("span", { class: "chip" }, media.join(", ")) : null,
    !brief.lines.length && !calls.length ? create("span", { class: "quiet" }, brief.kinds.includes("thinking") ? "thinking" : "no text") : null];
}

/** The row of a message, which *edit* may hide. It opens to the full text. *page* is the shared state of `showSession`. */
export function messageRow(at, brief, edit, page) {
  const size = brief?.tokens ?? 0;
  const who = brief ? speakerOf(brief) : "";
  const toggle = button(String(at), null, { class: "plain no", "aria-expanded": "false", "aria-label": `Message ${at}, ${who}${edit ? ", hidden" : ""}` });
  const row = create("article", { class: `message ${brief?.speaker ?? ""}${edit ? " hidden-one" : ""}`, data: { at }, "aria-label": `Message ${at}`, onclick: open },
    toggle, create("span", { class: "who", title: who }, who || "…"),
    create("div", { class: "words" }, brief ? wordsOf(brief) : " ", create("span", { class: "chip pin", hidden: !page.pinsOf(at).length }, "pinned")),
    brief ? bar(size, edit ? 0 : size, page.largest, true) : create("span"),
    create("span", { class: "count" }, brief ? number(size) : ""));

  function open(event) {
    if (event.target.closest(".opened") || getSelection().toString()) return;
    const opened = row.querySelector(".opened");
    toggle.setAttribute("aria-expanded", String(!opened));
    row.classList.toggle("open", !opened);
    if (opened) opened.remove();
    else row.append(openMessage(at, edit, page));
    page.setOpen(at, !opened);
  }
  page.setOpen(at, false); // a row that is drawn anew is closed
  return row;
}

const wholePin = (at, page) => page.pinsOf(at).find((pin) => pin.is_whole);
const pinName = (at, page) => (wholePin(at, page) ? "Unpin" : "Pin");

/** Update the pin marks of the messages in *place*. */
export function markPins(place, page) {
  for (const row of place.querySelectorAll("article.message[data-at]")) {
    const at = Number(row.dataset.at);
    row.querySelector(".chip.pin").hidden = !page.pinsOf(at).length;
    for (const pin of row.querySelectorAll(".pin-message")) pin.textContent = pinName(at, page);
  }
}

function openMessage(at, edit, page) {
  const { id } = page;
  const text = create("div", { class: "text mono", tabindex: "0", role: "group", "aria-label": `Text of message ${at}` });
  const end = create("div", { class: "end" });
  const pinWords = button("Pin selection", () => page.pin(at, selectedIn(text), opened), { class: "pin-words", disabled: true });
  const watch = () => {
    if (!opened.isConnected) document.removeEventListener("selectionchange", watch);
    else pinWords.disabled = !selectedIn(text);
  };
  document.addEventListener("selectionchange", watch);
  const opened = create("div", { class: "opened" },
    create("div", { class: "acts" }, page.isPast ? null : [
      page.file ? null : [edit ? button("Restore", () => page.restore(at, opened)) : null,
        button(pinName(at, page), () => page.pin(at, "", opened, wholePin(at, page)), { class: "pin-message" }), pinWords],
      button("Compact above", () => go(address(`s/${id}/preview`, { stop: at }))),
      button("Compact below", () => go(address(`s/${id}/preview`, { start: at })))],
      edit ? create("span", { class: "quiet" }, "hidden: the original is not sent") : null,
      copyButton(() => getText("text", { session: id, message: at }), "Copy", { class: "plain push" })), text, end);
  showText(text, end, id, at, 0);
  return opened;
}

/** Append the lines of a message from *offset* on to *text*. *end* shows how many there are, with a button for more. */
const showText = (text, end, id, at, offset) => guard(async () => {
  const part = await get("text", { session: id, message: at, offset });
  const lines = part.text.replace(/\n$/, "").split("\n");
  lines.forEach((words, place) => text.append(create("i", {}, String(part.line + place)), create("span", {}, words)));
  put(end, create("span", {}, part.next === null && !part.offset ? `${plural(part.lines, "line")}, ${plural(part.total, "character")}`
    : `Lines 1–${number(part.line + lines.length - 1)} of ${number(part.lines)}, ${number(part.next ?? part.total)} of ${number(part.total)} characters`),
  part.next === null ? null : button("Show more", () => showText(text, end, id, at, part.next), { class: "link" }));
}, end);

/** Return the selected text in *place* without line numbers. The selection may extend beyond it. */
function selectedIn(place) {
  const selection = getSelection();
  if (selection.isCollapsed || !selection.getRangeAt(0).intersectsNode(place)) return "";
  const range = selection.getRangeAt(0).cloneRange();
  if (!place.contains(range.startContainer)) range.setStart(place, 0);
  if (!place.contains(range.endContainer)) range.setEnd(place, place.childNodes.length);
  const part = range.cloneContents();
  for (const number_ of part.querySelectorAll("i")) number_.remove();
  const lines = [...part.querySelectorAll("span")].map((line) => line.textContent);
  return (lines.length ? lines.join("\n") : part.textContent).trim();
}

/** The row of the system prompt and tools. */
export function systemRow({ session: { fixed: size }, largest, file }) {
  return create("article", { class: "message", "aria-label": "System prompt and tools" }, create("span", { class: "no" }, ""),
    create("span", { class: "who" }, "System"), create("div", { class: "words" }, create("span", { class: "prose" }, "System prompt and tools ", create("span", { class: "chip" }, size || !file ? "always sent" : "not in the file"))),
    bar(size, size, largest, true), create("span", { class: "count" }, number(size)));
}

/** Return the number of the first call at or after *when*; 0 if it may be a deleted one, undefined if there was none. */
export function callSince(calls, when) {
  const at = calls.findIndex((call) => call.time >= when);
  return at === 0 && calls[0].number > 1 ? 0 : calls[at]?.number;
}

function editAbout(edit, session) {
  const { actor } = edit;
  const who = edit.when ? byWhom(actor) : "on arrival";
  const call = edit.when ? callSince(session.calls, edit.when) : 0;
  const parts = [isSummary(edit.by) ? (edit.model || "by rules") : "", edit.cost ? money(edit.cost, true) : "", who,
    edit.when ? `${call ? `call ${call}, ` : ""}${clock(edit.when)}` : "", edit.contains ? `contains compaction${/,/.test(edit.contains) ? "s" : ""} ${edit.contains}` : ""];
  return parts.filter(Boolean).join(" · ");
}

/** The row of an edit: what is sent instead of messages, and what it hides. Open contents and questions survive a redraw. */
export function foldRow(edit, page) {
  const title = editTitle(edit);
  const asking = `ask ${edit.id}`;
  const inside = create("div", { class: "inside", hidden: true });
  const open = button([edit.number ? create("span", { class: "round" }, String(edit.number)) : null, title], toggle, { class: "open-fold", "aria-expanded": "false" });
  const undo = page.isPast ? null : button(edit.by.startsWith("as said") ? "Redo" : "Undo", ask, { class: "undo", "aria-label": `Undo ${title}` });
  const row = create("article", { class: "fold", data: { edit: edit.id, at: edit.start }, "aria-label": title },
    create("div", { class: "line" }, open, create("span", { class: "sum" }, "original ", create("b", {}, number(edit.tokens_before)), " → sent ", create("b", { class: "teal" }, number(edit.tokens_after))), undo),
    create("p", { class: "under" }, editAbout(edit, page.session)), inside);

  function toggle() {
    inside.hidden = !inside.hidden;
    open.setAttribute("aria-expanded", String(!inside.hidden));
    if (!inside.children.length) inside.append(...foldContent(edit, page));
    page.setOpen(edit.id, !inside.hidden);
  }

  /** Ask for confirmation in the row itself. */
  function ask() {
    row.querySelector(":scope > .asking")?.remove();
    const keep = button("Cancel", () => { page.setOpen(asking, false); box.remove(); undo.focus(); });
    const yes = button("Undo", () => guard(async () => {
      yes.disabled = true;
      page.setOpen(asking, false);
      await page.undo(edit).catch((error) => { box.remove(); throw error; });
    }, row, ask), { class: "main" });
    const box = create("div", { class: "asking" }, create("p", {}, create("b", {}, `Undo: ${title}?`), whatUndoSends(edit, page)), keep, yes);
    row.append(box);
    page.setOpen(asking, true);
    yes.focus();
  }

  if (page.isOpen(edit.id)) toggle();
  if (page.isOpen(asking)) ask();
  return row;
}

/** Describe the tokens sent after an undo, and the one-time cost of rewriting the provider's cache from there on. */
function whatUndoSends(edit, { session }) {
  const { buried, file, prices, sent } = session;
  if (sent === null) return "";
  const after = sent - edit.tokens_after + edit.tokens_before;
  const showsEarlier = edit.stop > edit.start + 1 && (edit.by.startsWith("Restore") || buried.some((run) => run.when <= edit.when));
  const tokens = `${showsEarlier ? "at most " : ""}${number(after)} tokens instead of ${number(sent)}`;
  const once = prices && !file ? ` and rewrites the cache, about ${money(((after - sentBefore(session, edit.start)) * prices.write) / 1e6)} once` : "";
  return ` ${thenHas(session)} ${tokens}${once}.`;
}

/** Return the tokens sent before message *at*: system prompt, tools and visible messages. */
const sentBefore = ({ fixed, sizes, hidden }, at) => sizes.slice(0, at).reduce((sum, size, place) => sum + (hidden.has(place) ? 0 : size), fixed);

function foldContent(edit, page) {
  const isFold = edit.stop > edit.start + 1;
  const panel = create("div", { role: "tabpanel", tabindex: "0" });
  const names = [["text", isSummary(edit.by) ? "Summary, as sent" : "As sent"], ["hidden", isFold ? `Original, ${plural(edit.stop - edit.start, "message")}` : "Original"], ...(isFold ? [] : [["difference", "Difference"]])];
  const choose = (kind) => {
    for (const tab of tabs.querySelectorAll("[role=tab]")) tab.setAttribute("aria-selected", String(tab.dataset.kind === kind));
    panel.replaceChildren();
    panel.setAttribute("aria-label", names.find(([name]) => name === kind)[1]);
    if (kind === "text") showWords(panel, page.id, edit);
    else if (kind === "hidden") showOriginals(panel, edit, page);
    else guard(() => showDifference(panel, page.id, edit), panel);
  };
  const tabs = create("div", { class: "tabs", role: "tablist" }, names.map(([kind, name]) => button(name, () => choose(kind), { role: "tab", data: { kind }, "aria-selected": "false" })));
  choose("text");
  return [tabs, panel];
}

function showWords(panel, id, edit) {
  const text = create("div", { class: "prose-text" });
  const end = create("div", { class: "opened-end row pad quiet" });
  const show = (words) => put(text, words.split("\n").map((line) => [/^#+ |^\*\*.*\*\*$|^[A-Z][\w ]+:$/.test(line) ? create("b", {}, line.replace(/^#+ /, "")) : line, "\n"]));
  const say_ = (count) => put(end, create("span", {}, count < edit.length ? `First ${number(count)} of ${plural(edit.length, "character")}` : plural(edit.length, "character")),
    count < edit.length ? button("Show all", () => guard(async () => {
      show(await getText("edit_text", { session: id, edit: edit.id, of: "text", call: edit.call }));
      say_(edit.length);
    }, end), { class: "link push" }) : null);
  show(edit.text || "Nothing is sent instead.");
  say_([...edit.text].length); // code points, as the gateway counts them
  panel.append(text, end);
}

/** Append up to *most* messages that *edit* hides to *panel*, with a button for more. */
export function showOriginals(panel, edit, page, from = edit.start, most = ORIGINALS) {
  const stop = Math.min(edit.stop, from + most);
  guard(async () => {
    const { messages } = await get("messages", { session: page.id, start: from, count: stop - from });
    panel.append(...messages.map((brief) => messageRow(brief.number, brief, edit, page)));
    if (stop === edit.stop) return;
    const more = create("div", { class: "row pad quiet" }, `${stop}–${edit.stop - 1}: ${plural(edit.stop - stop, "more message")}`,
      button(`Show ${Math.min(ORIGINALS, edit.stop - stop)} more`, () => { more.remove(); showOriginals(panel, edit, page, stop); }, { class: "link push" }));
    panel.append(more);
  }, panel);
}

async function showDifference(panel, id, edit) {
  const [before, after] = await Promise.all([getText("text", { session: id, message: edit.start }),
    getText("edit_text", { session: id, edit: edit.id, of: "text", call: edit.call })]);
  const [old, shown] = [before, after].map((text) => text.split("\n"));
  const fresh = new Set(shown);
  panel.append(create("div", { class: "prose-text mono" },
    shown.map((line) => create("span", { class: "new-line" }, `+ ${line}\n`)),
    old.slice(0, 400).filter((line) => !fresh.has(line)).map((line) => create("span", { class: "gone-line" }, `− ${line}\n`)),
    old.length > 400 ? create("span", { class: "quiet" }, `First 400 of ${number(old.length)} lines.`) : null));
}

/** A notice of an action, with a button that reverses it. */
export function answerRow({ text, label, back }) {
  const row = create("div", { class: "answer" }, create("p", {}, `✓ ${text}`), button(label, () => back(row)));
  return row;
}
