// A small shop on Openland's framework. Each test goes on in a directory of its own.
'use strict'
const assert = require('assert')
const { createNamedContext } = require('@openland/context')
const fdb = require('@openland/foundationdb')

const root = createNamedContext('suite')
const tuples = (subspace) => subspace.withKeyEncoding(fdb.encoders.tuple).withValueEncoding(fdb.encoders.json)
let db

const space = async (name) => tuples(await db.directories.createOrOpen(root, ['shop', name]))

const tests = {
  async values_are_read_as_they_were_written() {
    const shelf = await space('shelf')
    await fdb.inTx(root, async (ctx) => {
      for (let i = 0; i < 100; i++) shelf.set(ctx, ['item', i], { price: i })
      assert.deepStrictEqual(await shelf.get(ctx, ['item', 42]), { price: 42 })
    })
    await fdb.inTx(root, async (ctx) => {
      assert.strictEqual(await shelf.get(ctx, ['item', 100]), null)
      assert.strictEqual(await shelf.exists(ctx, ['item', 99]), true)
      const found = await shelf.range(ctx, ['item'], { after: ['item', 9], limit: 5 })
      assert.deepStrictEqual(found.map(({ key }) => key[1]), [10, 11, 12, 13, 14])
      const last = await shelf.range(ctx, ['item'], { limit: 3, reverse: true })
      assert.deepStrictEqual(last.map(({ value }) => value.price), [99, 98, 97])
      shelf.clearPrefixed(ctx, ['item'])
    })
    assert.deepStrictEqual(await fdb.inTx(root, (ctx) => shelf.range(ctx, ['item'])), [])
  },

  async orders_at_once_sell_nothing_twice() {
    const stock = await space('stock')
    await fdb.inTx(root, async (ctx) => stock.set(ctx, ['left'], 20))
    const order = () =>
      fdb.inTx(root, async (ctx) => {
        const left = await stock.get(ctx, ['left'])
        if (left === 0) return false
        stock.set(ctx, ['left'], left - 1)
        return true
      })
    const sold = await Promise.all(Array.from({ length: 30 }, order))
    assert.strictEqual(sold.filter(Boolean).length, 20)
  },

  async counters_are_atomic() {
    const counters = (await db.directories.createOrOpen(root, ['shop', 'counters']))
      .withKeyEncoding(fdb.encoders.tuple).withValueEncoding(fdb.encoders.int32LE)
    await Promise.all(Array.from({ length: 100 }, () => fdb.inTx(root, async (ctx) => counters.add(ctx, ['visits'], 1))))
    assert.strictEqual(await fdb.inTx(root, (ctx) => counters.get(ctx, ['visits'])), 100)
  },

  async batches_run_in_one_transaction() {
    const shelf = await space('batches')
    const tasks = Array.from({ length: 50 }, (_, i) => async (ctx) => shelf.set(ctx, [i], i))
    await fdb.runInBatch(root, tasks)
    assert.strictEqual((await fdb.inTx(root, (ctx) => shelf.range(ctx, []))).length, 50)
  },

  async subspaces_are_copied_and_compared() {
    const [from, to] = [await db.directories.createOrOpen(root, ['shop', 'from']), await db.directories.createOrOpen(root, ['shop', 'to'])]
    await fdb.inTx(root, async (ctx) => {
      for (let i = 0; i < 300; i++) from.set(ctx, Buffer.from([1, i >> 8, i & 255]), Buffer.alloc(10, i))
      to.set(ctx, Buffer.from([9]), Buffer.from('stale'))
    })
    assert.strictEqual(await fdb.isSubspaceEquals(root, from, to), false)
    await fdb.syncSubspaces(root, from, to, 50)
    assert.strictEqual(await fdb.isSubspaceEquals(root, from, to), true)
  },

  async watches_tell_of_orders() {
    const orders = await space('orders')
    const watch = await fdb.inTx(root, async (ctx) => orders.watch(ctx, ['newest']))
    await fdb.inTx(root, async (ctx) => orders.set(ctx, ['newest'], 1))
    await watch.promise
  },

  async versionstamps_put_events_in_order() {
    const events = await db.directories.createOrOpen(root, ['shop', 'events'])
    for (let i = 0; i < 20; i++) {
      await fdb.inTx(root, async (ctx) => events.setVersionstampedKey(ctx, Buffer.from('e'), Buffer.from([i])))
    }
    const found = await fdb.inTx(root, (ctx) => events.range(ctx, Buffer.from('e')))
    assert.deepStrictEqual(found.map(({ value }) => value[0]), Array.from({ length: 20 }, (_, i) => i))
  },

  async directories_are_moved() {
    await db.directories.create(root, ['shop', 'old'])
    await db.directories.move(root, ['shop', 'old'], ['shop', 'new'])
    assert.strictEqual(await db.directories.directoryExists(root, ['shop', 'new']), true)
    assert((await db.directories.listAll(root, ['shop'])).map(String).includes('new'))
  },
}

async function main() {
  db = await fdb.Database.open({ layers: [], clusterFile: process.env.PLINTH_TARGET || ':memory:' })
  await fdb.inTx(root, async (ctx) => db.allKeys.clearRange(ctx, Buffer.of(), Buffer.of(0xff)))
  let [passed, failed] = [0, 0]
  for (const [name, test] of Object.entries(tests)) {
    if (process.argv.length > 2 && !process.argv.slice(2).some((part) => name.includes(part))) continue
    try {
      await test()
      passed++
      console.log(`test ${name} ... ok`)
    } catch (error) {
      failed++
      console.log(error)
      console.log(`test ${name} ... FAILED`)
    }
  }
  console.log(`test result: ${failed ? 'FAILED' : 'ok'}. ${passed} passed; ${failed} failed; 0 ignored`)
  process.exit(failed ? 1 : 0)
}

main()
