// The binding's layers on this database: tuples, subspaces, directories.
'use strict'
const assert = require('assert')
const fdb = require('foundationdb')
const { between, bytes, chance, choice } = require('./harness')

const element = (depth = 0) =>
  choice([
    () => null,
    () => between(-300, 300),
    () => between(-(2 ** 50), 2 ** 50),
    () => BigInt(between(-(2 ** 50), 2 ** 50)) * 2n ** 40n,
    () => chance() + 0.5,
    () => bytes(0, 5, [0, 1, 97, 255]),
    () => Array.from({ length: between(0, 5) }, () => choice(['a', 'é', '\0', '漢'])).join(''),
    () => chance() < 0.5,
    () => ({ type: 'uuid', value: Buffer.from(Array.from({ length: 16 }, () => between(0, 255))) }),
    () => (depth < 2 ? Array.from({ length: between(0, 3) }, () => element(depth + 1)) : 7),
  ])()

exports.tuples_come_back_and_sort = async (db) => {
  const tuples = Array.from({ length: 300 }, () => Array.from({ length: between(0, 4) }, () => element()))
  for (const each of tuples) {
    const packed = fdb.tuple.pack(each)
    assert.deepStrictEqual(fdb.tuple.pack(fdb.tuple.unpack(packed)), packed)
  }
  const keys = tuples.map((each) => fdb.tuple.pack(['t', ...each]))
  await db.doTn(async (tn) => keys.forEach((key) => tn.set(key, '')))
  const stored = (await db.getRangeAllStartsWith(fdb.tuple.pack(['t']))).map(([key]) => key.toString('hex'))
  assert.deepStrictEqual(stored, [...new Set(keys.map((key) => key.toString('hex')))].sort())
}

exports.subspaces_keep_apart = async (db) => {
  const tuples = (name) => db.at(Buffer.from(name)).withKeyEncoding(fdb.encoders.tuple).withValueEncoding(fdb.encoders.json)
  const [one, two] = [tuples('one'), tuples('two')]
  await one.set(['k', 1], { x: 1 })
  await two.set(['k', 1], [2])
  assert.deepStrictEqual(await one.get(['k', 1]), { x: 1 })
  assert.deepStrictEqual(await one.getRangeAllStartsWith(['k']), [[['k', 1], { x: 1 }]])
  await one.clearRangeStartsWith([])
  assert.deepStrictEqual(await two.get(['k', 1]), [2])
}

exports.directories = async (db) => {
  const layer = fdb.directory
  const users = await layer.createOrOpen(db, ['app', 'users'])
  await db.at(users).set('ada', '1815')
  assert.deepStrictEqual((await layer.listAll(db, ['app'])).map(String), ['users'])
  const people = await layer.move(db, ['app', 'users'], ['app', 'people'])
  assert.strictEqual((await db.at(people).get('ada')).toString(), '1815')
  assert.strictEqual(await layer.exists(db, ['app', 'users']), false)
  await assert.rejects(layer.create(db, ['app', 'people']))
  await assert.rejects(layer.open(db, ['nothing']))
  await layer.remove(db, ['app'])
  assert.strictEqual(await db.at(people).get('ada'), undefined)
  const partition = await layer.create(db, ['part'], 'partition')
  const inner = await partition.createOrOpen(db, ['a', 'b'])
  assert.deepStrictEqual(inner.getPath(), ['part', 'a', 'b'])
  await layer.remove(db, ['part'])
}

exports.directories_are_allocated_at_once_without_clashes = async (db) => {
  const made = await Promise.all(
    Array.from({ length: 60 }, (_, i) => fdb.directory.create(db, ['many', String(i)])))
  const prefixes = made.map((each) => each.getSubspace().prefix.toString('hex'))
  assert.strictEqual(new Set(prefixes).size, 60)
  assert(!prefixes.some((a) => prefixes.some((b) => a !== b && b.startsWith(a))))
}
