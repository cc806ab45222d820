// Time series: one is found by its metric and tags, and drawn over a span of time that moves with the clock.
//
// The server sums the points up in as many buckets as the chart has room for. Where a bucket has several, a band behind the
// line goes from the least of them to the greatest.

import { Chart, Cursor, Samples } from "./chart.js";
import { element, number, whole } from "./format.js";
import { get } from "./server.js";

const by = (id) => document.getElementById(id);
// How long nobody types before what was typed is looked for.
const PAUSE_MS = 150;

// What a counter grew by a second, from bucket to bucket; where it began anew there is a gap.
function rates(samples) {
  return samples.map((sample, at) => {
    const before = samples[at - 1];
    const rate = before ? (sample.last - before.last) / (sample.time - before.time) : null;
    const value = rate !== null && rate >= 0 ? rate : null;
    return { time: sample.time, count: sample.count, mean: value, min: value, max: value };
  });
}

export class Series {
  #name = null;
  #timer = null;
  #asked = 0;

  constructor() {
    this.fetched = new Samples();
    this.chart = new Chart(by("series-chart"), {
      title: "Points", scale: "fit", height: 300, format: number, band: ["min", "max"],
      series: [
        { name: "mean", tone: "first", column: "mean", always: true },
        { name: "least", tone: "second", column: "min", isTold: true },
        { name: "greatest", tone: "second", column: "max", isTold: true },
        { name: "points", tone: "second", column: "count", isTold: true },
      ],
    }, this.fetched, new Cursor());
    by("series-search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#search(true);
    });
    by("series-name").addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#search(false), PAUSE_MS);
    });
    by("series-span").addEventListener("change", () => this.refresh());
    by("series-rate").addEventListener("change", () => this.refresh());
    by("series-found").addEventListener("click", (event) => {
      const name = event.target.closest("button")?.dataset;
      if (name) this.#choose(name.kind, name.name);
    });
  }

  // The view has been opened, perhaps with a name in the page's address.
  open(name) {
    if (name && name !== this.#name) {
      by("series-name").value = name;
      this.#name = name;
      this.fetched.samples = [];
    }
    this.#search(false);
    this.refresh();
    this.chart.draw();
  }

  #choose(kind, name) {
    if (kind === "metrics") {
      by("series-name").value = `${name} `;
      by("series-name").focus();
      this.#search(false);
    } else {
      location.hash = `series/${encodeURIComponent(name)}`;
    }
  }

  // Looks for what was typed; shows it if that is a whole name, or the only one that is meant.
  async #search(isWanted) {
    const asked = ++this.#asked;
    const typed = by("series-name").value;
    try {
      const { kind, names, more } = await get("api/series", { q: typed });
      if (asked !== this.#asked) return;
      this.#say(null);
      const item = (name) => {
        const button = element("button", "", name);
        button.type = "button";
        Object.assign(button.dataset, { kind, name });
        if (name === this.#name) button.setAttribute("aria-current", "true");
        return element("li", "", button);
      };
      by("series-found").replaceChildren(...names.map(item));
      const what = kind === "metrics" ? "metric" : "series";
      const some = names.length === 1 ? `One ${what}` : `${whole(names.length)} ${what}${kind === "metrics" ? "s" : ""}`;
      by("series-summary").textContent = names.length ? `${some}${more ? " and more: type on to see fewer" : ""}` : `No ${what} like that${more ? " among the first: type a whole tag" : ""}`;
      const meant = names.length === 1 ? names[0] : names.find((name) => name === typed.trim());
      if (isWanted && meant) this.#choose(kind, meant);
    } catch (error) {
      if (asked === this.#asked) this.#say(error.message);
    }
  }

  #say(error) {
    by("series-error").hidden = error === null;
    by("series-error").textContent = error ?? "";
  }

  // Who has the parts of the series, where they are in parts.
  showParts(parts) {
    const counts = new Map();
    for (const { owner, address, ours } of parts) {
      const who = ours ? "this server has" : owner ? `${address || owner} has` : "nobody has";
      counts.set(who, (counts.get(who) ?? 0) + 1);
    }
    const each = [...counts].sort().map(([who, count]) => `${who} ${whole(count)}`);
    const words = `The series are in ${whole(parts.length)} parts: ${each.join(", ")}.`;
    by("series-parts").hidden = parts.length === 0;
    if (by("series-parts").textContent !== words) by("series-parts").textContent = words;
  }

  // For how long points and rollups are kept, as the database says.
  async #showKept() {
    try {
      const { rollups, retention, left } = await get("api/kept");
      const words = [];
      if (rollups.length) words.push(`Rollups: ${rollups.join("; ")}.`);
      if (left) words.push(`${whole(left)} series are still being rolled up.`);
      if (retention !== null) words.push(`Points are kept: ${retention || "for ever"}.`);
      by("series-kept").hidden = words.length === 0;
      by("series-kept").textContent = words.join(" ");
    } catch {
      by("series-kept").hidden = true;
    }
  }

  // Fetches the chosen series anew.
  async refresh() {
    this.#showKept();
    if (this.#name === null) return;
    const name = this.#name;
    const span = document.querySelector("#series-span input:checked").value;
    try {
      const buckets = Math.min(Math.max(Math.round(by("series-chart").clientWidth / 3), 50), 400);
      const answer = await get("api/points", { name, span: span === "all" ? null : span, buckets });
      if (name !== this.#name) return;
      const samples = answer.points.map(([time, count, mean, min, max, last]) => ({ time: time / 1000, count, mean, min, max, last }));
      const isRate = by("series-rate").checked;
      this.fetched.samples = isRate ? rates(samples) : samples;
      this.fetched.right = answer.to / 1000;
      this.fetched.stride = answer.step / 1000;
      this.chart.span = Math.max((answer.to - answer.from) / 1000, 1e-3);
      // Points may be further apart than buckets; what is missing for long is a gap.
      this.chart.gap = 3.5 * Math.max(answer.step / 1000, spacing(samples));
      this.chart.title = isRate ? `${name}, rate per second` : name;
      by("series-chart").querySelector(".title").textContent = this.chart.title;
      by("series-title").textContent = name;
      this.chart.draw();
      this.#say(null);
    } catch (error) {
      if (name === this.#name) this.#say(error.message);
    }
  }
}

// The median distance of points, in seconds.
function spacing(samples) {
  const apart = samples.slice(1).map((sample, at) => sample.time - samples[at].time);
  return apart.sort((a, b) => a - b)[apart.length >> 1] ?? 0;
}
