//! What tests share: waiting, running until commit, expecting an error by number, chance.

use foundationdb::options::TransactionOption;
use foundationdb::{Database, FdbError, FdbResult, RangeOption, Transaction};
use futures::StreamExt;
use futures::executor::block_on;

/// Numbers that look random and are the same for the same seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20;
        low + (mixed % (high - low + 1) as u64) as i64
    }

    pub fn one_in(&mut self, n: i64) -> bool {
        self.between(1, n) == 1
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() as i64 - 1) as usize]
    }

    /// So many bytes, each of these letters.
    pub fn bytes(&mut self, low: i64, high: i64, letters: &[u8]) -> Vec<u8> {
        (0..self.between(low, high)).map(|_| self.pick(letters)).collect()
    }
}

/// A transaction that retries soon.
pub fn begin(db: &Database) -> Transaction {
    let tr = db.create_trx().expect("a transaction");
    tr.set_option(TransactionOption::MaxRetryDelay(20)).expect("an option");
    tr
}

/// Runs a function in a transaction until it commits.
pub fn write(db: &Database, f: impl Fn(&Transaction)) {
    try_write(db, |tr| {
        f(tr);
        Ok(())
    });
}

/// The same, for a function that reads and may fail.
pub fn try_write(db: &Database, f: impl Fn(&Transaction) -> FdbResult<()>) {
    let mut tr = begin(db);
    loop {
        let error = match f(&tr) {
            Err(error) => error,
            Ok(()) => match block_on(tr.commit()) {
                Ok(_) => return,
                Err(error) => {
                    tr = block_on(error.on_error()).expect("an error that may be retried");
                    continue;
                }
            },
        };
        tr = block_on(tr.on_error(error)).expect("an error that may be retried");
    }
}

pub fn set(db: &Database, rows: &[(&[u8], &[u8])]) {
    write(db, |tr| rows.iter().for_each(|(key, value)| tr.set(key, value)));
}

pub fn get(tr: &Transaction, key: &[u8]) -> FdbResult<Option<Vec<u8>>> {
    Ok(block_on(tr.get(key, false))?.map(|value| value.to_vec()))
}

/// A value as this transaction sees it.
pub fn seen(tr: &Transaction, key: &[u8]) -> Option<Vec<u8>> {
    get(tr, key).expect("a read")
}

/// A value as committed.
pub fn kept(db: &Database, key: &[u8]) -> Option<Vec<u8>> {
    seen(&begin(db), key)
}

/// All rows of a range read.
pub fn rows(tr: &Transaction, range: RangeOption<'_>, snapshot: bool) -> FdbResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let stream = tr.get_ranges_keyvalues(range, snapshot);
    let found: Vec<_> = block_on(stream.collect());
    found.into_iter().map(|row| row.map(|row| (row.key().to_vec(), row.value().to_vec()))).collect()
}

/// FoundationDB's number for what went wrong; 0 if nothing did.
pub fn code<T>(result: Result<T, impl Into<FdbError>>) -> i32 {
    result.map_or_else(|error| error.into().code(), |_| 0)
}

/// Runs a function in so many threads at once.
pub fn together(count: usize, f: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        (0..count).for_each(|i| {
            let f = &f;
            scope.spawn(move || f(i));
        });
    });
}
