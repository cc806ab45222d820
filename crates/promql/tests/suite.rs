//! All tests of the crate as one program: each would link the same again.

mod pages;
mod promqltest;
mod script;
