//! Keys of tests.

use plinth_format::Keys;
use plinth_format::crypt::Key;

/// Keys whose newest is number `newest`, with all before it.
pub fn keys(newest: u8) -> Keys {
    let key = |number| Key::of_file(&[number; Key::LEN]).expect("a key");
    Keys::new(&(0..=newest).rev().map(key).collect::<Vec<_>>())
}

/// What a life has for keys: none in the first one, and then another one in each.
#[allow(dead_code, reason = "not every test has lives")]
pub fn keys_of_life(life: u64) -> Keys {
    life.checked_sub(1).map_or_else(Keys::none, |life| keys(life as u8))
}
