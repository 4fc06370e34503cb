// Settings for each client, ready to copy, with this gateway's address.
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

export const unwrittenCalls = (calls) => `${plural(calls, "call")} not recorded: the net ledger cannot be written, see the gateway's log`;

export function setupContent({ total, files, recording, unwritten }) {
  const kept = recording
    ? [create("p", {}, `On. The gateway's store keeps each transcript for ${recording} after its last message.`)]
    : [create("p", {}, "Off. Titles, conversations, search and losses need transcripts. The gateway's store keeps them for the time that you set:"),
      copyable("refold serve --record 7d")];
  return create("div", { class: "setup" },
    create("h1", {}, "Point an agent at Refold"),
    create("p", { class: "about" }, "The gateway is running. A session appears here after its first call. Requests pass unchanged until one is too long."),
    create("div", { class: "panel" }, create("table", { class: "ways", "aria-label": "Settings by client" },
      create("thead", {}, create("tr", {}, create("th", { scope: "col" }, "Client"), create("th", { scope: "col" }, "Setting"))),
      create("tbody", {}, CLIENTS.map(([name, file, text]) => create("tr", {}, create("th", { scope: "row" }, name), create("td", {}, copyable(text, file))))))),
    create("div", { class: "three" },
      create("section", { class: "panel pad" }, create("h2", {}, "Try it safely in shadow"), create("p", {}, "Every request is sent unchanged. Refold records what it would have done and saved. The list marks these sessions as Shadow."), copyable("refold serve --shadow")),
      create("section", { class: "panel pad" }, create("h2", {}, "Keep transcripts"), kept),
      create("section", { class: "panel pad" }, create("h2", {}, "Open session files"), create("p", {}, "View and compact the sessions that agents store on this machine. No gateway is needed."), copyable("refold")),
      create("section", { class: "panel pad" }, create("h2", {}, "Use the API"), create("p", {}, "Everything on this page comes from the admin API. This is its OpenAPI document."), copyable(`${ORIGIN}/refold/api/openapi.json`))),
    create("p", { class: "quiet", role: "status" }, unwritten ? `${unwrittenCalls(unwritten)}.` : total > files ? "Sessions have already arrived." : `Waiting for the first call at ${location.host}.`));
}

export async function showSetup(root) {
  document.title = "Set up · Refold";
  root.replaceChildren(setupContent(await get("overview", { limit: 1, rows_only: "true" })));
  return {};
}
