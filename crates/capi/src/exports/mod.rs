//! The exported functions, by what they act on. Each makes its arguments safe, calls one thing, and
//! gives C the result.

pub(crate) mod changes;
mod database;
mod future;
mod legacy;
mod network;
mod retired;
mod tenant;
mod transaction;
