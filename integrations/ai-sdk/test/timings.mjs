// Milliseconds before each call, `node timings.mjs GATEWAY`: the median of 15 while the history grows.
import { pruneMessages } from "ai";
import { Refold } from "../dist/index.js";

const text = "The frame is bolted to the shaft; the gauge shows 0.4213. ".repeat(12);
function history(count) {
  const messages = [{ role: "user", content: "See to the parts." }];
  for (let n = 0; messages.length < count; n++) {
    const call = { toolCallId: `c${n}`, toolName: "read_part" };
    messages.push({ role: "assistant", content: [{ type: "tool-call", ...call, input: { part: n } }] });
    messages.push({ role: "tool", content: [{ type: "tool-result", ...call, output: { type: "text", value: text } }] });
  }
  return messages;
}

async function measure(count, act) {
  const messages = history(count + 30), times = [];
  await act(messages.slice(0, count - 2));
  for (let n = 0; n < 15; n++) {
    const shown = messages.slice(0, count + 2 * n);
    const began = performance.now();
    await act(shown);
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[7];
}

const rows = [];
const own = (messages) => pruneMessages({ messages, toolCalls: "before-last-2-messages" });
const ways = [["pruneMessages", () => own], ["Refold", () => ours(1e9)], ["Refold, history shortened", () => ours(60_000)]];
function ours(trigger) {
  const refold = new Refold({ gateway: process.argv[2], conversationId: String(Math.random()), trigger });
  return (messages) => refold.compact(messages, "p gpt-5.2");
}
for (const [name, make] of ways) {
  rows.push([name, await measure(100, make()), await measure(1000, make())]);
}
console.log(JSON.stringify(rows));
