/**
 * Compaction for the Vercel AI SDK (6 and 7) by a Refold gateway's admin API.
 *
 * `new Refold(options).middleware` compacts what a model is sent; `.prepareStep` does the same in
 * an agent's loop. The conversation that your program keeps is left alone.
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
  /** Tokens of the messages at which the older ones are summarised. */
  trigger: number;
  /** Messages that stay as they are, counted from the newest. */
  keep?: number;
  /** Whose conversations these are. */
  agentId?: string;
  /** The admin token, if the gateway has one (`REFOLD_ADMIN_TOKEN`). */
  token?: string;
  /** Drop signed thinking that is kept behind a summary: by default for Claude, which refuses it. */
  dropReasoning?: boolean;
  /** Told once why nothing is compacted; by default a warning on the console. */
  onProblem?: (problem: string) => void;
}

/** What stands in place of the first messages, and what those are. */
interface Fold {
  hidden: string[];
  shown: AnyMessage[];
}

interface ChatMessage {
  role: string;
  content: string | null;
  tool_calls?: unknown[];
  tool_call_id?: string;
}

export class Refold {
  private fold: Fold | undefined;
  private warned = false;

  constructor(private readonly options: RefoldOptions) {}

  /** For `wrapLanguageModel`: every call is made with the view of its prompt. */
  readonly middleware = {
    specificationVersion: "v4" as const,
    transformParams: async ({ params, model }: { params: any; model: any }): Promise<any> => {
      const name = `${model?.provider ?? ""} ${model?.modelId ?? ""}`;
      return { ...params, prompt: await this.compact(params.prompt, name) };
    },
  };

  /** For `generateText`, `streamText` and agents. In 7 what it returns is carried forward to later
   * steps, in 6 it is not: the view is known again in both. */
  readonly prepareStep = async (step: { messages: any[]; model?: any }): Promise<{ messages: any[] }> => {
    const model = typeof step.model === "string" ? step.model : `${step.model?.provider} ${step.model?.modelId}`;
    return { messages: await this.compact(step.messages, model) };
  };

  /** Return the view of messages; the same messages if the gateway cannot be asked. */
  async compact<M extends AnyMessage>(messages: M[], model = ""): Promise<M[]> {
    const shown = this.show(messages);
    try {
      const config = { soft_threshold_tokens: this.options.trigger, hard_threshold_tokens: this.options.trigger };
      const chat = shown.map(toChat);
      const check = await this.ask("check_threshold", { messages: chat.flat(), config });
      if (!check.should_compact) return shown;
      return await this.summarise(messages, shown, chat, model);
    } catch (error) {
      this.warn(error instanceof Error ? error.message : String(error));
      return shown;
    }
  }

  /** Return messages with what is known of them: a list may begin with the view, or with what it hides. */
  private show<M extends AnyMessage>(messages: M[]): M[] {
    if (!this.fold || begins(messages, this.fold.shown.map(key))) return messages;
    if (!begins(messages, this.fold.hidden)) return messages;
    return [...(this.fold.shown as M[]), ...messages.slice(this.fold.hidden.length)];
  }

  private async summarise<M extends AnyMessage>(
    messages: M[],
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
    const { compacted_messages } = await this.ask("compact", {
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
    this.fold = { hidden: messages.map(key), shown: clean };
    return clean;
  }

  private dropsReasoning(model: string): boolean {
    return this.options.dropReasoning ?? /anthropic|claude/i.test(model);
  }

  private async ask(operation: string, body: unknown): Promise<any> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (this.options.token) headers.authorization = `Bearer ${this.options.token}`;
    const url = `${this.options.gateway.replace(/\/$/, "")}/refold/api/${operation}`;
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`the gateway answers ${response.status}: ${text.slice(0, 200)}`);
    return JSON.parse(text).result;
  }

  private warn(problem: string): void {
    if (this.warned) return;
    this.warned = true;
    const tell = this.options.onProblem ?? ((text: string) => console.warn(text));
    tell(`refold: nothing is compacted: ${problem}`);
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
