// The page as a whole: which view is shown, asking the server again and again, and what to say when it doesn't answer.

import { lasting } from "./format.js";
import { Keys } from "./keys.js";
import { Overview } from "./overview.js";
import { Series } from "./series.js";
import { Refused, get, post } from "./server.js";

const by = (id) => document.getElementById(id);
const EVERY_MS = 1000;
const overview = new Overview();
const keys = new Keys();
const series = new Series();
const VIEWS = ["overview", "keys", "series"];
let lastAnswer = null;
let timer = null;
let isAsking = false;

function showView() {
  const [asked, what] = location.hash.slice(1).split("/", 2);
  const name = VIEWS.includes(asked) ? asked : "overview";
  for (const view of VIEWS) {
    by(view).hidden = view !== name;
    if (view === name) by(`to-${view}`).setAttribute("aria-current", "page");
    else by(`to-${view}`).removeAttribute("aria-current");
  }
  if (name === "keys") keys.open();
  else if (name === "series") series.open(what ?? null);
  else overview.draw();
}

function say(state, words) {
  if (by("health-words").textContent !== words) by("health-words").textContent = words;
  by("health").dataset.state = state;
  by("overview").classList.toggle("stale", state === "away");
  const mark = { serving: "", away: "! ", failed: "! ", refusing: "! ", unwell: "~ ", limited: "~ ", locked: "~ " }[state] ?? "";
  document.title = `${mark}Plinth`;
}

function showIdentity(now) {
  const parts = [now.database, now.addresses.join(", "), `up ${lasting(now.uptime_seconds)}`, `version ${now.version}`];
  by("identity").textContent = parts.join("  ·  ");
  by("logout").hidden = !now.token;
  keys.mayWrite(now.write);
}

// One round: fetch, show, and come again. Nothing is asked while nobody looks.
async function round() {
  clearTimeout(timer);
  if (isAsking || document.hidden || by("login").open) return;
  isAsking = true;
  try {
    const [now] = await Promise.all([get("api/overview"), overview.history.refresh()]);
    lastAnswer = Date.now();
    say(now.health.state, now.health.words);
    showIdentity(now);
    by("to-series").hidden = !now.series;
    series.showParts(now.series_parts ?? []);
    overview.show(now);
    if (!by("overview").hidden) overview.draw();
    if (!by("series").hidden) await series.refresh();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) askForToken();
    else if (error instanceof Refused) say("failed", `The server refuses: ${error.message}`);
    else sayAway();
  } finally {
    isAsking = false;
    timer = setTimeout(round, EVERY_MS);
  }
}

function sayAway() {
  const since = lastAnswer === null ? "" : `; last seen ${lasting((Date.now() - lastAnswer) / 1000)} ago`;
  say("away", `The server does not answer${since}`);
}

function askForToken() {
  if (by("login").open) return;
  say("waiting", "The server asks for its token");
  by("login").showModal();
  by("token").focus();
}

by("login").addEventListener("cancel", (event) => event.preventDefault());
by("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  by("login-error").hidden = true;
  try {
    await post("api/login", { token: by("token").value.trim() });
    by("token").value = "";
    by("login").close();
    round();
    showView();
  } catch (error) {
    by("login-error").textContent = error.message;
    by("login-error").hidden = false;
    by("token").select();
  }
});
by("logout").addEventListener("click", async () => {
  await post("api/logout", {}).catch(() => {});
  location.reload();
});
document.addEventListener("token-needed", askForToken);
document.addEventListener("visibilitychange", round);
addEventListener("hashchange", showView);
showView();
round();
