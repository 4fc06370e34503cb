// What a new user sets, ready to copy, with this gateway's real address.
import { get } from "./api.js";
import { copyButton, create } from "./dom.js";
import { plural } from "./format.js";

const ORIGIN = location.origin;
const CLIENTS = [
  ["Claude Code", "", `ANTHROPIC_BASE_URL=${ORIGIN} claude`],
  ["Codex", "~/.codex/config.toml", `openai_base_url = "${ORIGIN}/v1"`],
  ["Gemini CLI", "", `GOOGLE_GEMINI_BASE_URL=${ORIGIN} gemini`],
  ["OpenCode", "opencode.json", `"baseURL": "${ORIGIN}/v1"`],
  ["pi", "models.json", `"baseUrl": "${ORIGIN}/v1"`],
  ["OpenAI SDK", "", `export OPENAI_BASE_URL=${ORIGIN}/v1`],
  ["Anthropic SDK", "", `export ANTHROPIC_BASE_URL=${ORIGIN}`]];

export const copyable = (text, file = "") => create("div", { class: "copyable" },
  create("code", { tabindex: "0" }, file ? create("span", { class: "quiet" }, `${file}  `) : null, text), copyButton(text, "Copy", { "aria-label": `Copy ${text}` }));

export const unwrittenCalls = (calls) => `${plural(calls, "call")} not entered: the net ledger cannot be written, the gateway's log says why`;

export function setupContent({ total, files, recording, unwritten }) {
  const kept = recording
    ? [create("p", {}, `It is on: kept for ${recording} after a session grew last, with the gateway's store.`)]
    : [create("p", {}, "Off by default: without it there is no title, conversation, search or loss report here. It is kept with the gateway's store, and deleted at its time."),
      copyable("refold serve --record 7d")];
  return create("div", { class: "setup" },
    create("h1", {}, "Point an agent at Refold"),
    create("p", { class: "about" }, "The gateway is running. Sessions appear here with their first call. Requests pass unchanged until one is too long."),
    create("div", { class: "panel" }, create("table", { class: "ways", "aria-label": "What to set for each client" },
      create("thead", {}, create("tr", {}, create("th", { scope: "col" }, "Client"), create("th", { scope: "col" }, "Set its address"))),
      create("tbody", {}, CLIENTS.map(([name, file, text]) => create("tr", {}, create("th", { scope: "row" }, name), create("td", {}, copyable(text, file))))))),
    create("div", { class: "three" },
      create("section", { class: "panel pad" }, create("h2", {}, "Is it safe? Try it in shadow"), create("p", {}, "Every request is sent as it came. What Refold would have done, and saved, is noted: sessions in the list then say Shadow."), copyable("refold serve --shadow")),
      create("section", { class: "panel pad" }, create("h2", {}, "Keep the text"), kept),
      create("section", { class: "panel pad" }, create("h2", {}, "Look at session files"), create("p", {}, "Sessions that agents keep on this machine can be read and tried without the gateway."), copyable("refold")),
      create("section", { class: "panel pad" }, create("h2", {}, "Ask for the same by program"), create("p", {}, "Everything on this page comes from the API, which has a document."), copyable(`${ORIGIN}/refold/api/openapi.json`))),
    create("p", { class: "quiet", role: "status" }, unwritten ? `${unwrittenCalls(unwritten)}.` : total > files ? "Sessions have come already." : `Waiting for the first call at ${location.host}.`));
}

export async function showSetup(root) {
  document.title = "Set up · Refold";
  root.replaceChildren(setupContent(await get("overview", { limit: 1, rows_only: "true" })));
  return {};
}
