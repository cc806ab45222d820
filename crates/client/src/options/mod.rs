//! Options with FoundationDB's codes: typed for Rust, and as code and bytes for the C library.
//!
//! An enum variant is only a name for a code and its parameter; an option without effect has none,
//! and is for C. Both ways of setting an option end
//! in the same function, which takes code and bytes, so that they cannot differ. [`parameter`] has
//! the rules that hold for every option: which kind of value it takes, and how that value looks.

mod database;
mod settings;
mod transaction;

pub use database::DatabaseOption;
pub(crate) use settings::{Effect, Settings, Situation};
pub use transaction::TransactionOption;

use plinth_types::{Error, Result};
use std::time::Duration;

/// The kind of value an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionParameter {
    /// None: setting it is all.
    None,
    /// A 64-bit integer, little-endian.
    Int,
    /// Text.
    String,
    /// Bytes.
    Bytes,
}

/// The value of an option as its enum carries it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OptionValue {
    None,
    Int([u8; 8]),
    Bytes(Vec<u8>),
}

impl OptionValue {
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Int(bytes) => Some(bytes),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl From<i64> for OptionValue {
    fn from(value: i64) -> Self {
        Self::Int(value.to_le_bytes())
    }
}

impl From<usize> for OptionValue {
    fn from(value: usize) -> Self {
        i64::try_from(value).unwrap_or(i64::MAX).into()
    }
}

impl From<Option<usize>> for OptionValue {
    /// Without limit is -1.
    fn from(value: Option<usize>) -> Self {
        value.map_or_else(|| Self::from(-1_i64), Self::from)
    }
}

impl From<Duration> for OptionValue {
    /// Milliseconds, rounded up.
    fn from(value: Duration) -> Self {
        i64::try_from(value.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX).into()
    }
}

impl From<Option<Duration>> for OptionValue {
    /// Never is 0, so that no time at all is the shortest one.
    fn from(value: Option<Duration>) -> Self {
        value.map_or_else(|| Self::from(0_i64), |value| value.max(Duration::from_millis(1)).into())
    }
}

impl From<String> for OptionValue {
    fn from(value: String) -> Self {
        Self::Bytes(value.into_bytes())
    }
}

impl From<Vec<u8>> for OptionValue {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

/// Rules for the values of options, as FoundationDB checks them.
pub(crate) mod parameter {
    use super::{Error, Result};

    /// Refuses a value where there must be none (an empty one counts as none).
    pub(crate) fn none(value: Option<&[u8]>) -> Result<()> {
        match value {
            None | Some([]) => Ok(()),
            Some(_) => Err(Error::invalid_option_value().with_detail("the option takes no value")),
        }
    }

    /// The value, which must be there.
    pub(crate) fn present(value: Option<&[u8]>) -> Result<&[u8]> {
        value.ok_or_else(|| Error::invalid_option_value().with_detail("the option needs a value"))
    }

    /// The value as an integer between `min` and `max`.
    pub(crate) fn int(value: Option<&[u8]>, min: i64, max: i64) -> Result<i64> {
        let bytes = present(value)?;
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| {
            Error::invalid_option_value()
                .with_detail(format!("an integer has 8 bytes, this value {}", bytes.len()))
        })?;
        let number = i64::from_le_bytes(bytes);
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        Err(Error::invalid_option_value()
            .with_detail(format!("{number} is not between {min} and {max}")))
    }
}

/// Declares an enum of options: codes with their names and the kinds of their values, and a variant
/// for each that does something.
macro_rules! options {
    (
        $(#[$outer:meta])* $name:ident;
        $(
            $code:literal $text:literal $kind:ident
            $( => $(#[$doc:meta])* $variant:ident $(($parameter:ty))? )?;
        )*
    ) => {
        $(#[$outer])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $( $( $(#[$doc])* $variant $(($parameter))?, )? )*
        }

        impl $name {
            /// FoundationDB's code and name of every option, and the kind of its value: those too
            /// that have no effect, and no variant.
            pub const ALL: &[(i32, &str, $crate::options::OptionParameter)] = &[
                $( ($code, $text, $crate::options::OptionParameter::$kind), )*
            ];

            /// FoundationDB's code.
            pub fn code(&self) -> i32 {
                match self {
                    $( $( $crate::options::options!(@pattern $variant $(($parameter))?) => $code, )? )*
                }
            }

            pub(crate) fn value(&self) -> $crate::options::OptionValue {
                match self {
                    $( $( $crate::options::options!(@bind value $variant $(($parameter))?)
                        => $crate::options::options!(@value value $(($parameter))?), )? )*
                }
            }
        }
    };
    (@pattern $variant:ident) => { Self::$variant };
    (@pattern $variant:ident ($parameter:ty)) => { Self::$variant(_) };
    (@bind $value:ident $variant:ident) => { Self::$variant };
    (@bind $value:ident $variant:ident ($parameter:ty)) => { Self::$variant($value) };
    (@value $value:ident) => { $crate::options::OptionValue::None };
    (@value $value:ident ($parameter:ty)) => { $value.clone().into() };
}
pub(crate) use options;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_not_never_and_no_retry_is_not_any_number() {
        assert_eq!(OptionValue::from(None::<Duration>), OptionValue::from(0_i64));
        assert_eq!(OptionValue::from(Some(Duration::ZERO)), OptionValue::from(1_i64));
        assert_eq!(OptionValue::from(Some(Duration::from_micros(2_001))), OptionValue::from(3_i64));
        assert_eq!(OptionValue::from(Duration::ZERO), OptionValue::from(0_i64));
        assert_eq!(OptionValue::from(None::<usize>), OptionValue::from(-1_i64));
        assert_eq!(OptionValue::from(Some(0_usize)), OptionValue::from(0_i64));
    }
}
