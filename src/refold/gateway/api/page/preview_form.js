// The settings of a preview: target, messages, strategies and summaries.
import { COMMAND_KEY, create, key } from "./dom.js";
import { money, number, share } from "./format.js";

const HOW = [["results", "Clear old tool results"], ["thinking", "Clear old thinking"], ["summary", "Summarise"]];

/** Return the form. Submitting calls *run*, each change calls *changed*, and `order()` returns the arguments of `preview`. */
export function makeForm(session, query, run, changed) {
  const last = Math.max(0, session.sizes.length - 1);
  const [from, to] = ["start", "stop"].map((name) => (query.has(name) ? Number(query.get(name)) : null));
  const range = from !== null && to !== null ? "only" : to !== null ? "above" : from !== null ? "below" : "oldest";
  const place = (name, value, label) => create("input", { type: "number", name, min: 0, max: last + 1, value, "aria-label": label });
  const ranges = [["oldest", "Oldest first, as needed"], ["above", "Above message", place("above", to ?? last, "Above message")], ["below", "Below message", place("below", from ?? 0, "Below message")],
    ["only", "Only", place("first", from ?? 0, "From message"), "to", place("last", to ?? last, "To message")]];

  const target = create("input", { type: "number", id: "target", name: "to", min: 0, max: session.original ?? 1e9, step: 500, placeholder: "default", "aria-label": "Target in tokens" });
  const slider = create("input", { type: "range", min: session.fixed, max: Math.max(session.fixed + 1, session.sent ?? 0), step: 100, "aria-label": "Target in tokens" });
  slider.value = slider.max;
  const portion = create("span", { class: "quiet push" });

  const model = session.summary_model;
  const rates = session.summary_prices;
  const writer = !model ? "No model for summaries is configured: set [summaries] in refold.toml."
    : rates ? `${model}: ${money(rates.input)} in, ${money(rates.output)} out per million tokens.` : `No price is known for ${model}.`;
  const wide = (text, field) => create("label", { class: "wide" }, text, field);
  const again = create("button", { type: "submit", class: "wide" }, "Preview again", key(`${COMMAND_KEY} ↵`));
  const form = create("form", { class: "panel pad", novalidate: true, "aria-label": "Settings", onsubmit: (event) => { event.preventDefault(); run(); } },
    create("h2", {}, "Settings"),
    create("fieldset", {}, create("legend", {}, "Target in tokens"), create("div", { class: "row" }, target, portion), slider,
      create("p", { class: "quiet" }, `Now ${number(session.sent ?? 0)}, of which ${number(session.fixed)} are system prompt and tools.`)),
    create("fieldset", {}, create("legend", {}, "Messages"), ranges.map(([value, ...label]) =>
      create("label", {}, create("input", { type: "radio", name: "range", value, checked: value === range }), label))),
    create("fieldset", {}, create("legend", {}, "Strategies"), HOW.map(([value, text]) => create("label", {}, create("input", { type: "checkbox", name: "how", value, checked: true }), text))),
    create("fieldset", {},
      wide("Summary by", create("select", { id: "by", name: "by" }, model ? create("option", { value: "default" }, model) : null, create("option", { value: "rules" }, "rules, no model"))),
      create("p", { class: "quiet" }, writer),
      session.takes_summary_model ? wide("Another model on its server", create("input", { type: "text", id: "model", name: "model", maxlength: 200, autocomplete: "off", spellcheck: "false", placeholder: model })) : null,
      wide("Instructions", create("textarea", { id: "instructions", name: "instructions", rows: 2, maxlength: 2000, placeholder: "e.g. keep every commit hash" }))),
    create("fieldset", {}, again));

  form.addEventListener("input", ({ target: field }) => {
    if (field === target) slider.value = target.value;
    if (field === slider) target.value = slider.value;
    portion.textContent = session.levels.window && target.value ? `${share(Number(target.value), session.levels.window)} of the window` : "";
    changed();
  });

  return {
    form,
    wait: (isWaiting) => { again.disabled = isWaiting; },
    order() {
      const fields = new FormData(form);
      const at = (name) => Number(fields.get(name));
      const messages = { oldest: {}, above: { stop: at("above") }, below: { start: at("below") }, only: { start: at("first"), stop: at("last") + 1 } }[fields.get("range")];
      const strategies = fields.getAll("how");
      return { session: session.row.id, actor: "page", ...messages, ...(fields.get("to") ? { to: at("to") } : {}), ...(strategies.length < HOW.length ? { strategies } : {}),
        summary: fields.get("by"), summary_model: (fields.get("model") ?? "").trim(), instructions: fields.get("instructions").trim() };
    },
  };
}
