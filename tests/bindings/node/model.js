// Random transactions on the database and on a model of it, a Map: each read, and all rows at the end, must be the same.
'use strict'
const assert = require('assert')
const fdb = require('foundationdb')
const { between, bytes, chance, choice, select, shown } = require('./harness')
const { OPERATIONS } = require('./data')

// Keys are compared as hexadecimal text, whose order is that of the bytes.
const key = () => bytes(1, 3)
const hex = (data) => data.toString('hex')

const steps = {
  async set(tn, view) {
    const [k, v] = [key(), bytes(0, 4)]
    tn.set(k, v)
    view.set(hex(k), v)
  },
  async clear(tn, view) {
    const k = key()
    tn.clear(k)
    view.delete(hex(k))
  },
  async clearRange(tn, view) {
    const [begin, end] = [key(), key()].sort(Buffer.compare)
    tn.clearRange(begin, end)
    for (const k of [...view.keys()]) if (k >= hex(begin) && k < hex(end)) view.delete(k)
  },
  async atomic(tn, view) {
    const [k, operand, type] = [key(), bytes(1, 4), choice(Object.keys(OPERATIONS))]
    tn.atomicOp(Number(type), k, operand)
    const value = OPERATIONS[type](view.get(hex(k)), operand)
    if (value === undefined) view.delete(hex(k))
    else view.set(hex(k), value)
  },
  async get(tn, view) {
    const k = key()
    assert.deepStrictEqual(await tn.get(k), view.get(hex(k)))
  },
  async getKey(tn, view) {
    const [k, orEqual, offset] = [key(), chance() < 0.5, between(-5, 5)]
    const found = await tn.getKey(fdb.keySelector(k, orEqual, offset))
    const told = found === undefined ? '' : found[0] === 0xff ? undefined : hex(found)
    assert.strictEqual(told, select([...view.keys()].sort(), hex(k), orEqual, offset))
  },
  async getRange(tn, view) {
    const [begin, end] = [key(), key()].sort(Buffer.compare)
    const options = { limit: choice([0, 0, 1, 2, 5]), reverse: chance() < 0.5, streamingMode: choice([-2, -1, 1, 2, 3, 4]) }
    const inside = [...view.entries()].filter(([k]) => k >= hex(begin) && k < hex(end)).sort()
    if (options.reverse) inside.reverse()
    const want = inside.slice(0, options.limit || undefined).map(([k, v]) => `${k}=${hex(v)}`)
    assert.deepStrictEqual(shown(await tn.getRangeAll(begin, end, options)), want)
  },
}
const NAMES = ['set', 'set', 'set', 'clear', 'clearRange', 'atomic', 'atomic', 'get', 'get', 'getKey', 'getRange']

exports.random_transactions_follow_a_model = async (db) => {
  let committed = new Map()
  for (let round = 0; round < 250; round++) {
    const tn = db.rawCreateTransaction()
    const view = new Map(committed)
    for (let step = between(1, 40); step > 0; step--) {
      await steps[choice(NAMES)](chance() < 0.3 ? withSnapshotReads(tn) : tn, view)
    }
    if (chance() < 0.8) {
      await tn.rawCommit()
      committed = view
    }
  }
  const want = [...committed.entries()].sort().map(([k, v]) => `${k}=${hex(v)}`)
  assert.deepStrictEqual(shown(await db.getRangeAll('', Buffer.from([0xff]))), want)
}

// Snapshot reads see the transaction's own writes too, so the model is the same for them.
const withSnapshotReads = (tn) => tn.snapshot()
