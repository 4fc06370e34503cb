/**
 * Compaction for the Vercel AI SDK (6 and 7) by a Refold gateway's admin API.
 *
 * `new Refold(options).middleware` compacts what a model is sent; `.prepareStep` and `.onStepEnd` do
 * the same in an agent's loop. What each call used is booked in the gateway's ledger. The conversation
 * that your program keeps is left alone.
 */

/** A message of a prompt, or a `ModelMessage`: what both have in common. */
export interface AnyMessage {
  role: string;
  content: unknown;
}

export interface RefoldOptions {
  /** Where the gateway is, such as `http://127.0.0.1:8484`. */
  gateway: string;
  /** Which conversation it is: edits are kept by its name, over a restart too. */
  conversationId: string;
  /** Tokens of a request at which the older messages are summarised. */
  trigger: number;
  /** Messages that stay as they are, counted from the newest. */
  keep?: number;
  /** Whose conversations these are. */
  agentId?: string;
  /** The admin token, if the gateway has one (`REFOLD_ADMIN_TOKEN`). */
  token?: string;
  /** Drop signed thinking that is kept behind a summary: by default for Claude, which refuses it. */
  dropReasoning?: boolean;
  /** Milliseconds after which the gateway is not waited for any more. */
  timeoutMs?: number;
  /** Told once why nothing is compacted or booked; by default a warning on the console. */
  onProblem?: (problem: string) => void;
}

/** What stands in place of the first messages, and what those are. */
interface Fold {
  hidden: AnyMessage[];
  shown: AnyMessage[];
  hiddenKeys: string[];
  shownKeys: string[];
}

/** A list of messages as it was sent, the whole history if that is another, and tokens of the list. */
interface Sent {
  chat: ChatMessage[];
  history?: AnyMessage[];
  model: string;
  tokens: number;
}

/** How many tokens messages have. */
interface Count {
  keys: string[];
  tokens: number;
}

interface ChatMessage {
  role: string;
  content: string | null;
  tool_calls?: unknown[];
  tool_call_id?: string;
}

export class Refold {
  private fold: Fold | undefined;
  /** Tokens of the latest answered request beside those that the gateway counts in its messages. */
  private beside = 0;
  private readonly sent = new WeakMap<AnyMessage[], Sent>();
  private counted: Count = { keys: [], tokens: 0 };
  private latest: AnyMessage[] = [];
  private reports: Promise<void> = Promise.resolve();
  private readonly warned = new Set<string>();

  constructor(private readonly options: RefoldOptions) {}

  /** For `wrapLanguageModel`: every call is made with the view of its prompt, and booked. */
  readonly middleware = {
    specificationVersion: "v4" as const,
    transformParams: async ({ params, model }: { params: any; model: any }): Promise<any> => {
      return { ...params, prompt: await this.compact(params.prompt, nameOf(model)) };
    },
    wrapGenerate: async ({ doGenerate, params }: { doGenerate: () => PromiseLike<any>; params: any }): Promise<any> => {
      const result = await doGenerate();
      this.report(params.prompt, result.usage);
      return result;
    },
    wrapStream: async ({ doStream, params }: { doStream: () => PromiseLike<any>; params: any }): Promise<any> => {
      const { stream, ...rest } = await doStream();
      const look = (part: any, controller: TransformStreamDefaultController) => {
        controller.enqueue(part);
        if (part.type === "finish") this.report(params.prompt, part.usage);
      };
      return { stream: stream.pipeThrough(new TransformStream({ transform: look })), ...rest };
    },
  };

  /** For `generateText`, `streamText` and agents. In 7 what it returns is carried forward to later
   * steps, in 6 it is not: the view is known again in both. */
  readonly prepareStep = async (step: { messages: any[]; model?: any }): Promise<{ messages: any[] }> => {
    this.latest = await this.compact(step.messages, nameOf(step.model));
    return { messages: this.latest };
  };

  /** Beside `prepareStep`: books what its step used. `onStepFinish` in version 6. */
  readonly onStepEnd = (step: { usage?: any }): void => this.report(this.latest, step.usage);

  /** Wait until every call so far is booked: at the end of a process, or for `waitUntil`. */
  flush(): Promise<void> {
    return this.reports;
  }

  /** Return the view of messages; the same messages if the gateway cannot be asked. *model* is its
   * name; what its provider is called may stand before it, with a space. */
  async compact<M extends AnyMessage>(messages: M[], model = ""): Promise<M[]> {
    const history = this.unfold(messages);
    const shown = this.show(messages);
    this.sent.delete(shown);
    try {
      const chat = shown.map(toChat);
      // Half at least: with tools as large as the trigger every call would be compacted.
      const threshold = Math.max(this.options.trigger - this.beside, Math.ceil(this.options.trigger / 2));
      const tokens = await this.count(shown, chat);
      this.note(shown, chat.flat(), history, model, tokens);
      if (tokens < threshold) return shown;
      return await this.summarise(history, shown, chat, model);
    } catch (error) {
      this.warn(error instanceof Error ? error.message : String(error));
      return shown;
    }
  }

  /** Return the tokens of messages; only what came since is sent to be counted. */
  private async count(shown: AnyMessage[], chat: ChatMessage[][]): Promise<number> {
    const keys = shown.map(key);
    const { keys: earlier, tokens } = this.counted;
    const isGrown = earlier.length <= keys.length && earlier.every((each, at) => each === keys[at]);
    const messages = chat.slice(isGrown ? earlier.length : 0).flat();
    const more = messages.length ? await this.ask("estimate_messages_tokens", { messages }) : 0;
    this.counted = { keys, tokens: isGrown ? tokens + more : more };
    return this.counted.tokens;
  }

  /** Return messages with what is known of them: a list may begin with the view, or with what it hides. */
  private show<M extends AnyMessage>(messages: M[]): M[] {
    if (!this.fold || begins(messages, this.fold.shownKeys)) return messages;
    if (!begins(messages, this.fold.hiddenKeys)) return messages;
    return [...(this.fold.shown as M[]), ...messages.slice(this.fold.hidden.length)];
  }

  /** Return the whole history of a list that begins with the view. */
  private unfold<M extends AnyMessage>(messages: M[]): M[] {
    if (!this.fold || !begins(messages, this.fold.shownKeys)) return messages;
    return [...(this.fold.hidden as M[]), ...messages.slice(this.fold.shown.length)];
  }

  private async summarise<M extends AnyMessage>(
    history: M[],
    shown: M[],
    chat: ChatMessage[][],
    model: string,
  ): Promise<M[]> {
    const { conversationId, agentId = "ai-sdk", keep = 8, trigger } = this.options;
    const kept = Math.max(chat.slice(-keep).flat().length, 1);
    const config = {
      keep_recent_messages: kept,
      soft_threshold_tokens: trigger,
      hard_threshold_tokens: trigger,
      memory_flush_enabled: false,
    };
    const { compacted_messages, tokens_after_compaction } = await this.ask("compact", {
      messages: chat.flat(),
      agentId,
      conversationId,
      config,
    });
    const view = toMessages(compacted_messages, shown, chat);
    if (!view) return shown;
    const rest = view.filter((message) => shown.includes(message));
    const last = rest.at(-1) === shown.at(-1);
    if (!last || view.length >= shown.length) return shown;
    const clean = this.dropsReasoning(model) ? view.map(withoutReasoning) : view;
    const shownKeys = clean.map(key);
    this.fold = { hidden: history, shown: clean, hiddenKeys: history.map(key), shownKeys };
    this.counted = { keys: shownKeys, tokens: tokens_after_compaction };
    this.note(clean, clean.flatMap(toChat), history, model, tokens_after_compaction);
    this.beside = 0; // it was that of another request
    return clean;
  }

  /** Keep what a list says when it is sent: the SDK may add to it. */
  private note(
    shown: AnyMessage[],
    chat: ChatMessage[],
    history: AnyMessage[],
    model: string,
    tokens: number,
  ): void {
    this.sent.set(shown, { chat, model, tokens, ...(shown === history ? {} : { history: [...history] }) });
  }

  /** Book a call, after those before it; nothing waits for that. */
  private report(view: AnyMessage[], usage: any): void {
    const sent = this.sent.get(view);
    const counts = readUsage(usage);
    if (!sent || !counts) return;
    this.beside = Math.max(counts.total - sent.tokens, 0);
    const { conversationId, agentId = "ai-sdk" } = this.options;
    const model = sent.model.slice(sent.model.lastIndexOf(" ") + 1);
    const book = () =>
      this.ask("report_usage", {
        conversation_id: conversationId,
        agent_id: agentId,
        request: { model, messages: sent.chat },
        ...(sent.history ? { history: sent.history.flatMap(toChat) } : {}),
        usage: counts.usage,
      });
    this.reports = this.reports.then(book).then(
      () => undefined,
      (error) => this.warn(error instanceof Error ? error.message : String(error), "a call is not booked"),
    );
  }

  private dropsReasoning(model: string): boolean {
    return this.options.dropReasoning ?? /anthropic|claude/i.test(model);
  }

  private async ask(operation: string, body: unknown): Promise<any> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (this.options.token) headers.authorization = `Bearer ${this.options.token}`;
    const url = `${this.options.gateway.replace(/\/$/, "")}/refold/api/${operation}`;
    const signal = AbortSignal.timeout(this.options.timeoutMs ?? 30_000);
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal });
    const text = await response.text();
    if (!response.ok) throw new Error(`the gateway answers ${response.status}: ${text.slice(0, 200)}`);
    return JSON.parse(text).result;
  }

  private warn(problem: string, what = "nothing is compacted"): void {
    if (this.warned.has(what)) return;
    this.warned.add(what);
    const tell = this.options.onProblem ?? ((text: string) => console.warn(text));
    tell(`refold: ${what}: ${problem}`);
  }
}

/** What a message says, whatever object it is. */
function key(message: AnyMessage): string {
  return JSON.stringify([message.role, message.content], (name, value) =>
    name === "providerOptions" || name === "providerMetadata" ? undefined : value,
  );
}

function begins(messages: AnyMessage[], keys: string[]): boolean {
  return keys.length <= messages.length && keys.every((each, at) => key(messages[at]!) === each);
}

function nameOf(model: any): string {
  return typeof model === "string" ? model : `${model?.provider ?? ""} ${model?.modelId ?? ""}`;
}

/** A call's usage, as models report it and as steps do, in Anthropic's form: the cache's tokens stand
 * beside `input_tokens`. Undefined if it has no tokens of the request. */
function readUsage(usage: any): { total: number; usage: Record<string, unknown> } | undefined {
  const details = usage?.inputTokenDetails ?? {};
  const input =
    usage?.inputTokens && typeof usage.inputTokens === "object"
      ? usage.inputTokens
      : { total: usage?.inputTokens, cacheRead: details.cacheReadTokens, cacheWrite: details.cacheWriteTokens };
  if (!input.total) return undefined;
  const [read, written] = [input.cacheRead ?? 0, input.cacheWrite ?? 0];
  const output = usage.outputTokens?.total ?? usage.outputTokens;
  return {
    total: input.total,
    usage: {
      input_tokens: Math.max(input.total - read - written, 0),
      cache_read_input_tokens: read,
      cache_creation_input_tokens: written,
      output_tokens: typeof output === "number" ? output : 0,
      ...(usage.raw?.cache_creation ? { cache_creation: usage.raw.cache_creation } : {}),
    },
  };
}

/** A message as Chat Completions has it: one, or one for each result of a tool. */
function toChat(message: AnyMessage): ChatMessage[] {
  if (typeof message.content === "string") return [{ role: message.role, content: message.content }];
  const parts = message.content as any[];
  if (message.role === "tool") {
    return parts
      .filter((part) => part.type === "tool-result")
      .map((part) => ({ role: "tool", tool_call_id: part.toolCallId, content: outputText(part.output) }));
  }
  const texts = parts.map(partText).filter((text) => text !== "");
  const calls = parts
    .filter((part) => part.type === "tool-call" && !part.providerExecuted)
    .map((part) => ({
      id: part.toolCallId,
      type: "function",
      function: { name: part.toolName, arguments: JSON.stringify(part.input ?? {}) },
    }));
  const content = texts.join("\n") || (calls.length ? null : "");
  return [{ role: message.role, content, ...(calls.length ? { tool_calls: calls } : {}) }];
}

function partText(part: any): string {
  if (part.type === "text") return part.text;
  if (part.type === "file" || part.type === "image") return `[${part.mediaType ?? part.type}]`;
  return part.type === "tool-result" ? outputText(part.output) : "";
}

function outputText(output: any): string {
  if (output && typeof output === "object" && "value" in output) {
    return typeof output.value === "string" ? output.value : JSON.stringify(output.value);
  }
  return typeof output === "string" ? output : JSON.stringify(output ?? "");
}

/** The messages of a compacted chat: those that it keeps are the same objects, others are texts.
 * Undefined if one is neither, or a message is kept in part. */
function toMessages<M extends AnyMessage>(compacted: ChatMessage[], shown: M[], chat: ChatMessage[][]): M[] | undefined {
  const keys = chat.map((group) => group.map((each) => JSON.stringify(each)));
  const out: M[] = [];
  let from = 0;
  for (let at = 0; at < compacted.length; ) {
    const wanted = compacted.slice(at).map((each) => JSON.stringify(each));
    const match = keys.findIndex(
      (group, n) => n >= from && group.length > 0 && group.every((each, k) => each === wanted[k]),
    );
    const next = compacted[at]!;
    if (match >= 0) {
      out.push(shown[match]!);
      from = match + 1;
      at += keys[match]!.length;
    } else if (typeof next.content === "string" && !next.tool_calls && next.role !== "tool") {
      out.push({ role: next.role, content: [{ type: "text", text: next.content }] } as unknown as M);
      at += 1;
    } else {
      return undefined;
    }
  }
  return out;
}

function withoutReasoning<M extends AnyMessage>(message: M): M {
  if (message.role !== "assistant" || !Array.isArray(message.content)) return message;
  const content = message.content.filter((part: any) => part.type !== "reasoning");
  return content.length === message.content.length ? message : { ...message, content };
}
