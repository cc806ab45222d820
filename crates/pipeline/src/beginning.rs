//! What a leader begins with: a resolver that knows nothing yet, and in a new database the first
//! rows.

use crate::config::NodeConfig;
use plinth_env::Env;
use plinth_replication::Members;
use plinth_resolver::Resolver;
use plinth_types::system::{CONFIGURATION_PREFIX, KEY_SERVERS_PREFIX, MEMBERS, VOTER_COUNT};
use plinth_types::{MutationList, MutationType, Version};

/// The rows that every database has from its first moment, as tools and bindings expect them.
pub(crate) fn first_rows(config: &NodeConfig, members: Option<&Members>) -> MutationList {
    let mut rows = MutationList::new();
    rows.push(MutationType::Set, KEY_SERVERS_PREFIX, b"local");
    let voters = members.map_or(1, |members| members.voters().len());
    if let Some(members) = members {
        rows.push(MutationType::Set, MEMBERS, &members.encode());
        rows.push(MutationType::Set, VOTER_COUNT, voters.to_string().as_bytes());
    }
    let redundancy = match voters {
        0..=2 => "single",
        3..=4 => "double",
        _ => "triple",
    };
    let configuration = [("redundancy_mode", redundancy), ("storage_engine", config.engine.name())];
    for (name, value) in configuration {
        rows.push(
            MutationType::Set,
            &[CONFIGURATION_PREFIX, name.as_bytes()].concat(),
            value.as_bytes(),
        );
    }
    rows
}

/// Its hash is seeded at random: keys that collide can't be made up by somebody who knows the code.
pub(crate) fn new_resolver(env: &Env, first: Version, config: &NodeConfig) -> Resolver {
    #[cfg_attr(
        not(feature = "planted-bugs"),
        expect(unused_mut, reason = "only a planted bug changes it")
    )]
    let mut resolver = Resolver::with_seed(first, env.random_u64());
    #[cfg(feature = "planted-bugs")]
    if let Some(planted) = config.planted {
        resolver.plant(planted);
    }
    let _ = config;
    resolver
}
