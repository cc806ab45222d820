//! The repository's own tools.
fn main() {}
