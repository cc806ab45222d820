//! The retry loop's view of errors: any error type a user returns, with the database's error
//! inside.

use plinth_types::Error;

/// An error type that a transaction's body may return.
///
/// It can be made of the database's [`Error`], and gives it back, so that the loop knows whether to
/// try again. An error without one inside ends the loop.
pub trait TransactError: From<Error> {
    /// The database's error, if that is what this is.
    fn database_error(&self) -> Option<&Error>;
}

impl TransactError for Error {
    fn database_error(&self) -> Option<&Error> {
        Some(self)
    }
}

impl TransactError for Box<dyn std::error::Error + Send + Sync> {
    fn database_error(&self) -> Option<&Error> {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(self.as_ref());
        while let Some(error) = source {
            if let Some(found) = error.downcast_ref::<Error>() {
                return Some(found);
            }
            source = error.source();
        }
        None
    }
}
