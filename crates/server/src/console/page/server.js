// What the page asks of the server, and how it learns that there is no answer.

const PATIENCE_MS = 6000;

// The server has answered, and refused; `message` is its own word.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// There was no answer.
export class Unreachable extends Error {}

async function ask(path, options) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), PATIENCE_MS);
  let response, text;
  try {
    response = await fetch(path, { ...options, signal: controller.signal, cache: "no-store" });
    text = await response.text();
  } catch {
    throw new Unreachable("the server does not answer");
  } finally {
    clearTimeout(timer);
  }
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Unreachable("something else answers in the server's place");
  }
  if (!response.ok) throw new Refused(response.status, body.message ?? `status ${response.status}`);
  return body;
}

// Gets a document; parameters that are null are left out.
export function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return ask(query ? `${path}?${query}` : path, { method: "GET" });
}

// Sends what changes something. The header is one that no other site's page can send.
export function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Plinth-Console": "1" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) });
}
