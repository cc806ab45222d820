//! What may be written where a directory's path is asked for.

/// Names of directories, from the outermost to the innermost. A name may hold any character:
/// `"a/b"` is one name.
///
/// ```
/// use plinth::directory::IntoPath;
/// assert_eq!(["app", "users"].into_path(), ["app", "users"]);
/// assert_eq!("app".into_path(), ["app"]);
/// assert!(().into_path().is_empty());
/// ```
pub trait IntoPath {
    /// The names.
    fn into_path(self) -> Vec<String>;
}

/// The empty path: the directory itself.
impl IntoPath for () {
    fn into_path(self) -> Vec<String> {
        Vec::new()
    }
}

/// One name.
impl IntoPath for &str {
    fn into_path(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

/// One name.
impl IntoPath for String {
    fn into_path(self) -> Vec<String> {
        vec![self]
    }
}

/// One name.
impl IntoPath for &String {
    fn into_path(self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl<S: AsRef<str>> IntoPath for &[S] {
    fn into_path(self) -> Vec<String> {
        self.iter().map(|name| name.as_ref().to_owned()).collect()
    }
}

impl<S: AsRef<str>, const N: usize> IntoPath for [S; N] {
    fn into_path(self) -> Vec<String> {
        self.as_slice().into_path()
    }
}

impl<S: AsRef<str>, const N: usize> IntoPath for &[S; N] {
    fn into_path(self) -> Vec<String> {
        self.as_slice().into_path()
    }
}

impl<S: AsRef<str>> IntoPath for Vec<S> {
    fn into_path(self) -> Vec<String> {
        self.as_slice().into_path()
    }
}

impl<S: AsRef<str>> IntoPath for &Vec<S> {
    fn into_path(self) -> Vec<String> {
        self.as_slice().into_path()
    }
}
