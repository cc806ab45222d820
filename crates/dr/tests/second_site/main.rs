//! A second site is, whenever somebody looks, exactly what the first was at the version it says,
//! whoever is killed when, and however many answers are lost; when sides are changed nothing that
//! was acknowledged is lost; and what can't be done is said.
//!
//! Everything runs in a simulated world, from a seed. Kills are futures that are dropped: what they
//! have sent arrives all the same.

mod captured;
mod ends;
mod follow;
mod refusals;
mod sides;
mod unfinished;
mod world;
