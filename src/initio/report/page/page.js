// @ts-check
/*
 * The charts of a page. Every text from the data becomes a text node, so that it stays text.
 *
 * A chart is two canvases: the lower one is drawn when data, size or theme change, the upper one when the pointer moves.
 */
(() => {
  "use strict";

  /** @typedef {(number | string | null)[]} Column */
  /** @typedef {{name: string, x: Column, y: Column}} Line */
  /** @typedef {[string, string[], [number, number][]]} Shape  a cell's name, its nodes, the ends of its arrows */
  /** @typedef {[number, ...string[]]} ShapedCell  the number of its shape, the labels of its arrows */
  /** @typedef {{kind: "table", file: string, columns: Record<string, Column>}} TableData */
  /** @typedef {{kind: "lines", x: string, y: string, lines: Line[], steps: boolean}} LineData */
  /**
   * @typedef {{kind: "points", file: string, x: string, y: string, columns: Record<string, Column>, names: string[],
   *   cells: ShapedCell[][], shapes: Shape[], families: Record<string, string>, marked: Record<string, string>}} PointData
   */
  /** @typedef {{kind: "surface", unit: string, at: number[], values: Column[]}} SurfaceData */
  /** @typedef {{low: number, high: number, log: boolean}} Scale */
  /** @typedef {{left: number, top: number, width: number, height: number}} Frame */

  const NEAR = 28; // pixels within which a point is pointed at
  const WIDE = 30; // times the small values that the large ones must be for a logarithmic axis
  const PADDING = { left: 58, right: 14, top: 12, bottom: 44 };
  const HEIGHTS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // from low to high
  const SVG = "http://www.w3.org/2000/svg";

  // --- small things ---------------------------------------------------------------------------------------------

  /**
   * An element with attributes and children; a string becomes a text node.
   * @param {string} tag @param {Record<string, string>} [attributes] @param {(Node | string)[]} children
   * @returns {HTMLElement}
   */
  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /** @param {string} tag @param {Record<string, string | number>} attributes @param {(Node | string)[]} children */
  function draw(tag, attributes, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    made.append(...children);
    return made;
  }

  /** @param {string} label @param {() => void} act */
  function button(label, act) {
    const made = make("button", { type: "button" }, label);
    made.addEventListener("click", act);
    return made;
  }

  /** What is no number is none: null becomes NaN, the word Infinity itself. @param {Column} column */
  function numbers(column) {
    const found = new Float64Array(column.length);
    for (let i = 0; i < column.length; i++) found[i] = column[i] === null ? NaN : Number(column[i]);
    return found;
  }

  /** A number for a tick or a tooltip. @param {number} value */
  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
    if (size >= 1e9) return trim(value / 1e9) + "G";
    if (size >= 1e6) return trim(value / 1e6) + "M";
    if (size >= 1e4) return trim(value / 1e3) + "k";
    return trim(value);
  }

  /** @param {number} value */
  const trim = (value) => String(Number(value.toPrecision(4)));

  /** The colour that the page's style gives a name. @param {string} name */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // --- scales ---------------------------------------------------------------------------------------------------

  /** Whether values without a negative one spread so widely that they are better read on a logarithmic axis. @param {Float64Array} values */
  function isWide(values) {
    const sorted = values.filter(Number.isFinite).sort(), positive = sorted.filter((value) => value > 0);
    if (sorted[0] < 0 || positive.length < 20) return false;
    return positive[Math.floor(0.99 * positive.length)] / positive[Math.floor(0.01 * positive.length)] > WIDE;
  }

  /** @param {Float64Array} values @param {boolean} log @returns {Scale} */
  function scaleOf(values, log) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      const at = log ? (value > 0 ? Math.log10(value) : NaN) : value;
      if (!Number.isFinite(at)) continue;
      low = Math.min(low, at);
      high = Math.max(high, at);
    }
    if (low > high) return { low: 0, high: 1, log: false };
    const margin = (high - low || Math.abs(high) || 1) * 0.04;
    return { low: low - margin, high: high + margin, log };
  }

  /** Where a value is, from 0 to 1; NaN if nowhere. @param {Scale} scale @param {number} value */
  function place(scale, value) {
    const at = scale.log ? (value > 0 ? Math.log10(value) : NaN) : value;
    return Number.isFinite(at) ? (at - scale.low) / (scale.high - scale.low) : NaN;
  }

  /** Round values on a scale, about as many as asked for. @param {Scale} scale @param {number} count */
  function ticks(scale, count) {
    const span = scale.high - scale.low;
    if (scale.log && span > 1.5) {
      const step = Math.max(1, Math.round(span / count));
      const first = Math.ceil(scale.low / step) * step;
      return Array.from({ length: Math.floor((scale.high - first) / step) + 1 }, (_, i) => 10 ** (first + i * step));
    }
    const [low, high] = scale.log ? [10 ** scale.low, 10 ** scale.high] : [scale.low, scale.high];
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5, 10].find((round) => round * power >= raw) ?? 10);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  }

  // --- a frame with axes ----------------------------------------------------------------------------------------

  /** What all charts share: two canvases in a box, axes, and a card at the pointer. */
  class Chart {
    /** @param {HTMLElement} figure */
    constructor(figure) {
      this.figure = figure;
      this.lower = /** @type {HTMLCanvasElement} */ (make("canvas"));
      this.upper = /** @type {HTMLCanvasElement} */ (make("canvas", { role: "img", tabindex: "0" }));
      this.card = make("div", { class: "card", hidden: "" });
      this.box = make("div", { class: "plot" }, this.lower, this.upper, this.card);
      figure.append(this.box);
      /** @type {Scale} */ this.x = { low: 0, high: 1, log: false };
      /** @type {Scale} */ this.y = { low: 0, high: 1, log: false };
      this.titles = { x: "", y: "" };
      this.drawn = ""; // the size that was drawn last
      new ResizeObserver(() => this.size !== this.drawn && this.redraw()).observe(this.box);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    }

    get size() {
      return `${this.box.clientWidth} x ${this.box.clientHeight} at ${window.devicePixelRatio}`;
    }

    /** @returns {Frame} */
    get frame() {
      const { clientWidth, clientHeight } = this.box;
      const { left, right, top, bottom } = PADDING;
      return { left, top, width: clientWidth - left - right, height: clientHeight - top - bottom };
    }

    /** The drawing context of a canvas that is empty and sharp. @param {HTMLCanvasElement} canvas */
    clear(canvas) {
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.round(this.box.clientWidth * ratio);
      canvas.height = Math.round(this.box.clientHeight * ratio);
      const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      pen.scale(ratio, ratio);
      pen.font = `12px ${getComputedStyle(this.figure).fontFamily}`;
      return pen;
    }

    redraw() {
      this.drawn = this.size;
      const pen = this.clear(this.lower);
      this.drawAxes(pen);
      this.drawData(pen);
      this.drawOver();
    }

    /** @param {CanvasRenderingContext2D} pen */
    drawAxes(pen) {
      const { left, top, width, height } = this.frame;
      pen.strokeStyle = colour("rule");
      pen.fillStyle = colour("faint");
      pen.lineWidth = 1;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      for (const value of ticks(this.x, Math.max(2, width / 90))) {
        const at = left + place(this.x, value) * width;
        pen.fillText(short(value), at, top + height + 8);
      }
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const value of ticks(this.y, Math.max(3, height / 45))) {
        const at = Math.round(top + (1 - place(this.y, value)) * height) + 0.5;
        pen.beginPath();
        pen.moveTo(left, at);
        pen.lineTo(left + width, at);
        pen.stroke();
        pen.fillText(short(value), left - 8, at);
      }
      pen.fillStyle = colour("ink");
      pen.textBaseline = "alphabetic";
      pen.fillText(this.titles.x, left + width, top + height + PADDING.bottom - 6);
    }

    /** @param {CanvasRenderingContext2D} _pen */
    drawData(_pen) {}

    drawOver() {}

    /** Shows the card beside a place of the box, inside the window. @param {number} x @param {number} y */
    showCard(x, y) {
      this.card.hidden = false;
      const width = this.box.clientWidth, own = this.card.offsetWidth;
      const left = x + 16 + own < width ? x + 16 : Math.max(0, x - own - 16);
      this.card.style.left = `${Math.min(left, Math.max(0, width - own))}px`;
      this.card.style.top = `${Math.max(0, Math.min(y - 20, this.box.clientHeight - 40))}px`;
    }
  }

  // --- lines ----------------------------------------------------------------------------------------------------

  /** Lines over one axis; the pointer reads them. */
  class LineChart extends Chart {
    /** @param {HTMLElement} figure @param {LineData} data */
    constructor(figure, data) {
      super(figure);
      this.data = data;
      this.lines = data.lines.map((line) => ({ name: line.name, x: numbers(line.x), y: numbers(line.y) }));
      const [xs, ys] = [data.lines.flatMap((line) => line.x), data.lines.flatMap((line) => line.y)].map(numbers);
      this.x = scaleOf(xs, isWide(xs));
      this.y = scaleOf(ys, isWide(ys));
      this.titles = { x: data.x, y: data.y };
      this.at = NaN;
      this.upper.setAttribute("aria-label", `${data.y} over ${data.x}: ${data.lines.map((line) => line.name).join(", ")}`);
      this.upper.addEventListener("pointermove", (event) => this.point(event.offsetX));
      this.upper.addEventListener("pointerdown", (event) => this.point(event.offsetX));
      this.upper.addEventListener("pointerleave", () => this.point(NaN));
      const keys = this.lines.map((line, i) => make("span", { class: `key line-${i % 6}` }, line.name));
      this.box.before(make("p", { class: "keys" }, data.y, ...(keys.length > 1 ? keys : [])));
    }

    /** @param {CanvasRenderingContext2D} pen */
    drawData(pen) {
      const { left, top, width, height } = this.frame;
      this.lines.forEach((line, number) => {
        pen.strokeStyle = pen.fillStyle = colour(`line-${number % 6}`);
        pen.lineWidth = 2;
        pen.lineJoin = "round";
        pen.beginPath();
        let last = NaN;
        for (let i = 0; i < line.x.length; i++) {
          const [px, py] = [place(this.x, line.x[i]), place(this.y, line.y[i])];
          const [sx, sy] = [left + px * width, top + (1 - py) * height];
          if (Number.isNaN(px) || Number.isNaN(py)) last = NaN;
          else if (Number.isNaN(last)) pen.moveTo(sx, (last = sy));
          else {
            if (this.data.steps) pen.lineTo(sx, last);
            pen.lineTo(sx, (last = sy));
          }
          if (line.x.length <= 60 && Number.isFinite(sx + sy)) pen.fillRect(sx - 2, sy - 2, 4, 4);
        }
        pen.stroke();
      });
    }

    /** @param {number} at */
    point(at) {
      this.at = at;
      this.drawOver();
    }

    drawOver() {
      const pen = this.clear(this.upper);
      const { left, top, width, height } = this.frame;
      this.card.hidden = true;
      if (!(this.at >= left && this.at <= left + width)) return;
      const rows = [];
      let x = NaN, distance = Infinity;
      for (const line of this.lines) {
        for (const value of line.x) {
          const away = Math.abs(left + place(this.x, value) * width - this.at);
          if (away < distance) [x, distance] = [value, away];
        }
      }
      for (const [number, line] of this.lines.entries()) {
        const i = this.index(line.x, x);
        if (i < 0 || !Number.isFinite(line.y[i])) continue;
        rows.push(make("p", {}, make("span", { class: `key line-${number % 6}` }, line.name), make("b", {}, short(line.y[i]))));
        pen.fillStyle = colour(`line-${number % 6}`);
        pen.beginPath();
        pen.arc(left + place(this.x, x) * width, top + (1 - place(this.y, line.y[i])) * height, 4.5, 0, 7);
        pen.fill();
      }
      const at = left + place(this.x, x) * width;
      pen.strokeStyle = colour("faint");
      pen.beginPath();
      pen.moveTo(at, top);
      pen.lineTo(at, top + height);
      pen.stroke();
      this.card.replaceChildren(make("p", { class: "head" }, `${this.data.x} ${short(x)}`), ...rows);
      this.showCard(at, top + 40);
    }

    /** The place of x in a line; on steps, of the last value before it. @param {Float64Array} xs @param {number} x */
    index(xs, x) {
      if (!this.data.steps) return xs.indexOf(x);
      let found = -1;
      while (found + 1 < xs.length && xs[found + 1] <= x) found += 1;
      return found;
    }
  }

  // --- surfaces -------------------------------------------------------------------------------------------------

  /** A value on a square grid as colours, logarithmic in its height above the least; the pointer reads it. */
  class SurfaceChart extends Chart {
    /** @param {HTMLElement} figure @param {SurfaceData} data */
    constructor(figure, data) {
      super(figure);
      this.data = data;
      this.rows = data.values.map(numbers);
      const all = this.rows.flatMap((row) => [...row]).filter(Number.isFinite).sort((a, b) => a - b);
      this.low = all[0] ?? 0;
      this.span = Math.max((all[Math.floor(0.95 * (all.length - 1))] ?? 0) - this.low, 1e-12);
      const half = (data.at[1] - data.at[0]) / 2;
      this.x = this.y = { low: data.at[0] - half, high: data.at[data.at.length - 1] + half, log: false };
      this.titles = { x: "a", y: "b" };
      this.upper.setAttribute("aria-label", `${data.unit} around a point, from ${short(this.low)} to ${short(all[all.length - 1])}`);
      this.upper.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
      this.upper.addEventListener("pointerdown", (event) => this.point(event.offsetX, event.offsetY));
      this.upper.addEventListener("pointerleave", () => this.point(NaN, NaN));
      const reach = `${data.unit} from ${short(this.low)}, dark, to ${short(this.low + this.span)} and more, light`;
      this.box.before(make("p", { class: "keys" }, reach));
    }

    /** @param {number} value @returns {number[]} red, green, blue and how opaque */
    shade(value) {
      if (!Number.isFinite(value)) return [0, 0, 0, 0];
      const share = Math.min(1, (value - this.low) / this.span);
      const at = (Math.log10(0.01 + share) + 2) / (Math.log10(1.01) + 2) * (HEIGHTS.length - 1);
      const under = Math.min(HEIGHTS.length - 2, Math.floor(at));
      return [...HEIGHTS[under].map((from, i) => from + (at - under) * (HEIGHTS[under + 1][i] - from)), 255];
    }

    /** @param {CanvasRenderingContext2D} pen */
    drawData(pen) {
      const { left, top, width, height } = this.frame, side = this.rows.length;
      const small = /** @type {HTMLCanvasElement} */ (make("canvas"));
      small.width = small.height = side;
      const brush = /** @type {CanvasRenderingContext2D} */ (small.getContext("2d"));
      const image = brush.createImageData(side, side);
      this.rows.forEach((row, a) => row.forEach((value, b) => image.data.set(this.shade(value), 4 * ((side - 1 - b) * side + a))));
      brush.putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(small, left, top, width, height);
    }

    /** @param {number} x @param {number} y */
    point(x, y) {
      const { left, top, width, height } = this.frame, side = this.rows.length;
      const [a, b] = [Math.floor(((x - left) / width) * side), Math.floor((1 - (y - top) / height) * side)];
      const pen = this.clear(this.upper);
      this.card.hidden = !(a >= 0 && a < side && b >= 0 && b < side);
      if (this.card.hidden) return;
      pen.strokeStyle = colour("kept");
      pen.lineWidth = 2;
      pen.strokeRect(left + (a / side) * width, top + (1 - (b + 1) / side) * height, width / side, height / side);
      const value = this.rows[a][b], shown = Number.isFinite(value) ? short(value) : "none";
      const place = `a ${short(this.data.at[a])}, b ${short(this.data.at[b])}`;
      this.card.replaceChildren(make("p", { class: "head" }, place), make("p", {}, this.data.unit, make("b", {}, shown)));
      this.showCard(x, y);
    }
  }

  // --- points ---------------------------------------------------------------------------------------------------

  /** A point for each architecture: axes can be chosen, hovering shows its cell, a click keeps it. */
  class PointChart extends Chart {
    /** @param {HTMLElement} figure @param {PointData} data */
    constructor(figure, data) {
      super(figure);
      this.data = data;
      /** @type {Map<string, Float64Array>} */ this.read = new Map();
      this.marked = Object.keys(data.marked).map(Number);
      this.hovered = -1;
      /** @type {number[]} */ this.kept = [];
      /** @type {{x: number, y: number} | null} */ this.corner = null; // where a zoom began
      this.reach = { x: 0, y: 0 };
      this.choose = { x: this.chooser("x", data.x), y: this.chooser("y", data.y) };
      this.count = make("span", { class: "count" });
      const row = make("p", { class: "controls" }, ...this.choose.y.parts, ...this.choose.x.parts, this.count);
      this.box.before(row);
      this.list = make("div", { class: "kept" });
      this.help = make("p", { class: "note" });
      this.help.append(
        "Point at a dot to see its cell, click to keep it, drag to zoom, double-click to see all. ",
        button(`Download ${data.file}`, () => download(data.file, { architecture: data.names, ...data.columns })),
      );
      figure.append(this.help, this.list);
      this.listen();
      this.rescale();
    }

    /** The numbers of a column, read when they are first asked for. @param {string} name */
    column(name) {
      const known = this.read.get(name) ?? numbers(this.data.columns[name]);
      this.read.set(name, known);
      return known;
    }

    /** A menu of columns and a switch for a logarithmic axis. @param {"x" | "y"} axis @param {string} first */
    chooser(axis, first) {
      const options = Object.keys(this.data.columns).map((name) => make("option", { value: name }, name));
      const menu = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": `${axis} axis` }, ...options));
      const log = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox" }));
      menu.value = first;
      log.checked = isWide(this.column(first));
      menu.addEventListener("change", () => {
        log.checked = isWide(this.column(menu.value));
        this.rescale();
      });
      log.addEventListener("change", () => this.rescale());
      return { menu, log, parts: [make("label", {}, `${axis} `, menu), make("label", { class: "log" }, log, " log")] };
    }

    listen() {
      const seen = this.upper;
      seen.addEventListener("pointermove", (event) => this.move(event));
      seen.addEventListener("pointerleave", () => this.hover(-1));
      seen.addEventListener("pointerdown", (event) => {
        if (event.pointerType !== "touch") this.corner = { x: event.offsetX, y: event.offsetY };
      });
      seen.addEventListener("pointerup", (event) => this.release(event));
      seen.addEventListener("dblclick", () => this.rescale());
      seen.addEventListener("keydown", (event) => this.key(event));
    }

    /** All points, on the chosen axes. */
    rescale() {
      this.titles = { x: this.choose.x.menu.value, y: this.choose.y.menu.value };
      const [xs, ys] = [this.column(this.titles.x), this.column(this.titles.y)];
      const [logX, logY] = [this.choose.x.log.checked, this.choose.y.log.checked];
      const has = (/** @type {number} */ value, /** @type {boolean} */ log) => Number.isFinite(value) && (value > 0 || !log);
      const both = (/** @type {number} */ _, /** @type {number} */ i) => has(xs[i], logX) && has(ys[i], logY);
      this.x = scaleOf(xs.filter(both), logX);
      this.y = scaleOf(ys.filter(both), logY);
      this.redraw();
      this.showKept();
    }

    /** @param {CanvasRenderingContext2D} pen */
    drawData(pen) {
      const { left, top, width, height } = this.frame;
      const [xs, ys] = [this.column(this.titles.x), this.column(this.titles.y)];
      this.px = new Float32Array(xs.length);
      this.py = new Float32Array(xs.length);
      const many = xs.length > 2000, dot = this.dot(many ? 2 : 4, many ? 0.35 : 0.6), half = dot.size / 2;
      let shown = 0;
      for (let i = 0; i < xs.length; i++) {
        const [px, py] = [place(this.x, xs[i]), place(this.y, ys[i])];
        const inside = px >= 0 && px <= 1 && py >= 0 && py <= 1;
        this.px[i] = inside ? left + px * width : NaN;
        this.py[i] = inside ? top + (1 - py) * height : NaN;
        if (!inside) continue;
        shown += 1;
        pen.drawImage(dot.canvas, this.px[i] - half, this.py[i] - half, dot.size, dot.size);
      }
      this.count.textContent = `${shown.toLocaleString("en")} of ${xs.length.toLocaleString("en")}`;
      this.upper.setAttribute("aria-label", `${this.titles.y} over ${this.titles.x} of ${shown} architectures`);
    }

    /** One dot, drawn once. @param {number} radius @param {number} alpha */
    dot(radius, alpha) {
      const ratio = window.devicePixelRatio || 1, size = 2 * radius + 2;
      const canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
      canvas.width = canvas.height = Math.ceil(size * ratio);
      const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      pen.scale(ratio, ratio);
      pen.globalAlpha = alpha;
      pen.fillStyle = colour("accent");
      pen.beginPath();
      pen.arc(size / 2, size / 2, radius, 0, 7);
      pen.fill();
      return { canvas, size };
    }

    drawOver() {
      const pen = this.clear(this.upper);
      pen.lineWidth = 2;
      for (const i of this.marked) this.ring(pen, i, 7, "ink");
      for (const i of this.kept) this.ring(pen, i, 6, "kept");
      if (this.hovered >= 0) this.ring(pen, this.hovered, 6, "ink");
      if (this.corner) {
        pen.strokeStyle = colour("faint");
        pen.lineWidth = 1;
        pen.strokeRect(this.corner.x, this.corner.y, this.reach.x - this.corner.x, this.reach.y - this.corner.y);
      }
    }

    /** @param {CanvasRenderingContext2D} pen @param {number} i @param {number} radius @param {string} name */
    ring(pen, i, radius, name) {
      const [x, y] = [this.px?.[i] ?? NaN, this.py?.[i] ?? NaN];
      if (Number.isNaN(x + y)) return;
      pen.strokeStyle = colour(name);
      pen.beginPath();
      pen.arc(x, y, radius, 0, 7);
      pen.stroke();
    }

    /** The nearest point, or -1. @param {number} x @param {number} y */
    nearest(x, y) {
      let found = -1, least = NEAR * NEAR;
      const [px, py] = [this.px ?? [], this.py ?? []];
      for (let i = 0; i < px.length; i++) {
        const away = (px[i] - x) ** 2 + (py[i] - y) ** 2;
        if (away < least) [found, least] = [i, away];
      }
      return found;
    }

    /** @param {PointerEvent} event */
    move(event) {
      this.reach = { x: event.offsetX, y: event.offsetY };
      if (!this.dragged()) this.hover(this.nearest(event.offsetX, event.offsetY));
      else this.hover(-1);
    }

    dragged() {
      return this.corner !== null && Math.abs(this.reach.x - this.corner.x) + Math.abs(this.reach.y - this.corner.y) > 12;
    }

    /** @param {PointerEvent} event */
    release(event) {
      this.reach = { x: event.offsetX, y: event.offsetY };
      if (this.dragged() && this.corner) this.zoom(this.corner, this.reach);
      else {
        const found = this.nearest(event.offsetX, event.offsetY);
        this.hover(event.pointerType === "touch" ? -1 : found);
        if (found >= 0) this.keep(found);
      }
      this.corner = null;
      this.drawOver();
    }

    /** @param {{x: number, y: number}} a @param {{x: number, y: number}} b */
    zoom(a, b) {
      const { left, top, width, height } = this.frame;
      /** @param {Scale} scale @param {number} from @param {number} to @returns {Scale} */
      const part = (scale, from, to) => {
        const span = scale.high - scale.low;
        return { low: scale.low + Math.min(from, to) * span, high: scale.low + Math.max(from, to) * span, log: scale.log };
      };
      this.x = part(this.x, (a.x - left) / width, (b.x - left) / width);
      this.y = part(this.y, 1 - (a.y - top) / height, 1 - (b.y - top) / height);
      this.redraw();
    }

    /** @param {number} i */
    hover(i) {
      this.hovered = i;
      this.card.hidden = i < 0;
      if (i >= 0) {
        this.card.replaceChildren(...this.about(i));
        this.showCard(this.px?.[i] ?? 0, this.py?.[i] ?? 0);
      }
      this.drawOver();
    }

    /** Arrows walk along the first axis, Enter keeps, Escape leaves. @param {KeyboardEvent} event */
    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") this.hover(-1);
      else if (event.key === "Enter" && this.hovered >= 0) this.keep(this.hovered);
      else if (step) {
        const px = this.px ?? new Float32Array();
        const order = [...px.keys()].filter((i) => !Number.isNaN(px[i])).sort((a, b) => px[a] - px[b] || a - b);
        const at = order.indexOf(this.hovered);
        const next = at < 0 ? 0 : Math.max(0, Math.min(order.length - 1, at + step));
        this.hover(order[next] ?? -1);
        event.preventDefault();
      }
    }

    /** What is shown of a point: its two values, its cells, its name. @param {number} i */
    about(i) {
      const values = [this.titles.y, this.titles.x].map((name) =>
        make("span", {}, `${name} `, make("b", {}, this.shown(name, i))),
      );
      const mark = this.data.marked[String(i)];
      /** @type {Node[]} */
      const parts = [make("p", { class: "head" }, ...(mark ? [make("em", {}, mark)] : []), ...values)];
      for (const cell of this.data.cells[i] ?? []) parts.push(cellPicture(cell, this.data));
      parts.push(make("p", { class: "name" }, this.data.names[i]));
      return parts;
    }

    /** @param {string} name @param {number} i */
    shown(name, i) {
      const value = this.column(name)[i];
      return Number.isNaN(value) ? "none" : short(value);
    }

    /** Keeps a point, or lets it go. @param {number} i */
    keep(i) {
      this.kept = this.kept.includes(i) ? this.kept.filter((other) => other !== i) : [...this.kept, i];
      this.showKept();
      this.drawOver();
    }

    showKept() {
      const cards = this.kept.map((i) => {
        const close = button("×", () => this.keep(i));
        close.setAttribute("aria-label", "let it go");
        return make("article", { class: "card" }, close, ...this.about(i));
      });
      this.list.replaceChildren(...cards);
    }
  }

  // --- cells ----------------------------------------------------------------------------------------------------

  /** A cell as arcs over a row of its nodes, in the colours of its operations. @param {ShapedCell} cell @param {PointData} data */
  function cellPicture(cell, data) {
    const [number, ...labels] = cell;
    const [name, nodes, ends] = data.shapes[number];
    const longest = Math.max(1, ...ends.map(([from, to]) => to - from));
    const step = Math.max(58, Math.min(96, 420 / nodes.length)), rise = Math.min(30, 110 / longest);
    const width = step * nodes.length, base = 18 + rise * longest;
    const x = (/** @type {number} */ node) => (node + 0.5) * step;
    const picture = draw("svg", { viewBox: `0 0 ${width} ${base + 30}`, class: "arcs", role: "img" });
    picture.append(draw("title", {}, name));
    ends.forEach(([from, to], i) => {
      const top = base - rise * (to - from), kind = data.families[labels[i]] ?? "other";
      const path = `M${x(from)},${base} C${x(from)},${top - rise / 3} ${x(to)},${top - rise / 3} ${x(to)},${base}`;
      picture.append(draw("path", { d: path, class: `arc ${kind}` }));
    });
    ends.forEach(([from, to], i) => {
      const top = base - rise * (to - from), kind = data.families[labels[i]] ?? "other";
      const at = { x: (x(from) + x(to)) / 2, y: (base + 3 * (top - rise / 3)) / 4 + 3, class: `label ${kind}` };
      if (labels[i]) picture.append(draw("text", at, plain(labels[i])));
    });
    nodes.forEach((text, node) => {
      const kind = data.families[text] ?? "other";
      picture.append(draw("circle", { cx: x(node), cy: base, r: 5, class: `node ${kind}` }));
      picture.append(draw("text", { x: x(node), y: base + 20, class: `label ${kind}` }, plain(text)));
    });
    return picture;
  }

  /** A name as short as people say it. @param {string} text */
  const plain = (text) =>
    text.replace(/^nor_/, "").replace("_connect", "").replace(/_\{(.*)\}/, "$1").replace("-bn-relu", "").replace(/_/g, " ");

  // --- files ----------------------------------------------------------------------------------------------------

  /** Gives a table to the reader as CSV. @param {string} file @param {Record<string, Column>} columns */
  function download(file, columns) {
    const names = Object.keys(columns), length = names.length ? columns[names[0]].length : 0;
    const lines = [names.map(field).join(",")];
    for (let i = 0; i < length; i++) lines.push(names.map((name) => field(columns[name][i])).join(","));
    const address = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    const link = make("a", { href: address, download: file });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  /** @param {string | number | null} value */
  function field(value) {
    const text = value === null ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // --- the page -------------------------------------------------------------------------------------------------

  /** @param {string} packed @returns {Promise<(TableData | LineData | PointData | SurfaceData | null)[]>} */
  async function unpack(packed) {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  async function start() {
    const blocks = await unpack(document.getElementById("data")?.textContent ?? "");
    for (const place of document.querySelectorAll("[data-block]")) {
      const element = /** @type {HTMLElement} */ (place);
      const data = blocks[Number(element.dataset.block)];
      if (data?.kind === "points") new PointChart(element, data);
      if (data?.kind === "lines") new LineChart(element, data);
      if (data?.kind === "surface") new SurfaceChart(element, data);
      if (data?.kind === "table") {
        element.querySelector("[data-download]")?.addEventListener("click", () => download(data.file, data.columns));
      }
    }
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }

  start().catch((error) => {
    document.querySelector("main")?.prepend(make("p", { class: "note" }, `The charts cannot be shown: ${error}`));
    throw error;
  });
})();
