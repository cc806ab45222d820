//! All tests of the crate as one program: each would link the same again.

#[path = "cases.rs"]
mod cases;
#[path = "hostile.rs"]
mod hostile;
#[path = "model.rs"]
mod model;
#[path = "pages.rs"]
mod pages;
mod script;
