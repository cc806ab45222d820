// Time series: they are found by metric and tags, and drawn over a span of time that moves with the clock, one alone or several in one plot.
//
// The server sums the points up in as many buckets as the chart has room for. Where a bucket has several, a band behind the
// line goes from the least of them to the greatest, unless there are other lines. Which are shown stands in the page's address.

import { Chart, Cursor, Samples } from "./chart.js";
import { element, number, whole } from "./format.js";
import { get } from "./server.js";

const by = (id) => document.getElementById(id);
// How long nobody types before what was typed is looked for.
const PAUSE_MS = 150;

// Series in one plot, at most: so many lines can be told from each other.
const TONES = ["first", "second", "third", "fourth", "fifth", "sixth"];

// What a counter grew by a second, from bucket to bucket; where it began anew there is a gap.
function rates(samples) {
  return samples.map((sample, at) => {
    const before = samples[at - 1];
    const weight = before ? sample.time - before.time : 0;
    const rate = before ? (sample.last - before.last) / weight : null;
    const value = rate !== null && rate >= 0 ? rate : null;
    return { time: sample.time, count: sample.count, weight, mean: value, min: value, max: value };
  });
}

// What is told of the whole time shown.
const known = (samples, column) => samples.map((sample) => sample[column]).filter(Number.isFinite);
const fold = (values, choose) => (values.length ? values.reduce((one, other) => choose(one, other)) : null);
const TOTALS = {
  mean: (samples) => {
    const some = samples.filter((sample) => Number.isFinite(sample.mean));
    const weight = some.reduce((sum, sample) => sum + sample.weight, 0);
    return weight > 0 ? some.reduce((sum, sample) => sum + sample.mean * (sample.weight / weight), 0) : null;
  },
  min: (samples) => fold(known(samples, "min"), Math.min),
  max: (samples) => fold(known(samples, "max"), Math.max),
  count: (samples) => fold(known(samples, "count"), (one, other) => one + other) ?? 0,
};

// A series alone: the mean is drawn, and all of it told.
const ALONE = [
  { name: "mean", tone: "first", column: "mean", always: true, total: TOTALS.mean },
  { name: "least", tone: "second", column: "min", isTold: true, total: TOTALS.min },
  { name: "greatest", tone: "second", column: "max", isTold: true, total: TOTALS.max },
  { name: "points", tone: "second", column: "count", isTold: true, total: TOTALS.count },
];

// The names in a page's address, which is typed by people too.
function named(text) {
  const plain = (part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return [...new Set(text.split("&").map(plain))].filter((name) => name !== "");
}

export class Series {
  // Those that are shown, and the colour of each: it stays while others come and go.
  #names = [];
  #tones = new Map();
  #timer = null;
  #asked = 0;
  #refreshed = 0;
  // What the lists show.
  #listed = null;

  constructor() {
    this.fetched = new Samples();
    this.chart = new Chart(by("series-chart"), {
      title: "Points", scale: "fit", height: 300, format: number, band: ["min", "max"], series: ALONE, note: "over the time shown",
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
    for (const list of [by("series-found"), by("series-own")]) list.addEventListener("click", (event) => this.#clicked(event));
    by("series-chart").addEventListener("click", (event) => {
      const name = event.target.closest("button")?.dataset.toggle;
      if (name === undefined) return;
      this.#toggle(name);
      // The button has gone; who goes by keys stays where it was.
      (by("series-chart").querySelector("button") ?? this.chart.svg).focus();
    });
  }

  // The view has been opened, perhaps with names in the page's address.
  open(text) {
    const names = text ? named(text) : [];
    if (names.length) {
      const shown = names.slice(0, TONES.length);
      if (shown.join("\n") !== this.#names.join("\n")) {
        by("series-name").value = shown.length === 1 ? shown[0] : `${/^(\\.|[^ \\])*/.exec(shown[0])[0]} `;
        this.#show(shown);
      }
    }
    this.#search(false);
    this.refresh();
    this.chart.draw();
  }

  // Shows these from now on, with nothing of them yet.
  #show(names) {
    this.#names = names;
    for (const name of this.#tones.keys()) if (!names.includes(name)) this.#tones.delete(name);
    for (const name of names) {
      const free = TONES.find((tone) => ![...this.#tones.values()].includes(tone));
      if (!this.#tones.has(name)) this.#tones.set(name, free);
    }
    this.fetched.samples = [];
    this.each = names.map((name) => {
      const button = element("button", "away", "\u00d7");
      Object.assign(button, { type: "button", title: `Take ${name} away` });
      button.setAttribute("aria-label", button.title);
      button.dataset.toggle = name;
      return { name, tone: this.#tones.get(name), column: "mean", total: TOTALS.mean, history: new Samples(), button };
    });
    if (names.length > 1) this.chart.show(this.each);
    else this.chart.show(ALONE, ["min", "max"]);
  }

  #clicked(event) {
    const { kind, name, toggle } = event.target.closest("button")?.dataset ?? {};
    if (toggle !== undefined) this.#toggle(toggle);
    else if (name !== undefined) this.#choose(kind, name);
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

  // Puts a series beside those that are shown, or takes it away.
  #toggle(name) {
    const isShown = this.#names.includes(name);
    const names = isShown ? this.#names.filter((one) => one !== name) : [...this.#names, name];
    if (names.length === 0 || names.length > TONES.length) return;
    this.#show(names);
    this.#mark();
    location.hash = `series/${names.map(encodeURIComponent).join("&")}`;
  }

  // Marks what is shown in the list of what was found.
  #mark() {
    for (const button of by("series-found").querySelectorAll("button")) {
      const { name, toggle } = button.dataset;
      const isShown = this.#names.includes(name ?? toggle);
      if (name !== undefined) {
        if (isShown) button.setAttribute("aria-current", "true");
        else button.removeAttribute("aria-current");
        continue;
      }
      const isFull = !isShown && this.#names.length >= TONES.length;
      button.textContent = isShown ? "\u2212" : "+";
      button.title = isShown ? `Take ${toggle} away` : isFull ? `${TONES.length} series are shown already` : `Add ${toggle}`;
      button.setAttribute("aria-label", button.title);
      button.disabled = isFull || (isShown && this.#names.length === 1);
    }
  }

  // Looks for what was typed; shows it if that is a whole name, or the only one that is meant.
  async #search(isWanted) {
    const asked = ++this.#asked;
    const typed = by("series-name").value;
    try {
      const { kind, names, own, more, more_own } = await get("api/series", { q: typed });
      if (asked !== this.#asked) return;
      this.#say(null);
      this.#list(kind, names, own, more_own);
      const what = kind === "metrics" ? "metric" : "series";
      const some = names.length === 1 ? `One ${what}` : `${whole(names.length)} ${what}${kind === "metrics" ? "s" : ""}`;
      const none = own.length ? "Only what servers record of themselves" : `No ${what} like that${more ? " among the first: type a whole tag" : ""}`;
      by("series-summary").textContent = names.length ? `${some}${more ? " and more: type on to see fewer" : ""}` : none;
      const all = [...names, ...own];
      const meant = all.length === 1 ? all[0] : all.find((name) => name === typed.trim());
      if (isWanted && meant) this.#choose(kind, meant);
    } catch (error) {
      if (asked === this.#asked) this.#say(error.message);
    }
  }

  // Shows what was found; what servers record of themselves is folded, unless it is all there is. What is there already stays: a button
  // that is pressed just now must not go away before it is let go.
  #list(kind, names, own, areMore) {
    const listed = JSON.stringify([kind, names, own, areMore]);
    if (listed === this.#listed) {
      this.#mark();
      return;
    }
    this.#listed = listed;
    const button = (text, data) => {
      const made = element("button", "", text);
      made.type = "button";
      Object.assign(made.dataset, data);
      return made;
    };
    const item = (name) => element("li", "", button(name, { kind, name }), kind === "series" ? button("+", { toggle: name }) : "");
    const focused = by("series-found").contains(document.activeElement) ? { ...document.activeElement.dataset } : null;
    by("series-found").replaceChildren(...names.map(item));
    by("series-own").hidden = own.length === 0;
    if (names.length === 0) by("series-own").open = true;
    by("series-own").querySelector("summary").textContent = `${own.length === 1 ? "One" : whole(own.length)} of servers' own${areMore ? ", and more: type on to see fewer" : ""}`;
    by("series-own").querySelector("ul").replaceChildren(...own.map(item));
    this.#mark();
    if (focused) {
      const is = (one) => one.dataset.name === focused.name && one.dataset.toggle === focused.toggle;
      [...by("series-found").querySelectorAll("button")].find(is)?.focus();
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
    if (!this.#names.length) return;
    const [refreshed, each] = [++this.#refreshed, this.each];
    const span = document.querySelector("#series-span input:checked").value;
    const buckets = Math.min(Math.max(Math.round(by("series-chart").clientWidth / 3), 50), 400);
    const ask = ({ name }) => get("api/points", { name, span: span === "all" ? null : span, buckets });
    const answers = await Promise.allSettled(each.map(ask));
    if (refreshed !== this.#refreshed || each !== this.each) return;
    const there = answers.map((answer) => answer.value ?? null);
    if (there.some((answer) => answer !== null)) this.#take(there, by("series-rate").checked);
    this.#say(answers.find((answer) => answer.status === "rejected")?.reason.message ?? null);
  }

  // Draws what was answered of each series; one of which nothing was stays as it was drawn.
  #take(answers, isRate) {
    const given = answers.filter((answer) => answer !== null);
    const [from, to] = [Math.min(...given.map((answer) => answer.from)), Math.max(...given.map((answer) => answer.to))];
    this.each.forEach((one, at) => {
      if (answers[at] === null) return;
      const { points, step } = answers[at];
      const samples = points.map(([time, count, mean, min, max, last]) => ({ time: time / 1000, count, weight: count, mean, min, max, last }));
      one.history.samples = isRate ? rates(samples) : samples;
      one.history.stride = step / 1000;
      // Points may be further apart than buckets; what is missing for long is a gap.
      one.gap = 3.5 * Math.max(step / 1000, spacing(samples));
    });
    const [first, ...others] = this.each;
    // The moments that can be pointed at are all that there are.
    const moments = () => this.each.flatMap((one) => one.history.samples).sort((a, b) => a.time - b.time);
    this.fetched.samples = others.length ? moments() : first.history.samples;
    this.fetched.right = to / 1000;
    this.fetched.stride = Math.min(...this.each.map((one) => one.history.stride));
    this.chart.span = Math.max((to - from) / 1000, 1e-3);
    this.chart.gap = first.gap;
    const title = others.length ? `${whole(this.each.length)} series` : first.name;
    this.chart.title = isRate ? `${title}, rate per second` : title;
    by("series-chart").querySelector(".title").textContent = this.chart.title;
    by("series-title").textContent = title;
    this.chart.draw();
  }
}

// The median distance of points, in seconds.
function spacing(samples) {
  const apart = samples.slice(1).map((sample, at) => sample.time - samples[at].time);
  return apart.sort((a, b) => a - b)[apart.length >> 1] ?? 0;
}
