//! An address to listen on, and whether another port will do.

#[cfg(feature = "series")]
use plinth_env::Datagrams;
use plinth_env::{Env, IoErrorKind, IoResult, Listener};
use std::net::SocketAddr;

/// An address to listen on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) address: SocketAddr,
    gives_way: bool,
}

impl Wanted {
    /// What is asked for, and must be had.
    pub(crate) fn asked(address: SocketAddr) -> Self {
        Self { address, gives_way: false }
    }

    /// What is asked for; if that is nothing, what is usual, which gives way.
    pub(crate) fn choose(asked: Option<SocketAddr>, usual: Option<SocketAddr>) -> Option<Self> {
        let usual = usual.map(|address| Self { address, gives_way: true });
        asked.map(Self::asked).or(usual)
    }

    /// Listens there; where somebody else does and it gives way, on a port that the system chooses.
    /// Nothing is tried out beforehand: what is listened on here is what is used.
    ///
    /// # Errors
    /// `AddressInUse`, `NotBound`.
    pub(crate) async fn listen(self, env: &Env) -> IoResult<Listener> {
        match env.sockets().listen(self.address).await {
            Err(error) if self.gives_way && error.kind() == IoErrorKind::AddressInUse => {
                env.sockets().listen(SocketAddr::new(self.address.ip(), 0)).await
            }
            result => result,
        }
    }

    /// The same for datagrams.
    ///
    /// # Errors
    /// As [`Wanted::listen`].
    #[cfg(feature = "series")]
    pub(crate) fn datagrams(self, env: &Env) -> IoResult<Datagrams> {
        match env.sockets().datagrams(self.address) {
            Err(error) if self.gives_way && error.kind() == IoErrorKind::AddressInUse => {
                env.sockets().datagrams(SocketAddr::new(self.address.ip(), 0))
            }
            result => result,
        }
    }
}
