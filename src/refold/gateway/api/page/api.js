// Requests to the gateway's API. The admin token is stored for this tab only.

const KEY = "refold-admin-token";
const TOKEN = /^[\x20-\x7e]+$/; // characters that a header can carry
const TRIES = 40; // attempts to reach the process of the gateway that can answer
const BUSY_TRIES = 4; // attempts while it is busy, one second apart

/** The value of *name* in a storage ("localStorage", "sessionStorage"), or null; null too if the browser refuses it. */
export function recall(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

/** Store a text, or with null remove it. Nothing is remembered if the browser refuses it, as with all site data blocked. */
export function remember(storage, name, text) {
  try {
    if (text === null) window[storage].removeItem(name);
    else window[storage].setItem(name, text);
  } catch {} // the page works without
}

let token = recall("sessionStorage", KEY); // stored once the gateway has accepted it
if (token !== null && !TOKEN.test(token)) forgetToken();

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const hasToken = () => token !== null;
export const canBeToken = (text) => TOKEN.test(text);
export function useToken(text) {
  token = text;
}
export function forgetToken() {
  token = null;
  remember("sessionStorage", KEY, null);
}

// If only another process of the gateway can answer, retry over new connections until one reaches it. If the gateway
// is busy, retry a second later.
async function send(path, options = {}, tries = TRIES) {
  const headers = { ...options.headers };
  const current = token;
  if (current) headers.authorization = `Bearer ${current}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Error("The gateway cannot be reached.", { cause: error });
  });
  if (answer.ok) {
    if (current && current === token) remember("sessionStorage", KEY, current);
    return answer;
  }
  const error = await answer.json().then((body) => body.error, () => null);
  if (error?.code?.endsWith("_elsewhere") && tries > 1 && !options.signal?.aborted) return send(path, options, tries - 1);
  if (error?.code === "busy" && tries > TRIES - BUSY_TRIES && !options.signal?.aborted) {
    await new Promise((done) => setTimeout(done, 1000));
    return send(path, options, tries - 1);
  }
  throw new Refused(answer.status, error?.code, error?.message ?? `The gateway answered ${answer.status}.`);
}

/** A query string without undefined, null and empty values. */
export const queryOf = (values) => String(new URLSearchParams(Object.entries(values).filter(([, value]) => (value ?? "") !== "")));

/** get("session", {session: id}) */
export const get = async (name, query = {}) => (await send(`/refold/api/${name}?${queryOf(query)}`)).json();

/** Return the whole text of an operation that returns it in parts. */
export async function getText(name, query) {
  let text = "";
  for (let offset = 0; offset !== null;) {
    const part = await get(name, { ...query, offset, limit: 1_000_000 });
    text += part.text;
    offset = part.next;
  }
  return text;
}

export const post = async (name, body, signal = undefined) => (await send(`/refold/api/${name}`, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal })).json();

/** Call *tell* with each list of changes until *signal* is aborted, and *state* with "live" or with "gone" and the gateway's reason, if it gave one. Throws if the token is wrong. */
export async function follow(tell, state, signal) {
  for (let wait = 1000; !signal.aborted; wait = Math.min(10_000, wait * 2)) {
    try {
      const answer = await send("/refold/api/events", { headers: { accept: "text/event-stream" }, signal });
      state("live");
      wait = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const events = (rest + part.value).split("\n\n");
        rest = events.pop();
        for (const event of events) if (event.startsWith("data: ")) tell(JSON.parse(event.slice(6)));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      state("gone", error.status ? error.message : "");
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}
