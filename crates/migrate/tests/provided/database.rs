include!("../../../plinth/tests/provided/database.rs");
