//! A node as a member of a cluster: its directory made, opened, and what else is asked of a member.
//!
//! A directory belongs to a member or to a database of its own, and is opened as what it is: a
//! member's log has entries that may never come to be, and lacks others that were acknowledged.
//! What a member does stands in `cluster/`.

use crate::cluster::{
    Keeper, Leadership, Membership, Participant, Progress, keep_for_followers, removed, start_tasks,
};
use crate::config::NodeConfig;
use crate::directory::Directory;
use crate::failure::{NodeError, NodeResult};
use crate::identity::EngineKind;
use crate::node::{Node, Seat, fitted, or_close, read_beginning, start_checkpoints};
use crate::opening::recover_member;
use crate::replica::Replica;
use crate::store::Store;
use crate::{creation, deliver, space, supervise};
use plinth_env::{DirLock, Env};
use plinth_log::ReplicaLog;
use plinth_replication::{Frame, Member, Members, NodeId, Parcel, Peers};
use plinth_storage::Reader;
use plinth_types::{KeyList, KeySpace, Version, system};
use std::path::Path;
use std::sync::Arc;

impl Node {
    /// Makes the directory of a member of a cluster, which has no rows yet: those come with the
    /// cluster's log. It is durable and whole when this returns; a crash leaves that, or what a
    /// second call makes whole.
    ///
    /// # Errors
    /// `Replication` if nobody can be this member; `Foreign` if `dir` holds anything; those of
    /// files, also if it is in use.
    pub async fn form(
        env: &Env,
        dir: &Path,
        config: &NodeConfig,
        membership: &Membership,
    ) -> NodeResult<()> {
        creation::form(&env.keeping_private(), dir, config, membership).await
    }

    /// Opens a member's directory, and takes part in its cluster: `peers` takes what it says to
    /// others, what those say comes by [`Node::receive`]. It serves reads at once, at the versions
    /// that it has come to, and commits while it leads.
    ///
    /// # Errors
    /// As [`Node::open`]; `Missing` if there is nothing; `Foreign` if `dir` holds a database of its
    /// own; `Replication` if its cluster's protocol is none that this program speaks.
    pub async fn open_member(
        env: &Env,
        dir: &Path,
        config: NodeConfig,
        peers: Arc<dyn Peers>,
    ) -> NodeResult<Arc<Self>> {
        let env = &env.keeping_private();
        let claimed = creation::claim_member(env, dir).await?;
        Self::open_claimed(env, claimed, config, (peers, Arc::default())).await
    }

    /// Opens a member's directory that this process has locked already.
    pub(crate) async fn open_member_again(
        env: &Env,
        (dir, lock): (&Path, Arc<DirLock>),
        config: NodeConfig,
        links: (Arc<dyn Peers>, Arc<Progress>),
    ) -> NodeResult<Arc<Self>> {
        let env = &env.keeping_private();
        let claimed = creation::claimed_member(env, dir, lock).await?;
        Self::open_claimed(env, claimed, config, links).await
    }

    /// The same as [`Node::open_member`], for one who tells how far it is with taking rows.
    pub(crate) async fn open_telling(
        env: &Env,
        dir: &Path,
        config: NodeConfig,
        links: (Arc<dyn Peers>, Arc<Progress>),
    ) -> NodeResult<Arc<Self>> {
        let env = &env.keeping_private();
        let claimed = creation::claim_member(env, dir).await?;
        Self::open_claimed(env, claimed, config, links).await
    }

    async fn open_claimed(
        env: &Env,
        (directory, engine, membership): (Directory, EngineKind, Membership),
        config: NodeConfig,
        links: (Arc<dyn Peers>, Arc<Progress>),
    ) -> NodeResult<Arc<Self>> {
        config.spoken.check(membership.members.protocol)?;
        let began = env.now();
        let dir = directory.root.clone();
        let config = fitted(config, engine);
        let recovered = match recover_member(env, &directory, &config).await {
            // On a full disk the next try has the reserve's room.
            Err(error) if space::release_before_opening(env, &dir, &error).await => {
                recover_member(env, &directory, &config).await?
            }
            recovered => recovered?,
        };
        let log_bytes = recovered.1.view().bytes();
        let node =
            Self::start_member(env, (directory, config), recovered, membership, links).await?;
        node.tell_opened(false, log_bytes, env.now().saturating_sub(began));
        Ok(node)
    }

    async fn start_member(
        env: &Env,
        (directory, config): (Directory, NodeConfig),
        (mut storage, log, newest): (Store, ReplicaLog, Version),
        membership: Membership,
        (peers, progress): (Arc<dyn Peers>, Arc<Progress>),
    ) -> NodeResult<Arc<Self>> {
        storage.reader.publish(newest);
        // What lies between two entries of a restart is read by nobody.
        storage.writer.forget_before(newest, 0);
        let reader = storage.reader.clone();
        let beginning = or_close(&*reader, read_beginning(&*reader, newest).await).await?;
        let view = log.view().clone();
        or_close(&*reader, keep_for_followers(&view)).await?;
        let membership =
            or_close(&*reader, agreed(&*reader, &log, newest, membership).await).await?;
        let keeper = Arc::new(Keeper {
            env: env.clone(),
            dir: directory.root.clone(),
            cluster_id: membership.cluster_id,
            node: membership.node,
        });
        let taking_part = plinth_replication::Config {
            spoken: config.spoken,
            most_log_bytes: config.follower_log_bytes / 8,
            ..membership.taking_part()
        };
        let member = Member::start(env, taking_part, log, peers.clone(), keeper);
        let member = or_close(&*reader, member.map_err(NodeError::from)).await?;
        let (config, view) = (config, Some(Arc::new(view) as Arc<dyn plinth_log::LogView>));
        let replica =
            Arc::new(Replica::new(env, config, Some(directory), (storage, view), beginning));
        replica.space.look(0).await;
        assert_eq!(replica.newest(), newest, "a member begins where its log and its rows are");
        let free = replica.space.free_and_kept().map(|(free, _)| free);
        // What is registered before this member was opened again has to be kept before anything
        // goes.
        replica.streams.begin(newest, free, true);
        let participant = Participant::new(replica.clone(), membership, member, (peers, progress));
        let mut tasks = start_tasks(&participant);
        tasks.extend(start_checkpoints(&participant, &replica));
        tasks.push(supervise::spawn(&participant, "changes", deliver::run(replica.clone())));
        Ok(Self::of(replica, participant, tasks))
    }

    pub(crate) fn participant(&self) -> Option<&Arc<Participant>> {
        match &self.seat {
            Seat::Alone(_) => None,
            Seat::Member(participant) => Some(participant),
        }
    }

    /// Who this node is in its cluster; `None` if it is a database of its own.
    pub fn membership(&self) -> Option<Membership> {
        self.participant().map(|participant| participant.membership())
    }

    /// Waits until other nodes are members than these.
    pub async fn until_members_other_than(&self, known: &Members) -> Arc<Members> {
        match self.participant() {
            Some(participant) => participant.until_members_other_than(known).await,
            None => std::future::pending().await,
        }
    }

    /// Takes a new node in, at this address, which follows from then on: gives its number, and who
    /// the members are. A node that was there before loses its place to it once it has everything.
    ///
    /// # Errors
    /// `Behind` if this node doesn't lead; `Replication` if there can't be such a node; those of a
    /// commit.
    pub async fn take_in(&self, address: &str) -> NodeResult<Membership> {
        match self.participant() {
            Some(participant) => participant.take_in(address).await,
            None => Err(NodeError::Unsupported("this database is no cluster".into())),
        }
    }

    /// A member of its cluster, this one or another, is at another address than it was. It is kept
    /// until whoever leads has had the others told; said once more, that it is where it was takes
    /// it back. To be called of this node when it has been opened: nobody else tells it, and when
    /// it leads nobody else can have the others told.
    pub fn note_move(&self, node: NodeId, address: &str) {
        if let Some(participant) = self.participant() {
            participant.note_move(node, address);
        }
    }

    /// Others of its cluster have proven that this node is no member any more: it serves nothing
    /// from now on.
    pub fn be_removed(&self) {
        if let Some(participant) = self.participant() {
            participant.be_removed();
        }
    }

    /// A frame of another member has arrived. Frames may be lost, doubled or overtaken on their
    /// way; what no honest node sends is as good as lost.
    pub fn receive(&self, frame: Frame) {
        if let Some(participant) = self.participant() {
            participant.receive(frame);
        }
    }

    /// The same, on a connection that takes an answer back: gives it, if there is one that is known
    /// at once.
    #[must_use = "somebody waits for the answer"]
    pub fn receive_and_answer(&self, frame: Frame) -> Option<Frame> {
        self.participant()?.receive_and_answer(frame)
    }

    /// A parcel of another member has arrived that is about this one's rows.
    pub fn receive_parcel(&self, parcel: Parcel) {
        if let Some(participant) = self.participant() {
            participant.receive_parcel(parcel);
        }
    }

    /// Who leads, as far as this node knows. A database of its own leads itself, in term 0.
    pub fn leadership(&self) -> Leadership {
        self.participant().map_or(ALONE, |participant| participant.leadership())
    }

    /// Waits until that is something else than this.
    pub async fn until_leadership_other_than(&self, known: Leadership) -> Leadership {
        match self.participant() {
            Some(participant) => participant.until_leadership_other_than(known).await,
            None if known != ALONE => ALONE,
            None => std::future::pending().await,
        }
    }

    /// Gives the leader's part to another member, if this node has it, before it is closed: others
    /// go on at once, and what this one has taken is answered before. Takes a second and a half at
    /// most.
    pub async fn hand_over(&self) {
        if let Some(participant) = self.participant() {
            participant.hand_over().await;
        }
    }
}

/// Who is a member as of what this node has come to: its rows say so, unless it has been told of
/// something newer.
async fn agreed(
    rows: &dyn Reader,
    log: &ReplicaLog,
    newest: Version,
    known: Membership,
) -> NodeResult<Membership> {
    let mut keys = KeyList::new();
    keys.push(system::MEMBERS);
    let row = rows.get_many(newest, KeySpace::System, &keys).await?.into_iter().next().flatten();
    let index = log.committed_index();
    let agreed = match row {
        Some(row) if known.index <= index => {
            Membership { index, members: Arc::new(Members::decode(&row)?), ..known }
        }
        _ => known,
    };
    if agreed.is_removed() {
        return Err(removed(agreed.node));
    }
    Ok(agreed)
}

const ALONE: Leadership = Leadership { term: 0, leader: None, is_ready: true };
