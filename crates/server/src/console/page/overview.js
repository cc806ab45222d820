// The overview: headline figures, charts of the last minutes, and what stands behind them.

import { Chart, Cursor, Samples } from "./chart.js";
import { NONE, bytes, bytesPerSecond, cores, count, element, lasting, percent, seconds, whole } from "./format.js";
import { get } from "./server.js";

// The samples that the server keeps, as far as they have been fetched.
export class History extends Samples {
  #next = null;
  #boot = null;

  // Fetches what is new.
  async refresh() {
    const answer = await get("api/history", { since: this.#next });
    if (answer.boot !== this.#boot) {
      // Another server answers now, or the same one that began anew: its numbers begin anew too.
      this.samples = [];
      this.#boot = answer.boot;
      if (this.#next !== null) {
        this.#next = null;
        return this.refresh();
      }
    }
    const known = this.#next ?? answer.from;
    answer.samples.forEach((row, at) => {
      if (answer.from + at < known) return;
      this.samples.push(Object.fromEntries(answer.columns.map((name, place) => [name, row[place]])));
    });
    this.#next = answer.next;
    this.samples.splice(0, this.samples.length - answer.capacity);
  }
}

const conflicts = (sample) => {
  const all = sample.committed + sample.conflicted;
  return all > 0 ? (100 * sample.conflicted) / all : null;
};

const times = (kind) => ({
  format: seconds,
  scale: "log",
  series: [
    { name: "median", tone: "first", column: `${kind}_p50` },
    { name: "99th percentile", tone: "second", column: `${kind}_p99` },
  ],
});

const one = (name, column) => [{ name, tone: "first", column }];

const GROUPS = [
  ["Throughput", [
    { title: "Transactions begun", note: "per second", format: count, series: one("begun", "started") },
    { title: "Keys read", note: "per second", format: count, series: one("read", "keys_read") },
    { title: "Commits", note: "per second", format: count, series: [
      { name: "committed", tone: "first", column: "committed" },
      { name: "conflicted", tone: "bad", column: "conflicted" },
    ] },
  ]],
  ["Latency", [
    { title: "Reads", note: "answered from memory", ...times("read") },
    { title: "Commits", note: "from request to answer", ...times("commit") },
    { title: "Syncs of the log", note: "one for many commits", ...times("sync") },
  ]],
  ["Pressure", [
    { title: "Waiting", note: "transactions", format: count, series: [
      { name: "to commit", tone: "first", column: "commit_queue" },
      { name: "to begin", tone: "second", column: "start_queue" },
    ] },
    { title: "Conflicts", note: "of commits asked for", format: percent, least: 10, series: [{ name: "conflicts", tone: "bad", of: conflicts }] },
    { title: "Processor", note: "cores busy", format: cores, least: 1, series: one("cores", "cores") },
  ]],
  ["Storage and clients", [
    { title: "Stored", format: bytes, least: 1e6, series: [
      { name: "data", tone: "first", column: "data_bytes" },
      { name: "log on disk", tone: "second", column: "log_bytes" },
    ] },
    { title: "Rows and log", format: bytesPerSecond, least: 1e4, series: [
      { name: "read", tone: "first", column: "bytes_read" },
      { name: "written", tone: "second", column: "bytes_written" },
    ] },
    { title: "Connections", note: "open", format: count, least: 4, series: one("connections", "connections") },
  ]],
];

export class Overview {
  constructor() {
    this.history = new History();
    this.cursor = new Cursor();
    this.charts = [];
    const host = document.getElementById("charts");
    for (const [name, charts] of GROUPS) {
      const trio = element("div", "trio");
      host.append(element("section", "group", element("h2", "", name), trio));
      charts.forEach((chart) => this.charts.push(new Chart(trio, chart, this.history, this.cursor)));
    }
    document.getElementById("span").addEventListener("change", (event) => {
      this.charts.forEach((chart) => (chart.span = Number(event.target.value)));
      this.draw();
    });
    this.figures = new Map();
    for (const name of ["Transactions", "Keys read", "Commits", "Commit, 99th", "Clients", "Stored"]) {
      const [value, below] = [element("span", "", NONE), element("small", "", "\u00a0")];
      document.getElementById("figures").append(element("div", "", element("dt", "", name), element("dd", "", value, below)));
      this.figures.set(name, { value, below });
    }
    this.charts.forEach((chart) => chart.draw());
  }

  draw() {
    this.charts.forEach((chart) => chart.draw());
  }

  // The page shows this document of the server, and the samples that have been fetched.
  show(overview) {
    const now = this.history.newest() ?? {};
    const share = conflicts(now);
    this.#figure("Transactions", count(now.started), "begun per second");
    this.#figure("Keys read", count(now.keys_read), "per second");
    this.#figure("Commits", count(now.committed), share > 0 ? `${percent(share)} in conflict` : "per second");
    this.#figure("Commit, 99th", seconds(now.commit_p99), now.commit_p50 ? `median ${seconds(now.commit_p50)}` : "none measured lately");
    this.#figure("Clients", whole(overview.clients.connections), `of ${whole(overview.clients.most)} connections`);
    this.#figure("Stored", bytes(overview.storage.data_bytes), `${bytes(overview.storage.log_bytes)} of log`);
    const cluster = overview.servers ? [servers(overview)] : [];
    const details = [...cluster, limits(overview), storage(overview), clients(overview), hot(overview), slow(overview), ...audit(overview), ...changes(overview), ...backups(overview), ...sites(overview)];
    document.getElementById("details").replaceChildren(...details);
  }

  #figure(name, value, below) {
    const figure = this.figures.get(name);
    figure.value.textContent = value;
    figure.below.textContent = below;
  }
}

function detail(title, body, className = "") {
  return element("section", `detail ${className}`, element("h2", "", title), body);
}

function list(rows) {
  const items = rows.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]);
  return element("dl", "", ...items);
}

const rate = (limit) => (Number.isFinite(limit) && limit < 1e9 ? `${count(limit)} per second` : "none");

function limits({ limit, queues }) {
  const byLoad = limit.throttled_tags.by_load ?? 0;
  return detail("What limits it", list([
    ["Cause", limit.cause === "workload" ? "nothing but the clients" : limit.cause],
    ["Limit of transactions", rate(limit.transactions_per_second)],
    ["Limit of batch transactions", rate(limit.batch_transactions_per_second)],
    ["Waiting to commit", `${whole(queues.commit?.transactions)}, ${bytes(queues.commit?.bytes)}`],
    ["Waiting to begin", whole(queues.start?.transactions)],
    ["Tags throttled", `${whole(limit.throttled_tags.by_hand)} by hand, ${whole(byLoad)} by load`],
  ]));
}

function storage({ storage }) {
  const pinned = storage.pinned_snapshots;
  const memory = storage.memory ?? {};
  return detail("Storage", list([
    ["Engine", storage.engine ?? NONE],
    ["Keys and values", bytes(storage.data_bytes)],
    ["Disk used", bytes(storage.disk_bytes)],
    ["Log on disk", bytes(storage.log_bytes)],
    ["Disk free", bytes(storage.free_bytes)],
    ["Index in memory", bytes(memory.index_bytes)],
    ["Older versions in memory", bytes(memory.window_bytes)],
    ["Pinned snapshots", pinned ? `${whole(pinned.count)}, ${bytes(pinned.bytes)}` : bytes(memory.pinned_bytes)],
    ["Watches", whole(storage.watches)],
  ]));
}

function table(heads, rows) {
  const head = heads.map(([name, className]) => {
    const cell = element("th", className, name);
    cell.scope = "col";
    return cell;
  });
  const body = rows.map((row) => element("tr", "", ...row.map((text, at) => element("td", heads[at][1], text))));
  return element("table", "", element("thead", "", element("tr", "", ...head)), element("tbody", "", ...body));
}

function clients({ clients }) {
  if (!clients.addresses.length) return detail("Clients", element("p", "empty", "Nobody is connected."));
  const heads = [["Address", "mono"], ["Connections", "number"], ["Under way", "number"]];
  const rows = clients.addresses.slice(0, 8).map((one) => [one.address, whole(one.connections), bytes(one.bytes_in_flight)]);
  const rest = clients.addresses_all - rows.length;
  const body = element("div", "", table(heads, rows));
  if (rest > 0) body.append(element("p", "muted hint", `and ${whole(rest)} more addresses`));
  return detail("Clients", body);
}

function servers({ servers, health }) {
  const rows = servers.members.map((one) => {
    const role = one.leads ? "leads" : !one.reachable ? "can't be reached" : one.votes ? "follows, votes" : "follows, without a vote";
    return [one.is_here ? `${one.address} (this one)` : one.address, role, Number.isFinite(one.lag_entries) ? whole(one.lag_entries) : NONE];
  });
  const body = element("div", "", table([["Address", "mono"], ["Role", ""], ["Entries behind", "number"]], rows));
  const fail = health.state === "failed" ? "nobody is answered" : servers.may_fail === 1 ? "1 server may fail" : `${whole(servers.may_fail)} servers may fail`;
  const elections = servers.elections === 1 ? "1 election" : `${whole(servers.elections)} elections`;
  body.append(element("p", "muted hint", `${fail}; term ${whole(servers.term)}, ${elections} seen`));
  return detail("Servers", body);
}

function changes({ changes: streams }) {
  if (!streams?.length) return [];
  const rows = streams.slice(0, 8).map((one) => [
    one.name, one.lost ? "lost" : lasting(one.lag.seconds), `${bytes(one.held_bytes)} of ${bytes(one.bound_bytes)}`,
  ]);
  const body = element("div", "", table([["Name", "mono"], ["Not acknowledged since", "number"], ["Log held back", "number"]], rows));
  const lost = streams.filter((one) => one.lost);
  lost.slice(0, 3).forEach((one) => body.append(element("p", "muted hint", `${one.name}: ${one.lost}`)));
  const rest = streams.length - rows.length;
  if (rest > 0) body.append(element("p", "muted hint", `and ${whole(rest)} more streams`));
  return [detail("Streams of changes", body)];
}

function backups({ backups: tags }) {
  const going = Object.entries(tags ?? {}).filter(([, tag]) => tag.running_backup);
  if (!going.length) return [];
  const rows = going.slice(0, 8).map(([name, tag]) => [
    name, tag.current_container, tag.running_backup_is_restorable ? lasting(tag.last_restorable_seconds_behind) : "not restorable yet",
  ]);
  const body = element("div", "", table([["Tag", "mono"], ["Goes to", "mono"], ["Behind", "number"]], rows));
  const failing = going.filter(([, tag]) => tag.error || tag.broken);
  failing.slice(0, 3).forEach(([name, tag]) => body.append(element("p", "muted hint", `${name}: ${tag.error ?? "a stretch is missing before the last snapshot"}`)));
  return [detail("Backups", body, "two")];
}

function sites({ followers, follows }) {
  const lag = (tag) => (tag.seconds_behind == null ? "unknown" : lasting(tag.seconds_behind));
  const row = (side) => ([name, tag]) => [name, side, tag.backup_state + (tag.agent === false ? ", no agent" : ""), lag(tag)];
  const rows = [
    ...Object.entries(followers ?? {}).map(row("the first")),
    ...Object.entries(follows ?? {}).map(row("the second")),
  ];
  if (!rows.length) return [];
  const body = element("div", "", table([["Tag", "mono"], ["This database is", ""], ["State", ""], ["Second is behind", "number"]], rows));
  for (const [name, tag] of Object.entries(follows ?? {})) if (tag.error) body.append(element("p", "muted hint", `${name}: ${tag.error}`));
  return [detail("Second site", body, "two")];
}

function hot({ hot }) {
  const kinds = [["reads", "read"], ["writes", "written"], ["conflicts", "in conflict"]];
  const rows = kinds.flatMap(([kind, words]) => (hot?.[kind] ?? []).slice(0, 3).map((range) => [range.prefix || "(all keys)", words, percent(100 * range.share)]));
  if (!rows.length) return detail("Hot ranges", element("p", "empty", "No range stands out among what was read and written lately."));
  return detail("Hot ranges", table([["Keys that begin with", "mono"], ["Are", ""], ["Share", "number"]], rows));
}

function audit({ audit, time }) {
  const rows = (audit?.newest ?? []).map((one) => [`${lasting(Math.max(0, time - one.time))} ago`, one.what, one.client ? `${one.client} (${one.by})` : one.by]);
  if (!rows.length) return [];
  return [detail("What operators did", table([["When", ""], ["What", "mono"], ["Who", ""]], rows), "two")];
}

function slow({ slow_transactions: slow }) {
  const rows = (slow ?? []).slice(-6).reverse().map((one) => [one.first_key, lasting(one.age_seconds), whole(one.mutations), bytes(one.bytes)]);
  if (!rows.length) return detail("Slow transactions", element("p", "empty", "None has committed a second or more after it began to read."), "two");
  return detail("Slow transactions", table([["First key written", "mono"], ["Took", "number"], ["Mutations", "number"], ["Size", "number"]], rows), "two");
}
