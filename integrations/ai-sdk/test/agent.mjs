// Some turns of a conversation by the AI SDK's own loop: `node agent.mjs JOB.json RESULT.json`.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool, wrapLanguageModel } from "ai";
import { z } from "zod";
import { Refold } from "../dist/index.js";

const job = JSON.parse(readFileSync(process.argv[2], "utf8"));
const problems = [];
const refold = new Refold({
  gateway: job.gateway,
  conversationId: "parts",
  trigger: job.trigger,
  keep: 4,
  onProblem: (problem) => problems.push(problem),
});
const provider = createOpenAICompatible({ name: "scripted", baseURL: `${job.url}/v1`, apiKey: "none", includeUsage: true });
const bare = provider("gpt-5.2");
const model = job.mode === "middleware" ? wrapLanguageModel({ model: bare, middleware: refold.middleware }) : bare;
const inLoop = { prepareStep: refold.prepareStep, [job.onStepEnd]: refold.onStepEnd };
const step = job.mode === "prepareStep" ? inLoop : {};

const inputSchema = z.object({ part: z.string() });
const tools = {
  read_part: tool({ description: "Read a part.", inputSchema, execute: ({ part }) => job.logs[part] }),
  check_part: tool({
    description: "Check a part.",
    inputSchema,
    execute: ({ part }) => {
      if (part === job.broken) throw new Error(`${part} is broken: no answer from the sensor`);
      return job.checks[part];
    },
  }),
};

const messages = existsSync(job.file) ? JSON.parse(readFileSync(job.file, "utf8")) : [];
const deltas = [];
for (const turn of job.turns) {
  const image = turn.image ? [{ type: "file", data: turn.image, mediaType: "image/png" }] : [];
  messages.push({ role: "user", content: [{ type: "text", text: turn.text }, ...image] });
  const options = { model, tools, messages, stopWhen: stepCountIs(20), maxRetries: 0, ...step };
  if (turn.streams) {
    const result = streamText(options);
    for await (const delta of result.textStream) deltas.push(delta);
    messages.push(...(await answered(result)));
  } else {
    messages.push(...(await answered(await generateText(options))));
  }
}
await refold.flush();
writeFileSync(job.file, JSON.stringify(messages));
writeFileSync(process.argv[3], JSON.stringify({ texts: texts(messages), deltas, errors: problems }));

/** What the steps of an answer add to the history: each, since 7 gives of `response` the last step's. */
async function answered(result) {
  const steps = await result.steps;
  const response = await result.response;
  const all = await (result.responseMessages ?? response.messages);
  return all.length >= steps.length ? all : steps.flatMap((each) => each.response.messages);
}

function texts(value) {
  if (typeof value === "string") return [value];
  return value && typeof value === "object" ? Object.values(value).flatMap(texts) : [];
}
