// A small line chart in SVG: a few series over the last minutes, axes with units, and a read-out.
//
// All charts of a page share one cursor: pointing at a moment in one shows that moment in all. What was not measured is
// a gap, never a zero. A chart keeps no data: it draws what the history, some Samples, holds when it is told to.

import { clock, clockSeconds, day, element, lasting, moment } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 128;
const MARGIN = { left: 52, right: 10, top: 10, bottom: 22 };
// Samples further apart than this, in seconds, have a gap between them.
const GAP = 3.5;

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// What was measured, oldest first, each sample with its `time`.
export class Samples {
  samples = [];
  // The moment at a chart's right end; null: the newest sample's.
  right = null;
  // How many seconds samples are apart.
  stride = 1;

  newest() {
    return this.samples.at(-1) ?? null;
  }

  end() {
    return this.right ?? this.newest()?.time ?? null;
  }

  // Those of the last `span` seconds.
  last(span) {
    const end = this.end();
    return end === null ? [] : this.samples.filter((sample) => sample.time >= end - span);
  }

  nearest(time) {
    let best = null;
    for (const sample of this.samples) {
      if (best === null || Math.abs(sample.time - time) <= Math.abs(best.time - time)) best = sample;
    }
    return best;
  }
}

// The moment that charts point at: unix seconds, or null.
export class Cursor {
  #listeners = [];
  time = null;

  listen(listener) {
    this.#listeners.push(listener);
  }

  point(time) {
    if (time === this.time) return;
    this.time = time;
    this.#listeners.forEach((listener) => listener());
  }
}

// A round number that is at least so much.
function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
}

// Round steps around all values: three of them or a few more.
function fittingTicks(low, high) {
  const least = Math.max(Math.abs(low), Math.abs(high)) * 1e-9 || 1;
  const step = roundStep(Math.max(high - low, least) / 3);
  const ticks = [];
  for (let at = Math.floor(low / step + 1e-6); at < Math.ceil(high / step - 1e-6) + 0.5; at += 1) ticks.push(at * step);
  return ticks.length > 1 ? ticks : [ticks[0] - step, ticks[0], ticks[0] + step];
}

// Round steps from zero to at least `top`: three of them or a few more.
function linearTicks(top) {
  const step = roundStep(top / 3);
  const ticks = [];
  for (let at = 0; at < top + step * 0.999; at += step) ticks.push(at);
  return ticks;
}

// Powers of ten around all values, at least two decades.
function logTicks(low, high) {
  let from = Math.floor(Math.log10(low) + 1e-9);
  let to = Math.ceil(Math.log10(high) - 1e-9);
  if (to - from < 2) to = from + 2;
  const ticks = [];
  for (let power = from; power <= to; power += 1) ticks.push(10 ** power);
  return ticks;
}

export class Chart {
  // `format` writes a value; `scale` is "linear" (from zero), "fit" (around the values) or "log"; the rest is as `show` has it.
  constructor(host, { title, note, series, format, scale = "linear", least = 1, height = HEIGHT, band = null }, history, cursor) {
    Object.assign(this, { title, format, scale, least, height, history, cursor });
    this.gap = GAP;
    this.span = 300;
    this.when = element("span", "when", note ?? "");
    this.note = note ?? "";
    const head = element("figcaption", "", element("span", "title", title), this.when);
    this.told = element("div", "readouts");
    this.svg = shape("svg", { height, tabindex: "0", role: "img", "aria-label": title });
    this.figure = element("figure", "chart", head, this.told, this.svg);
    this.show(series, band);
    host.append(this.figure);
    this.svg.addEventListener("pointermove", (event) => this.#pointAt(event));
    this.svg.addEventListener("pointerdown", (event) => this.#pointAt(event));
    this.svg.addEventListener("pointerleave", () => cursor.point(null));
    this.svg.addEventListener("blur", () => cursor.point(null));
    this.svg.addEventListener("keydown", (event) => this.#step(event));
    cursor.listen(() => this.#drawCursor());
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }

  // What is drawn from now on. `series`: { name, tone, column | of(sample) }, only told and not drawn if `isTold`; with Samples and a gap
  // of its own if it has `history` and `gap`; what `total(samples)` gives is told while nobody points at a moment, else the newest value;
  // `button` stands behind its name. `band` names the columns between which there is a band.
  show(series, band = null) {
    Object.assign(this, { series, band });
    this.drawn = series.filter((one) => !one.isTold);
    this.readouts = series.map((one) => {
      const value = element("span", "value", "");
      const label = series.length > 1 || one.always ? element("span", "name", one.name) : "";
      const key = element("span", `key tone-${one.tone}`);
      return { node: element("span", "readout", this.drawn.length > 1 ? key : "", label, one.button ?? "", value), value };
    });
    this.told.replaceChildren(...this.readouts.map((readout) => readout.node));
  }

  // Those of a series over the time shown; the chart's right end is the same for all.
  #samples(series) {
    return series.history ? series.history.samples.filter((sample) => sample.time >= this.right - this.span) : this.history.last(this.span);
  }

  // That of a series at a moment, unless its own are too far from there.
  #nearest(series, time) {
    if (!series.history) return this.history.nearest(time);
    const sample = series.history.nearest(time);
    return sample && Math.abs(sample.time - time) <= (series.gap ?? this.gap) ? sample : null;
  }

  #value(sample, series) {
    const value = series.of ? series.of(sample) : sample[series.column];
    return Number.isFinite(value) ? value : null;
  }

  #pointAt(event) {
    if (!this.right) return;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const time = this.right - ((this.width - MARGIN.right - x) / this.plotWidth) * this.span;
    this.cursor.point(this.history.nearest(time)?.time ?? null);
  }

  #step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (event.key === "Escape") this.cursor.point(null);
    if (!step || !this.right) return;
    event.preventDefault();
    const from = this.cursor.time ?? this.right;
    const time = Math.min(Math.max(from + step * this.history.stride, this.right - this.span), this.right);
    this.cursor.point(this.history.nearest(time)?.time ?? null);
  }

  draw() {
    this.width = this.svg.clientWidth || this.figure.clientWidth;
    if (!this.width) return;
    this.#makeRoom(MARGIN.left);
    const samples = this.history.last(this.span);
    this.right = this.history.end();
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const shown = [...this.drawn, ...(this.band ?? []).map((column) => ({ column }))];
    const values = shown.flatMap((one) => this.#samples(one).map((sample) => this.#value(sample, one)));
    const found = values.filter((value) => value !== null && (this.scale !== "log" || value > 0));
    if (!this.#axes(found)) {
      this.#words(samples.length === 0 ? "no samples yet" : "nothing measured yet");
    } else {
      this.#limited(samples);
      this.#times();
      if (this.band) this.#bands(samples);
      this.drawn.forEach((one, at) => this.#line(this.#samples(one), one, at === 0));
    }
    this.mark = shape("g", {});
    this.svg.append(this.mark);
    this.#drawCursor();
    this.#describe();
  }

  // So much is left of the plot, for the labels of the values.
  #makeRoom(left) {
    this.left = left;
    this.plotWidth = this.width - left - MARGIN.right;
  }

  x(time) {
    return this.left + this.plotWidth * (1 - (this.right - time) / this.span);
  }

  y(value) {
    const inner = this.height - MARGIN.top - MARGIN.bottom;
    const [low, high] = this.range;
    const share = this.scale === "log" ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
    return MARGIN.top + inner * (1 - share);
  }

  // Lines and labels of the values; false if there is nothing to show.
  #axes(found) {
    if (!found.length || this.right === null) return false;
    const high = found.reduce((a, b) => Math.max(a, b));
    const low = found.reduce((a, b) => Math.min(a, b));
    const scales = { log: () => logTicks(low, high), fit: () => fittingTicks(low, high), linear: () => linearTicks(Math.max(high, this.least)) };
    const ticks = scales[this.scale]();
    this.range = [ticks[0], ticks.at(-1)];
    const every = ticks.length > 5 ? 2 : 1;
    const shown = ticks.filter((_, at) => at % every === 0);
    const heights = shown.map((tick) => Math.round(this.y(tick)) + 0.5);
    const labels = shown.map((tick, at) => {
      const label = shape("text", { class: "tick amount", y: heights[at] + 3.5, "text-anchor": "end" });
      label.textContent = this.format(tick);
      this.svg.append(label);
      return label;
    });
    const widest = labels.reduce((most, label) => Math.max(most, label.getComputedTextLength()), 0);
    this.#makeRoom(Math.max(MARGIN.left, Math.ceil(widest) + 10));
    labels.forEach((label) => label.setAttribute("x", this.left - 8));
    heights.forEach((y, at) => {
      this.svg.append(shape("line", { class: at === 0 ? "base" : "grid", x1: this.left, x2: this.width - MARGIN.right, y1: y, y2: y }));
    });
    return true;
  }

  #times() {
    const steps = [1, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 2592000];
    const step = steps.find((size) => (this.span / size) * 56 <= this.plotWidth) ?? this.span / 4;
    for (let time = Math.ceil((this.right - this.span) / step) * step; time <= this.right; time += step) {
      const x = this.x(time);
      if (x < this.left + 12 || x > this.width - MARGIN.right - 12) continue;
      const label = shape("text", { class: "tick", x, y: this.height - 5, "text-anchor": "middle" });
      label.textContent = step < 60 ? clockSeconds(time) : step < 43200 ? clock(time) : day(time);
      this.svg.append(label);
    }
  }

  // A band behind the times at which transactions were held back.
  #limited(samples) {
    let from = null;
    const band = (to) => {
      const [left, right] = [this.x(from), this.x(to)];
      this.svg.append(shape("rect", { class: "limited", x: left, width: Math.max(right - left, 1), y: MARGIN.top, height: this.height - MARGIN.top - MARGIN.bottom }));
      from = null;
    };
    samples.forEach((sample) => {
      if (sample.limited && from === null) from = sample.time;
      if (!sample.limited && from !== null) band(sample.time);
    });
    if (from !== null) band(this.right);
  }

  // What lies between the least and the greatest.
  #bands(samples) {
    const [low, high] = this.band;
    const runs = [[]];
    for (const sample of samples) {
      const before = runs.at(-1).at(-1);
      if (before && sample.time - before.time > this.gap) runs.push([]);
      if (Number.isFinite(sample[low]) && Number.isFinite(sample[high])) runs.at(-1).push(sample);
    }
    const at = (column) => (sample) => `${this.x(sample.time).toFixed(1)} ${this.y(sample[column]).toFixed(1)}`;
    const path = runs.filter((run) => run.length > 1).map((run) => `M${[...run.map(at(high)), ...run.toReversed().map(at(low))].join("L")}Z`);
    this.svg.append(shape("path", { class: "band", d: path.join("") }));
  }

  #line(samples, series, isFirst) {
    const runs = [];
    let before = null;
    for (const sample of samples) {
      const value = this.#value(sample, series);
      if (value === null || (this.scale === "log" && value <= 0)) {
        before = null;
        continue;
      }
      if (before === null || sample.time - before > (series.gap ?? this.gap)) runs.push([]);
      runs.at(-1).push([this.x(sample.time), this.y(value)]);
      before = sample.time;
    }
    const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
    // A lone point is a dot: a line to itself, with a round end.
    const path = runs.map((run) => `M${run.map(at).join("L")}${run.length === 1 ? "h.01" : ""}`).join("");
    if (isFirst && this.scale === "linear") {
      const floor = this.height - MARGIN.bottom;
      const area = runs.map((run) => `M${run[0][0].toFixed(1)} ${floor}L${run.map(at).join("L")}L${run.at(-1)[0].toFixed(1)} ${floor}Z`).join("");
      this.svg.append(shape("path", { class: `area tone-${series.tone}`, d: area }));
    }
    this.svg.append(shape("path", { class: `line tone-${series.tone}`, d: path, "data-points": runs.flat().length }));
  }

  #words(text) {
    const words = shape("text", { class: "words", x: this.width / 2, y: this.height / 2, "text-anchor": "middle" });
    words.textContent = text;
    this.svg.append(words);
  }

  #drawCursor() {
    if (!this.mark) return;
    const time = this.cursor.time;
    const shown = time === null ? this.history.newest() : this.history.nearest(time);
    this.series.forEach((one, at) => {
      if (time === null && one.total) {
        this.readouts[at].value.textContent = this.format(one.total(this.#samples(one)));
        return;
      }
      const sample = shown && this.#nearest(one, shown.time);
      this.readouts[at].value.textContent = this.format(sample ? this.#value(sample, one) : null);
    });
    const when = this.span > 3600 ? moment : clockSeconds;
    this.when.textContent = time !== null && shown ? when(shown.time) : this.note;
    this.mark.replaceChildren();
    if (time === null || !shown || !this.range || shown.time < this.right - this.span) return;
    const x = this.x(shown.time);
    this.mark.append(shape("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: this.height - MARGIN.bottom }));
    for (const one of this.drawn) {
      const sample = this.#nearest(one, shown.time);
      const value = sample && sample.time >= this.right - this.span ? this.#value(sample, one) : null;
      if (value === null || (this.scale === "log" && value <= 0)) continue;
      this.mark.append(shape("circle", { class: `dot tone-${one.tone}`, cx: this.x(sample.time), cy: this.y(value), r: 3 }));
    }
  }

  // The chart in words, for those who don't see it.
  #describe() {
    const said = this.series.map((one) => {
      const values = this.#samples(one).map((sample) => this.#value(sample, one)).filter((value) => value !== null);
      if (!values.length) return `${one.name}: not measured`;
      const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
      return `${one.name}: now ${this.format(values.at(-1))}, between ${this.format(low)} and ${this.format(high)}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}, over ${lasting(this.span)}. ${said.join(". ")}`);
  }
}
