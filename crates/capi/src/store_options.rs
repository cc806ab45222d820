//! How a directory is to be opened, as the end of its name says: `DIR?engine=ssd&memory=2GiB`.
//!
//! A binding's `open` takes one string and nothing else, so what a program wants of a new store
//! stands behind a question mark. A directory that has all of that as its name is opened as it is.
//! The files of keys may be several; the first one encrypts.

use crate::world::env;
use plinth_env::block_on;
use plinth_pipeline::{Creation, EngineKind, Keys, NodeConfig, SsdSettings, read_key_file};
use plinth_types::amount::{LEAST_MEMORY, bytes_in};
use plinth_types::{Error, Result};
use std::path::Path;

/// The directory that a name says, and how to open it.
///
/// # Errors
/// `invalid_option` if there is no such option; `invalid_option_value`, saying what is allowed.
pub(crate) fn split(name: &str) -> Result<(&str, NodeConfig)> {
    let (mut config, mut keys) = (NodeConfig::default(), Vec::new());
    let Some((directory, options)) = name.split_once('?') else { return Ok((name, config)) };
    for option in options.split('&') {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match (key, value) {
            ("create", "true") => config.creation = Creation::IfMissing,
            ("create", "false") => config.creation = Creation::Never,
            ("create", _) => return Err(refused(option, "true and false are allowed")),
            ("encryption-key-file", _) => {
                keys.push(block_on(read_key_file(env(), Path::new(value)))?);
            }
            ("engine", _) => config.engine = EngineKind::from_name(value)?,
            ("memory", _) => {
                let allowed =
                    "a number of bytes from 16MiB on is allowed, such as 67108864, 512MiB or 4GiB";
                let bytes = bytes_in(value).filter(|bytes| *bytes >= LEAST_MEMORY);
                let bytes = bytes.ok_or_else(|| refused(option, allowed))?;
                config.memory_bytes = Some(bytes);
                config.ssd = SsdSettings::with_memory(bytes);
            }
            _ => {
                let known =
                    "create=true|false, encryption-key-file=PATH, engine=memory|ssd, memory=BYTES";
                let detail =
                    format!("there is no option {option:?} of a directory; there are {known}");
                return Err(Error::invalid_option().with_detail(detail));
            }
        }
    }
    if !keys.is_empty() {
        config.set_keys(Keys::new(&keys));
    }
    Ok((directory, config))
}

fn refused(option: &str, allowed: &str) -> Error {
    Error::invalid_option_value().with_detail(format!("{option:?}: {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_say_how_it_is_opened() {
        let (directory, config) = split("a/b?create=false&engine=ssd&memory=2GiB").unwrap();
        assert_eq!(
            (directory, config.creation, config.engine),
            ("a/b", Creation::Never, EngineKind::Ssd)
        );
        assert_eq!((config.memory_bytes, config.ssd.memory), (Some(2 << 30), 2 << 30));
        let (directory, config) = split("a/b").unwrap();
        assert_eq!((directory, config.creation), ("a/b", Creation::IfMissing));
    }

    #[test]
    fn what_a_name_may_not_say_is_refused_with_what_it_may() {
        for (name, code, words) in [
            ("a?", 2007, "create=true|false"),
            ("a?engine", 2006, "memory, ssd"),
            ("a?engine=disk", 2006, "memory, ssd"),
            ("a?create=maybe", 2006, "true and false"),
            ("a?memory=4GB", 2006, "512MiB"),
            ("a?memory=1", 2006, "16MiB"),
            ("a?speed=high", 2007, "speed=high"),
            ("a?encryption-key-file=/no/such/key", 1511, "/no/such/key"),
            ("a?encryption-key-file=/dev/null", 2006, "64 hexadecimal digits"),
        ] {
            let error = split(name).unwrap_err();
            assert_eq!(error.code(), code, "{name}: {error}");
            assert!(error.to_string().contains(words), "{name}: {error}");
        }
    }
}
