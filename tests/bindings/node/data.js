// What is read and written: ranges, selectors, atomic operations, versionstamps, special keys, estimates.
'use strict'
const assert = require('assert')
const fdb = require('foundationdb')
const { fails, fill, shown, between, bytes, chance, choice, select } = require('./harness')
const M = fdb.MutationType

exports.every_streaming_mode_gives_the_same_rows = async (db) => {
  const rows = Array.from({ length: 2500 }, (_, i) => [
    Buffer.from(`k${String(i).padStart(5, '0')}`), Buffer.alloc(i % 300, 118),
  ])
  await fill(db, rows)
  for (const streamingMode of Object.values(fdb.StreamingMode).filter(Number.isInteger)) {
    for (const reverse of [false, true]) {
      const limit = streamingMode === fdb.StreamingMode.Exact ? 10000 : 0
      const found = await db.getRangeAll('k', 'l', { streamingMode, reverse, limit })
      assert.deepStrictEqual(shown(found), shown(reverse ? rows.slice().reverse() : rows), `${streamingMode}`)
    }
  }
  let count = 0
  await db.doTn(async (tn) => {
    for await (const [key, value] of tn.getRange('k', 'l')) assert.deepStrictEqual([key, value], rows[count++])
  })
  assert.strictEqual(count, rows.length)
}

exports.limits_and_directions = async (db) => {
  const rows = Array.from({ length: 300 }, (_, i) => [Buffer.from(String(i).padStart(3, '0')), Buffer.from(`${i}`)])
  await fill(db, rows)
  for (let round = 0; round < 200; round++) {
    const [begin, end] = [between(0, 299), between(0, 299)].sort((a, b) => a - b)
    const limit = choice([0, 1, 2, 7, 50, 1000])
    const reverse = chance() < 0.5
    const inside = reverse ? rows.slice(begin, end).reverse() : rows.slice(begin, end)
    const found = await db.getRangeAll(rows[begin][0], rows[end][0], { limit, reverse })
    assert.deepStrictEqual(shown(found), shown(limit ? inside.slice(0, limit) : inside))
  }
}

exports.selectors_find_what_a_list_says = async (db) => {
  const key = () => bytes(1, 4, [97, 98, 99])
  const keys = Array.from({ length: 60 }, key)
  await fill(db, keys.map((each) => [each, 'db']))
  const tn = db.rawCreateTransaction()
  const own = Array.from({ length: 20 }, key)
  own.forEach((each) => tn.set(each, 'own'))
  tn.clearRange('b', 'bb')
  const visible = [...new Set([...keys, ...own].map((each) => each.toString()))]
    .filter((each) => !(each >= 'b' && each < 'bb')).sort()
  for (let round = 0; round < 500; round++) {
    const at = bytes(0, 4, [97, 98, 99, 100]).toString()
    const [orEqual, offset] = [chance() < 0.5, between(-15, 15)]
    const want = select(visible, at, orEqual, offset)
    const found = await tn.getKey(fdb.keySelector(at, orEqual, offset))
    const shownFound = found === undefined ? '' : found[0] === 0xff ? undefined : found.toString()
    assert.strictEqual(shownFound, want, `${at} ${orEqual} ${offset}`)
  }
  const between_ = await tn.getRangeAll(
    fdb.keySelector(visible[3], false, 1), fdb.keySelector(visible[visible.length - 1], true, -1))
  assert.deepStrictEqual(between_.map(([each]) => each.toString()), visible.slice(3, -2))
}

const padded = (old, length) => Buffer.concat([(old || Buffer.alloc(0)).subarray(0, length), Buffer.alloc(length)], length)
const bitwise = (f) => (old, p) => Buffer.from(padded(old, p.length).map((byte, at) => f(byte, p[at])))
const reversed = (b) => Buffer.from(b).reverse()
const bigger = (a, b) => (Buffer.compare(reversed(a), reversed(b)) > 0 ? a : b)
const smaller = (a, b) => (Buffer.compare(reversed(a), reversed(b)) < 0 ? a : b)
const sum = (old, p) => {
  let carry = 0
  return Buffer.from(padded(old, p.length).map((byte, at) => {
    carry += byte + p[at]
    const digit = carry & 255
    carry >>= 8
    return digit
  }))
}

/** Each operation as a function of the old value (undefined if there is none) and the operand. */
const OPERATIONS = {
  [M.Add]: sum,
  [M.BitAnd]: (old, p) => (old ? bitwise((a, b) => a & b)(old, p) : p),
  [M.BitOr]: bitwise((a, b) => a | b),
  [M.BitXor]: bitwise((a, b) => a ^ b),
  [M.Max]: (old, p) => (old ? bigger(padded(old, p.length), p) : p),
  [M.Min]: (old, p) => (old ? smaller(padded(old, p.length), p) : p),
  [M.ByteMax]: (old, p) => (old && Buffer.compare(old, p) > 0 ? old : p),
  [M.ByteMin]: (old, p) => (old && Buffer.compare(old, p) < 0 ? old : p),
  [M.AppendIfFits]: (old, p) => Buffer.concat([old || Buffer.alloc(0), p]),
  [M.CompareAndClear]: (old, p) => (old && old.equals(p) ? undefined : old),
}
Object.defineProperty(exports, 'OPERATIONS', { value: OPERATIONS, enumerable: false })

exports.atomic_operations_are_their_definitions = async (db) => {
  for (let round = 0; round < 60; round++) {
    for (const [type, definition] of Object.entries(OPERATIONS)) {
      const old = chance() < 0.4 ? undefined : bytes(1, 5, [0, 1, 2, 255])
      const operand = old && chance() < 0.2 ? old : bytes(1, 5, [0, 1, 2, 255])
      await db.doTn(async (tn) => (old ? tn.set('k', old) : tn.clear('k')))
      const seen = await db.doTn(async (tn) => {
        tn.atomicOp(Number(type), 'k', operand)
        return tn.get('k')
      })
      const want = definition(old, operand)
      const words = `${M[type]} ${old && old.toString('hex')} ${operand.toString('hex')}`
      assert.deepStrictEqual(seen, want, words)
      assert.deepStrictEqual(await db.get('k'), want, words)
    }
  }
}

exports.additions_at_once_lose_nothing = async (db) => {
  const one = Buffer.alloc(8)
  one.writeUInt8(1, 0)
  await Promise.all(Array.from({ length: 400 }, () => db.add('n', one)))
  assert.strictEqual((await db.get('n')).readBigUInt64LE(0), 400n)
}

exports.versionstamps_in_keys_and_values = async (db) => {
  const { promise } = await db.doTn(async (tn) => {
    tn.setVersionstampSuffixedKey('k/', 'v', Buffer.from('/end'))
    tn.setVersionstampPrefixedValue('value', 'rest')
    return tn.getVersionstamp()
  })
  const stamp = await promise
  assert.strictEqual(stamp.length, 10)
  assert.strictEqual((await db.get(Buffer.concat([Buffer.from('k/'), stamp, Buffer.from('/end')]))).toString(), 'v')
  assert.deepStrictEqual(await db.get('value'), Buffer.concat([stamp, Buffer.from('rest')]))
  await Promise.all(Array.from({ length: 100 }, (_, i) => db.setVersionstampSuffixedKey('log/', String(i))))
  const log = await db.getRangeAllStartsWith('log/')
  assert.strictEqual(new Set(log.map(([key]) => key.toString('hex'))).size, 100)
  const tn = db.rawCreateTransaction()
  tn.setVersionstampPrefixedValue('value')
  await fails(1036, () => tn.get('value'))
  const bad = db.rawCreateTransaction()
  bad.setVersionstampedKeyRaw(Buffer.from([1, 2, 3]), '')
  await fails(2000, () => bad.rawCommit())
}

exports.versionstamps_of_tuples_are_filled_in = async (db) => {
  const tuples = db.withKeyEncoding(fdb.encoders.tuple).withValueEncoding(fdb.encoders.string)
  const keys = [0, 1, 321].map((code) => ['t', fdb.tuple.unboundVersionstamp(code > 1 ? code : undefined)])
  const { promise } = await tuples.doTn(async (tn) => {
    keys.forEach((key, at) => tn.setVersionstampedKey(key, `${at}`))
    return tn.getVersionstamp()
  })
  const stamp = await promise
  const found = await tuples.getRangeAllStartsWith(['t'])
  assert.deepStrictEqual(found.map(([, value]) => value), ['0', '1', '2'])
  assert(found.every(([key]) => key[1].value.subarray(0, 10).equals(stamp)))
}

exports.special_keys = async (db) => {
  const status = JSON.parse(await db.get(Buffer.from('\xff\xff/status/json', 'latin1')))
  assert(status.cluster && status.client)
  const tn = db.rawCreateTransaction()
  await tn.get('r')
  tn.set('w', '')
  for (const [kind, key] of [['read', 'r'], ['write', 'w']]) {
    const prefix = Buffer.from(`\xff\xff/transaction/${kind}_conflict_range/`, 'latin1')
    const rows = await tn.getRangeAll(prefix, Buffer.concat([prefix, Buffer.from([0xff])]))
    const want = [[`${key}`, '1'], [`${key}\0`, '0']]
    assert.deepStrictEqual(rows.map(([k, v]) => [k.subarray(prefix.length).toString(), v.toString()]), want)
  }
  await fails(2113, () => tn.get(Buffer.from('\xff\xff/no/such/module', 'latin1')))
  await fails(2004, () => tn.get(Buffer.from('\xff/conf', 'latin1')))
  const system = db.rawCreateTransaction({ read_system_keys: true })
  assert.strictEqual(await system.get(Buffer.from('\xff/conf/none', 'latin1')), undefined)
}

exports.estimates_and_split_points = async (db) => {
  await fill(db, Array.from({ length: 1000 }, (_, i) => [`e${String(i).padStart(4, '0')}`, Buffer.alloc(1000)]))
  assert((await db.getEstimatedRangeSizeBytes('e', 'f')) >= 0)
  const points = (await db.getRangeSplitPoints('e', 'f', 100000)).map(String)
  assert(points[0] === 'e' && points[points.length - 1] === 'f')
  assert.deepStrictEqual(points, points.slice().sort())
  const tn = db.rawCreateTransaction()
  const small = await tn.getApproximateSize()
  tn.set('k', Buffer.alloc(1000))
  assert((await tn.getApproximateSize()) >= small + 1000)
}
