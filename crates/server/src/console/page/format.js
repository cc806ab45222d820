// Numbers as people read them: few digits, the unit that fits, always the same width for the same kind.

const THIN = "\u202f";

// Three significant digits at most, without trailing zeros where `exact` is none.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return Math.round(value).toString();
  if (size >= 10) return value.toFixed(1).replace(/\.0$/, "");
  return value.toFixed(2).replace(/\.?0+$/, "");
}

function scaled(value, step, units) {
  let at = 0;
  while (Math.abs(value) >= step * 0.9995 && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return `${digits(value)}${units[at] ? THIN + units[at] : ""}`;
}

export const NONE = "\u2013";

function known(format) {
  return (value) => (value === null || value === undefined || !Number.isFinite(value) ? NONE : format(value));
}

// 1,234 as it is; 12.3 k from ten thousand on.
export const count = known((value) =>
  Math.abs(value) < 10000 ? (Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : digits(value)) : scaled(value, 1000, ["", "k", "M", "G"]),
);

export const whole = known((value) => Math.round(value).toLocaleString("en"));

export const bytes = known((value) => scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]));

export const bytesPerSecond = known((value) => `${bytes(value)}/s`);

export const percent = known((value) => `${digits(value)}${THIN}%`);

export const cores = known((value) => `${digits(value)}`);

// A time given in seconds.
export const seconds = known((value) => {
  if (value === 0) return "0";
  if (value < 0.9995e-3) return `${digits(value * 1e6)}${THIN}µs`;
  if (value < 0.9995) return `${digits(value * 1e3)}${THIN}ms`;
  return `${digits(value)}${THIN}s`;
});

// How long something has lasted, in words: two units at most.
export const lasting = known((value) => {
  const parts = [
    [Math.floor(value / 86400), "d"],
    [Math.floor(value / 3600) % 24, "h"],
    [Math.floor(value / 60) % 60, "min"],
    [Math.floor(value) % 60, "s"],
  ];
  const first = parts.findIndex(([size]) => size > 0);
  if (first < 0) return `0${THIN}s`;
  return parts
    .slice(first, first + 2)
    .filter(([size], at) => at === 0 || size > 0)
    .map(([size, unit]) => `${size}${THIN}${unit}`)
    .join(" ");
});

// A measurement, of which nobody knows what it counts: six digits.
export const number = known((value) => {
  const size = Math.abs(value);
  return size >= 1e7 || (size > 0 && size < 1e-4) ? value.toExponential(2).replace("e+", "e") : String(Number(value.toPrecision(6)));
});

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const CLOCK_SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const MOMENT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

// Unix seconds as a time of day, where the reader is.
export const clock = (time) => CLOCK.format(time * 1000);
export const clockSeconds = (time) => CLOCK_SECONDS.format(time * 1000);
export const day = (time) => DAY.format(time * 1000);
export const moment = (time) => MOMENT.format(time * 1000);

// An element with a class and children, which are elements or text.
export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}
