// Without its gateway the package changes nothing, and says so once.
import assert from "node:assert";
import { createServer } from "node:http";
import { Refold } from "../dist/index.js";

const problems = [];
const onProblem = (problem) => problems.push(problem);
const refold = new Refold({ gateway: "http://127.0.0.1:1", conversationId: "c", trigger: 10, onProblem });
const messages = [{ role: "user", content: "Hello" }];
assert.equal((await refold.prepareStep({ messages, model: "m" })).messages, messages);
const { prompt } = await refold.middleware.transformParams({ params: { prompt: messages }, model: {} });
assert.equal(prompt, messages);
assert.equal(problems.length, 1);
assert.match(problems[0], /^refold: nothing is compacted: /);

// A stream passes part by part, and what cannot be booked holds nobody up.
const parts = [{ type: "text-delta", delta: "Hi" }, { type: "finish", usage: { inputTokens: { total: 9 }, outputTokens: {} } }];
const call = { doStream: async () => ({ stream: ReadableStream.from(parts), request: "r" }), params: { prompt: messages } };
const { stream, request } = await refold.middleware.wrapStream(call);
const received = [];
for await (const part of stream) received.push(part);
assert.deepEqual(received, parts);
assert.equal(request, "r");
await refold.flush();
assert.equal(problems.length, 1);

// Nor does a gateway that is silent.
const server = createServer(() => {}).listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));
const gateway = `http://127.0.0.1:${server.address().port}`;
const patient = new Refold({ gateway, conversationId: "c", trigger: 10, timeoutMs: 50, onProblem });
assert.equal(await patient.compact(messages), messages);
assert.equal(problems.length, 2);
server.closeAllConnections();
server.close();
