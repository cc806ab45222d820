//! What an error's number means, in words, as `fdb_get_error` gives them.
//!
//! A number can't say which name was mistyped, which process has the directory or which file is
//! damaged, and C hands over nothing but numbers. So each thread knows what its last call that
//! failed at once said in particular, and adds that to the words for the same number: bindings ask
//! on the thread that got it, before they call anything else. A failure that had nothing to say, or
//! that a future tells, makes the thread forget: its number never gets the words of an older one.
//! A call that succeeds leaves them, for a binding may ask as late as its error is printed.
//!
//! Words stay for ever, as FoundationDB's do, so there is a bound: of how long a detail is, and of
//! how many different ones there are. A number that comes after them has its own words alone.

use plinth_types::Error;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// The most bytes of a detail that are shown.
const DETAIL_BYTES: usize = 1024;
/// The most words with a detail that are ever made in a process.
const DETAILS: usize = 256;

thread_local! {
    /// The last failure on this thread, if it is one that said something in particular.
    static LAST: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// A call on this thread fails with this error.
pub(crate) fn keep(error: &Error) {
    set(error.detail().is_some().then(|| error.clone()));
}

/// A call on this thread fails, and what it could say is not for its caller's thread.
pub(crate) fn forget() {
    set(None);
}

/// A thread that ends knows nothing any more; C's own destructors may call then.
fn set(last: Option<Error>) {
    let _ = LAST.try_with(|kept| kept.replace(last));
}

/// What the number means, and what the thread's last failure said if it had that number.
pub(crate) fn of(code: i32) -> &'static CStr {
    static MADE: Words = Words::none();
    if code == 0 {
        return c"Success";
    }
    let known = (1..=30_000).contains(&code);
    let plain = Error::from_code(if known { code } else { 4000 }).description();
    let last = LAST.try_with(|kept| kept.borrow().clone()).ok().flatten();
    let last = last.filter(|error| error.code() == code);
    last.as_ref()
        .and_then(Error::detail)
        .and_then(|detail| MADE.with_detail(plain, detail))
        .unwrap_or_else(|| MADE.plain(plain))
}

/// Words that were asked for, which C may keep for ever; each is made once.
struct Words(Mutex<Made>);

struct Made {
    words: BTreeMap<String, &'static CStr>,
    details: usize,
}

impl Made {
    fn get(&mut self, text: String) -> &'static CStr {
        self.words.entry(text).or_insert_with_key(|text| {
            let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<_>>();
            let made = CString::new(bytes).unwrap_or_default();
            Box::leak(made.into_boxed_c_str())
        })
    }
}

impl Words {
    const fn none() -> Self {
        Self(Mutex::new(Made { words: BTreeMap::new(), details: 0 }))
    }

    fn plain(&self, text: &str) -> &'static CStr {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(text.to_owned())
    }

    /// `None` if too many are known already.
    fn with_detail(&self, plain: &str, detail: &str) -> Option<&'static CStr> {
        let shown = &detail[..detail.floor_char_boundary(DETAIL_BYTES)];
        let dots = if shown.len() < detail.len() { "..." } else { "" };
        let text = format!("{plain}: {shown}{dots}");
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.words.contains_key(&text) {
            if made.details == DETAILS {
                return None;
            }
            made.details += 1;
        }
        Some(made.get(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32) -> &'static str {
        of(code).to_str().unwrap()
    }

    const MISSING: &str = "The file does not exist";

    #[test]
    fn a_number_has_the_words_of_the_threads_last_failure_with_it() {
        assert_eq!((said(0), said(29_999), said(-5)), ("Success", "UNKNOWN_ERROR", said(4000)));
        keep(&Error::file_not_found().with_detail("there is no apples"));
        let told = of(1511);
        assert_eq!(told.to_str(), Ok("The file does not exist: there is no apples"));
        assert!(std::ptr::eq(told, of(1511)), "the same words are made once");
        // Another number, and another thread, have nothing to do with it.
        assert!(!said(1529).contains("apples"));
        std::thread::scope(|threads| {
            threads.spawn(|| assert_eq!(said(1511), MISSING));
        });
        assert_eq!(told, of(1511));
        // A later failure takes its place, whatever its number is and whether it has words or not.
        keep(&Error::file_not_found().with_detail("there is no pears"));
        assert!(said(1511).ends_with("pears"));
        keep(&Error::invalid_option());
        assert_eq!(said(1511), MISSING);
        keep(&Error::file_not_found().with_detail("there is no pears"));
        forget();
        assert_eq!(said(1511), MISSING);
        // What C was given stays as it was.
        assert_eq!(told.to_str(), Ok("The file does not exist: there is no apples"));
    }

    #[test]
    fn a_detail_is_bounded_and_ends_where_the_text_does() {
        keep(&Error::file_not_found().with_detail("one\0two"));
        assert_eq!(said(1511), format!("{MISSING}: onetwo"));
        // The limit is within a character of three bytes.
        keep(&Error::file_not_found().with_detail("\u{20ac}".repeat(DETAIL_BYTES)));
        let shown = "\u{20ac}".repeat(DETAIL_BYTES / 3);
        assert_eq!(said(1511), format!("{MISSING}: {shown}..."));
    }

    #[test]
    fn there_are_so_many_details_and_no_more() {
        let words = Words::none();
        let detail = |n: usize| words.with_detail("plain", &n.to_string());
        let first = detail(0).unwrap();
        for n in 1..DETAILS {
            assert!(detail(n).is_some(), "{n}");
        }
        assert_eq!(detail(DETAILS), None);
        assert_eq!(detail(0), Some(first), "what is known is still told");
        assert_eq!(words.plain("more").to_str(), Ok("more"));
    }
}
