// Signed thinking behind what was taken out, which Claude refuses: the SDK's own `pruneMessages`, and Refold.
import assert from "node:assert";
import { pruneMessages } from "ai";
import { Refold } from "../dist/index.js";

const messages = [{ role: "user", content: "Check all parts." }];
for (let n = 0; n < 20; n++) {
  const name = { toolCallId: `c${n}`, toolName: "check" };
  const thinking = {
    type: "reasoning",
    text: `Now part ${n}.`,
    providerOptions: { anthropic: { signature: `signature-${n}` } },
  };
  messages.push({ role: "assistant", content: [thinking, { type: "tool-call", ...name, input: { part: n } }] });
  const output = { type: "text", value: `line of part ${n}\n`.repeat(40) };
  messages.push({ role: "tool", content: [{ type: "tool-result", ...name, output }] });
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const thinks = (message) => Array.isArray(message.content) && message.content.some((part) => part.type === "reasoning");
function breaks(view) {
  assert(view.length < messages.length || !same(view, messages));
  return view.some((message, at) => {
    const first = messages.findIndex((original) => same(original.content[0], message.content[0]));
    return thinks(message) && !same(view.slice(0, at), messages.slice(0, first));
  });
}

const [gateway] = process.argv.slice(2);
let own = 0;
let ours = 0;
const settings = Array.from({ length: 18 }, (_, n) => 2 * n + 2);
for (const keep of settings) {
  own += breaks(pruneMessages({ messages, reasoning: "none", toolCalls: `before-last-${keep}-messages` }));
  const refold = new Refold({ gateway, conversationId: `prune-${keep}`, trigger: 500, keep });
  ours += breaks((await refold.prepareStep({ messages, model: "anthropic claude-opus-5-5" })).messages);
}
console.log(JSON.stringify({ settings: settings.length, own, ours }));
