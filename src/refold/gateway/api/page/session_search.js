// Search in a session: for words, a message number or a call.
import { get } from "./api.js";
import { address, go, guard } from "./app.js";
import { button, create, key, put, say } from "./dom.js";
import { number, plural } from "./format.js";

const BEFORE = 4; // matches listed before the current one
const LISTED = 12;

/** The search field and its list of matches. *page* is the shared state of `showSession`. */
export function makeSearch(page) {
  let hits = null; // {list, at, words, hasMore}
  const results = create("div");
  const field = create("input", { type: "search", id: "find", "aria-label": "Find in this session, including hidden text", placeholder: "Find, including hidden", maxlength: "500" });
  const form = create("form", { class: "find", role: "search", "aria-label": "Search this session", onsubmit: (event) => { event.preventDefault(); guard(find, results); } }, field, key("F"));

  async function find() {
    const words = field.value.trim();
    const message = /^#(\d+)$/.exec(words);
    const call = Number(/^call (\d+)$/i.exec(words)?.[1] ?? 0);
    if (!words) close();
    else if (message && Number(message[1]) < page.session.sizes.length) page.showKey(`m${Number(message[1])}`);
    else if (call >= page.session.first && call <= page.session.row.calls) go(address(`s/${page.id}/call/${call}`));
    else {
      const answer = await get("search", { session: page.id, query: words });
      hits = { list: answer.hits, at: 0, words, hasMore: answer.has_more };
      paint();
      say(`${plural(hits.list.length, "match", "matches")} found`);
    }
  }

  function paint() {
    const { list, at, hasMore } = hits;
    const hidden = list.filter((hit) => hit.edit).length;
    const about = list.length ? `${at + 1} of ${number(list.length)}${hasMore ? " or more" : ""}, ${number(hidden)} hidden · ${list[0].exact ? "exact words" : "similar words, no exact match"}` : "No matches.";
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
      create("span", { class: "quiet" }, `message ${hit.message}${hit.line ? `, line ${hit.line}` : ""}`),
      create("span", { class: "grow mono" }, before, words && create("mark", {}, words), after),
      hit.edit && create("span", { class: "chip" }, `hidden${run ? ` by compaction ${run}` : ""}`),
      hit.edit && !page.file && button("Restore", () => page.restore(hit.message, row), { class: "link" }),
      !page.isPast && !page.file && button("Pin", () => page.pin(hit.message, hit.exact ? words : "", row), { class: "link", "aria-label": `Pin ${hit.exact ? "these words of " : ""}message ${hit.message}` }),
      button("Show in place", () => { hits.at = at; paint(); page.showKey(`m${hit.message}`, false)?.classList.add("found"); }, { class: "link" }));
  }

  /** Close the list of matches. Return whether there was one. */
  function close() {
    const wasOpen = hits !== null;
    hits = null;
    results.replaceChildren();
    return wasOpen;
  }

  return {
    form, results, close,
    /** Focus the field and select its text, or replace its text with *text*. */
    begin(text = null) {
      if (text === null) field.select();
      else field.value = text;
      field.focus();
    },
    /** Go to the next match, or with -1 to the previous one. Return whether there is a list. */
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

/** Split a text into before, match and after. The last two are empty if it does not contain *words*. */
function divide(text, words) {
  const at = text.toLowerCase().indexOf(words.toLowerCase());
  return at < 0 ? [text, "", ""] : [text.slice(0, at), text.slice(at, at + words.length), text.slice(at + words.length)];
}
