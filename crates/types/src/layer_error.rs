//! What the errors of all layers have besides their variants.
//!
//! A layer below the client says what happened by an enum of its own, and has one table that gives
//! the number and the text by which users know it. What follows from that table is written here.

/// Implements for a layer's error what follows from its table, a method
/// `fn number(&self) -> (Error, &str)`: FoundationDB's number, and what happened in particular,
/// empty if nothing is known. Gives the conversions into [`Error`](crate::Error), and the words of
/// that as its own.
///
/// ```
/// use plinth_types::{Error, layer_error};
///
/// #[derive(Debug)]
/// enum ShelfError {
///     Empty(String),
/// }
///
/// impl ShelfError {
///     fn number(&self) -> (Error, &str) {
///         match self {
///             Self::Empty(what) => (Error::file_not_found(), what),
///         }
///     }
/// }
///
/// layer_error!(ShelfError);
///
/// let error = Error::from(ShelfError::Empty("apples".into()));
/// assert_eq!((error.code(), error.detail()), (1511, Some("apples")));
/// ```
#[macro_export]
macro_rules! layer_error {
    ($error:ty) => {
        impl From<&$error> for $crate::Error {
            fn from(error: &$error) -> Self {
                match error.number() {
                    (error, "") => error,
                    (error, what) => error.with_detail(what),
                }
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
