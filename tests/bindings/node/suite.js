// Runs the Node suite: every test on the database that PLINTH_TARGET names, which each finds empty.
// What is printed has the form of cargo's tests, so that the same program adds both up.
'use strict'
const fdb = require('foundationdb')
const harness = require('./harness')
const modules = ['./transactions', './data', './layers', './model'].map((name) => require(name))

// The package destroys a transaction that nobody can use any more, which cancels what it still does (1025), as a commit that is only waited for. So
// those of a test live as long as the test.
function keepingTransactions(db) {
  const kept = []
  const create = db.rawCreateTransaction
  db.rawCreateTransaction = (...options) => {
    const tn = create.apply(db, options)
    kept.push(tn)
    return tn
  }
  return kept
}

async function main() {
  fdb.setAPIVersion(720)
  const db = fdb.open(process.env.PLINTH_TARGET || ':memory:')
  const kept = keepingTransactions(db)
  const seed = Number(process.env.PLINTH_SEED || Math.floor(Math.random() * 2 ** 32))
  const wanted = process.argv.slice(2)
  let passed = 0
  let failed = 0
  for (const [name, test] of modules.flatMap(Object.entries)) {
    if (wanted.length && !wanted.some((part) => name.includes(part))) continue
    harness.seed(seed)
    await db.clearRange('', Buffer.from([0xff]))
    try {
      await test(db)
      passed++
      console.log(`test ${name} ... ok`)
    } catch (error) {
      failed++
      console.log(error)
      console.log(`test ${name} ... FAILED, PLINTH_SEED=${seed}`)
    }
    kept.length = 0
  }
  console.log(`test result: ${failed ? 'FAILED' : 'ok'}. ${passed} passed; ${failed} failed; 0 ignored`)
  process.exit(failed ? 1 : 0)
}

main()
