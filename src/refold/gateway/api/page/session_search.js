// Find in a session: words wherever they stand, a message by its number, a call.
import { get } from "./api.js";
import { address, go, guard } from "./app.js";
import { button, create, key, put, say } from "./dom.js";
import { number, plural } from "./format.js";

const BEFORE = 4; // hits before the current one that are listed
const LISTED = 12;

/** The field, and below it the hits. *page* is the session's: it shows them, and pins and restores messages. */
export function makeSearch(page) {
  let hits = null; // {list, at, words, hasMore}
  const results = create("div");
  const field = create("input", { type: "search", id: "find", "aria-label": "Find in this session, hidden text too", placeholder: "Find, hidden text too", maxlength: "500" });
  const form = create("form", { class: "find", role: "search", "aria-label": "This session", onsubmit: (event) => { event.preventDefault(); guard(find, results); } }, field, key("F"));

  async function find() {
    const words = field.value.trim();
    const message = /^#(\d+)$/.exec(words);
    const call = Number(/^call (\d+)$/i.exec(words)?.[1] ?? 0);
    if (!words) close();
    else if (message && Number(message[1]) < page.session.sizes.length) page.showKey(`m${Number(message[1])}`);
    else if (call >= 1 && call <= page.session.calls.length) go(address(`s/${page.id}/call/${call}`));
    else {
      const answer = await get("search", { session: page.id, query: words });
      hits = { list: answer.hits, at: 0, words, hasMore: answer.has_more };
      paint();
      say(`${plural(hits.list.length, "place")} found`);
    }
  }

  function paint() {
    const { list, at, hasMore } = hits;
    const hidden = list.filter((hit) => hit.edit).length;
    const about = list.length ? `${at + 1} of ${number(list.length)}${hasMore ? " or more" : ""}, ${number(hidden)} hidden · ${list[0].exact ? "exact words" : "similar words: the exact ones are nowhere"}` : "Nothing found.";
    const first = Math.max(0, at - BEFORE);
    put(results, create("div", { class: "panel", id: "hits" },
      create("div", { class: "row pad" }, create("b", {}, about), button("Close", () => { close(); field.focus(); }, { class: "plain push" })),
      create("ul", { class: "hits" }, list.slice(first, first + LISTED).map((hit, place) => hitRow(hit, first + place)))));
  }

  function hitRow(hit, at) {
    const [before, words, after] = divide(hit.text, hits.words);
    const run = page.session.edits.find((edit) => edit.id === hit.edit)?.number;
    const row = create("li", { "aria-current": at === hits.at ? "true" : null });
    return put(row,
      create("span", { class: "quiet" }, `${hit.message}${hit.line ? `, line ${hit.line}` : ""}`),
      create("span", { class: "grow mono" }, before, words && create("mark", {}, words), after),
      hit.edit && create("span", { class: "chip" }, `hidden${run ? ` in ${run}` : ""}`),
      hit.edit && !page.file && button("Restore", () => page.restore(hit.message, row), { class: "link" }),
      !page.isPast && !page.file && button("Pin", () => page.pin(hit.message, hit.exact ? words : "", row), { class: "link", "aria-label": `Pin these words of message ${hit.message}` }),
      button("Show in place", () => { hits.at = at; paint(); page.showKey(`m${hit.message}`, false)?.classList.add("found"); }, { class: "link" }));
  }

  /** Close the list of hits. Was there one? */
  function close() {
    const wasOpen = hits !== null;
    hits = null;
    results.replaceChildren();
    return wasOpen;
  }

  return {
    form, results, close,
    /** Put the cursor into the field: over what stands there, or behind *text*. */
    begin(text = null) {
      if (text === null) field.select();
      else field.value = text;
      field.focus();
    },
    /** Go to the next hit, or by -1 to the one before. Is there a list? */
    move(by) {
      if (!hits) return false;
      if (hits.list.length) {
        hits.at = (hits.at + by + hits.list.length) % hits.list.length;
        paint();
      }
      return true;
    },
  };
}

/** A text before, at and behind *words*, which are empty where they do not stand in it. */
function divide(text, words) {
  const at = text.toLowerCase().indexOf(words.toLowerCase());
  return at < 0 ? [text, "", ""] : [text.slice(0, at), text.slice(at, at + words.length), text.slice(at + words.length)];
}
