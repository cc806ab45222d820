// Transactions: their life, conflicts, retries, timeouts, watches, options, errors.
'use strict'
const assert = require('assert')
const fs = require('fs')
const os = require('os')
const path = require('path')
const fdb = require('foundationdb')
const native = require('foundationdb/dist/lib/native').default
const { fails, fill, between, choice } = require('./harness')
const T = fdb.TransactionOptionCode

/** The key of a watch: the package keeps memory of watched texts for ever, and ends at the second. */
const watched = (text) => Buffer.from(text)

exports.a_transaction_sees_its_writes_and_others_after_commit = async (db) => {
  const one = db.rawCreateTransaction()
  one.set('k', 'v')
  assert.strictEqual((await one.get('k')).toString(), 'v')
  assert.strictEqual(await db.get('k'), undefined)
  await one.rawCommit()
  assert.strictEqual((await db.get('k')).toString(), 'v')
  assert(one.getCommittedVersion().readBigUInt64BE(0) > 0n)
  await fails(2017, () => one.get('k'))
  one.rawReset()
  one.clear('k')
  assert.strictEqual(await one.exists('k'), false)
}

/** No name for the option, which is Plinth's own; so it is set by its code. */
exports.a_pinned_snapshot_reads_what_was_and_takes_no_writes = async (db) => {
  await db.set('k', 'v')
  const tn = db.rawCreateTransaction()
  tn.setOption(3000)
  assert.strictEqual((await tn.get('k')).toString(), 'v')
  await db.set('k', 'w')
  assert.strictEqual((await tn.get('k')).toString(), 'v')
  tn.set('k', 'x')
  await fails(2023, () => tn.rawCommit())
  tn.rawReset()
  assert.strictEqual((await tn.get('k')).toString(), 'w')
}

exports.a_name_says_how_a_directory_is_opened = async () => {
  const around = fs.mkdtempSync(path.join(os.tmpdir(), 'plinth-places-'))
  try {
    const name = path.join(around, 'db')
    const nearly = path.join(around, 'fdb.clustr')
    for (const [given, code, words] of [
      [`${name}?create=false&engine=ssd`, 1511, name],
      [nearly, 1511, `${nearly}: is a cluster file meant?`],
      [`${name}?engine=disk`, 2006, '"disk"'],
    ]) {
      assert.throws(() => fdb.open(given), (error) => error.code === code && error.message.includes(words), given)
    }
    assert.deepStrictEqual(fs.readdirSync(around), [])
    const made = fdb.open(`${name}?engine=ssd&memory=64MiB`)
    await made.set('k', 'v')
    made.close()
    assert(fs.existsSync(path.join(name, 'gen-1', 'tables')))
    const again = fdb.open(`${name}?create=false&engine=ssd`)
    assert.strictEqual((await again.get('k')).toString(), 'v')
    again.close()
  } finally {
    fs.rmSync(around, { recursive: true })
  }
}

exports.conflicts_are_retried_until_nothing_is_lost = async (db) => {
  let attempts = 0
  const increment = () =>
    db.doTn(async (tn) => {
      attempts++
      const old = await tn.get('n')
      tn.set('n', String(Number(old || 0) + 1))
    }, { max_retry_delay: 20 })
  await Promise.all(Array.from({ length: 60 }, increment))
  assert.strictEqual((await db.get('n')).toString(), '60')
  assert(attempts > 60, `${attempts} attempts`)
}

exports.what_conflicts = async (db) => {
  await fill(db, [['a', '1'], ['c', '3'], ['e', '5']])
  const set = (key) => (tn) => tn.set(key, 'new')
  const cases = [
    [(tn) => tn.get('a'), set('a'), true],
    [(tn) => tn.get('a'), set('b'), false],
    [(tn) => tn.snapshot().get('a'), set('a'), false],
    [(tn) => tn.getRangeAll('a', 'd'), set('b'), true],
    [(tn) => tn.getRangeAll('a', 'd'), set('d'), false],
    [(tn) => tn.getRangeAll('a', 'f', { limit: 1 }), set('d'), false],
    [(tn) => tn.getRangeAll('a', 'f', { limit: 1, reverse: true }), set('b'), false],
    [(tn) => tn.snapshot().getRangeAll('a', 'd'), set('b'), false],
    [(tn) => tn.getKey(fdb.keySelector.firstGreaterThan('a')), set('b'), true],
    [(tn) => tn.getKey(fdb.keySelector.firstGreaterThan('a')), set('d'), false],
    [(tn) => tn.addReadConflictRange('x', 'z'), set('y'), true],
    [(tn) => tn.addReadConflictKey('x'), set('xx'), false],
    [(tn) => tn.add('a', Buffer.from([1])), set('a'), false],
    [(tn) => tn.get('a'), (tn) => tn.clearRange('', 'b'), true],
    [(tn) => tn.get('q'), (tn) => tn.addWriteConflictKey('q'), true],
    [(tn) => tn.get('q'), (tn) => (tn.setOption(T.NextWriteNoWriteConflictRange), tn.set('q', '')), false],
  ]
  for (const [at, [first, meanwhile, conflicts]] of cases.entries()) {
    const tn = db.rawCreateTransaction()
    await tn.getReadVersion()
    await first(tn)
    const other = db.rawCreateTransaction()
    meanwhile(other)
    await other.rawCommit()
    tn.set('out', '')
    const code = await tn.rawCommit().then(() => 0, (error) => error.code)
    assert.strictEqual(code, conflicts ? 1020 : 0, `case ${at}`)
  }
}

exports.transfers_keep_the_sum = async (db) => {
  await fill(db, Array.from({ length: 10 }, (_, i) => [`acct${i}`, '100']))
  const transfer = () => {
    const from = between(0, 9)
    const to = (from + between(1, 9)) % 10
    return db.doTn(async (tn) => {
      const [a, b] = await Promise.all([tn.get(`acct${from}`), tn.get(`acct${to}`)])
      tn.set(`acct${from}`, String(Number(a) - 7))
      tn.set(`acct${to}`, String(Number(b) + 7))
    }, { max_retry_delay: 20 })
  }
  await Promise.all(Array.from({ length: 200 }, transfer))
  const rows = await db.getRangeAllStartsWith('acct')
  assert.strictEqual(rows.reduce((sum, [, value]) => sum + Number(value), 0), 1000)
}

exports.a_cancelled_transaction_stays_so_until_reset = async (db) => {
  const tn = db.rawCreateTransaction()
  const pending = tn.watch(watched('w'), { throwAllErrors: true })
  tn.rawCancel()
  await fails(1025, () => pending.promise)
  await fails(1025, () => tn.get('k'))
  await fails(1025, () => tn.rawCommit())
  tn.rawReset()
  assert.strictEqual(await tn.get('k'), undefined)
}

exports.timeouts_end_what_waits = async (db) => {
  const tn = db.rawCreateTransaction({ timeout: 100 })
  tn.setReadVersion(Buffer.from('0fffffffffffffff', 'hex'))
  await fails(1031, () => tn.get('k'))
  await fails(1031, () => tn.rawCommit())
  await fails(1031, () => tn.rawOnError(1020))
  tn.rawReset()
  assert.strictEqual(await tn.get('k'), undefined)
}

exports.read_versions_too_old_or_too_new_are_told = async (db) => {
  const tn = db.rawCreateTransaction()
  tn.setReadVersion(Buffer.alloc(8))
  await fails(2011, () => tn.get('k'))
  tn.rawReset()
  tn.setReadVersion(Buffer.from('0000000000000001', 'hex'))
  const code = await tn.get('k').then(() => 0, (error) => error.code)
  assert(code === 0 || code === 1007, `${code}`)
  tn.rawReset()
  const version = await tn.getReadVersion()
  await db.set('k', 'later')
  const past = db.rawCreateTransaction()
  past.setReadVersion(version)
  assert.strictEqual(await past.get('k'), undefined)
}

exports.on_error_retries_what_may_be_retried = async (db) => {
  for (const code of [1007, 1009, 1020, 1021, 1037, 1038, 1051, 1213]) {
    const tn = db.rawCreateTransaction({ max_retry_delay: 5 })
    tn.set('k', 'v')
    await tn.rawOnError(code)
    assert.strictEqual(await tn.get('k'), undefined)
  }
  for (const code of [1025, 1031, 2000, 2017, 4100]) {
    await fails(code, () => db.rawCreateTransaction().rawOnError(code))
  }
  const limited = db.rawCreateTransaction({ retry_limit: 1, max_retry_delay: 5 })
  await limited.rawOnError(1020)
  await fails(1020, () => limited.rawOnError(1020))
}

exports.error_predicates = async () => {
  const { Retryable, MaybeCommitted, RetryableNotCommitted } = fdb.ErrorPredicate
  const table = [
    [1020, true, false, true],
    [1021, true, true, false],
    [1039, true, true, false],
    [1007, true, false, true],
    [1025, false, false, false],
    [2101, false, false, false],
    [0, false, false, false],
  ]
  for (const [code, ...expected] of table) {
    const told = [Retryable, MaybeCommitted, RetryableNotCommitted].map((test) => native.errorPredicate(test, code))
    assert.deepStrictEqual(told, expected, `${code}`)
  }
}

exports.watches_tell_of_changes = async (db) => {
  const changed = await db.getAndWatch(watched('w'))
  assert.strictEqual(changed.value, undefined)
  await db.set('w', '1')
  assert.strictEqual(await changed.promise, true)
  const cancelled = await db.getAndWatch(watched('w'))
  cancelled.cancel()
  assert.strictEqual(await cancelled.promise, false)
  const watches = await db.doTn(async (tn) => Array.from({ length: 300 }, (_, i) => tn.watch(watched(`many${i}`))))
  await fill(db, Array.from({ length: 300 }, (_, i) => [`many${i}`, 'x']))
  assert((await Promise.all(watches.map((watch) => watch.promise))).every(Boolean))
}

exports.a_watch_ends_with_a_transaction_that_conflicts = async (db) => {
  const tn = db.rawCreateTransaction()
  tn.addReadConflictKey('c')
  tn.addWriteConflictKey('c')
  const watch = tn.watch(watched('x'), { throwAllErrors: true })
  await tn.getReadVersion()
  await db.doTn(async (other) => other.addWriteConflictKey('c'))
  await fails(1020, () => tn.rawCommit())
  await fails(1020, () => watch.promise)
}

exports.options_are_accepted_or_refused_by_number = async (db) => {
  const values = {
    [T.DebugRetryLogging]: 'name', [T.TransactionLoggingEnable]: 'name', [T.DebugTransactionIdentifier]: 'name',
    [T.TransactionLoggingMaxFieldLength]: 100, [T.Timeout]: 60000, [T.RetryLimit]: 5, [T.MaxRetryDelay]: 100,
    [T.SizeLimit]: 100000, [T.IdempotencyId]: 'sixteen bytes..!', [T.Tag]: 'tag', [T.AutoThrottleTag]: 'tag',
    [T.SpanParent]: Buffer.alloc(33, 1), [T.AuthorizationToken]: 'token',
  }
  // Each needs another one first: an identifier, the version cache.
  const refused = { [T.LogTransaction]: 2000, [T.UseGrvCache]: 2007 }
  for (const name of Object.keys(T).filter((key) => Number.isNaN(Number(key)))) {
    const code = T[name]
    const tn = db.rawCreateTransaction()
    const value = values[code]
    const expected = refused[code] || 0
    let told = 0
    try {
      tn.setOption(code, typeof value === 'string' ? Buffer.from(value) : value)
      await tn.getApproximateSize()
    } catch (error) {
      told = error.code
    }
    assert.strictEqual(told, expected, `${name} ${code}`)
  }
  const tn = db.rawCreateTransaction()
  await fails(2007, () => tn.setOption(12345))
  await fails(2006, () => (tn.setOption(T.SizeLimit, 1), tn.getApproximateSize()))
  await fails(2006, () => db.setNativeOptions({ max_watches: 1000001 }))
  db.setNativeOptions({ max_watches: 10000, datacenter_id: 'dc', machine_id: 'm' })
}

exports.options_change_what_transactions_do = async (db) => {
  await fails(2101, () =>
    db.doTn(async (tn) => tn.set('k', Buffer.alloc(2000)), { size_limit: 1000 }))
  await db.doTn(async (tn) => {
    tn.set('k', 'own')
    assert.strictEqual(await tn.get('k'), undefined)
  }, { read_your_writes_disable: true })
  const tn = db.rawCreateTransaction({ snapshot_ryw_disable: true })
  tn.set('k', 'newer')
  assert.strictEqual((await tn.snapshot().get('k')).toString(), 'own')
  assert.strictEqual((await tn.get('k')).toString(), 'newer')
}

exports.errors_are_deferred_to_the_next_operation = async (db) => {
  const misuses = [
    [(tn) => tn.set(Buffer.from([0xff]), ''), 2004],
    [(tn) => tn.set('k'.repeat(10001), ''), 2102],
    [(tn) => tn.set('k', Buffer.alloc(100001)), 2103],
    [(tn) => tn.clearRange('b', 'a'), 2005],
  ]
  for (const [misuse, code] of misuses) {
    const tn = db.rawCreateTransaction()
    misuse(tn)
    await fails(code, () => tn.get('a'))
    await fails(code, () => tn.rawCommit())
  }
  await fails(2005, () => db.rawCreateTransaction().addReadConflictRange('b', 'a'))
}

exports.many_transactions_at_once = async (db) => {
  const keys = Array.from({ length: 40 }, (_, i) => `key${i}`)
  await Promise.all(
    Array.from({ length: 500 }, (_, i) =>
      db.doTn(async (tn) => {
        await Promise.all([tn.get(choice(keys)), tn.getRangeAll('key', 'kez', { limit: 5 })])
        tn.set(`done${i}`, '')
      }, { max_retry_delay: 20 })
    )
  )
  assert.strictEqual((await db.getRangeAllStartsWith('done')).length, 500)
}
