// Formats of numbers, times and names. Tables show whole numbers; k and M are for axes and totals.

const whole = new Intl.NumberFormat("en");
const dollars = (digits) => new Intl.NumberFormat("en", {
  style: "currency", currency: "USD", minimumFractionDigits: digits, maximumFractionDigits: digits });
const [cents, fine] = [dollars(2), dollars(4)];

export const DASH = "–";
export const number = (value) => whole.format(Math.round(value));
export const plural = (count, word, more = `${word}s`) => `${number(count)} ${count === 1 ? word : more}`;

/** Dollars to the cent. If *exact*, amounts under a dollar have four digits, for the cost of one call. */
export function money(value, exact = false) {
  if (value === null || value === undefined) return DASH;
  const text = exact && Math.abs(value) < 1 ? fine.format(value) : cents.format(value);
  return text.replace(/^-/, "−").replace(/^−(\$0\.0+)$/, "$1");
}

export function share(part, all) {
  if (!all) return DASH;
  const percent = (100 * part) / all;
  return `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

/** 84.1M, 36k, 9.3k, 221 */
export function brief(value) {
  for (const [size, letter] of [[1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(Math.abs(value) < 10 * size ? 1 : 0)}${letter}`;
  }
  return number(value);
}

export const signed = (value) => (value > 0 ? `+${number(value)}` : value < 0 ? `−${number(-value)}` : "0");

const clockOf = (style) => new Intl.DateTimeFormat("en-GB", style);
const [toMinute, toSecond, toDay, toLongDay] = [
  { hour: "2-digit", minute: "2-digit" }, { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  { day: "numeric", month: "short" }, { day: "numeric", month: "long" }].map(clockOf);
export const clock = (seconds) => toMinute.format(seconds * 1000);
export const clockWithSeconds = (seconds) => toSecond.format(seconds * 1000);
export const day = (seconds) => toDay.format(seconds * 1000);

/** The local midnight that began a day, or the one *ago* days earlier, in seconds since 1970. */
export function midnight(seconds, ago = 0) {
  const date = new Date(seconds * 1000);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - ago).getTime() / 1000;
}

export function dayName(seconds, now) {
  const name = toLongDay.format(seconds * 1000);
  const begin = midnight(seconds);
  if (begin === midnight(now)) return `Today, ${name}`;
  return begin === midnight(now, 1) ? `Yesterday, ${name}` : name;
}

/** A model's name without vendor and date suffix. */
export const shortModel = (model) => model.replace(/^.*\//, "").replace(/^claude-/, "").replace(/-\d{8}$/, "");
export const shortId = (id) => id.slice(0, 8);

const STRATEGIES = [
  [/^Summarize|^HistorySummary|^WholeHistory|^FromLastN|^Chunked/, "Summary"], [/^ClearToolResults/, "Old tool results cleared"],
  [/^ClearToolInputs/, "Old tool calls shortened"], [/^ClearThinking/, "Old thinking cleared"],
  [/^DropDuplicates/, "Duplicate cleared"], [/^ClipResults/, "Long result clipped"], [/^OutlineResults/, "Long result outlined"],
  [/^Restore/, "Message restored"], [/^as said/, "Sent unchanged"], [/^settle/, "Signed thinking dropped"]];

/** A short name of what a strategy did. */
export const strategy = (by) => {
  const maker = by.replace(/^decided \(/, ""); // an edit that the gateway applied again
  return STRATEGIES.find(([pattern]) => pattern.test(maker))?.[1] ?? (maker.split("(")[0].trim() || "Edit");
};
export const whichMessages = ({ start, stop }) => (stop > start + 1 ? `messages ${start}–${stop - 1}` : `message ${start}`);
export const byWhom = (actor) => (actor.startsWith("auto") ? "automatic" : actor === "page" ? "on this page" : actor && `by ${actor}`);
/** The beginning of a sentence that ends with the tokens of a session. */
export const thenHas = ({ file, in_shadow: inShadow }, what = "sends") => (file ? "The session then has" : inShadow ? `Without shadow, the next call ${what}` : `The next call ${what}`);
/** An edit in one line. */
export const editTitle = (edit) => `${strategy(edit.by)}${edit.stop > edit.start + 1 ? " of" : " ·"} ${whichMessages(edit)}`;
export const isSummary = (by) => strategy(by) === "Summary";

/** Cut a path in the middle. The file's name stays whole. */
export function middleCut(path, most = 46) {
  if (path.length <= most) return path;
  const name = path.slice(path.lastIndexOf("/"));
  return `${path.slice(0, Math.max(1, most - name.length - 1))}…${name}`;
}

/** Truncate a text with …, never inside a surrogate pair. */
export const cut = (text, most) => (text.length > most ? `${text.slice(0, most).replace(/[\uD800-\uDBFF]$/, "").trimEnd()}…` : text);
