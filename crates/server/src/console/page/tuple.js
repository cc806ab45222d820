// Keys: their bytes, the text they are written as, and the tuples that FoundationDB's layers make keys of.
//
// Text is the product's own: printable characters as they are, \xhh for other bytes, \\ for a backslash. What decodes
// wholly as a tuple is one, unless it is plain text that only looks so; what doesn't is shown as the bytes it is.

const UTF8 = new TextDecoder("utf-8", { fatal: true });
const ENCODE = new TextEncoder();
// Tuples in tuples, at most; deeper ones are shown as bytes.
const DEPTH = 24;

const hex2 = (byte) => byte.toString(16).padStart(2, "0");

// The bytes that a text spells. Throws a sentence if an escape is broken.
export function unescape(text) {
  const out = [];
  let plain = "";
  const flush = () => {
    out.push(...ENCODE.encode(plain));
    plain = "";
  };
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] !== "\\") {
      plain += text[at];
      continue;
    }
    const hex = /^\\x([0-9a-fA-F]{2})/.exec(text.slice(at, at + 4));
    if (hex) {
      flush();
      out.push(parseInt(hex[1], 16));
      at += 3;
    } else if ('\\" ;'.includes(text[at + 1] ?? "?")) {
      plain += text[at + 1];
      at += 1;
    } else {
      throw new Error("a backslash is written \\\\, any other byte \\xhh with two hexadecimal digits");
    }
  }
  flush();
  return Uint8Array.from(out);
}

// The text that spells these bytes, in ASCII alone: what the server is sent.
export function escape(bytes) {
  let text = "";
  for (const byte of bytes) {
    if (byte === 0x5c) text += "\\\\";
    else if (byte >= 0x20 && byte < 0x7f) text += String.fromCharCode(byte);
    else text += `\\x${hex2(byte)}`;
  }
  return text;
}

export function hex(bytes) {
  return Array.from(bytes, hex2).join(" ");
}

// The text to read: letters of any language where the bytes are UTF-8, escapes for the rest.
export function legible(bytes) {
  try {
    const text = UTF8.decode(bytes);
    // Control characters, separators and what turns the direction of writing are better seen than obeyed.
    return text.replace(/\\/g, "\\\\").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (found) => escape(ENCODE.encode(found)));
  } catch {
    return escape(bytes);
  }
}

const isPlain = (bytes) => bytes.every((byte) => byte >= 0x20 && byte < 0x7f);

// The elements of the tuple that these bytes are, each { kind, text }, or null if they are none.
export function decode(bytes) {
  if (!bytes.length || isPlain(bytes)) return null;
  const reader = new Reader(bytes);
  try {
    const elements = [];
    while (reader.at < bytes.length) elements.push(reader.element(0));
    return elements;
  } catch {
    return null;
  }
}

// The same for values, which are less often tuples: what could as well be a number in little-endian, as counters are, is none.
export function likely(bytes) {
  const elements = decode(bytes);
  const isText = (one) => one.kind === "string" || (one.kind === "tuple" && one.elements.some(isText));
  const isFiller = (one) => one.text === "null" || one.text === 'b""';
  return elements && (elements.some(isText) || !elements.some(isFiller)) ? elements : null;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  take(length) {
    if (this.at + length > this.bytes.length) throw new Error("cut short");
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  // Bytes up to a zero that no \xff follows.
  terminated() {
    const out = [];
    for (;;) {
      const [byte] = this.take(1);
      if (byte === 0) {
        if (this.bytes[this.at] !== 0xff) return Uint8Array.from(out);
        this.at += 1;
      }
      out.push(byte);
    }
  }

  element(depth) {
    if (depth > DEPTH) throw new Error("too deep");
    const [code] = this.take(1);
    if (code === 0x00) return { kind: "word", text: "null" };
    if (code === 0x01) return { kind: "bytes", text: `b"${escape(this.terminated()).replaceAll('"', '\\"')}"` };
    if (code === 0x02) return { kind: "string", text: JSON.stringify(UTF8.decode(this.terminated())) };
    if (code === 0x05) return this.nested(depth);
    if (code >= 0x0b && code <= 0x1d) return { kind: "number", text: this.integer(code).toString() };
    if (code === 0x20) return { kind: "number", text: `${this.float(4)}f` };
    if (code === 0x21) return { kind: "number", text: this.float(8) };
    if (code === 0x26 || code === 0x27) return { kind: "word", text: code === 0x27 ? "true" : "false" };
    if (code === 0x30) {
      const digits = Array.from(this.take(16), hex2).join("");
      return { kind: "word", text: digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "uuid $1-$2-$3-$4-$5") };
    }
    if (code === 0x33) {
      const digits = Array.from(this.take(12), hex2).join("");
      return { kind: "word", text: `versionstamp ${digits.slice(0, 20)}:${digits.slice(20)}` };
    }
    throw new Error("no tuple");
  }

  nested(depth) {
    const elements = [];
    for (;;) {
      if (this.at >= this.bytes.length) throw new Error("cut short");
      if (this.bytes[this.at] === 0) {
        this.at += 1;
        if (this.bytes[this.at] !== 0xff) return { kind: "tuple", elements };
        this.at += 1;
        elements.push({ kind: "word", text: "null" });
      } else {
        elements.push(this.element(depth + 1));
      }
    }
  }

  integer(code) {
    const isNegative = code < 0x14;
    let length = Math.abs(code - 0x14);
    if (length === 9) {
      const [said] = this.take(1);
      length = isNegative ? said ^ 0xff : said;
    }
    let value = 0n;
    for (const byte of this.take(length)) value = (value << 8n) | BigInt(isNegative ? byte ^ 0xff : byte);
    return isNegative ? -value : value;
  }

  float(length) {
    const bytes = Uint8Array.from(this.take(length));
    if (bytes[0] & 0x80) bytes[0] ^= 0x80;
    else bytes.forEach((byte, at) => (bytes[at] = byte ^ 0xff));
    const view = new DataView(bytes.buffer);
    const value = length === 4 ? view.getFloat32(0) : view.getFloat64(0);
    const text = length === 4 ? Number(value.toPrecision(7)).toString() : value.toString();
    return Object.is(value, -0) ? "-0.0" : /^-?\d+$/.test(text) ? `${text}.0` : text;
  }
}

// The bytes of a tuple that a person has typed: ("users", 42, null, true, b"\x00", (1, 2)). Throws a sentence.
export function parse(text) {
  const parser = new Parser(text);
  const elements = parser.tuple();
  parser.space();
  if (parser.at < text.length) throw new Error(`something stands behind the tuple: ${text.slice(parser.at)}`);
  return Uint8Array.from(elements.flatMap((element) => encode(element, false)));
}

class Parser {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  space() {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
  }

  match(pattern) {
    const found = new RegExp(pattern, "y");
    found.lastIndex = this.at;
    const match = found.exec(this.text);
    if (match) this.at = found.lastIndex;
    return match;
  }

  tuple() {
    this.space();
    if (!this.match("\\(")) throw new Error("a tuple begins with (");
    const elements = [];
    for (;;) {
      this.space();
      if (this.match("\\)")) return elements;
      elements.push(this.element());
      this.space();
      if (!this.match(",") && this.text[this.at] !== ")") throw new Error("elements of a tuple are separated by commas, and it ends with )");
    }
  }

  element() {
    if (this.text[this.at] === "(") return this.tuple();
    let found = this.match('b"((?:[^"\\\\]|\\\\.)*)"');
    if (found) return unescape(found[1]);
    found = this.match('"(?:[^"\\\\]|\\\\.)*"');
    if (found) {
      try {
        return JSON.parse(found[0]);
      } catch {
        throw new Error(`${found[0]} is no string as JSON has them`);
      }
    }
    found = this.match("-?\\d+\\.\\d+(?:e-?\\d+)?");
    if (found) return Number(found[0]);
    found = this.match("-?\\d+");
    if (found) return BigInt(found[0]);
    found = this.match("null|true|false");
    if (found) return JSON.parse(found[0]);
    throw new Error('elements are "text", 42, 1.5, true, null, b"bytes" or tuples');
  }
}

const ended = (bytes) => [...Array.from(bytes).flatMap((byte) => (byte === 0 ? [0, 0xff] : [byte])), 0];

function encode(value, isNested) {
  if (value === null) return isNested ? [0, 0xff] : [0];
  if (value === true || value === false) return [value ? 0x27 : 0x26];
  if (typeof value === "string") return [0x02, ...ended(ENCODE.encode(value))];
  if (typeof value === "bigint") return integer(value);
  if (typeof value === "number") {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setFloat64(0, value);
    return [0x21, ...Array.from(bytes, (byte, at) => (bytes[0] & 0x80 ? byte ^ 0xff : at === 0 ? byte ^ 0x80 : byte))];
  }
  if (value instanceof Uint8Array) return [0x01, ...ended(value)];
  return [0x05, ...value.flatMap((element) => encode(element, true)), 0];
}

function integer(value) {
  if (value === 0n) return [0x14];
  const isNegative = value < 0n;
  let digits = (isNegative ? -value : value).toString(16);
  if (digits.length % 2) digits = `0${digits}`;
  const bytes = digits.match(/../g).map((pair) => parseInt(pair, 16) ^ (isNegative ? 0xff : 0));
  if (bytes.length > 255) throw new Error("an integer has at most 255 bytes");
  if (bytes.length > 8) return isNegative ? [0x0b, bytes.length ^ 0xff, ...bytes] : [0x1d, bytes.length, ...bytes];
  return [isNegative ? 0x14 - bytes.length : 0x14 + bytes.length, ...bytes];
}

// A tuple as text.
export function written(elements) {
  const one = (element) => (element.kind === "tuple" ? written(element.elements) : element.text);
  return `(${elements.map(one).join(", ")}${elements.length === 1 ? "," : ""})`;
}
