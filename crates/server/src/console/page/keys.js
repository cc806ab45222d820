// The key browser: ranges page by page, keys as tuples, text or bytes, whole values; changes where the server allows them.

import { bytes as sized, element, whole } from "./format.js";
import { get, post } from "./server.js";
import { decode, escape, hex, legible, likely, parse, unescape, written } from "./tuple.js";

const by = (id) => document.getElementById(id);

// What was typed, as the server wants it: a tuple is turned into its bytes.
function typed(text) {
  return text.trimStart().startsWith("(") ? escape(parse(text.trim())) : text;
}

// A tuple in colours.
function tupleNodes(elements) {
  const nodes = [element("span", "punctuation", "(")];
  elements.forEach((one, at) => {
    if (at > 0) nodes.push(element("span", "punctuation", ", "));
    if (one.kind === "tuple") nodes.push(...tupleNodes(one.elements));
    else nodes.push(element("span", `kind-${one.kind}`, one.text));
  });
  nodes.push(element("span", "punctuation", ")"));
  return nodes;
}

function keyNodes(key, as) {
  if (as === "hex") return [hex(key) || "(the empty key)"];
  const tuple = as === "tuple" ? decode(key) : null;
  return tuple ? tupleNodes(tuple) : [legible(key) || "(the empty key)"];
}

// A little-endian number, as atomic additions make them; null for what can't be one.
function number(value) {
  if (!value.length || value.length > 8) return null;
  return value.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
}

function valueNodes(value, as, isWhole) {
  if (!value.length) return ["(empty)"];
  const rest = isWhole ? "" : " …";
  if (as === "hex") return [hex(value) + rest];
  if (as === "number" && isWhole) return [number(value)?.toLocaleString("en") ?? legible(value)];
  const tuple = !isWhole || as === "text" ? null : as === "tuple" ? decode(value) : likely(value);
  return tuple ? tupleNodes(tuple) : [legible(value) + rest];
}

export class Keys {
  #pages = [];
  #answer = null;
  #mayWrite = false;

  constructor() {
    this.form = by("range");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#begin();
    });
    this.form.addEventListener("change", (event) => {
      if (event.target.name === "by") this.#choose();
      else if (event.target.type !== "text") this.#begin();
    });
    by("next").addEventListener("click", () => {
      this.#pages.push(this.#answer.after);
      this.#load();
    });
    by("previous").addEventListener("click", () => {
      this.#pages.pop();
      this.#load();
    });
    by("keys-as").addEventListener("change", () => this.#draw());
    by("values-as").addEventListener("change", () => this.#draw());
    by("new-key").addEventListener("click", () => this.#edit(null));
    this.#choose();
  }

  // The view has been opened.
  open() {
    if (!this.#answer) this.#begin();
  }

  mayWrite(may) {
    this.#mayWrite = may;
    by("new-key").hidden = !may;
  }

  #choose() {
    const chosen = this.form.elements.by.value;
    this.form.querySelectorAll("[data-by]").forEach((field) => (field.hidden = field.dataset.by !== chosen));
  }

  #begin() {
    this.#pages = [];
    return this.#load();
  }

  #parameters() {
    const { by: chosen, prefix, begin, end, limit, reverse } = this.form.elements;
    const range = chosen.value === "prefix" ? { prefix: typed(prefix.value) } : { begin: typed(begin.value), end: typed(end.value) || null };
    return { ...range, limit: limit.value, reverse: reverse.checked, after: this.#pages.at(-1) };
  }

  async #load() {
    by("rows").closest(".rows").classList.add("loading");
    try {
      this.#answer = await get("api/range", this.#parameters());
      by("keys-error").hidden = true;
    } catch (error) {
      by("keys-error").textContent = error.message;
      by("keys-error").hidden = false;
      if (error.status === 401) document.dispatchEvent(new Event("token-needed"));
      return;
    }
    this.#draw();
  }

  #draw() {
    if (!this.#answer) return;
    const [keysAs, valuesAs] = [by("keys-as").value, by("values-as").value];
    const rows = this.#answer.rows.map((row) => {
      const [key, value] = [unescape(row.key), unescape(row.value)];
      const open = element("button", "", element("span", "clip", ...keyNodes(key, keysAs)));
      open.type = "button";
      open.addEventListener("click", () => this.#show(row.key));
      const shown = element("span", "clip", ...valueNodes(value, valuesAs, value.length === row.bytes));
      return element("tr", "", element("td", "", open), element("td", "mono", shown), element("td", "number", sized(row.bytes)));
    });
    by("rows").replaceChildren(...rows);
    by("no-rows").hidden = rows.length > 0;
    by("no-rows").textContent = this.#pages.length ? "No more keys in this range." : "No keys in this range.";
    const before = this.#pages.length ? ` on page ${whole(this.#pages.length + 1)}` : "";
    by("rows-summary").textContent = `${whole(rows.length)} ${rows.length === 1 ? "row" : "rows"}${before}${this.#answer.more ? ", more follow" : ""}`;
    by("previous").disabled = this.#pages.length === 0;
    by("next").disabled = !this.#answer.more;
  }

  // One key and its whole value.
  async #show(text) {
    const body = by("entry-body");
    by("entry-title").textContent = "Key";
    body.replaceChildren(element("p", "muted", "Reading …"));
    if (!by("entry").open) by("entry").showModal();
    try {
      const answer = await get("api/key", { key: text });
      const key = unescape(answer.key);
      const shown = [["Key", legible(key)]];
      const tuple = decode(key);
      if (tuple) shown.unshift(["Key, as a tuple", written(tuple)]);
      shown.push(["Key, in hexadecimal", hex(key)], ...(answer.exists ? this.#value(unescape(answer.value)) : [["Value", "(the key does not exist)"]]));
      body.replaceChildren(this.#shown(shown));
      if (this.#mayWrite) body.append(this.#change(answer));
    } catch (error) {
      body.replaceChildren(element("p", "error", error.message));
    }
  }

  #value(value) {
    const shown = [[`Value, ${sized(value.length)}`, value.length ? legible(value) : "(empty)"]];
    const tuple = decode(value);
    if (tuple) shown.push(["Value, as a tuple", written(tuple)]);
    const little = number(value);
    if (little !== null) shown.push(["Value, as a little-endian number", little.toLocaleString("en")]);
    if (value.length) shown.push(["Value, in hexadecimal", hex(value)]);
    return shown;
  }

  #shown(pairs) {
    const items = pairs.flatMap(([name, text]) => [element("dt", "", name), element("dd", "", text)]);
    return element("dl", "shown", ...items);
  }

  // Fields and buttons for a key that may be changed.
  #change(answer) {
    const value = element("textarea", "", answer.value ?? "");
    const save = element("button", "primary", "Save value");
    const clear = element("button", "danger", "Clear key");
    const said = element("p", "error");
    said.setAttribute("role", "alert");
    save.addEventListener("click", () => this.#confirm(save, "Really save it", said, () => post("api/set", { key: answer.key, value: value.value })));
    clear.addEventListener("click", () => this.#confirm(clear, "Really clear it", said, () => post("api/clear", { key: answer.key })));
    clear.hidden = !answer.exists;
    const field = element("label", "field", element("span", "", "New value; \\x00 for other bytes"), value);
    return element("div", "change", field, said, element("div", "actions", save, clear));
  }

  #edit() {
    const key = element("input", "");
    const value = element("textarea", "");
    const save = element("button", "primary", "Set key");
    const said = element("p", "error");
    key.type = "text";
    said.setAttribute("role", "alert");
    save.addEventListener("click", () => this.#confirm(save, "Really set it", said, () => post("api/set", { key: typed(key.value), value: value.value })));
    by("entry-title").textContent = "New key";
    const fields = [
      element("label", "field", element("span", "", "Key: text, or a tuple"), key),
      element("label", "field", element("span", "", "Value; \\x00 for other bytes"), value),
    ];
    by("entry-body").replaceChildren(element("div", "change", ...fields, said, element("div", "actions", save)));
    by("entry").showModal();
    key.focus();
  }

  // The first click asks again, the second one does it.
  async #confirm(button, question, said, change) {
    if (button.dataset.asked !== "yes") {
      button.dataset.asked = "yes";
      button.textContent = question;
      return;
    }
    try {
      await change();
      by("entry").close();
      await this.#load();
    } catch (error) {
      said.textContent = error.message;
    }
  }
}
