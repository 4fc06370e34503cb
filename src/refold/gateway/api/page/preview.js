// A compaction before it happens: what it would do, what would be lost, and which parts of it to accept.
import { get, post } from "./api.js";
import { address, go, guard, refuse } from "./app.js";
import { button, create, key, later, put, say } from "./dom.js";
import { clock, cut, middleCut, money, number, plural, share, shortId, signed, strategy } from "./format.js";
import { nameOf } from "./sessions.js";

const KINDS = [["constraints", "Constraints", "Constraint"], ["requests", "Requests", "Request"], ["open_work", "Open work", "Open work"], ["facts", "Facts", "Fact"], ["paths", "Paths", "Path"], ["identifiers", "Names", "Name"]];
const GRAVE = ["constraints", "requests", "open_work", "facts"];
const HOW = [["results", "Clear old tool results"], ["thinking", "Clear old thinking"], ["summary", "Summarise"]];
const MOST_WORDS = 4000; // that a pin can have
const LIST = 40; // losses of one kind that are shown at once

export async function showPreview(root, route) {
  const id = route.path[1];
  const session = await get("session", { session: id });
  const { file } = session;
  const hasText = session.kept_until !== null || file !== null;
  const last = Math.max(0, session.sizes.length - 1);
  const asked = (name) => (route.query.get(name) === null ? null : Number(route.query.get(name)));
  let request = null; // the history, where it has to be sent along
  let offer = null; // as it was made
  let now = null; // with the parts that are chosen
  let chosen = new Set();
  let amended = new Map(); // other texts, by edit
  let settled = new Map(); // losses that were taken care of
  const pinned = new Set(); // words of losses that are pinned
  let question = null;
  if (root.isConnected) document.title = `Preview · ${nameOf(session.row)} · Refold`;

  // --- what to do ---

  const from = asked("start");
  const to = asked("stop");
  const state = { range: from !== null && to !== null ? "only" : to !== null ? "above" : from !== null ? "below" : "oldest", from: from ?? 0, to: to ?? last };
  const target = create("input", { type: "number", id: "target", min: 0, max: session.original ?? 1e9, step: 500, placeholder: "as usual", "aria-label": "Down to, tokens" });
  const slider = create("input", { type: "range", min: session.fixed, max: Math.max(session.fixed + 1, session.sent ?? 0), step: 100, "aria-label": "Down to, tokens" });
  slider.value = slider.max;
  const portion = create("span", { class: "quiet push" });
  const heed = create("textarea", { id: "heed", rows: 2, maxlength: 2000, placeholder: "e.g. keep every commit hash" });
  const by = create("select", { id: "by" }, session.summary_model ? create("option", { value: "default" }, session.summary_model) : null, create("option", { value: "rules" }, "rules, no model is asked"));
  const other = session.takes_summary_model ? create("input", { type: "text", id: "model", maxlength: 200, autocomplete: "off", spellcheck: "false", placeholder: session.summary_model }) : null;
  const rates = session.summary_prices;
  const writer = session.summary_model ? (rates ? `${session.summary_model}: ${money(rates.input)} in, ${money(rates.output)} out per million tokens.` : `No price of ${session.summary_model} is known.`) : "This gateway has no model for summaries: [summaries] in refold.toml names one.";
  const boxes = HOW.map(([name, text]) => create("label", {}, create("input", { type: "checkbox", name: "how", value: name, checked: true, onchange: stale }), text));
  const number_ = (name, label) => create("input", { type: "number", min: 0, max: last + 1, value: state[name], "aria-label": label, onchange: (event) => { state[name] = Number(event.target.value); stale(); } });
  const radios = [["oldest", "Oldest first, as needed", []], ["above", "Above message", [number_("to", "Above message")]], ["below", "Below message", [number_("from", "Below message")]], ["only", "Only", [number_("from", "From message"), "to", number_("to", "To message")]]]
    .map(([name, text, more]) => create("label", {}, create("input", { type: "radio", name: "range", value: name, checked: state.range === name, onchange: () => { state.range = name; stale(); } }), text, more));
  const again = create("button", { type: "submit", class: "wide" }, "Preview again", key("⌘ Enter"));
  const form = create("form", { class: "panel pad", novalidate: true, "aria-label": "What to do", onsubmit: (event) => { event.preventDefault(); run(); } },
    create("h2", {}, "What to do"),
    create("fieldset", {}, create("legend", {}, "Down to, in tokens"), create("div", { class: "row" }, target, portion), slider, create("p", { class: "quiet" }, `Now ${number(session.sent ?? 0)}; ${number(session.fixed)} are system prompt and tools.`)),
    create("fieldset", {}, create("legend", {}, "Which messages"), radios),
    create("fieldset", {}, create("legend", {}, "How"), boxes),
    create("fieldset", {}, create("label", { class: "wide" }, "Summary by", by), create("p", { class: "quiet" }, writer),
      other ? create("label", { class: "wide" }, "Another model of its server", other) : null, create("label", { class: "wide" }, "Heed also", heed)), create("fieldset", {}, again));
  target.addEventListener("input", () => { slider.value = target.value; tellShare(); stale(); });
  slider.addEventListener("input", () => { target.value = slider.value; tellShare(); stale(); });
  for (const field of [heed, by, other]) field?.addEventListener("input", stale);
  const tellShare = () => { portion.textContent = session.levels.window && target.value ? `${share(Number(target.value), session.levels.window)} of the window` : ""; };

  function stale() {
    if (offer) middle.classList.add("stale");
    outdated.hidden = !offer;
  }

  function order() {
    const ways = boxes.map((box) => box.querySelector("input")).filter((box) => box.checked).map((box) => box.value);
    const range = { oldest: {}, above: { stop: state.to }, below: { start: state.from }, only: { start: state.from, stop: state.to + 1 } }[state.range];
    return { session: id, actor: "page", ...range, ...(target.value ? { to: Number(target.value) } : {}), ...(ways.length < HOW.length ? { strategies: ways } : {}),
      summary: by.value, ...(other ? { summary_model: other.value.trim() } : {}), heed: heed.value.trim(), ...(request ? { request } : {}) };
  }

  // --- its places on the page ---

  const outdated = create("p", { class: "asking", role: "status", hidden: true }, "The settings changed. ", button("Preview again", () => run(), { class: "link" }));
  const effect = create("section", { class: "panel", "aria-label": "Effect" });
  const parts = create("section", { class: "panel pad", "aria-label": "Parts" });
  const middle = create("div", { class: "stack" }, outdated, effect, parts);
  const losses = create("section", { class: "panel pad losses", "aria-label": "What the model would no longer see" });
  const bar_ = create("div", { class: "accept", role: "region", "aria-label": "Accept" });
  root.replaceChildren(
    create("p", { class: "crumbs" }, create("a", { href: "#/" }, "Sessions"), " › ", create("a", { href: address(`s/${id}`) }, cut(nameOf(session.row), 60)), " › Preview"),
    create("h1", {}, "Preview of a compaction"), create("p", { class: "about" }, `Nothing has changed yet. ${file ? "It has" : "The next call still sends"} ${number(session.sent ?? 0)} tokens.`),
    create("div", { class: "offer" }, form, middle, losses), bar_);

  async function run() {
    question?.abort();
    question = new AbortController();
    const began = Date.now();
    const wait = setInterval(() => writing(Math.round((Date.now() - began) / 1000)), 1000);
    again.disabled = true;
    middle.classList.remove("stale");
    outdated.hidden = true;
    effect.querySelector(".refused")?.remove();
    try {
      take(await post("preview", order(), question.signal));
      say(`Preview: ${number(offer.tokens_before)} tokens become ${number(offer.tokens_after)}.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      effect.replaceChildren();
      if (["history_needed", "history_elsewhere"].includes(error.code)) askForHistory(error);
      else if (error.status === 401) guard(() => { throw error; });
      else refuse(effect, error, run);
    } finally {
      clearInterval(wait);
      again.disabled = false;
    }
  }

  function writing(seconds) {
    effect.replaceChildren(create("div", { class: "row pad" }, create("p", {}, create("b", {}, "Making the preview"), ` · ${seconds} s. Calls go on unchanged meanwhile.`), button("Stop", () => { question.abort(); again.disabled = false; effect.replaceChildren(create("p", { class: "pad" }, "Stopped. Nothing has changed.")); }, { class: "push" })));
  }

  /** Where nobody has the history word for word, the request can be given. */
  function askForHistory(error) {
    const area = create("textarea", { id: "history", rows: 8, "aria-label": "Request (JSON)" });
    const problem = create("p", { role: "alert" });
    effect.replaceChildren(create("div", { class: "pad" }, create("h2", {}, "The history is needed"), create("p", { class: "quiet" }, `${error.message} Images and the like are not remembered. Paste the request as the client sends it.`), area, problem,
      create("div", { class: "row" }, button("Preview this", () => {
        try {
          request = JSON.parse(area.value);
          run();
        } catch { problem.textContent = "That is not JSON."; }
      }, { class: "main" }))));
  }

  function take(answer) {
    offer = answer;
    now = answer;
    chosen = new Set(answer.edits.map((edit) => edit.id));
    amended = new Map();
    settled = new Map();
    paint();
  }

  function paint() {
    paintEffect();
    paintParts();
    paintLosses();
    paintBar();
  }

  // --- effect ---

  function paintEffect() {
    const wanted = Number(target.value);
    const least = target.value && offer.tokens_after > wanted
      ? create("p", { class: "asking", id: "least" }, create("b", {}, `${number(wanted)} tokens cannot be reached. `), `With these settings ${number(Math.min(offer.tokens_after, now.tokens_after))} is the least: the latest exchange, system prompt and tools${session.pins.length ? ", and what is pinned" : ""} stay.`)
      : null;
    if (!offer.preview) {
      put(effect, create("div", { class: "pad" }, create("h2", {}, "Nothing to make smaller"), least, create("p", { class: "quiet" }, reasons(offer))));
      return;
    }
    const { tokens_before: before, tokens_after: after, effect: cache } = now;
    const price = session.prices;
    const two = (a, b, most) => create("span", { class: "two", "aria-hidden": "true" }, create("i", { vars: { width: `${(100 * a) / most}%` } }), create("i", { vars: { width: `${(100 * b) / most}%` } }));
    const rows = [["Tokens sent", before, after, number, `${before ? `−${share(before - after, before)}` : ""}`]];
    if (price) rows.push(["Input per call", (before * price.read) / 1e6, (after * price.read) / 1e6, (value) => money(value, true), money(((after - before) * price.read) / 1e6, true)]);
    const { window } = session.levels;
    if (window && window > before) rows.push([`Room of ${number(window)}`, window - before, window - after, number, signed(before - after)]);
    const lapse = price ? session.row.latest + price.lifetime : 0;
    const isAlive = lapse > session.now;
    put(effect, create("div", { class: "pad" }, least,
      create("h2", { class: "spread" }, "Effect", create("span", { class: "legend" }, create("span", {}, create("i", { class: "grey" }), "Now"), create("span", {}, create("i"), "After"))),
      create("div", { class: "effect" }, rows.flatMap(([name, a, b, text, gain]) => [create("span", {}, name, create("br"), create("b", { class: "teal" }, gain)), two(a, b, Math.max(a, b)), create("span", {}, text(a), create("br"), create("b", {}, text(b)))]))),
    create("div", { class: "pad ruled" },
      create("p", {}, create("b", {}, "Cache: "), isAlive || !price ? `the first ${number(cache.in_cache)} tokens stay cached; ${number(cache.written)} are written anew.` : `it has run out; the next call writes all ${number(after)} tokens anyway.`),
      create("div", { class: "cache", "aria-hidden": "true" }, [isAlive ? cache.in_cache : 0, isAlive ? cache.written : after, before - after].map((size) => create("i", { vars: { grow: String(Math.max(0, size)) } }))),
      create("p", { class: "spread quiet" }, create("span", {}, "kept in the cache"), create("span", {}, "written once"), create("span", {}, "no longer sent")),
      now.calls && !now.cost ? create("p", {}, "No price is known of the model that wrote the summary: what it cost is not counted.") : null,
      cache.once === null ? create("p", {}, "No price of this model is known.") : create("p", {}, "Costs ", create("b", {}, money(isAlive ? cache.once : now.cost, true)), " once, saves ", create("b", {}, money(cache.per_call, true)), " a call: ",
        create("b", {}, isAlive && cache.pays_after !== null && cache.pays_after > 0 ? `pays for itself after ${plural(Math.ceil(cache.pays_after), "more call")}.` : cache.pays_after === null ? "it never pays for itself." : "pays at once."),
        isAlive ? ` The cache runs out at ${clock(lapse)} unless a call comes; after that it pays at once.` : "")));
  }

  const reasons = (answer) => answer.attempts.map((attempt) => `${strategy(attempt.by)}: ${attempt.reason || attempt.outcome}`).join(" · ") || "No strategy had anything to do with these messages.";

  // --- parts ---

  function paintParts() {
    const isSome = Boolean(offer.preview);
    parts.hidden = !isSome;
    if (!isSome) return;
    const after = new Map(now.edits.map((edit) => [edit.id, edit]));
    parts.replaceChildren(create("h2", { class: "spread" }, `${plural(offer.edits.length, "part")}, ${chosen.size} chosen`, create("span", { class: "quiet" }, "Accept any of them")),
      ...offer.edits.map((edit) => partRow(edit, after.get(edit.id))));
  }

  function partRow(edit, shown) {
    const isOn = chosen.has(edit.id);
    const name = edit.stop > edit.start + 1 ? `${strategy(edit.by)} of messages ${edit.start}–${edit.stop - 1}` : `${strategy(edit.by)} · message ${edit.start}`;
    const box = create("input", { type: "checkbox", checked: isOn, data: { part: edit.id }, onchange: () => { if (box.checked) chosen.add(edit.id); else chosen.delete(edit.id); weigh(); } });
    const place = create("div");
    const summary = amended.get(edit.id) ?? offer.summaries[edit.id];
    const attempt = offer.attempts.find((item) => item.by === edit.by && item.edits);
    const row = create("div", { class: "part" },
      create("div", { class: "spread" }, create("label", {}, box, create("b", { class: isOn ? "" : "off" }, name)), create("span", { class: isOn ? "" : "off" }, `${number(edit.tokens_before)} → `, create("b", {}, number(shown?.tokens_after ?? edit.tokens_after)))),
      create("p", { class: "quiet row" }, [edit.stop > edit.start + 1 ? plural(edit.stop - edit.start, "message") : "", attempt?.model || "", edit.grade === "recoverable" ? "can be looked up word for word" : "", isOn ? "" : "left out by you"].filter(Boolean).join(" · "),
        button("Show", () => { if (place.children.length) place.replaceChildren(); else place.append(...peek(edit)); }, { class: "link", "aria-label": `Show ${name}` }),
        summary !== undefined && isOn ? button("Amend", () => amend(edit, place), { class: "link", "aria-label": `Amend ${name}` }) : null), place);
    if (amended.has(edit.id) && isOn) amend(edit, place);
    return row;
  }

  const peek = (edit) => [create("div", { class: "prose-text panel" }, edit.text, edit.text_more ? `\n… ${number(edit.text_more)} characters more` : ""),
    edit.hidden === null ? create("p", { class: "quiet" }, "What it hides cannot be shown: the text is not kept.") : create("details", {}, create("summary", {}, "What it hides"), create("div", { class: "prose-text panel mono" }, edit.hidden, edit.hidden_more ? `\n… ${number(edit.hidden_more)} characters more` : ""))];

  function amend(edit, place) {
    const area = create("textarea", { id: `summary-${edit.id}`, "aria-label": `Summary, part ${shortId(edit.id)}`, data: { summary: edit.id } });
    area.value = amended.get(edit.id) ?? offer.summaries[edit.id];
    const count = create("span", { class: "quiet" });
    const tell = () => {
      const added = area.value.split("\n").filter((line) => line.trim() && !offer.summaries[edit.id].includes(line)).length;
      const tokens = now.edits.find((item) => item.id === edit.id)?.tokens_after ?? edit.tokens_after;
      count.textContent = `${number(tokens)} tokens${added ? `, ${plural(added, "line")} yours` : ""}`;
    };
    area.addEventListener("input", () => {
      if (area.value === offer.summaries[edit.id]) amended.delete(edit.id);
      else amended.set(edit.id, area.value);
      weigh();
    });
    const reset = button("Reset", () => { area.value = offer.summaries[edit.id]; amended.delete(edit.id); weigh(); }, { class: "link push" });
    place.replaceChildren(create("div", { class: "amend" }, create("div", {}, create("b", {}, "Amending the summary"), count, reset), area));
    place.amendment = tell;
    tell();
  }

  /** Figures, losses and the bar follow what is chosen and written. */
  const weigh = later(250, () => guard(async () => {
    if (!chosen.size) {
      now = { ...offer, edits: [], tokens_after: offer.tokens_before, lost: [], effect: { ...offer.effect, in_cache: offer.tokens_before, written: 0, once: 0, per_call: 0, pays_after: null } };
    } else {
      try {
        now = await post("preview_parts", { session: id, preview: offer.preview, edits: [...chosen], amend: Object.fromEntries([...amended].filter(([edit]) => chosen.has(edit))) });
      } catch (error) {
        if (error.status !== 409) throw error;
        refuse(bar_, error, () => weigh());
        return;
      }
    }
    const typing = document.activeElement?.dataset.summary;
    paintEffect();
    if (typing) parts.querySelectorAll(".part > div:last-child").forEach((place) => place.amendment?.());
    else paintParts();
    paintLosses();
    paintBar();
  }, bar_));

  // --- losses ---

  function paintLosses() {
    const title = [create("h2", {}, "What the model would no longer see")];
    if (!offer.preview) { put(losses, title, create("p", { class: "quiet" }, "Nothing: nothing would change.")); return; }
    if (!hasText && !request) { put(losses, title, create("p", {}, "Cannot be told word for word: the text of this session is not kept."), counts()); return; }
    const list = now.lost.filter((loss) => GRAVE.includes(loss.kind) && !pinned.has(loss.text));
    const done = [...settled.values()].filter((loss) => pinned.has(loss.text) || !now.lost.some((other) => other.text === loss.text));
    const rest = KINDS.filter(([kind]) => !GRAVE.includes(kind)).map(([kind, name]) => [name, now.lost.filter((loss) => loss.kind === kind)]).filter(([, items]) => items.length);
    put(losses, title, create("p", { class: "quiet" }, "Each line below is in what is sent now and would be nowhere after it. All of it stays in the record."), counts(),
      create("ul", {}, done.map((loss) => create("li", { class: "settled" }, create("div", { class: "spread" }, create("b", {}, `✓ ${kindName(loss)}, ${pinned.has(loss.text) ? "pinned" : "now in the summary"}`), where(loss)), create("p", {}, loss.text))),
        list.slice(0, LIST).map(lossRow)),
      list.length > LIST ? create("p", { class: "quiet" }, `First ${LIST} of ${number(list.length)}.`) : null,
      ...rest.map(([name, items]) => create("details", {}, create("summary", {}, create("b", {}, name), create("span", { class: "quiet" }, ` ${number(items.length)}`)),
        create("ul", {}, items.slice(0, 200).map((loss) => create("li", { class: "mono", title: loss.text }, middleCut(loss.text), " ", where(loss)))), items.length > 200 ? create("p", { class: "quiet" }, `First 200 of ${number(items.length)}.`) : null)));
  }

  const kindName = (loss) => KINDS.find(([kind]) => kind === loss.kind)[2];
  const where = (loss) => create("span", { class: "quiet" }, loss.message === null ? "an earlier summary" : `${loss.message}, line ${loss.line}`);

  function counts() {
    return create("div", { class: "kinds" }, KINDS.map(([kind, name]) => {
      const count = now.lost.length || hasText || request ? now.lost.filter((loss) => loss.kind === kind).length : now.losses[kind].count;
      return create("div", { class: count && GRAVE.includes(kind) ? "some" : "" }, create("b", {}, number(count)), name);
    }));
  }

  function lossRow(loss) {
    const fold = offer.edits.find((edit) => chosen.has(edit.id) && offer.summaries[edit.id] !== undefined && (loss.message === null || (edit.start <= loss.message && loss.message < edit.stop)))
      ?? offer.edits.find((edit) => chosen.has(edit.id) && offer.summaries[edit.id] !== undefined);
    return create("li", {}, create("div", { class: "spread" }, create("b", {}, kindName(loss)), where(loss)), create("p", {}, loss.text.length > 600 ? `${loss.text.slice(0, 600)}… (${number(loss.text.length)} characters)` : loss.text),
      create("div", { class: "row" }, fold ? button("Add to the summary", () => {
        const text = amended.get(fold.id) ?? offer.summaries[fold.id];
        amended.set(fold.id, `${text}\n- ${loss.text}`);
        settled.set(loss.text, loss);
        paintParts();
        weigh();
      }) : null,
      loss.message === null || !hasText || file ? null : button("Pin", (event) => guard(async () => {
        const done = await post("pin", { session: id, message: loss.message, words: loss.text.length > MOST_WORDS ? "" : loss.text });
        session.pins = done.pins;
        pinned.add(loss.text);
        settled.set(loss.text, loss);
        paintLosses();
        stale();
        say("Pinned: preview again.");
      }, event.target.closest("li"))),
      loss.message === null || !hasText ? null : button("Show in place", () => go(address(`s/${id}/message/${loss.message}`)), { class: "plain" })));
  }

  // --- accept ---

  function paintBar() {
    const cleared = offer.edits.filter((edit) => edit.grade === "recoverable" || edit.grade === "exact").map((edit) => edit.id);
    const all = chosen.size === offer.edits.length;
    put(bar_,
      create("p", {}, create("b", {}, `${number(now.tokens_before)} → ${number(now.tokens_after)} tokens`), offer.preview ? ` with ${chosen.size} of ${plural(offer.edits.length, "part")}${amended.size ? ", amended" : ""} ` : " ", create("span", { class: "quiet" }, file ? `Kept in ${middleCut(file.edits)}; the file itself stays. Undo at any time.` : "Takes effect with the next call. Undo at any time.")),
      create("button", { type: "button", onclick: () => go(address(`s/${id}`)) }, "Discard", key("Esc")),
      cleared.length && cleared.length < offer.edits.length ? button("Accept only the cleared results", () => accept(cleared)) : null,
      create("button", { type: "button", class: "main", id: "accept", disabled: !offer.preview || !chosen.size, onclick: () => accept([...chosen]) }, all ? "Accept" : `Accept ${plural(chosen.size, "part")}`, key("⌘ ↵")));
  }

  async function accept(edits) {
    bar_.querySelectorAll("button").forEach((item) => { item.disabled = true; });
    try {
      const amend = Object.fromEntries([...amended].filter(([edit]) => edits.includes(edit)));
      const done = await post("accept", { preview: offer.preview, actor: "page", edits, ...(Object.keys(amend).length ? { amend } : {}) });
      const first = done.edits[0];
      const undo = button("Undo", () => guard(async () => {
        await post("revert", { session: id, edits: done.edits, actor: "page" });
        say("Undone");
        go(address(`s/${id}`));
      }, bar_));
      const outcome = file ? `With its edits it has ${number(done.tokens_after)} tokens.${file.resumes ? ` refold export ${session.row.file} lets its client go on from there.` : ""}` : `The next call sends ${number(done.tokens_after)} tokens.`;
      bar_.replaceChildren(create("p", {}, create("b", {}, "✓ Accepted. "), outcome), undo, button("Show the session", () => go(address(`s/${id}`, { edit: first })), { class: "main" }));
      say(`Accepted. ${outcome}`);
      undo.focus();
    } catch (error) {
      paintBar();
      if (error.status === 401) guard(() => { throw error; });
      else refuse(bar_, error, run);
    }
  }

  run();
  return {
    close: () => question?.abort(),
    key(event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
        if (!offer || middle.classList.contains("stale")) run();
        else document.getElementById("accept")?.click();
        return true;
      }
      return false;
    },
  };
}
