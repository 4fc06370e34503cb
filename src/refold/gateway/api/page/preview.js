// The preview of a compaction: its effect, its losses, and which of its edits to accept.
import { get, post } from "./api.js";
import { address, go, guard } from "./app.js";
import { COMMAND_KEY, button, byId, create, key, later, put, say } from "./dom.js";
import { clock, cut, editTitle, isSummary, middleCut, money, number, plural, share, signed, strategy, thenHas } from "./format.js";
import { makeForm } from "./preview_form.js";
import { nameOf } from "./sessions.js";

const KINDS = [["constraints", "Constraints", "Constraint"], ["requests", "Requests", "Request"], ["open_work", "Open work", "Open work"], ["facts", "Facts", "Fact"], ["paths", "Paths", "Path"], ["identifiers", "Names", "Name"]];
const GRAVE = ["constraints", "requests", "open_work", "facts"];
const MOST_WORDS = 4000; // maximum characters of a pin
const LIST = 40; // maximum losses shown
const NAMES = 200; // maximum names or paths shown

export async function showPreview(root, route) {
  const id = route.path[1];
  const session = await get("session", { session: id });
  const { file } = session;
  const hasText = session.kept_until !== null || file !== null;
  let request = null; // the pasted request, if the gateway has no history
  let offer = null; // the preview with all its edits
  let now = null; // the preview with the selected edits
  let parts = []; // edits of the offer, each with its row
  let settled = new Map(); // losses that the user handled, by text
  const pinned = new Set(); // texts of pinned losses
  let question = null; // the AbortController of the running request
  const canTell = () => hasText || request !== null;
  if (root.isConnected) document.title = `Preview · ${nameOf(session.row)} · Refold`;

  // --- elements of the page ---

  const form = makeForm(session, route.query, () => run(), () => stale(offer !== null));
  const outdated = create("p", { class: "asking", role: "status", hidden: true }, "The settings changed. ", button("Preview again", () => run(), { class: "link" }));
  const effect = create("section", { class: "panel", "aria-label": "Effect" });
  const list = create("section", { class: "panel pad", "aria-label": "Edits" });
  const title = create("h2", { class: "spread" });
  const middle = create("div", { class: "stack" }, outdated, effect, list);
  const losses = create("section", { class: "panel pad losses", "aria-label": "What the model would no longer see" });
  const bar = create("div", { class: "accept", role: "region", "aria-label": "Accept" });
  const state = create("p", { class: "about" }, `Nothing has changed yet. ${file ? "The session has" : thenHas(session, "still sends")} ${number(session.sent ?? 0)} tokens.`);
  root.replaceChildren(
    create("p", { class: "crumbs" }, create("a", { href: "#/" }, "Sessions"), " › ", create("a", { href: address(`s/${id}`) }, cut(nameOf(session.row), 60)), " › Preview"),
    create("h1", {}, "Compaction preview"), state,
    create("div", { class: "offer" }, form.form, middle, losses), bar);

  function stale(isStale) {
    middle.classList.toggle("stale", isStale);
    outdated.hidden = !isStale;
  }

  // --- requesting a preview ---

  const run = () => guard(async () => {
    question?.abort();
    question = new AbortController();
    const began = Date.now();
    const wait = setInterval(() => put(effect, waiting(Math.round((Date.now() - began) / 1000))), 1000);
    form.wait(true);
    stale(false);
    effect.querySelector(".refused")?.remove();
    try {
      take(await post("preview", { ...form.order(), ...(request ? { request } : {}) }, question.signal));
    } catch (error) {
      if (error.name !== "AbortError") put(effect);
      if (error.code !== "history_elsewhere") throw error;
      put(effect, historyField(error));
    } finally {
      clearInterval(wait);
      form.wait(false);
    }
  }, effect, () => run());

  const waiting = (seconds) => create("div", { class: "row pad" },
    create("p", {}, create("b", {}, "Creating the preview"), ` · ${seconds} s. Calls continue unchanged.`),
    button("Stop", () => { question.abort(); put(effect, create("p", { class: "pad" }, "Stopped. Nothing has changed.")); }, { class: "push" }));

  /** A field to paste the request into, if no process of the gateway has the history. */
  function historyField(error) {
    const area = create("textarea", { id: "history", rows: 8, "aria-label": "Request (JSON)" });
    const problem = create("p", { role: "alert" });
    const read = () => {
      try {
        request = JSON.parse(area.value);
      } catch {
        problem.textContent = "This is not valid JSON.";
        return;
      }
      run();
    };
    return create("div", { class: "pad" }, create("h2", {}, "Request needed"), create("p", { class: "quiet" }, `${error.message} Paste the request as the client sends it.`),
      area, problem, create("div", { class: "row" }, button("Preview", read, { class: "main" })));
  }

  function take(answer) {
    offer = answer;
    settled = new Map();
    parts = offer.edits.map(makePart);
    const failed = offer.attempts.filter((attempt) => attempt.outcome === "failed").map(describeAttempt).join(" · ");
    list.hidden = !offer.preview;
    put(list, title, parts.map((part) => part.row), failed ? create("p", { class: "quiet" }, failed) : null);
    paint(answer);
    say(`Preview: ${number(offer.tokens_before)} tokens become ${number(offer.tokens_after)}.`);
  }

  /** Show figures, losses and the accept bar of *answer*: the selected edits, with amended summaries. */
  function paint(answer) {
    now = answer;
    put(effect, drawEffect(session, offer, now, form.order().to));
    put(title, `${plural(parts.length, "edit")}, ${chosen().length} selected`, create("span", { class: "quiet" }, "Select the edits to accept"));
    for (const part of parts) part.update();
    paintLosses();
    paintBar();
  }

  // --- edits ---

  const chosen = () => parts.filter((part) => part.isChosen);
  const named = (some) => ({ edits: some.map(({ edit }) => edit.id), amend: Object.fromEntries(some.filter(({ text }) => text !== null).map(({ edit, text }) => [edit.id, text])) });
  const weigh = later(250, () => guard(async () => {
    const order = () => JSON.stringify([offer.preview, named(chosen())]);
    const asked = order();
    const answer = await post("preview_parts", { session: id, preview: offer.preview, ...named(chosen()) });
    if (asked === order()) paint(answer); // selection, summaries and preview have not changed meanwhile
  }, bar));

  /** An edit that the user can deselect and, if it is a summary, amend. *text* is null unless it is amended. */
  function makePart(edit) {
    const name = editTitle(edit);
    const summary = offer.summaries[edit.id];
    const attempt = offer.attempts.find((item) => item.by === edit.by && item.edits);
    const box = create("input", { type: "checkbox", checked: true, data: { part: edit.id }, onchange: () => { part.isChosen = box.checked; weigh(); } });
    const label = create("b", {}, name);
    const tokens = create("span");
    const about = create("span");
    const words = create("div");
    const show = button("Show", () => put(words, words.children.length ? null : describeText(edit)), { class: "link", "aria-label": `Show ${name}` });
    const change = summary === undefined ? null : button("Amend", () => part.write(part.text ?? summary), { class: "link", "aria-label": `Amend ${name}` });
    const area = create("textarea", { "aria-label": `Summary, ${name}`, oninput: () => part.write(area.value) });
    const count = create("span", { class: "quiet" });
    const amendment = create("div", { class: "amend" }, create("div", {}, create("b", {}, "Amend summary"), count, button("Reset", () => part.write(summary), { class: "link push" })), area);
    const part = {
      edit, isChosen: true, text: null, canAmend: summary !== undefined,
      row: create("div", { class: "part" }, create("div", { class: "spread" }, create("label", {}, box, label), tokens), create("p", { class: "quiet row" }, about, show, change), words),
      write(text) {
        if (area.value !== text) area.value = text;
        if (!amendment.isConnected) part.row.append(amendment);
        part.text = text === summary ? null : text;
        weigh();
      },
      update() {
        const after = now.edits.find((item) => item.id === edit.id)?.tokens_after ?? edit.tokens_after;
        const yours = area.value.split("\n").filter((line) => line.trim() && !summary.includes(line)).length;
        for (const element of [label, tokens]) element.classList.toggle("off", !part.isChosen);
        put(tokens, `${number(edit.tokens_before)} → `, create("b", {}, number(after)));
        put(about, [edit.stop > edit.start + 1 ? plural(edit.stop - edit.start, "message") : "", attempt?.model || (isSummary(edit.by) ? "by rules" : ""), attempt?.reason,
          edit.grade === "recoverable" ? "the model can ask for the original" : "", part.isChosen ? "" : "not selected"].filter(Boolean).join(" · "));
        count.textContent = `${number(after)} tokens${yours ? `, ${plural(yours, "new line")}` : ""}`;
        if (change) change.hidden = !part.isChosen;
        amendment.hidden = !part.isChosen;
      },
    };
    return part;
  }

  // --- losses ---

  function paintLosses() {
    const heading = create("h2", {}, "What the model would no longer see");
    if (!offer.preview) put(losses, heading, create("p", { class: "quiet" }, "Nothing: this preview has no edits."));
    else if (!canTell()) put(losses, heading, create("p", {}, "Counts only: the transcript of this session is not kept."), counts());
    else put(losses, heading, create("p", { class: "quiet" }, "Each line below is sent now and would not be sent after the compaction. Nothing is deleted from the session."), counts(), graveLosses(), otherLosses());
  }

  const lost = (kind) => now.lost.filter((loss) => loss.kind === kind);
  const where = (loss) => create("span", { class: "quiet" }, loss.message === null ? "an earlier summary" : `message ${loss.message}, line ${loss.line}`);
  const kindName = (loss) => KINDS.find(([kind]) => kind === loss.kind)[2];
  const first = (most, all) => (all.length > most ? create("p", { class: "quiet" }, `First ${most} of ${number(all.length)}.`) : null);

  const counts = () => create("div", { class: "kinds" }, KINDS.map(([kind, name]) => {
    const count = canTell() ? lost(kind).length : now.losses[kind].count;
    return create("div", { class: count && GRAVE.includes(kind) ? "some" : "" }, create("b", {}, number(count)), name);
  }));

  function graveLosses() {
    const open = now.lost.filter((loss) => GRAVE.includes(loss.kind) && !pinned.has(loss.text));
    const done = [...settled.values()].filter((loss) => pinned.has(loss.text) || !now.lost.some((item) => item.text === loss.text));
    return [create("ul", {},
      done.map((loss) => create("li", { class: "settled" }, create("div", { class: "spread" }, create("b", {}, `✓ ${kindName(loss)}, ${pinned.has(loss.text) ? "pinned" : "now in the summary"}`), where(loss)), create("p", {}, loss.text))),
      open.slice(0, LIST).map(lossRow)), first(LIST, open)];
  }

  const otherLosses = () => KINDS.filter(([kind]) => !GRAVE.includes(kind) && lost(kind).length).map(([kind, name]) =>
    create("details", {}, create("summary", {}, create("b", {}, name), create("span", { class: "quiet" }, ` ${number(lost(kind).length)}`)),
      create("ul", {}, lost(kind).slice(0, NAMES).map((loss) => create("li", { class: "mono", title: loss.text }, middleCut(loss.text), " ", where(loss)))), first(NAMES, lost(kind))));

  function lossRow(loss) {
    const { message, text } = loss;
    const summaries = chosen().filter((part) => part.canAmend);
    const summary = summaries.find(({ edit }) => message === null || (edit.start <= message && message < edit.stop)) ?? summaries[0];
    const add = () => {
      settled.set(text, loss);
      summary.write(`${summary.text ?? offer.summaries[summary.edit.id]}\n- ${text}`);
    };
    const row = create("li");
    const pin = () => guard(async () => {
      const done = await post("pin", { session: id, message, words: text.length > MOST_WORDS ? "" : text.trim() });
      session.pins = done.pins;
      pinned.add(text);
      settled.set(text, loss);
      paintLosses();
      stale(true);
      say("Pinned. Preview again to apply it.");
    }, row);
    return put(row, create("div", { class: "spread" }, create("b", {}, kindName(loss)), where(loss)), create("p", {}, text.length > 600 ? `${text.slice(0, 600)}… (${number(text.length)} characters)` : text),
      create("div", { class: "row" }, summary ? button("Add to summary", add) : null,
        message === null || !hasText || file ? null : button("Pin", pin),
        message === null || !hasText ? null : button("Show in place", () => go(address(`s/${id}/message/${message}`)), { class: "plain" })));
  }

  // --- accept ---

  function paintBar() {
    const some = chosen();
    const cleared = parts.filter(({ edit }) => edit.grade === "recoverable" || edit.grade === "exact");
    put(bar,
      create("p", {}, create("b", {}, `${number(now.tokens_before)} → ${number(now.tokens_after)} tokens`), offer.preview ? ` with ${some.length} of ${plural(parts.length, "edit")}${parts.some((part) => part.text !== null) ? ", amended" : ""} ` : " ",
        create("span", { class: "quiet" }, file ? `Saved to ${middleCut(file.edits)}; the session file stays unchanged. Undo at any time.` : `Takes effect ${session.in_shadow ? "once shadow is off" : "with the next call"}. Undo at any time.`)),
      button(["Discard", key("Esc")], () => go(address(`s/${id}`))),
      cleared.length && cleared.length < parts.length ? button("Accept only cleared results", () => accept(cleared)) : null,
      button([some.length === parts.length ? "Accept" : `Accept ${plural(some.length, "edit")}`, key(`${COMMAND_KEY} ↵`)], () => accept(some), { class: "main", id: "accept", disabled: !some.length }));
  }

  const accept = (some) => guard(async () => {
    for (const item of bar.querySelectorAll("button")) item.disabled = true;
    const done = await post("accept", { preview: offer.preview, actor: "page", ...named(some) }).catch((error) => { paintBar(); throw error; });
    const undo = button("Undo", () => guard(async () => {
      await post("revert", { session: id, edits: done.edits, actor: "page" });
      say("Undone");
      go(address(`s/${id}`));
    }, bar));
    const outcome = `${thenHas(session)} ${number(done.tokens_after)} tokens.${file?.resumes ? ` To resume it in its client: refold export ${session.row.file}` : ""}`;
    put(state, `Accepted. ${outcome}`);
    put(bar, create("p", {}, create("b", {}, "✓ Accepted. "), outcome), undo, button("Show session", () => go(address(`s/${id}`, { edit: done.edits[0] })), { class: "main" }));
    say(`Accepted. ${outcome}`);
    undo.focus();
  }, bar, run);

  run();
  return {
    close: () => question?.abort(),
    key(event) {
      if (!(event.ctrlKey || event.metaKey) || event.key !== "Enter") return false;
      if (!offer || middle.classList.contains("stale")) run();
      else byId("accept")?.click();
      return true;
    },
  };
}

const describeAttempt = (attempt) => `${strategy(attempt.by)}: ${attempt.reason || attempt.outcome}`;

/** The text that an edit sends, and the original that it hides. */
const describeText = (edit) => [create("div", { class: "prose-text panel" }, edit.text, moreOf(edit.text_more)),
  edit.hidden === null ? create("p", { class: "quiet" }, "The original cannot be shown: no transcript is kept.")
    : create("details", {}, create("summary", {}, "Original"), create("div", { class: "prose-text panel mono" }, edit.hidden, moreOf(edit.hidden_more)))];
const moreOf = (count) => (count ? `\n… ${number(count)} more characters` : "");

/** The effect on tokens, cost and cache. *now* is *offer* with the selected edits only; *wanted* is the target in tokens. */
function drawEffect(session, offer, now, wanted) {
  const { tokens_before: before, tokens_after: after } = now;
  const least = wanted !== undefined && offer.tokens_after > wanted
    ? create("p", { class: "asking", id: "least" }, create("b", {}, `${number(wanted)} tokens cannot be reached. `), `With these settings, ${number(Math.min(offer.tokens_after, after))} is the minimum: the latest exchange, system prompt and tools${session.pins.length ? ", and pinned text," : ""} stay.`)
    : null;
  if (!offer.preview) {
    const reasons = offer.attempts.map(describeAttempt).join(" · ") || "No strategy applies to these messages.";
    return create("div", { class: "pad" }, create("h2", {}, "Nothing to compact"), least, create("p", { class: "quiet" }, reasons));
  }
  const { levels: { window }, prices } = session;
  const rows = [["Tokens sent", before, after, number, before ? `−${share(before - after, before)}` : ""]];
  if (prices) {
    const cost = (before * prices.read) / 1e6, saved = now.effect.per_call;
    rows.push(["Cached input per call", cost, cost - saved, (value) => money(value, true), money(-saved, true)]);
  }
  if (window && window > before) rows.push([`Free in window of ${number(window)}`, window - before, window - after, number, signed(before - after)]);
  const width = (value, most) => create("i", { vars: { width: `${(100 * value) / most}%` } });
  return [create("div", { class: "pad" }, least,
    create("h2", { class: "spread" }, "Effect", create("span", { class: "legend" }, create("span", {}, create("i", { class: "grey" }), "Now"), create("span", {}, create("i"), "After"))),
    create("div", { class: "effect" }, rows.map(([name, a, b, text, gain]) => [create("span", {}, name, create("br"), create("b", { class: "teal" }, gain)),
      create("span", { class: "two", "aria-hidden": "true" }, width(a, Math.max(a, b)), width(b, Math.max(a, b))), create("span", {}, text(a), create("br"), create("b", {}, text(b)))]))),
  drawCache(session, now)];
}

/** What stays in the provider's cache, and after how many calls the rewritten part pays for itself. */
function drawCache({ now: time, prices, row }, { calls, cost, effect, tokens_before: before, tokens_after: after }) {
  const lapse = prices ? row.latest + prices.lifetime : 0;
  const isAlive = lapse > time;
  const { in_cache: inCache, written, once, per_call: perCall, pays_after: paysAfter } = effect;
  const pays = (count) => (count > 0 ? `pays for itself after ${plural(Math.ceil(count), "more call")}.` : "pays at once.");
  const lapsed = prices ? (cost - ((before - after) * prices.write) / 1e6) / perCall : 0; // calls until it pays, after the cache has expired
  return create("div", { class: "pad ruled" },
    create("p", {}, create("b", {}, "Cache: "), isAlive || !prices ? `the first ${number(inCache)} tokens stay cached; ${number(written)} are rewritten.` : `expired; the next call writes all ${number(after)} tokens anyway.`),
    create("div", { class: "cache", "aria-hidden": "true" }, [isAlive ? inCache : 0, isAlive ? written : after, before - after].map((size) => create("i", { vars: { grow: String(Math.max(0, size)) } }))),
    create("p", { class: "spread quiet" }, create("span", {}, "stays cached"), create("span", {}, "written once"), create("span", {}, "no longer sent")),
    calls && !cost ? create("p", {}, "No price is known for the model that wrote the summary. Its cost is not included.") : null,
    once === null ? create("p", {}, "No price is known for this model.") : create("p", {}, "Costs ", create("b", {}, money(isAlive ? once : cost, true)), " once, saves ", create("b", {}, money(perCall, true)), " per call: ",
      create("b", {}, paysAfter === null ? "it never pays for itself." : pays(isAlive ? paysAfter : lapsed)), isAlive && paysAfter !== null ? ` The cache expires at ${clock(lapse)} unless there is another call; after that, it ${pays(lapsed)}` : ""));
}
