// Responsive charts. Each is an SVG with a text alternative and a table of its data.
import { button, create, draw } from "./dom.js";
import { brief, clock, day, money, number, plural } from "./format.js";

const LEFT = 54; // fits $0.0100
const RIGHT = 14;
const TOP = 18;
const BOTTOM = 22;
const HEIGHT = 150;
const openTables = new Set(); // titles of charts whose table stays open when they are redrawn

/** Return a panel whose SVG *paint*(svg, width, panel) redraws at each new width. *sentence* is its text alternative; *table*() returns the rows of its table, the column names first. */
function chart(title, quiet, legend, sentence, table, paint) {
  const svg = draw("svg", { role: "img", "aria-label": sentence });
  const rows = create("div");
  const fill = () => {
    openTables[details.open ? "add" : "delete"](title);
    if (!details.open || rows.children.length) return;
    const [names, ...lines] = table();
    rows.append(create("table", {}, create("thead", {}, create("tr", {}, names.map((name) => create("th", { scope: "col" }, name)))),
      create("tbody", {}, lines.map((line) => create("tr", {}, line.map((text) => create("td", {}, text)))))));
  };
  const details = create("details", { class: "table", open: openTables.has(title), ontoggle: fill }, create("summary", {}, "Show as table"), rows);
  fill();
  const panel = create("section", { class: "panel chart", "aria-label": title },
    create("header", {}, create("h2", {}, title), create("span", { class: "quiet" }, quiet),
      create("span", { class: "legend" }, legend.map(([kind, name]) => create("span", {}, create("i", { class: kind }), name)))),
    svg, details);
  const observer = new ResizeObserver(() => {
    const width = svg.clientWidth;
    if (!width) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.replaceChildren();
    paint(svg, width, panel);
  });
  observer.observe(panel);
  return panel;
}

function ceiling(value, steps = 4) {
  const rough = Math.max(value, 1e-9) / steps;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * size).find((part) => part >= rough);
  return [step * Math.ceil(value / step) || step, step];
}

/** Draw the grid lines and their labels. Return the function from a value to its y coordinate. */
function axis(svg, width, most, label) {
  const [top, step] = ceiling(most, 3);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / top;
  for (let value = 0; value <= top * 1.0001; value += step) {
    svg.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  return y;
}

/** Dollars spent by day with the dollars saved on top. A click on a day calls *open* with its midnight. */
export function moneyChart(days, today, since, open) {
  const list = Array.from({ length: 30 }, (_, back) => {
    const date = new Date(today * 1000);
    const begin = new Date(date.getFullYear(), date.getMonth(), date.getDate() - 29 + back).getTime() / 1000;
    const found = days.find(([at]) => Math.abs(at - begin) < 7200);
    return { begin, spent: found?.[1] ?? 0, saved: Math.max(0, found?.[2] ?? 0), net: found?.[2] ?? 0, sessions: found?.[3] ?? 0 };
  });
  const spent = list.reduce((sum, item) => sum + item.spent, 0);
  const most = Math.max(...list.map((item) => item.spent + item.saved), 0.01);
  return chart("Cost by day", "last 30 days, selected period highlighted", [["grey", "Saved"], ["", "Spent"]],
    `Cost by day, last 30 days: ${money(spent)} spent.`,
    () => [["Day", "Spent", "Saved", "Sessions"], ...list.map((item) => [button(day(item.begin), () => open(item.begin), { class: "link" }), money(item.spent), money(item.net), number(item.sessions)])],
    (svg, width) => {
      const y = axis(svg, width, most, (value) => (most < 3 ? money(value, most < 0.1) : `$${number(value)}`));
      const step = (width - LEFT - RIGHT) / list.length;
      list.forEach((item, at) => {
        const [x, wide] = [LEFT + at * step + 1, Math.max(1, step - 2)];
        const faded = item.begin < since ? " faded" : "";
        const both = draw("g", { class: faded.trim() },
          draw("title", {}, `${day(item.begin)}: ${money(item.spent)} spent, ${money(item.net)} saved`),
          draw("rect", { class: "bar-saved", x, width: wide, y: y(item.spent + item.saved), height: y(item.spent) - y(item.spent + item.saved) }),
          draw("rect", { class: "bar-spent", x, width: wide, y: y(item.spent), height: y(0) - y(item.spent) }),
          draw("rect", { class: "hit", x: x - 1, width: step, y: TOP, height: HEIGHT - TOP - BOTTOM, fill: "transparent", onclick: () => open(item.begin) }));
        svg.append(both);
        if ((list.length - 1 - at) % Math.ceil(70 / step) === 0) svg.append(draw("text", { x: x + wide / 2, y: HEIGHT - 6, "text-anchor": "middle" }, day(item.begin)));
      });
    });
}

/** Return the SVG path of a step area chart. */
function area(points, x, y) {
  if (!points.length) return "";
  let path = `M${x(0)} ${y(0)}`;
  points.forEach((value, at) => { path += `V${y(value).toFixed(1)}H${x(at + 1).toFixed(1)}`; });
  return `${path}V${y(0)}Z`;
}

/** Downsample to one point per pixel if there are over two calls per pixel. Each keeps the maximum, so no peak is lost. */
function thin(calls, width) {
  const size = Math.ceil(calls.length / Math.max(1, width));
  if (size < 3) return calls.map((call, at) => ({ ...call, at }));
  const bins = [];
  for (let at = 0; at < calls.length; at += size) {
    const bin = calls.slice(at, at + size);
    bins.push({ ...bin.at(-1), at: at + bin.length - 1, original: Math.max(...bin.map((call) => call.original)), sent: Math.max(...bin.map((call) => call.sent)) });
  }
  return bins;
}

/** Tokens by call, in order, with a gap between sessions. *calls* are {time, original, sent, session}; a click calls *open* with the session. */
export function callsChart(calls, open) {
  return chart("Tokens by call", `today, ${plural(calls.length, "call")}`, [["grey", "Original"], ["", "Sent"]],
    calls.length ? `Tokens of ${plural(calls.length, "call")} today, from ${clock(calls[0].time)} to ${clock(calls.at(-1).time)}.` : "No calls today.",
    () => [["Time", "Original", "Sent"], ...calls.map((call) => [button(clock(call.time), () => open(call.session), { class: "link" }), number(call.original), number(call.sent)])],
    (svg, width) => {
      const most = Math.max(1000, ...calls.map((call) => call.original));
      const y = axis(svg, width, most, brief);
      const room = width - LEFT - RIGHT;
      const groups = [];
      calls.forEach((call) => {
        if (groups.at(-1)?.[0].session !== call.session) groups.push([]);
        groups.at(-1).push(call);
      });
      const gap = groups.length > 1 ? Math.min(4, (0.15 * room) / groups.length) : 0;
      const wide = (room - gap * (groups.length - 1)) / Math.max(1, calls.length);
      let at = LEFT;
      let labelled = -99;
      for (const group of groups) {
        const [begin, points] = [at, thin(group, group.length * wide)];
        const x = (number) => begin + (number * group.length * wide) / points.length;
        svg.append(draw("g", { onclick: () => open(group[0].session), class: "hit", role: "button", "aria-label": `${plural(group.length, "call")} from ${clock(group[0].time)}` },
          draw("title", {}, `${plural(group.length, "call")} from ${clock(group[0].time)} to ${clock(group.at(-1).time)}`),
          draw("path", { class: "area-original", d: area(points.map((call) => call.original), x, y) }),
          draw("path", { class: "area-sent", d: area(points.map((call) => call.sent), x, y) })));
        if (begin - labelled > 60 && begin < width - 40) {
          svg.append(draw("text", { x: begin, y: HEIGHT - 6 }, clock(group[0].time)));
          labelled = begin;
        }
        at += group.length * wide + gap;
      }
    });
}

/** Tokens per call of a session, with its limits and numbered compactions. A click calls *open* with the call's number, counted from 1. */
export function sessionChart({ first, calls, levels, runs }, chosen, open) {
  const last = calls.at(-1);
  const panel = chart("Tokens per call", "", [["grey", "Original"], ["", "Sent"]],
    last ? `Tokens of ${plural(calls.length, "call")}. Last call: original ${number(last.original)}, sent ${number(last.sent)}. ${plural(runs.length, "compaction")}.` : "No calls recorded.",
    () => [["Call", "Time", "Original", "Sent", "Cost", "Without Refold"],
      ...calls.map((call) => [String(call.number), clock(call.time), number(call.original), number(call.sent), money(call.cost, true), money(call.without, true)])],
    (svg, width, panel) => {
      const highest = Math.max(1000, ...calls.map((call) => call.original));
      const nears = [levels.window, levels.compact].filter((level) => level && level < 1.6 * highest);
      const y = axis(svg, width, Math.max(highest, ...nears), brief);
      const points = thin(calls, width - LEFT - RIGHT);
      const x = (at) => LEFT + ((width - LEFT - RIGHT) * at) / Math.max(1, calls.length);
      const scaled = (at) => x((at * calls.length) / points.length);
      svg.append(draw("path", { class: "area-original", d: area(points.map((call) => call.original), scaled, y) }),
        draw("path", { class: "area-sent", d: area(points.map((call) => call.sent), scaled, y) }));
      const isTight = nears.length === 2 && y(levels.compact) - y(levels.window) < 14;
      for (const [level, name, down] of [[levels.window, "model window", -4], [levels.compact, "compacts above", isTight ? 12 : -4]]) {
        if (!nears.includes(level)) continue;
        svg.append(draw("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: y(level), y2: y(level) }),
          draw("text", { x: LEFT + 5, y: y(level) + down }, `${name} ${brief(level)}`));
      }
      const step = Math.max(1, Math.ceil(calls.length / Math.max(1, Math.floor(width / 110))));
      for (let at = 0; at < calls.length; at += step) {
        if (x(at) < width - 70) svg.append(draw("text", { x: x(at), y: HEIGHT - 6 }, `${at ? "" : "call "}${first + at} · ${clock(calls[at].time)}`));
      }
      drawMarks(svg, runs, (run) => x(Math.max(0, run.call - first)));
      pointAt(svg, panel, calls, x, y, width, chosen ? chosen - first : -1, open);
    });
  return panel;
}

function drawMarks(svg, runs, x) {
  const groups = [];
  for (const run of runs) {
    if (groups.length && x(run) - x(groups.at(-1).at(-1)) < 18) groups.at(-1).push(run);
    else groups.push([run]);
  }
  for (const group of groups) {
    const at = x(group.at(-1));
    const text = group.map((run) => run.number).join(", ");
    const wide = Math.max(15, 7 + 5.6 * text.length);
    svg.append(draw("g", { class: "mark" }, draw("title", {}, `Compaction ${text}`),
      draw("line", { x1: at, x2: at, y1: 9, y2: HEIGHT - BOTTOM }),
      draw("rect", { x: at - wide / 2, y: 1, width: wide, height: 15, rx: 7.5 }), draw("text", { x: at, y: 12 }, text)));
  }
}

/** Show a tooltip for the call under the pointer or reached with the arrow keys. */
function pointAt(svg, panel, calls, x, y, width, chosen, open) {
  if (!calls.length) return;
  panel.querySelector(".tip")?.remove();
  const line = draw("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const tip = create("div", { class: "tip", hidden: true });
  panel.append(tip);
  svg.append(line);
  let at = chosen;
  const show = (number_) => {
    at = Math.max(0, Math.min(calls.length - 1, number_));
    const call = calls[at];
    const place = x(at + 0.5);
    for (const name of ["x1", "x2"]) line.setAttribute(name, place);
    line.setAttribute("visibility", "visible");
    const pairs = [["Original", number(call.original)], ["Sent", number(call.sent)], ["Cost", call.cost ? `${money(call.cost, true)} instead of ${money(call.without, true)}` : "unknown"]];
    tip.replaceChildren(create("b", {}, `Call ${call.number} · ${clock(call.time)}`),
      create("dl", {}, pairs.flatMap(([name, value]) => [create("dt", {}, name), create("dd", {}, value)])));
    tip.hidden = false;
    tip.style.top = `${svg.getBoundingClientRect().top - panel.getBoundingClientRect().top + 16}px`;
    const left = Math.max(4, place > width / 2 ? place - tip.offsetWidth - 10 : place + 10);
    tip.style.left = `min(${left}px, 100% - ${tip.offsetWidth + 4}px)`; // stays inside the panel even before a narrower chart is drawn
  };
  const hide = () => { if (chosen < 0) { tip.hidden = true; line.setAttribute("visibility", "hidden"); } else show(chosen); };
  svg.append(draw("rect", { class: "hit", x: LEFT, y: TOP, width: Math.max(0, width - LEFT - RIGHT), height: HEIGHT - TOP - BOTTOM, fill: "transparent",
    onmousemove: (event) => show(Math.floor(((event.offsetX - LEFT) / (width - LEFT - RIGHT)) * calls.length)),
    onmouseleave: hide, onclick: () => open(calls[at].number) }));
  svg.setAttribute("tabindex", "0");
  svg.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (by) show(at < 0 && by < 0 ? calls.length - 1 : at + by);
    else if (event.key === "Enter" && at >= 0) open(calls[at].number);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  svg.onblur = hide;
  if (chosen >= 0) show(chosen);
}
