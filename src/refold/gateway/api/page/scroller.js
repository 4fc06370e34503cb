// A virtual list: only the rows near the screen are in the document.
import { create, keepFocus } from "./dom.js";

const MARGIN = 700; // pixels drawn above and below the screen

/** A placeholder for rows that are not drawn. In a table it needs a cell to have a height. */
export const gap = (tag, height) => create(tag, { class: "gap", vars: { height: `${height}px` } },
  tag === "tbody" ? create("tr", {}, create("td", { colspan: 8 })) : null);

/**
 * Show rows in *box*, each an element of *tag* made by *draw*(item), with an estimated *height* in pixels until measured.
 * The row at the top of the screen keeps its position. *moved* is called after rows were drawn.
 */
export function makeScroller(box, tag, height, draw, moved) {
  let items = []; // {key, ...}
  let tops = new Float64Array(1);
  const heights = new Map(); // by key
  const drawn = new Map(); // by key
  const [above, below] = [gap(tag, 0), gap(tag, 0)];
  box.append(above, below);

  function measureAll() {
    tops = new Float64Array(items.length + 1);
    items.forEach((item, at) => { tops[at + 1] = tops[at] + (heights.get(item.key) ?? height); });
  }

  function placeOf(y) {
    let [low, high] = [0, items.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  }

  const listTop = () => above.getBoundingClientRect().top;

  const paint = () => keepFocus(box, () => paintRows(topRow()));
  function paintRows(anchor) {
    for (let pass = 0; pass < 3; pass += 1) {
      const y = -listTop();
      const [first, last] = [placeOf(y - MARGIN), Math.min(items.length, placeOf(y + innerHeight + MARGIN) + 1)];
      const wanted = items.slice(first, last);
      const keys = new Set(wanted.map((item) => item.key));
      for (const [key, row] of drawn) if (!keys.has(key)) { row.remove(); drawn.delete(key); }
      let after = above;
      for (const item of wanted) {
        let row = drawn.get(item.key);
        if (!row) {
          row = draw(item);
          drawn.set(item.key, row);
        }
        if (after.nextSibling !== row) after.after(row);
        after = row;
      }
      let changed = false;
      for (const { key } of wanted) {
        const { offsetHeight } = drawn.get(key);
        if (heights.get(key) !== offsetHeight) { heights.set(key, offsetHeight); changed = true; }
      }
      if (changed) measureAll();
      above.style.setProperty("--height", `${tops[first]}px`);
      below.style.setProperty("--height", `${tops[items.length] - tops[last]}px`);
      if (!changed) break;
    }
    if (anchor) {
      const now = drawn.get(anchor.key)?.getBoundingClientRect().top;
      if (now !== undefined && Math.abs(now - anchor.top) > 1) window.scrollBy(0, now - anchor.top);
    }
    moved();
  }

  /** Return the row that keeps its position: the focused one if it is on screen, else the first on screen. */
  function topRow() {
    let best = null;
    for (const [key, row] of drawn) {
      const { top, bottom } = row.getBoundingClientRect();
      if (bottom <= 60 || top >= innerHeight) continue;
      if (row.contains(document.activeElement)) return { key, top };
      if (!best || top < best.top) best = { key, top };
    }
    return best;
  }

  let frame = 0;
  const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
  window.addEventListener("scroll", soon, { passive: true });
  window.addEventListener("resize", soon);
  const observer = new ResizeObserver(soon);
  observer.observe(box);

  return {
    /** Set the rows to *next*, and redraw those for which *isOld*(item, row) is true. */
    set(next, isOld = () => false) {
      const anchor = topRow();
      keepFocus(box, () => {
        items = next;
        const byKey = new Map(items.map((item) => [item.key, item]));
        for (const [key, row] of drawn) {
          const item = byKey.get(key);
          if (!item) { row.remove(); drawn.delete(key); }
          else if (isOld(item, row)) { drawn.set(key, draw(item)); row.replaceWith(drawn.get(key)); } // replaced in place, since a page that gets shorter for a moment scrolls
        }
        measureAll();
        paintRows(anchor);
      });
    },
    row: (key) => drawn.get(key) ?? null,
    /** Scroll an item to *top* pixels below the edge of the screen. Return its row. */
    show(key, focus = true, top = 120) {
      const at = items.findIndex((item) => item.key === key);
      if (at < 0) return null;
      for (let pass = 0; pass < 3; pass += 1) {
        window.scrollTo(0, window.scrollY + listTop() + tops[at] - top);
        paint();
      }
      const row = drawn.get(key);
      if (focus) row?.querySelector("button, [tabindex]")?.focus({ preventScroll: true });
      return row;
    },
    /** Return the first and the last item on screen, or an empty array. */
    span() {
      const y = -listTop();
      if (y + innerHeight < 0 || y > tops[items.length]) return [];
      return [items[placeOf(Math.max(0, y + 60))], items[placeOf(y + innerHeight)]];
    },
    get items() { return items; },
    close() {
      window.removeEventListener("scroll", soon);
      window.removeEventListener("resize", soon);
      observer.disconnect();
    },
  };
}
