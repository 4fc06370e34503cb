// The minimap beside a conversation: one bar per message, as long as its tokens.
import { create } from "./dom.js";

export function makeMap(jump) {
  const canvas = create("canvas");
  const frame = create("div", { class: "frame", hidden: true });
  const panel = create("div", { class: "panel map", "aria-hidden": "true" }, create("p", {}, "Messages"), canvas, frame,
    create("ul", {}, [["", "sent"], ["grey", "hidden"], ["dot", "you"], ["flag", "pin"]].map(([kind, name]) => create("li", {}, create("i", { class: kind }), name))));
  let session = null;
  const isFlat = () => innerWidth < 700;

  function draw(given = session) {
    session = given;
    if (!session || !canvas.clientWidth) return;
    const [width, height, scale] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    Object.assign(canvas, { width: width * scale, height: height * scale });
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const [teal, grey, dot] = [...panel.querySelectorAll("li i")].map((sign) => getComputedStyle(sign).backgroundColor);
    const { sizes, speakers, hidden } = session;
    const [long, wide] = isFlat() ? [width, height] : [height, width];
    const most = Math.sqrt(Math.max(1, ...sizes));
    const bins = Math.min(sizes.length, Math.floor(long));
    const step = long / Math.max(1, bins);
    const put = (along, across, thick, length) => (isFlat() ? paint.fillRect(along, wide - across - length, thick, length) : paint.fillRect(across, along, length, thick));
    for (let bin = 0; bin < bins; bin += 1) {
      let [best, person] = [-1, false];
      for (let at = Math.floor((bin * sizes.length) / bins); at < Math.floor(((bin + 1) * sizes.length) / bins); at += 1) {
        if (best < 0 || sizes[at] > sizes[best]) best = at;
        person ||= speakers[at] === "y";
      }
      paint.fillStyle = hidden.has(best) ? grey : teal;
      put(bin * step, 10, Math.max(1, step - (step > 3 ? 1 : 0)), Math.max(2, ((wide - 20) * Math.sqrt(sizes[best])) / most));
      if (person) { paint.fillStyle = dot; put(bin * step, 3, Math.max(2, Math.min(4, step)), 4); }
    }
    paint.fillStyle = dot;
    for (const { message } of session.pins) if (message !== null) put((message * long) / sizes.length, 0, 2, wide);
    for (const edit of session.edits) put((edit.start * long) / sizes.length, wide - 6, Math.max(1, ((edit.stop - edit.start) * long) / sizes.length), 2);
  }

  const go_ = (event) => {
    const box = canvas.getBoundingClientRect();
    const part = isFlat() ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height;
    jump(Math.max(0, Math.min(session.sizes.length - 1, Math.floor(part * session.sizes.length))));
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); go_(event); });
  canvas.addEventListener("pointermove", (event) => { if (canvas.hasPointerCapture(event.pointerId)) go_(event); });
  new ResizeObserver(() => draw()).observe(canvas);
  window.addEventListener("resize", () => draw());

  return {
    panel, draw,
    frame(first, last) {
      if (!session || !first || !last) return;
      const [from, to] = [first.at ?? 0, (last.edit?.stop ?? last.at ?? 0) + 1].map((at) => at / Math.max(1, session.sizes.length));
      frame.hidden = false;
      if (isFlat()) {
        Object.assign(frame.style, { left: `${canvas.offsetLeft + from * canvas.clientWidth}px`, width: `${Math.max(6, (to - from) * canvas.clientWidth)}px`, right: "auto", top: `${canvas.offsetTop}px`, height: `${canvas.clientHeight}px` });
      } else {
        Object.assign(frame.style, { left: "1px", right: "1px", width: "auto", top: `${canvas.offsetTop + from * canvas.clientHeight}px`, height: `${Math.max(6, (to - from) * canvas.clientHeight)}px` });
      }
    },
  };
}
