//! What a client may count on while the machine of a database loses its power, or its disk or its
//! memory fills up: the pipeline's own tests and the facade's, in simulation, with a server and a
//! network between.
#![expect(
    clippy::duplicate_mod,
    reason = "each suite has a support of its own, as when it runs alone"
)]

#[path = "../../pipeline/tests/changes.rs"]
mod changes;
#[path = "../../plinth/tests/directory_model.rs"]
mod directory_model;
#[path = "../../pipeline/tests/durability.rs"]
mod durability;
#[path = "../../plinth/tests/simulated.rs"]
mod facade;
#[path = "../../pipeline/tests/overload.rs"]
mod overload;
#[path = "../../pipeline/tests/room.rs"]
mod room;
#[path = "../../pipeline/tests/ssd.rs"]
mod ssd;
