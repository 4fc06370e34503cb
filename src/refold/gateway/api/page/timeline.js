// The conversation: its rows, and what opens in them.
import { get } from "./api.js";
import { address, go, guard } from "./app.js";
import { bar, button, copyButton, create, put } from "./dom.js";
import { clock, editTitle, isSummary, money, number, plural } from "./format.js";

const WINDOW = 100; // messages asked for at a time
const ORIGINALS = 50; // hidden messages that a fold shows at a time

/** The rows of a view: `system`, `message` (with its edit, if any), `fold`, and `answer` before the message it is about. */
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

/** Messages in short, asked for by windows; *arrived*(numbers) is called when some come. */
export function makeBriefs(id, arrived) {
  const known = new Map();
  const asked = new Set();
  return {
    of(at) {
      const start = Math.floor(at / WINDOW) * WINDOW;
      if (!known.has(at) && !asked.has(start)) {
        asked.add(start);
        guard(async () => {
          const { messages } = await get("messages", { session: id, start, count: WINDOW });
          for (const brief of messages) known.set(brief.number, brief);
          if (messages.length < WINDOW) asked.delete(start); // the last window grows
          arrived(messages.map((brief) => brief.number));
        });
      }
      return known.get(at);
    },
    forget(from) {
      for (const start of asked) if (start + WINDOW > from) asked.delete(start);
    },
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

/** One message, which *edit* may hide. Opening it shows its text a part at a time. *page* is the session's. */
export function messageRow(at, brief, edit, page) {
  const isHidden = Boolean(edit);
  const size = brief?.tokens ?? 0;
  const row = create("article", { class: `message ${brief?.speaker ?? ""}${isHidden ? " hidden-one" : ""}`, data: { at }, "aria-label": `Message ${at}` },
    create("button", { type: "button", class: "plain no", "aria-expanded": "false", "aria-label": `Message ${at}, ${brief ? speakerOf(brief) : ""}${isHidden ? ", hidden" : ""}` }, String(at)),
    create("span", { class: "who" }, brief ? speakerOf(brief) : "…"),
    create("div", { class: "words" }, brief ? wordsOf(brief) : " "),
    brief ? bar(size, isHidden ? 0 : size, page.largest, true) : create("span"),
    create("span", { class: "count" }, brief ? number(size) : ""));
  const toggle = row.querySelector("button");
  const mark = create("span", { class: "chip pin" }, "pinned");
  row.querySelector(".words").append(mark);
  row.showPins = () => {
    mark.hidden = !page.pinsOf(at).length;
    row.querySelector(".acts")?.showPins();
  };
  row.showPins();
  row.addEventListener("click", (event) => {
    if (event.target.closest(".opened") || getSelection().toString()) return;
    const opened = row.querySelector(".opened");
    toggle.setAttribute("aria-expanded", String(!opened));
    row.classList.toggle("open", !opened);
    if (opened) opened.remove();
    else row.append(openMessage(at, edit, page));
    page.setOpen(at, !opened);
  });
  return row;
}

function openMessage(at, edit, page) {
  const { id } = page;
  const text = create("div", { class: "text mono", tabindex: "0", role: "group", "aria-label": `Text of message ${at}` });
  const end = create("div", { class: "end" });
  let whole = "";
  const more = (offset, line = undefined) => guard(async () => {
    const part = await get("text", { session: id, message: at, offset, line });
    whole += part.text;
    part.text.replace(/\n$/, "").split("\n").forEach((words, place) => text.append(create("i", {}, String(part.line + place)), create("span", {}, words)));
    const last = part.line + part.text.replace(/\n$/, "").split("\n").length - 1;
    end.replaceChildren(create("span", {}, part.next === null && !part.offset ? `${plural(part.lines, "line")}, ${plural(part.total, "character")}`
      : `Lines 1–${number(last)} of ${number(part.lines)}, ${number(part.next ?? part.total)} of ${number(part.total)} characters`));
    if (part.next !== null) end.append(button("Show more", () => more(part.next), { class: "link" }));
  }, end);
  more(0);
  const pinOfAll = () => page.pinsOf(at).find((item) => item.is_whole);
  const pin = button("Pin", () => page.pin(at, "", opened, pinOfAll()), { class: "pin-message" });
  const pinWords = button("Pin the selected words", () => page.pin(at, selectedIn(text), opened), { class: "pin-words", disabled: true });
  const watch = () => { pinWords.disabled = !selectedIn(text); };
  for (const kind of ["mouseup", "keyup", "touchend"]) text.addEventListener(kind, watch);
  const opened = create("div", { class: "opened" },
    create("div", { class: "acts" }, page.isPast ? null : [
      page.file ? null : [edit ? button("Restore", () => page.restore(at, opened)) : null, pin, pinWords],
      button("Compact above", () => go(address(`s/${id}/preview`, { stop: at }))),
      button("Compact below", () => go(address(`s/${id}/preview`, { start: at })))],
      edit ? create("span", { class: "quiet" }, "hidden: not sent as it came") : null,
      copyButton(async () => (await get("text", { session: id, message: at, limit: 1_000_000 })).text, "Copy", { class: "plain push" })), text, end);
  opened.querySelector(".acts").showPins = () => { pin.textContent = pinOfAll() ? "Unpin" : "Pin"; };
  opened.querySelector(".acts").showPins();
  return opened;
}

/** The words that are selected within *place*, without the numbers of the lines. */
function selectedIn(place) {
  const selection = getSelection();
  if (selection.isCollapsed || !place.contains(selection.anchorNode) || !place.contains(selection.focusNode)) return "";
  const part = selection.getRangeAt(0).cloneContents();
  for (const number_ of part.querySelectorAll("i")) number_.remove();
  const lines = [...part.querySelectorAll("span")].map((line) => line.textContent);
  return (lines.length ? lines.join("\n") : part.textContent).trim();
}

/** A row for what is always sent. */
export function systemRow({ session: { fixed: size }, largest, file }) {
  return create("article", { class: "message", "aria-label": "System prompt and tools" }, create("span", { class: "no" }, ""),
    create("span", { class: "who" }, "System"), create("div", { class: "words" }, create("span", { class: "prose" }, "System prompt and tools ", create("span", { class: "chip" }, size || !file ? "always sent" : "not in the file"))),
    bar(size, size, largest, true), create("span", { class: "count" }, number(size)));
}

/** The number of the first call that was sent with what was done at *when*; 0 if none was yet. */
export const callSince = (calls, when) => calls.findIndex((call) => call.time >= when) + 1;

function editAbout(edit, session) {
  const { actor } = edit;
  const who = !edit.when ? "as it came" : actor.startsWith("auto") ? "automatic" : actor ? `by ${actor}` : "";
  const call = edit.when ? callSince(session.calls, edit.when) : 0;
  const parts = [isSummary(edit.by) ? (edit.model || "by rules") : "", edit.cost ? money(edit.cost, true) : "", who,
    edit.when ? `${call ? `call ${call}, ` : ""}${clock(edit.when)}` : "", edit.contains ? `contains ${edit.contains}` : ""];
  return parts.filter(Boolean).join(" · ");
}

/** A fold: what is sent in place of messages, and what it hides. */
export function foldRow(edit, page) {
  const inside = create("div", { class: "inside", hidden: true });
  const open = create("button", { type: "button", class: "open-fold", "aria-expanded": "false" },
    edit.number ? create("span", { class: "round" }, String(edit.number)) : null, editTitle(edit));
  const undo = page.isPast ? null : button(edit.by.startsWith("as said") ? "Redo" : "Undo", () => ask(), { "aria-label": `Undo ${editTitle(edit)}` });
  const row = create("article", { class: "fold", data: { edit: edit.id, at: edit.start }, "aria-label": editTitle(edit) },
    create("div", { class: "line" }, open, create("span", { class: "sum" }, "original ", create("b", {}, number(edit.tokens_before)), " → sent ", create("b", { class: "teal" }, number(edit.tokens_after))), undo),
    create("p", { class: "under" }, editAbout(edit, page.session)), inside);
  const toggle = () => {
    const show = inside.hidden;
    inside.hidden = !show;
    open.setAttribute("aria-expanded", String(show));
    if (show && !inside.children.length) inside.append(...foldContent(edit, page));
    page.setOpen(edit.id, show);
  };
  open.addEventListener("click", toggle);
  if (page.isOpen(edit.id)) toggle();
  const asking = `ask ${edit.id}`; // what is asked stays when the row is drawn again

  /** Undo asks where the eye is, with tokens and what it costs once. */
  function ask() {
    row.querySelector(":scope > .asking")?.remove();
    const { session } = page;
    const after = session.sent === null ? null : session.sent - edit.tokens_after + edit.tokens_before;
    const once = after === null || !session.prices ? "" : ` and writes the cache anew, about ${money(((after - sentBefore(session, edit.start)) * session.prices.write) / 1e6)} once`;
    const most = edit.stop > edit.start + 1 && (edit.by.startsWith("Restore") || session.buried.some((run) => run.when <= edit.when)) ? "at most " : ""; // an earlier edit shows again
    const sends = after === null ? "" : page.file ? ` It then has ${most}${number(after)} tokens instead of ${number(session.sent)}.` : ` The next call sends ${most}${number(after)} tokens instead of ${number(session.sent)}${once}.`;
    const keep = button("Keep it", () => { page.setOpen(asking, false); box.remove(); undo.focus(); });
    const yes = button("Undo", () => guard(async () => {
      yes.disabled = true;
      page.setOpen(asking, false);
      await page.undo(edit).catch((error) => { box.remove(); throw error; });
    }, row, ask), { class: "main" });
    const box = create("div", { class: "asking" }, create("p", {}, create("b", {}, `Undo: ${editTitle(edit)}?`), sends), keep, yes);
    row.append(box);
    page.setOpen(asking, true);
    yes.focus();
  }
  if (page.isOpen(asking)) ask();
  row.ask = ask;
  return row;
}

/** The tokens that are sent before message *at*: system prompt, tools and messages that no edit hides. */
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
  const add = (words) => { for (const line of words.split("\n")) text.append(/^#+ |^\*\*.*\*\*$|^[A-Z][\w ]+:$/.test(line) ? create("b", {}, line.replace(/^#+ /, "")) : line, "\n"); };
  const say_ = (count) => put(end, create("span", {}, count < edit.length ? `First ${number(count)} of ${plural(edit.length, "character")}` : plural(edit.length, "character")),
    count < edit.length ? button("Show all", () => guard(async () => {
      text.replaceChildren();
      for (let offset = 0; offset !== null;) {
        const part = await get("edit_text", { session: id, edit: edit.id, of: "text", offset, limit: 200_000, call: edit.call });
        add(part.text);
        offset = part.next;
      }
      say_(edit.length);
    }, end), { class: "link push" }) : null);
  if (!edit.length) text.append("Nothing stands in its place.");
  add(edit.text);
  say_([...edit.text].length); // letters, as the gateway counts them
  panel.append(text, end);
}

/** Append what *edit* hides to *panel*: *most* messages, and a button for more. */
export function showOriginals(panel, edit, page, from = edit.start, most = ORIGINALS) {
  const stop = Math.min(edit.stop, from + most);
  guard(async () => {
    const { messages } = await get("messages", { session: page.id, start: from, count: stop - from });
    panel.append(...messages.map((brief) => messageRow(brief.number, brief, edit, page)));
    if (stop === edit.stop) return;
    const more = create("div", { class: "row pad quiet" }, `${stop}–${edit.stop - 1}: ${plural(edit.stop - stop, "message")} more`,
      button(`Show ${Math.min(ORIGINALS, edit.stop - stop)} more`, () => { more.remove(); showOriginals(panel, edit, page, stop); }, { class: "link push" }));
    panel.append(more);
  }, panel);
}

async function showDifference(panel, id, edit) {
  const [before, after] = await Promise.all([get("text", { session: id, message: edit.start, limit: 200_000 }),
    get("edit_text", { session: id, edit: edit.id, of: "text", limit: 200_000, call: edit.call })]);
  const [old, fresh] = [before.text.split("\n"), new Set(after.text.split("\n"))];
  panel.append(create("div", { class: "prose-text mono" },
    after.text.split("\n").map((line) => create("span", { class: "new-line" }, `+ ${line}\n`)),
    old.slice(0, 400).filter((line) => !fresh.has(line)).map((line) => create("span", { class: "gone-line" }, `− ${line}\n`)),
    old.length > 400 ? create("span", { class: "quiet" }, `First 400 of ${number(old.length)} lines.`) : null));
}

/** What was done, where it was done, with the way back. */
export const answerRow = ({ text, label, back }) => create("div", { class: "answer" }, create("p", {}, `✓ ${text}`), button(label, back));
