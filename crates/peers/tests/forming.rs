//! Nodes form a cluster, whatever happens to them meanwhile: at most one comes out of a cluster
//! file, and none has begun before every node has its directory.
//!
//! A node that has formed goes on as the program does: it answers others through its connections.
//! Its directory is a file here that says whose it is.

mod world;

use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, NetworkPlan, Simulation, Unsynced};
use plinth_format::Keys;
use plinth_format::crypt::Key;
use plinth_peers::charter::FILE_NAME;
use plinth_peers::forming::{Ground, Wish, form};
use plinth_peers::{Mesh, PeerError, Standing, Trust};
use plinth_replication::Members;
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use world::PORT;

const DIR: &str = "/data";
const IDENTITY: &str = "IDENTITY";

/// What all machines have come to, by number: outlives them.
#[derive(Default)]
struct Seen {
    /// Whose directory each machine has, as of what was made durable last.
    founded: BTreeMap<usize, [u8; 16]>,
    begun: BTreeMap<usize, Standing>,
    said: BTreeMap<usize, Vec<String>>,
    failed: BTreeMap<usize, Error>,
    /// Who is a member, where new nodes are taken in.
    members: Option<Members>,
}

type Told = Arc<Mutex<Seen>>;

struct Directory {
    env: Env,
    at: usize,
    told: Told,
}

impl Ground for Directory {
    fn found<'a>(
        &'a self,
        standing: &'a Standing,
        members: Option<(Members, u64)>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let path = Path::new(DIR).join(IDENTITY);
            let cluster_id = standing.charter.cluster_id;
            let identity = [&cluster_id[..], &standing.node.to_le_bytes()].concat();
            match self.env.files().read(&path).await {
                Ok(found) => {
                    assert_eq!(
                        found[..16],
                        cluster_id,
                        "the directory is never made for another cluster"
                    );
                    if found != identity {
                        return Err(
                            Error::file_corrupt().with_detail("it was made for another node")
                        );
                    }
                }
                Err(error) if error.is_not_found() => {
                    self.env.files().replace(&path, &identity).await?;
                }
                Err(error) => return Err(error.into()),
            }
            if let Some((members, _)) = members {
                assert!(members.node(standing.node).is_some());
            }
            self.told.lock().unwrap().founded.insert(self.at, cluster_id);
            Ok(())
        })
    }

    fn is_founded(&self) -> Pin<Box<dyn Future<Output = Result<bool>> + Send + '_>> {
        Box::pin(async { Ok(self.env.files().exists(Path::new(DIR).join(IDENTITY)).await?) })
    }

    fn say(&self, text: &str) {
        self.told.lock().unwrap().said.entry(self.at).or_default().push(text.to_owned());
    }
}

struct World {
    sim: Simulation,
    told: Told,
    addresses: Vec<String>,
}

impl World {
    fn new(seed: u64, count: usize) -> Self {
        let sim = Simulation::new(seed);
        let address = |at| SocketAddr::new(sim.ip(&sim.process(&name(at))), PORT).to_string();
        let addresses = (0..count).map(address).collect();
        Self { sim, told: Told::default(), addresses }
    }

    fn wish(&self, at: usize) -> Wish {
        Wish {
            cluster: "test:form".into(),
            addresses: self.addresses.clone(),
            own: self.addresses[at].clone(),
            dir: PathBuf::from(DIR),
            trust: Trust::default(),
            keys: Keys::none(),
        }
    }

    /// Starts a machine's process, which forms a cluster and then serves.
    fn start(&self, at: usize) {
        self.start_with(at, self.wish(at));
    }

    fn start_with(&self, at: usize, wish: Wish) {
        let env = self.sim.process(&name(at));
        let (theirs, told) = (env.clone(), self.told.clone());
        drop(env.spawn("server", async move {
            if let Err(error) = serve(&theirs, at, wish, &told).await {
                told.lock().unwrap().failed.insert(at, error);
            }
        }));
    }

    fn crash(&self, at: usize) {
        self.sim.crash(&self.sim.process(&name(at)));
        self.told.lock().unwrap().failed.remove(&at);
    }

    /// Its disk is another one.
    fn wipe(&self, at: usize) {
        self.crash(at);
        let env = self.sim.process(&name(at));
        self.sim.run_until(async { env.files().remove_dir_all(DIR).await }).expect("there is one");
        self.told.lock().unwrap().founded.remove(&at);
    }

    fn said(&self, at: usize) -> String {
        self.told.lock().unwrap().said.get(&at).map(|said| said.join("\n")).unwrap_or_default()
    }

    fn begun(&self) -> BTreeMap<usize, Standing> {
        self.told.lock().unwrap().begun.clone()
    }

    /// Everybody is a member of the same cluster, each as another node.
    fn assert_formed(&self) {
        let begun = self.begun();
        let seed = self.sim.seed();
        let said: Vec<_> = (0..self.addresses.len()).map(|at| self.said(at)).collect();
        assert_eq!(begun.len(), self.addresses.len(), "seed {seed}: {said:?}");
        for (at, standing) in &begun {
            assert_eq!(standing.charter, begun[&0].charter, "seed {seed}");
            assert_eq!(
                standing.charter.node_at(&self.addresses[*at]),
                Some(standing.node),
                "seed {seed}"
            );
        }
    }
}

fn name(at: usize) -> String {
    format!("node-{}", at + 1)
}

async fn serve(env: &Env, at: usize, wish: Wish, told: &Told) -> Result<()> {
    let address: SocketAddr = wish.own.parse().expect("an address");
    let listener = env.sockets().listen(address).await?;
    let count = wish.addresses.len();
    let ground = Arc::new(Directory { env: env.clone(), at, told: told.clone() });
    let standing = form(env, wish, listener, ground).await?;
    {
        let mut told = told.lock().unwrap();
        let ours = standing.charter.cluster_id;
        // Whoever was wiped since is missing.
        let is_first = told.begun.is_empty();
        let all = told.founded.values().filter(|founded| **founded == ours).count() == count;
        assert!(!is_first || all, "a cluster begins when every node has its directory");
        let same = told.begun.values().all(|other| other.charter == standing.charter);
        assert!(same, "two clusters come out of one cluster file");
        told.begun.insert(at, standing.clone());
    }
    let mesh = Mesh::start(env, standing, Trust { in_the_clear: true, ..Trust::default() });
    let leader = told.clone();
    mesh.take_in_by(Box::new(move |address| {
        let mut told = leader.lock().unwrap();
        let taken_in = told.members.as_mut().map(|members| {
            let node = members.next_id;
            *members = members.with_learner(&address);
            (node, Arc::new(members.clone()), 7)
        });
        Box::pin(std::future::ready(taken_in.ok_or_else(Error::process_behind)))
    }));
    let listener = env.sockets().listen(address).await?;
    loop {
        let stream = listener.accept().await?;
        let mesh = mesh.clone();
        drop(env.spawn_network("receive", async move { mesh.receive(stream, Vec::new()).await }));
    }
}

#[test]
fn three_and_five_empty_nodes_form_one_cluster_in_whatever_order_they_come() {
    for seed in 0..30 {
        let world = World::new(seed, if seed % 2 == 0 { 3 } else { 5 });
        let mut random = world.sim.random();
        let mut order: Vec<_> = (0..world.addresses.len()).collect();
        while !order.is_empty() {
            let at = order.swap_remove(random.index(order.len()));
            world.start(at);
            world.sim.run_for(Duration::from_millis(random.below(2000)));
        }
        world.sim.run_for(Duration::from_secs(10));
        world.assert_formed();
    }
}

#[test]
fn it_says_whom_it_waits_for_once_and_again_when_that_changes() {
    let world = World::new(7, 3);
    world.start(1);
    world.sim.run_for(Duration::from_secs(5));
    world.start(2);
    world.sim.run_for(Duration::from_secs(5));
    let said = world.told.lock().unwrap().said[&1].clone();
    let [first, third] = [&world.addresses[0], &world.addresses[2]];
    assert!(
        said[0].contains("waits for") && said[0].contains(first) && said[0].contains(third),
        "{said:?}"
    );
    let last = said.last().unwrap();
    assert!(last.contains(first) && !last.contains(third), "{said:?}");
    assert!(said.len() <= 4, "{said:?}");
    assert!(world.begun().is_empty());
}

/// Crashes at any time, of any machine, on slow disks that fail now and then, over a network that
/// breaks: a node that fails is started anew.
#[test]
fn whoever_crashes_at_whatever_step_one_cluster_comes_out() {
    for seed in 0..300 {
        let count = if seed % 3 == 0 { 5 } else { 3 };
        let world = World::new(seed, count);
        let mut random = world.sim.random();
        (0..count).for_each(|at| world.start(at));
        if seed % 2 == 0 {
            world.sim.set_network(NetworkPlan { close: 0.05, ..NetworkPlan::default() });
        }
        for at in 0..count {
            let mut faults = FaultPlan::failing(0.0, 0.1);
            for calls in [&mut faults.write, &mut faults.sync, &mut faults.rename, &mut faults.open]
            {
                calls.stall_max = Duration::from_millis(60);
                calls.fail = if seed % 4 == 1 { 0.02 } else { 0.0 };
            }
            world.sim.set_faults(&world.sim.process(&name(at)), faults);
        }
        for _ in 0..2 + random.below(10) {
            world.sim.run_for(Duration::from_micros(random.below(150_000)));
            let at = random.index(count);
            let unsynced = if random.chance(0.5) { Unsynced::Lost } else { Unsynced::Seeded };
            world.sim.crash_with(&world.sim.process(&name(at)), unsynced);
            world.sim.run_for(Duration::from_micros(random.below(30_000)));
            world.start(at);
        }
        world.sim.set_network(NetworkPlan::default());
        for at in 0..count {
            world.sim.set_faults(&world.sim.process(&name(at)), FaultPlan::default());
        }
        world.sim.run_for(Duration::from_secs(5));
        for at in 0..count {
            if world.told.lock().unwrap().failed.contains_key(&at) {
                world.crash(at);
                world.start(at);
            }
        }
        world.sim.run_for(Duration::from_secs(15));
        world.assert_formed();
    }
}

#[test]
fn a_node_that_loses_its_disk_before_the_beginning_is_formed_with_again() {
    for seed in 0..20 {
        let world = World::new(seed, 3);
        (0..2).for_each(|at| world.start(at));
        world.start(2);
        // The third is too slow to let the cluster begin.
        let mut slow = FaultPlan::default();
        (slow.sync.latency_min, slow.sync.latency_max) =
            (Duration::from_secs(2), Duration::from_secs(3));
        world.sim.set_faults(&world.sim.process(&name(2)), slow);
        world.sim.run_for(Duration::from_millis(1500));
        if world.told.lock().unwrap().founded.contains_key(&1) && world.begun().is_empty() {
            world.wipe(1);
            world.start(1);
        }
        world.sim.run_for(Duration::from_secs(40));
        world.assert_formed();
    }
}

#[test]
fn a_directory_that_was_lost_is_told_that_the_cluster_has_begun_and_takes_no_part() {
    let world = World::new(5, 3);
    (0..3).for_each(|at| world.start(at));
    world.sim.run_for(Duration::from_secs(5));
    world.assert_formed();
    for lost in [2, 0] {
        world.wipe(lost);
        world.told.lock().unwrap().begun.remove(&lost);
        world.start(lost);
        world.sim.run_for(Duration::from_secs(10));
        assert_eq!(world.begun().len(), 2, "an empty directory is no member");
        assert!(
            world.said(lost).contains("has begun without this directory"),
            "{}",
            world.said(lost)
        );
        assert!(!world.told.lock().unwrap().founded.contains_key(&lost));
        world.sim.run_for(Duration::from_secs(5));
        assert!(
            world.said(lost).contains("none of those that answer leads"),
            "{}",
            world.said(lost)
        );
        // For the next round it is back, as it was not before.
        let back = world.begun()[&1].clone();
        world.told.lock().unwrap().begun.insert(lost, back);
    }
}

/// Wiped, or new under an address that no file names; it may crash at any moment.
#[test]
fn a_new_node_is_taken_into_a_cluster_that_has_begun() {
    for seed in 0..40 {
        let world = World::new(seed, 3);
        (0..3).for_each(|at| world.start(at));
        world.sim.run_for(Duration::from_secs(5));
        world.assert_formed();
        let voters = (1..=3).zip(&world.addresses).map(|(id, address)| (id, address.clone()));
        world.told.lock().unwrap().members = Some(Members::of_voters(voters));
        let lost = seed as usize % 3;
        world.wipe(lost);
        world.told.lock().unwrap().begun.remove(&lost);
        world.start(lost);
        let crash_after = Duration::from_micros(world.sim.random().below(400_000));
        if seed % 2 == 1 {
            world.sim.run_for(crash_after);
            world.crash(lost);
            world.start(lost);
        }
        world.sim.run_for(Duration::from_secs(5));
        let begun = world.begun();
        let found = &begun[&lost];
        let given =
            world.told.lock().unwrap().members.as_ref().map_or(0, |members| members.next_id);
        assert!(found.begun && (4..given).contains(&found.node), "seed {seed}: {found:?}");
        assert_eq!(found.charter, begun[&((lost + 1) % 3)].charter, "seed {seed}");
    }
}

/// When the last of the files that make a node a member could not be written, it asked for another
/// number, and its directory was that of the first: then its charter and its identity said
/// different things, and so did it to others.
#[test]
fn a_new_node_whose_disk_fails_while_it_is_made_is_one_node() {
    let mut failed = 0;
    for seed in 0..20 {
        let world = World::new(seed, 3);
        (0..3).for_each(|at| world.start(at));
        world.sim.run_for(Duration::from_secs(5));
        let voters = (1..=3).zip(&world.addresses).map(|(id, address)| (id, address.clone()));
        world.told.lock().unwrap().members = Some(Members::of_voters(voters));
        let lost = seed as usize % 3;
        world.wipe(lost);
        world.told.lock().unwrap().begun.remove(&lost);
        let machine = world.sim.process(&name(lost));
        let mut plan = FaultPlan::default();
        (plan.sync.fail, plan.rename.fail) = (0.15, 0.1);
        world.sim.set_faults(&machine, plan);
        world.start(lost);
        world.sim.run_for(Duration::from_secs(3));
        world.sim.set_faults(&world.sim.process(&name(lost)), FaultPlan::default());
        if world.told.lock().unwrap().failed.contains_key(&lost) {
            failed += 1;
            world.crash(lost);
            world.start(lost);
        }
        world.sim.run_for(Duration::from_secs(5));
        let told = world.told.lock().unwrap();
        let found = told
            .begun
            .get(&lost)
            .unwrap_or_else(|| panic!("seed {seed}: {:?}, {:?}", told.said, told.failed));
        let env = world.sim.process(&name(lost));
        let node = found.node;
        drop(told);
        let identity =
            world.sim.run_until(env.files().read(Path::new(DIR).join(IDENTITY))).unwrap();
        assert_eq!(identity[16..], node.to_le_bytes(), "seed {seed}");
    }
    assert!(failed > 2, "a disk failed while it was made: {failed}");
}

/// The power of a server with a new disk failed after it was given its number, and before it had
/// its directory: its charter names who stood at its address when the cluster was founded, and it
/// refused itself ever after.
#[test]
fn a_new_node_at_a_founders_address_that_crashes_while_it_is_made_is_taken_in_later() {
    let mut met = 0;
    for seed in 0..6 {
        let world = World::new(seed, 3);
        (0..3).for_each(|at| world.start(at));
        world.sim.run_for(Duration::from_secs(5));
        let voters = (1..=3).zip(&world.addresses).map(|(id, address)| (id, address.clone()));
        world.told.lock().unwrap().members = Some(Members::of_voters(voters));
        let lost = seed as usize % 3;
        world.wipe(lost);
        world.told.lock().unwrap().begun.remove(&lost);
        world.start(lost);
        for _ in 0..100_000 {
            world.sim.run_for(Duration::from_micros(20));
            let env = world.sim.process(&name(lost));
            let standing =
                world.sim.run_until(Standing::read(&env, Path::new(DIR), &Keys::none())).unwrap();
            if let Some(standing) = standing {
                met += u32::from(!standing.begun);
                break;
            }
        }
        world.crash(lost);
        world.start(lost);
        world.sim.run_for(Duration::from_secs(10));
        let begun = world.begun();
        let failed = world.told.lock().unwrap().failed.get(&lost).cloned();
        assert!(begun.get(&lost).is_some_and(|found| found.node > 3), "seed {seed}: {failed:?}");
    }
    assert!(met > 2, "it was crashed in time {met} times");
}

#[test]
fn a_cluster_that_has_begun_goes_on_without_being_formed() {
    let world = World::new(6, 3);
    (0..3).for_each(|at| world.start(at));
    world.sim.run_for(Duration::from_secs(5));
    let before = world.begun();
    for at in 0..3 {
        world.crash(at);
    }
    world.told.lock().unwrap().begun.clear();
    world.start(1);
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.begun()[&1], before[&1], "it needs nobody to know what it is");
}

#[test]
fn cluster_files_that_disagree_are_named_on_both_sides() {
    let world = World::new(9, 3);
    let other = world.sim.process("elsewhere");
    let elsewhere = SocketAddr::new(world.sim.ip(&other), PORT).to_string();
    world.start(0);
    world.start(1);
    let mut wish = world.wish(2);
    wish.addresses[1] = elsewhere.clone();
    world.start_with(2, wish);
    world.sim.run_for(Duration::from_secs(5));
    assert!(world.begun().is_empty());
    for at in [0, 2] {
        let said = world.said(at);
        assert!(said.contains("the cluster files disagree") && said.contains(&elsewhere), "{said}");
    }
    // Another cluster under the right address.
    let world = World::new(10, 3);
    world.start(0);
    world.start(1);
    world.start_with(2, Wish { cluster: "test:other".into(), ..world.wish(2) });
    world.sim.run_for(Duration::from_secs(5));
    assert!(world.begun().is_empty() && world.said(0).contains("test:other"), "{}", world.said(0));
}

#[test]
fn a_wish_that_makes_no_sense_is_an_error() {
    let world = World::new(1, 5);
    let error = |change: &dyn Fn(&mut Wish)| {
        let mut wish = world.wish(0);
        change(&mut wish);
        let error = wish.check().expect_err("it makes no sense");
        let PeerError::Mismatch(why) = error else { panic!("{error}") };
        why
    };
    assert!(error(&|wish| wish.addresses[1] = wish.addresses[2].clone()).contains("twice"));
    world.wish(0).check().expect("five are fine");
    // What can found no cluster may be taken into one, and says so.
    let said = |change: &dyn Fn(&mut Wish)| {
        let world = World::new(1, 5);
        let mut wish = world.wish(0);
        change(&mut wish);
        world.start_with(0, wish);
        world.sim.run_for(Duration::from_secs(5));
        world.said(0)
    };
    assert!(said(&|wish| wish.addresses.truncate(4)).contains("names 4 servers"));
    let other = said(&|wish| drop(wish.addresses.remove(0)));
    assert!(other.contains("not this server's address"), "{other}");
}

#[test]
fn a_directory_of_another_cluster_is_left_alone() {
    let world = World::new(2, 3);
    (0..3).for_each(|at| world.start(at));
    world.sim.run_for(Duration::from_secs(5));
    world.assert_formed();
    world.crash(1);
    world.start_with(1, Wish { cluster: "test:other".into(), ..world.wish(1) });
    world.sim.run_for(Duration::from_secs(1));
    let failed = world.told.lock().unwrap().failed[&1].clone();
    assert!(
        failed.code() == 2104
            && failed.detail().unwrap().contains("belongs to the cluster test:form")
    );
}

/// The bytes of a machine's charter.
fn charter_of(world: &World, at: usize) -> Vec<u8> {
    let env = world.sim.process(&name(at));
    let path = Path::new(DIR).join(FILE_NAME);
    world.sim.run_until(async { env.files().read(&path).await }).expect("it has one")
}

/// Whoever had the disk of one server, and not its key, knew where all of them are, and the secret
/// by which they believe each other.
#[test]
fn a_charter_tells_nothing_where_there_is_a_key_from_the_first_start_with_it_on() {
    let world = World::new(12, 3);
    let with = |at: usize, bytes: &[u8]| {
        let key = |byte: &u8| Key::of_file(&[*byte; 32]).expect("a key");
        let keys = Keys::new(&bytes.iter().map(key).collect::<Vec<_>>());
        world.start_with(at, Wish { keys, ..world.wish(at) });
    };
    // Each server has keys of its own, or none.
    with(0, &[7]);
    with(1, &[8]);
    world.start(2);
    world.sim.run_for(Duration::from_secs(5));
    world.assert_formed();
    let charter = world.begun()[&0].charter.clone();
    let tells = |at: usize| {
        let bytes = charter_of(&world, at);
        let address = world.addresses[0].as_bytes();
        let words: [&[u8]; 4] =
            [address, b"test:form", &charter.cluster_id, charter.secret.bytes()];
        let told = words.map(|word| bytes.windows(word.len()).any(|one| one == word));
        assert!(told == [true; 4] || told == [false; 4], "{told:?}");
        told[0]
    };
    assert_eq!([0, 1, 2].map(tells), [false, false, true]);
    let again = |at: usize, keys: &[u8]| {
        world.crash(at);
        world.told.lock().unwrap().begun.remove(&at);
        with(at, keys);
        world.sim.run_for(Duration::from_secs(2));
        world.begun().get(&at).is_some_and(|standing| standing.charter == charter)
    };
    // From the clear, and from one key to another, behind which the older one isn't needed.
    assert!(again(2, &[9]) && !tells(2));
    assert!(again(2, &[10, 9]) && !tells(2) && again(2, &[10]));
    for keys in [&[9][..], &[]] {
        assert!(!again(2, keys));
        let failed = world.told.lock().unwrap().failed[&2].clone();
        assert!(failed.code() == 2702 && failed.to_string().contains(FILE_NAME), "{failed}");
    }
    assert!(again(2, &[10]), "nothing was touched");
}
