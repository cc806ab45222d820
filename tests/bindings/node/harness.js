// What tests share: a seeded source of chance, expecting an error by number, what a selector finds in a list.
'use strict'
const assert = require('assert')

let state = 1

exports.seed = (seed) => {
  state = seed >>> 0 || 1
}

/** A number from 0 up to but not including 1, the same for the same seed. */
const chance = () => {
  state = (state + 0x6d2b79f5) >>> 0
  let mixed = Math.imul(state ^ (state >>> 15), state | 1)
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

/** A whole number from `low` to `high`, both included. */
const between = (low, high) => low + Math.floor(chance() * (high - low + 1))
const choice = (list) => list[between(0, list.length - 1)]

exports.chance = chance
exports.between = between
exports.choice = choice
exports.bytes = (low, high, letters = [0, 0x61, 0x62, 0xfe]) =>
  Buffer.from(Array.from({ length: between(low, high) }, () => choice(letters)))

/** What is done must fail with this one of FoundationDB's numbers, at once or as a promise. */
exports.fails = async (code, body) => {
  let error
  try {
    await body()
  } catch (thrown) {
    error = thrown
  }
  assert.strictEqual(error && error.code, code, `${error}`)
}

/** Writes rows of [key, value] in one transaction. */
exports.fill = (db, rows) =>
  db.doTn(async (tn) => {
    for (const [key, value] of rows) tn.set(key, value)
  })

/** Rows as text that shows every byte, for comparing. */
exports.shown = (rows) => rows.map(([key, value]) => `${key.toString('hex')}=${value.toString('hex')}`)

/** The key that a selector finds in sorted keys: '' before all, and undefined past them. */
exports.select = (keys, key, orEqual, offset) => {
  const before = keys.filter((other) => (orEqual ? other <= key : other < key)).length
  const at = before + offset - 1
  return at < 0 ? '' : keys[at]
}
