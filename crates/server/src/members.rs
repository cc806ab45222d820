//! What a server adds to the status document of a node that is a member of a cluster: the other
//! members, which of them can be reached from here, and how many more may fail.
//!
//! The node itself knows who there is and how far they are; the connections between nodes know who
//! answers. FoundationDB's tools look for both in the places that they have in its own documents.

use plinth_peers::{Mesh, PeerStatus};
use plinth_types::version::VERSIONS_PER_SECOND;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The names of FoundationDB's modes, by how many machines may fail: as many voters as that takes
/// are twice as many, and one.
const MODES: [&str; 3] = ["single", "double", "triple"];

/// One member as it is shown.
struct Member {
    node: u64,
    address: String,
    is_reachable: bool,
    /// If not, it follows: it has all rows, and answers reads.
    votes: bool,
    lag_entries: Value,
    /// It lacks entries, and takes none, as whoever leads knows: no commit can count on it.
    is_stalled: bool,
}

impl Member {
    /// Its id as FoundationDB's are written.
    fn id(&self) -> String {
        format!("{:032x}", self.node)
    }
}

/// The members that a document of a node names; none if it is a database of its own.
fn members(document: &Map<String, Value>, connected: &BTreeMap<u64, bool>) -> Vec<Member> {
    let own = document.get("cluster").and_then(|cluster| cluster.pointer("/plinth/member"));
    let Some(own) = own.filter(|own| own.is_object()) else { return Vec::new() };
    let us = own["node"].as_u64();
    let those = |part: &str, votes: bool| {
        let all = own[part].as_array().into_iter().flatten();
        let member = move |known: &Value| {
            let node = known["node"].as_u64()?;
            let is_reachable = Some(node) == us || connected.get(&node).copied().unwrap_or(false);
            let address = known["address"].as_str()?.to_owned();
            let lag_entries = known["lag_entries"].clone();
            let is_stalled = known["stalled"] == true;
            Some(Member { node, address, is_reachable, votes, lag_entries, is_stalled })
        };
        all.filter_map(member).collect::<Vec<_>>()
    };
    [those("voters", true), those("learners", false)].into_iter().flatten().collect()
}

/// Adds what is known of the others of the cluster.
pub(crate) fn complete(document: &mut Map<String, Value>, mesh: &Mesh, protocol: &str) {
    let status = mesh.status();
    let connected = status.iter().map(|peer| (peer.node, peer.figures.connected)).collect();
    add(document, &connected, protocol);
    tell_windows(document, &status);
}

fn add(document: &mut Map<String, Value>, connected: &BTreeMap<u64, bool>, protocol: &str) {
    let members = members(document, connected);
    if members.is_empty() {
        return;
    }
    let us = document["cluster"]["plinth"]["member"]["node"].as_u64();
    let voters = || members.iter().filter(|member| member.votes);
    let (all, majority) = (voters().count(), voters().count() / 2 + 1);
    let reachable = voters().filter(|member| member.is_reachable).count();
    // One that takes nothing is there, and no commit comes about by it.
    let taking = voters().filter(|member| member.is_reachable && !member.is_stalled).count();
    let spare = taking.saturating_sub(majority);
    let coordinator = |member: &Member| json!({ "address": member.address, "protocol": protocol, "reachable": member.is_reachable });
    document["client"]["coordinators"] = json!({
        "coordinators": voters().map(coordinator).collect::<Value>(),
        "quorum_reachable": reachable >= majority,
    });
    let Some(cluster) = document.get_mut("cluster").filter(|cluster| cluster.is_object()) else {
        return;
    };
    cluster["configuration"]["coordinators_count"] = json!(all);
    cluster["configuration"]["redundancy_mode"] = json!(MODES[(all / 2).min(MODES.len() - 1)]);
    cluster["fault_tolerance"] = json!({
        "max_zone_failures_without_losing_availability": spare,
        "max_zone_failures_without_losing_data": spare,
    });
    cluster["full_replication"] = json!(taking == all);
    cluster["data"]["state"] = data_state(all, majority, (reachable, taking));
    let leader = cluster["plinth"]["member"]["leader"].as_u64();
    let nobody_leads = leader.is_none();
    let own = cluster["processes"].as_object().and_then(|all| all.keys().next().cloned());
    if let (Some(own), Some(member)) = (own, members.iter().find(|one| Some(one.node) == us)) {
        own_process(&mut cluster["processes"][own], member, us == leader);
    }
    for member in members.iter().filter(|member| Some(member.node) != us) {
        cluster["processes"][member.id()] = process(member, Some(member.node) == leader);
    }
    let gone: Vec<&Member> = members.iter().filter(|member| !member.is_reachable).collect();
    if !gone.is_empty()
        && let Some(messages) = cluster.get_mut("messages").and_then(Value::as_array_mut)
    {
        messages.push(unreachable(&gone, (reachable >= majority).then_some(spare)));
        document["client"]["database_status"]["healthy"] = json!(false);
    }
    tell_stalled(document, &members);
    if reachable < majority {
        let missing = format!(
            "{reachable} of {all} servers that vote can be reached from here, and it takes {majority}"
        );
        document["client"]["messages"] = json!([{
            "name": "quorum_not_reachable",
            "description": format!("{missing}."),
        }]);
        unavailable(document, "no_majority", "reading_coordinated_state", &missing);
    } else if nobody_leads {
        unavailable(
            document,
            "no_leader",
            "locking_coordinated_state",
            "nobody leads at the moment",
        );
    }
}

/// Says which members are excluded, by the addresses that are, and on which machines they all are:
/// of each what is known of its process. `excluded` has addresses, of a host alone too.
pub(crate) fn tell_excluded(document: &mut Map<String, Value>, excluded: &[String]) {
    let Some(cluster) = document.get_mut("cluster").filter(|cluster| cluster.is_object()) else {
        return;
    };
    let addresses: Vec<Value> = excluded.iter().map(|one| json!({ "address": one })).collect();
    cluster["configuration"]["excluded_servers"] = addresses.into();
    let mut machines = Map::new();
    for process in cluster["processes"].as_object_mut().into_iter().flat_map(|all| all.values_mut())
    {
        let address = process["address"].as_str().unwrap_or_default().to_owned();
        let plain = address.strip_suffix(":tls").unwrap_or(&address);
        let host = plain.rsplit_once(':').map_or(plain, |(host, _)| host);
        let is_excluded = excluded.iter().any(|one| one == plain || one == host);
        process["excluded"] = is_excluded.into();
        let id = process["machine_id"].as_str().unwrap_or_default().to_owned();
        let machine = json!({
            "address": host,
            "contributing_workers": 1,
            "excluded": is_excluded,
            "locality": process["locality"],
            "machine_id": process["machine_id"],
        });
        machines.insert(id, machine);
    }
    cluster["machines"] = machines.into();
}

/// Says who can be reached, and takes nothing.
fn tell_stalled(document: &mut Map<String, Value>, members: &[Member]) {
    // One that only learns, and takes rows for long, is counted on by nobody.
    let stalled = |member: &&Member| member.votes && member.is_reachable && member.is_stalled;
    for member in members.iter().filter(stalled) {
        let description = format!(
            "{} can be reached, lacks {} entries, and has taken none for half a minute or longer: \
             no commit can count on it. It takes rows, as its status says (`catching_up`), or look \
             at its log.",
            member.address, member.lag_entries
        );
        let messages = document["cluster"]["messages"].as_array_mut();
        messages.into_iter().for_each(|messages| {
            messages.push(json!({ "name": "member_stalled", "description": description }));
        });
        document["client"]["database_status"]["healthy"] = json!(false);
    }
}

/// Says whose window is another one than that of this node, if it leads: by its own it refuses
/// commits, and each node reads by its own.
fn tell_windows(document: &mut Map<String, Value>, peers: &[PeerStatus]) {
    let Some(own) = document.get("cluster").and_then(|cluster| cluster.get("plinth")) else {
        return;
    };
    let member = &own["member"];
    let leads = member["leader"].is_u64() && member["leader"] == member["node"];
    let Some(here) = own["window_seconds"].as_f64().filter(|_| leads) else { return };
    let there = |peer: &PeerStatus| {
        let seconds = peer.window? as f64 / VERSIONS_PER_SECOND as f64;
        (seconds != here).then(|| format!("{} has {seconds} s", peer.address))
    };
    let others: Vec<_> = peers.iter().filter_map(there).collect();
    if others.is_empty() {
        return;
    }
    let description = format!(
        "The servers of this cluster have different windows: the one that leads has {here} s, {}. How \
         long a transaction may take depends on whom it meets: give all of them the same `window`, \
         and start them again.",
        others.join(", ")
    );
    let messages = document["cluster"]["messages"].as_array_mut();
    messages.into_iter().for_each(|messages| {
        messages.push(json!({ "name": "windows_differ", "description": description }));
    });
    document["client"]["database_status"]["healthy"] = json!(false);
}

/// How many copies of the rows can be reached, in FoundationDB's words. What is committed is on a
/// majority: where that is out of reach, the newest of it may be on nobody who is left.
fn data_state(all: usize, majority: usize, (reachable, taking): (usize, usize)) -> Value {
    let state = |name: &str, remaining: usize, description: Option<&str>| {
        let mut state = json!({
            "healthy": taking == all,
            "min_replicas_remaining": remaining,
            "name": name,
        });
        if let Some(description) = description {
            state["description"] = json!(description);
        }
        state
    };
    if taking == all {
        state("healthy", all, None)
    } else if reachable == all {
        state("healing", taking, Some("Not every server takes what is committed."))
    } else if reachable >= majority {
        state("healing", taking, Some("Not every copy of the rows can be reached."))
    } else {
        let lacking = "The newest rows may be on none of the servers that can be reached.";
        state("missing_data", 0, Some(lacking))
    }
}

/// Says that nothing is answered, and why, before all else. `recovery` is what FoundationDB calls
/// it where a cluster gets no further than this.
fn unavailable(document: &mut Map<String, Value>, name: &str, recovery: &str, why: &str) {
    document["client"]["database_status"] = json!({ "available": false, "healthy": false });
    let cluster = &mut document["cluster"];
    cluster["database_available"] = json!(false);
    let description = format!("Reads and commits wait: {why}.");
    cluster["recovery_state"] = json!({
        "active_generations": 1,
        "description": description,
        "name": recovery,
        "seconds_since_last_recovered": -1,
    });
    if let Some(messages) = cluster["messages"].as_array_mut() {
        // What the node itself says of the same is less.
        messages.retain(|message| message["name"] != "no_leader");
        messages.insert(0, json!({ "name": name, "description": description }));
    }
}

/// The servers of a cluster for the console: where each is, what it is, and how far behind; nothing
/// for a database that has one.
pub(crate) fn servers(document: &Value) -> Value {
    let own = &document["cluster"]["plinth"]["member"];
    let processes = document["cluster"]["processes"].as_object();
    let reachable = |node: &Value| {
        let known = processes.into_iter().flat_map(|all| all.values());
        let mut known = known.filter(|known| known["plinth"]["node"] == *node);
        known
            .next()
            .map_or(json!(*node == own["node"]), |known| known["plinth"]["reachable"].clone())
    };
    let server = |known: &Value, votes: bool| {
        json!({
            "address": known["address"],
            "is_here": known["node"] == own["node"],
            "lag_entries": known["lag_entries"],
            "leads": known["node"] == own["leader"],
            "reachable": reachable(&known["node"]),
            "votes": votes,
        })
    };
    let Some(voters) = own["voters"].as_array() else { return Value::Null };
    let learners = own["learners"].as_array().into_iter().flatten();
    let voters = voters.iter().map(|voter| server(voter, true));
    json!({
        "members": voters.chain(learners.map(|learner| server(learner, false))).collect::<Value>(),
        "may_fail": document["cluster"]["fault_tolerance"]["max_zone_failures_without_losing_availability"],
        "term": own["term"],
        "elections": own["elections"],
    })
}

/// What only whoever leads does, and what those who vote do.
const LEADERS: [&str; 5] =
    ["master", "cluster_controller", "grv_proxy", "commit_proxy", "resolver"];
const VOTERS: [&str; 2] = ["coordinator", "log"];

/// The server's own process, which says that it has every role.
fn own_process(process: &mut Value, member: &Member, leads: bool) {
    let Some(roles) = process["roles"].as_array_mut() else { return };
    roles.retain(|role| {
        let is_one_of = |those: &[&str]| those.iter().any(|name| role["role"] == *name);
        (leads || !is_one_of(&LEADERS)) && (member.votes || !is_one_of(&VOTERS))
    });
    if member.votes {
        let id = roles.first().map_or(Value::Null, |role| role["id"].clone());
        roles.push(json!({ "id": id, "role": "coordinator" }));
    }
}

/// Another member, as far as it is known from here.
fn process(member: &Member, leads: bool) -> Value {
    let id = member.id();
    let role = |name: &&str| json!({ "id": &id[16..], "role": name });
    let (leaders, voters) =
        (LEADERS.iter().filter(|_| leads), VOTERS.iter().filter(|_| member.votes));
    let roles: Vec<Value> = leaders.chain(voters).chain(&["storage"]).map(role).collect();
    json!({
        "address": member.address,
        "class_source": "command_line",
        "class_type": "unset",
        "excluded": false,
        "fault_domain": id,
        "locality": { "machineid": id, "processid": id, "zoneid": id },
        "machine_id": id,
        "messages": [],
        "plinth": { "lag_entries": member.lag_entries, "node": member.node, "reachable": member.is_reachable },
        "roles": roles,
    })
}

/// Who can't be reached, and how many more may fail, where a majority is left.
fn unreachable(gone: &[&Member], spare: Option<usize>) -> Value {
    let names: Vec<&str> = gone.iter().map(|member| &member.address[..]).collect();
    let rest = match spare {
        Some(spare) => format!("; {spare} more may fail before commits stop."),
        None => ".".to_owned(),
    };
    let description = format!("Can't reach {}{rest}", names.join(", "));
    let processes: Vec<Value> = names.iter().map(|address| json!({ "address": address })).collect();
    json!({
        "name": "unreachable_processes",
        "description": description,
        "unreachable_processes": processes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(voters: u64) -> Map<String, Value> {
        let voters: Vec<_> = (1..=voters)
            .map(
                |node| json!({ "address": format!("10.0.0.{node}:4500"), "node": node, "lag_entries": null }),
            )
            .collect();
        let cluster = json!({
            "configuration": {}, "messages": [], "processes": {},
            "plinth": { "member": { "node": 1, "leader": 1, "voters": voters, "learners": [] } },
        });
        Map::from_iter([("client".to_owned(), json!({})), ("cluster".to_owned(), cluster)])
    }

    fn told(voters: u64, gone: &[u64]) -> Map<String, Value> {
        let connected = (2..=voters).map(|node| (node, !gone.contains(&node))).collect();
        let mut document = document(voters);
        add(&mut document, &connected, "0fdb");
        document
    }

    #[test]
    fn as_many_may_fail_as_leave_a_majority() {
        for (voters, gone, mode, spare) in [
            (3, &[][..], "double", 1),
            (3, &[2], "double", 0),
            (3, &[2, 3], "double", 0),
            (5, &[], "triple", 2),
            (5, &[5], "triple", 1),
        ] {
            let document = told(voters, gone);
            let cluster = &document["cluster"];
            assert_eq!(cluster["configuration"]["redundancy_mode"], mode);
            let tolerance = &cluster["fault_tolerance"];
            assert_eq!(
                tolerance["max_zone_failures_without_losing_availability"], spare,
                "{voters} {gone:?}"
            );
            let quorum = &document["client"]["coordinators"]["quorum_reachable"];
            assert_eq!(*quorum, json!(2 * (voters as usize - gone.len()) > voters as usize));
            assert_eq!(cluster["processes"].as_object().map(Map::len), Some(voters as usize - 1));
            let told: Vec<_> = cluster["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|message| &message["name"])
                .collect();
            let is_lost = 2 * (voters as usize - gone.len()) < voters as usize;
            let wanted: [(&str, bool); 2] =
                [("no_majority", is_lost), ("unreachable_processes", !gone.is_empty())];
            assert_eq!(
                told,
                wanted.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>()
            );
            assert_eq!(cluster["database_available"] == false, is_lost);
            assert_eq!(document["client"]["database_status"]["available"] == false, is_lost);
            assert_eq!(document["client"]["database_status"]["healthy"] == false, !gone.is_empty());
            let state = match (is_lost, gone.is_empty()) {
                (true, _) => "missing_data",
                (false, true) => "healthy",
                (false, false) => "healing",
            };
            assert_eq!(cluster["data"]["state"]["name"], state);
            let recovery = &cluster["recovery_state"]["name"];
            assert_eq!(recovery == "reading_coordinated_state", is_lost, "{recovery}");
        }
    }

    /// It was counted on, and each commit stopped when one more was lost.
    #[test]
    fn one_that_can_be_reached_and_takes_nothing_is_not_counted_on() {
        let mut document = document(3);
        document["cluster"]["plinth"]["member"]["voters"][1]["stalled"] = json!(true);
        document["cluster"]["plinth"]["member"]["voters"][1]["lag_entries"] = json!(7);
        let mut gone = document.clone();
        add(&mut document, &BTreeMap::from([(2, true), (3, true)]), "0fdb");
        let cluster = &document["cluster"];
        assert_eq!(cluster["messages"][0]["name"], "member_stalled");
        let told = cluster["messages"][0]["description"].as_str();
        assert!(told.is_some_and(|told| told.starts_with("10.0.0.2:4500 can be reached, lacks 7")));
        assert_eq!(document["client"]["database_status"]["healthy"], false);
        assert_eq!(cluster["fault_tolerance"]["max_zone_failures_without_losing_availability"], 0);
        assert_eq!(cluster["fault_tolerance"]["max_zone_failures_without_losing_data"], 0);
        assert_eq!(cluster["full_replication"], false);
        let state = &cluster["data"]["state"];
        let found = (&state["name"], &state["healthy"], &state["min_replicas_remaining"]);
        assert_eq!(found, (&json!("healing"), &json!(false), &json!(2)));
        assert_eq!(document["client"]["coordinators"]["quorum_reachable"], true);
        assert_eq!(servers(&Value::Object(document))["may_fail"], 0);
        // Of one that is gone that is enough to say.
        add(&mut gone, &BTreeMap::from([(2, false), (3, true)]), "0fdb");
        let messages = gone["cluster"]["messages"].as_array();
        assert_eq!(messages.map(Vec::len), Some(1), "{messages:?}");
    }

    /// Nothing compared them, and how long a transaction might take depended on whom it met.
    #[test]
    fn whoever_leads_tells_whose_window_is_another_one() {
        let peer = |node: u64, window: Option<u64>| PeerStatus {
            node,
            address: format!("10.0.0.{node}:4500"),
            figures: plinth_peers::Figures::default(),
            spoken: None,
            window,
            failure: None,
        };
        let told = |leader: u64, windows: [Option<u64>; 2]| {
            let mut document = document(3);
            document["cluster"]["plinth"]["member"]["leader"] = json!(leader);
            document["cluster"]["plinth"]["window_seconds"] = json!(5.0);
            document["client"]["database_status"] = json!({ "healthy": true });
            tell_windows(&mut document, &[peer(2, windows[0]), peer(3, windows[1])]);
            let messages = &document["cluster"]["messages"];
            let is_told = messages[0]["name"] == "windows_differ";
            assert_eq!(document["client"]["database_status"]["healthy"], !is_told);
            assert_eq!(messages.as_array().map(Vec::len), Some(usize::from(is_told)));
            messages[0]["description"].as_str().unwrap_or_default().to_owned()
        };
        let said = told(1, [Some(5_000_000), Some(2_500_000)]);
        assert!(said.contains("leads has 5 s, 10.0.0.3:4500 has 2.5 s."), "{said}");
        assert!(!said.contains("10.0.0.2"), "{said}");
        let said = told(1, [Some(60_000_000), Some(1_000_000)]);
        assert!(said.contains("10.0.0.2:4500 has 60 s, 10.0.0.3:4500 has 1 s"), "{said}");
        assert_eq!(told(1, [Some(5_000_000), None]), "", "an older program doesn't say");
        assert_eq!(told(2, [Some(1_000_000), None]), "", "the one that leads tells it");
        let mut alone = Map::from_iter([("cluster".to_owned(), json!({ "plinth": {} }))]);
        tell_windows(&mut alone, &[]);
    }

    /// Between two leaders nothing is answered either.
    #[test]
    fn that_nobody_leads_is_told() {
        let mut document = document(3);
        document["cluster"]["plinth"]["member"]["leader"] = Value::Null;
        add(&mut document, &BTreeMap::from([(2, true), (3, true)]), "0fdb");
        assert_eq!(document["cluster"]["messages"][0]["name"], "no_leader");
        assert_eq!(document["cluster"]["recovery_state"]["name"], "locking_coordinated_state");
        assert_eq!(document["client"]["database_status"]["available"], false);
    }

    /// Whoever answered said that it had every role but that of a coordinator, and nobody else did.
    #[test]
    fn roles_are_those_of_whoever_has_them_and_exclusions_are_told() {
        let roles_of = |process: &Value| {
            let roles = process["roles"].as_array().unwrap().iter();
            roles.map(|role| role["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for leader in [1, 2] {
            let mut document = document(3);
            let every = [&LEADERS[..], &["log", "storage"]].concat();
            let every: Vec<_> =
                every.iter().map(|name| json!({ "id": "own", "role": name })).collect();
            document["cluster"]["processes"]["own"] =
                json!({ "address": "10.0.0.1:4500", "machine_id": "own", "roles": every });
            document["cluster"]["plinth"]["member"]["leader"] = json!(leader);
            add(&mut document, &BTreeMap::from([(2, true), (3, true)]), "0fdb");
            tell_excluded(&mut document, &["10.0.0.3".to_owned(), "10.0.0.2:4501".to_owned()]);
            let processes = document["cluster"]["processes"].as_object().unwrap();
            for (id, process) in processes {
                let node =
                    if id == "own" { 1 } else { process["plinth"]["node"].as_u64().unwrap() };
                let roles = roles_of(process);
                let has = |role: &&str| roles.iter().any(|one| one == *role);
                assert_eq!(LEADERS.iter().all(&has), node == leader, "{roles:?}");
                assert_eq!(LEADERS.iter().any(&has), node == leader, "{roles:?}");
                assert!(["coordinator", "log", "storage"].iter().all(&has));
                assert_eq!(process["excluded"], node == 3);
            }
            let machines = document["cluster"]["machines"].as_object().unwrap();
            assert_eq!(machines.len(), 3);
            assert_eq!(machines["own"]["address"], "10.0.0.1");
        }
    }

    /// A learner is shown, and counted by nobody who asks how many may fail.
    #[test]
    fn learners_are_processes_and_no_coordinators() {
        let mut document = document(3);
        let learner = json!({ "address": "10.0.0.9:4500", "node": 9, "lag_entries": 7 });
        document["cluster"]["plinth"]["member"]["learners"] = json!([learner]);
        add(&mut document, &BTreeMap::from([(2, true), (3, true), (9, false)]), "0fdb");
        let coordinators = document["client"]["coordinators"]["coordinators"].as_array();
        assert_eq!(coordinators.map(Vec::len), Some(3));
        let cluster = &document["cluster"];
        assert_eq!(cluster["full_replication"], true);
        assert_eq!(cluster["fault_tolerance"]["max_zone_failures_without_losing_data"], 1);
        let roles = &cluster["processes"][format!("{:032x}", 9)]["roles"];
        assert_eq!(
            (&roles[0]["role"], roles.as_array().map(Vec::len)),
            (&json!("storage"), Some(1))
        );
        let shown = servers(&Value::Object(document));
        let learner = &shown["members"][3];
        assert_eq!(
            (&learner["votes"], &learner["reachable"], &learner["lag_entries"]),
            (&json!(false), &json!(false), &json!(7))
        );
        assert_eq!(shown["members"][0]["reachable"], true);
    }

    #[test]
    fn who_is_gone_is_named_and_a_database_of_its_own_is_left_as_it_is() {
        let document = told(3, &[3]);
        let message = &document["cluster"]["messages"][0];
        assert_eq!(message["name"], "unreachable_processes");
        assert!(
            message["description"]
                .as_str()
                .is_some_and(|text| text.contains("10.0.0.3:4500; 0 more"))
        );
        let coordinators = &document["client"]["coordinators"]["coordinators"];
        assert_eq!(coordinators[2]["reachable"], false);
        let shown = servers(&Value::Object(document));
        assert_eq!(shown["members"][2]["reachable"], false);
        assert_eq!(
            (&shown["members"][0]["is_here"], &shown["may_fail"]),
            (&json!(true), &json!(0))
        );
        let mut alone =
            Map::from_iter([("cluster".to_owned(), json!({ "plinth": { "member": null } }))]);
        let before = alone.clone();
        add(&mut alone, &BTreeMap::new(), "0fdb");
        assert_eq!(alone, before);
        assert_eq!(servers(&Value::Object(alone)), Value::Null);
    }
}
