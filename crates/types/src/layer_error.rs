//! What the errors of all layers have besides their variants.
//!
//! A layer below the client says what happened by an enum of its own, and has one table that gives
//! the number and the text by which users know it. What follows from that table, and from which
//! variants hold the error of a layer further below, is written here.

/// Implements for a layer's error what follows from its table, a method
/// `fn number(&self) -> (Error, &str)`: FoundationDB's number, and what happened in particular,
/// empty if nothing is known. Gives the conversions into [`Error`](crate::Error), and the words of
/// that as its own, whole and as a `summary`.
///
/// An enum names, in braces, the variants that hold an error from below. Each such error becomes
/// the layer's by `?`, boxed if the variant has it in an [`Arc`](std::sync::Arc), and is its
/// source. Two errors are equal that are of one variant and, if that is one of these, hold equal
/// errors: the text is for people.
///
/// ```
/// use plinth_types::{Error, layer_error};
/// use std::num::ParseIntError;
/// use std::str::Utf8Error;
/// use std::sync::Arc;
///
/// #[derive(Debug)]
/// enum ShelfError {
///     Empty(String),
///     Label(ParseIntError),
///     Title(Arc<Utf8Error>),
/// }
///
/// impl ShelfError {
///     fn number(&self) -> (Error, &str) {
///         match self {
///             Self::Empty(what) => (Error::file_not_found(), what),
///             Self::Label(_) | Self::Title(_) => (Error::file_corrupt(), ""),
///         }
///     }
/// }
///
/// layer_error!(ShelfError { Label(ParseIntError), Title(Utf8Error) });
///
/// let apples = ShelfError::Empty("apples".into());
/// let error = Error::from(&apples);
/// assert_eq!((error.code(), error.detail()), (1511, Some("apples")));
/// assert_eq!((apples.to_string(), apples.summary()), (error.to_string(), "apples".into()));
/// assert_eq!(apples, ShelfError::Empty("pears".into()));
///
/// let label = |text: &str| -> Result<u8, ShelfError> { Ok(text.parse()?) };
/// assert_eq!(label("7")?, 7);
/// assert_eq!(label("x"), label("y"));
/// assert_ne!(label("x"), label("700"), "no digit, and more than fits");
/// assert_ne!(label("x").unwrap_err(), apples);
/// let title = |bytes: &[u8]| -> Result<String, ShelfError> {
///     Ok(std::str::from_utf8(bytes)?.to_owned())
/// };
/// let title = title(b"\xff").unwrap_err();
/// assert!(std::error::Error::source(&title).is_some_and(|cause| cause.is::<Utf8Error>()));
/// assert!(std::error::Error::source(&apples).is_none());
/// # Ok::<(), ShelfError>(())
/// ```
#[macro_export]
macro_rules! layer_error {
    ($error:ident { $($variant:ident($cause:ty)),* $(,)? }) => {
        $crate::layer_error!($error);

        $(impl From<$cause> for $error {
            fn from(cause: $cause) -> Self {
                Self::$variant(cause.into())
            }
        })*

        impl PartialEq for $error {
            fn eq(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$variant(one), Self::$variant(two)) => one == two,)*
                    _ => std::mem::discriminant(self) == std::mem::discriminant(other),
                }
            }
        }

        impl Eq for $error {}

        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    $(Self::$variant(cause) => {
                        Some(std::borrow::Borrow::<$cause>::borrow(cause))
                    })*
                    _ => None,
                }
            }
        }
    };
    ($error:ty) => {
        impl From<&$error> for $crate::Error {
            fn from(error: &$error) -> Self {
                match error.number() {
                    (error, "") => error,
                    (error, what) => error.with_detail(what),
                }
            }
        }

        impl $error {
            /// What happened in particular, or what its number means if that says it all.
            pub fn summary(&self) -> String {
                $crate::Error::from(self).summary().to_owned()
            }
        }

        impl From<$error> for $crate::Error {
            fn from(error: $error) -> Self {
                Self::from(&error)
            }
        }

        /// The words that users know: those of the number that it becomes.
        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::Error::from(self).fmt(f)
            }
        }
    };
}
