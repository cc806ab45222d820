//! Whose the other ends of connections on this machine are, as Linux tells it in `/proc/net/tcp`.
//!
//! ```text
//!   sl  local_address rem_address   st ... uid ... inode       numbers as the machine keeps them
//!    7: 0100007F:C3A1 0100007F:1194 01 ... 1000 .. 48213       theirs: from their end to ours
//!    8: 0100007F:1194 0100007F:C3A1 01 ...  999 .. 48214       ours: the other way round
//! ```
//! The table is no snapshot: sockets come and go while it is read, one that is being closed may be
//! told as open and as root's, and where many come and go a row is passed over. So it is read more
//! than once, and what is believed has to be in two readings: one after the other, but for those
//! that have no row of it at all.
//!
//! Always: an owner is told for a connection that was ours from before the table was read until
//! behind, so that nobody else can have had its port meanwhile; a row that two readings tell
//! differently, or that belongs to no file any more, tells nothing. A number of a socket is given
//! once, so a row that comes again with its own was there all the time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::ends::Ends;
use crate::failure::{IoError, IoErrorKind, IoResult};

/// The tables: connections that a socket for version 6 makes to an address of version 4 stand in
/// the second one.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// How often they are read at most for those who aren't found: a table of many changes misses some.
const READINGS: usize = 6;
/// The state of a connection that is open both ways.
const ESTABLISHED: &str = "01";
/// Where the words stand that count.
const LOCAL: usize = 1;
const REMOTE: usize = 2;
const STATE: usize = 3;
const UID: usize = 7;
const INODE: usize = 9;

/// What a table says of one end: whose it is, and which socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Told {
    uid: u32,
    socket: u64,
}

/// What a reading of the tables says of both ends of a connection.
#[derive(Clone, Copy, Default, Debug)]
struct Reading {
    ours: Option<Told>,
    theirs: Option<Told>,
}

impl Reading {
    /// What is known after one more reading: a row that it passed over is as it was told last.
    fn then(self, next: Self) -> Self {
        Self { ours: next.ours.or(self.ours), theirs: next.theirs.or(self.theirs) }
    }
}

/// Whose the other ends are: the number of a user each, where that is certain.
///
/// # Errors
/// The tables can't be read: this is another system, or hides them.
pub(crate) fn owners(of: &[Ends]) -> IoResult<Vec<Option<u32>>> {
    if of.is_empty() {
        // Whoever starts asks whether he could be told: a table of thousands takes milliseconds.
        return can_be_read().map(|()| Vec::new());
    }
    let unknown = unknown_uid();
    let mut found = vec![None; of.len()];
    let mut before = read(of)?;
    for _ in 1..READINGS {
        let now = read(of)?;
        for (at, ends) in of.iter().enumerate() {
            if found[at].is_none() {
                found[at] = owner(ends, before[at], now[at]).filter(|uid| Some(*uid) != unknown);
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
        before = before.into_iter().zip(now).map(|(before, now)| before.then(now)).collect();
    }
    Ok(found)
}

/// The owner that two readings, one after the other, agree on.
fn owner(ends: &Ends, before: Reading, now: Reading) -> Option<u32> {
    let theirs = before.theirs.filter(|told| now.theirs == Some(*told) && told.socket != 0)?;
    // It was ours all the time.
    now.ours.filter(|told| told.socket == ends.socket)?;
    Some(theirs.uid)
}

fn not_readable(table: &str, error: &io::Error) -> IoError {
    IoError::new(IoErrorKind::NotReadable, format!("{table}: {error}"))
}

/// A table; `None` where the system has none for version 6.
fn open(table: &str) -> IoResult<Option<File>> {
    match File::open(table) {
        Ok(file) => Ok(Some(file)),
        Err(error) if table != TABLES[0] && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(not_readable(table, &error)),
    }
}

/// Whether the tables can be read, by what each begins with.
fn can_be_read() -> IoResult<()> {
    for table in TABLES {
        let Some(mut file) = open(table)? else { continue };
        file.read_exact(&mut [0; 1]).map_err(|error| not_readable(table, &error))?;
    }
    Ok(())
}

fn read(of: &[Ends]) -> IoResult<Vec<Reading>> {
    let mut readings = vec![Reading::default(); of.len()];
    let places: HashMap<_, _> = of
        .iter()
        .enumerate()
        .flat_map(|(at, ends)| {
            [((ends.near, ends.far), (at, true)), ((ends.far, ends.near), (at, false))]
        })
        .collect();
    for table in TABLES {
        let Some(file) = open(table)? else { continue };
        for line in BufReader::with_capacity(64 << 10, file).lines() {
            let line = line.map_err(|error| not_readable(table, &error))?;
            let Some((key, told)) = row(&line) else { continue };
            match places.get(&key) {
                Some((at, true)) => readings[*at].ours = Some(told),
                Some((at, false)) => readings[*at].theirs = Some(told),
                None => {}
            }
        }
    }
    Ok(readings)
}

/// The ends, the owner and the socket of an open connection that a row has.
fn row(line: &str) -> Option<((SocketAddr, SocketAddr), Told)> {
    let words: Vec<_> = line.split_ascii_whitespace().take(INODE + 1).collect();
    if *words.get(STATE)? != ESTABLISHED {
        return None;
    }
    let ends = (address(words[LOCAL])?, address(words[REMOTE])?);
    let (uid, socket) = (words.get(UID)?.parse().ok()?, words.get(INODE)?.parse().ok()?);
    Some((ends, Told { uid, socket }))
}

/// An address in words of four bytes, each as the machine keeps a number, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word =
        |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, place) in bytes.chunks_exact_mut(4).enumerate() {
                place.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The number by which all users are told who have none in this process's user namespace, if there
/// may be such: nobody is known by it.
fn unknown_uid() -> Option<u32> {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if maps_all(&text("/proc/self/uid_map")) {
        return None;
    }
    Some(text("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65_534))
}

/// Whether a namespace has all users there are, each under the number that it has anywhere.
fn maps_all(map: &str) -> bool {
    let words: Vec<_> = map.split_ascii_whitespace().collect();
    words == ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_linux_writes_them() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "  7: 0100007F:C3A1 0100007F:1194 01 00000000:00000000 00:00000000 00000000  1000        0 48213 1 000000005c7ed48f 20 4 30 10 -1";
        let near = "127.0.0.1:50081".parse().unwrap();
        let far = "127.0.0.1:4500".parse().unwrap();
        assert_eq!(row(line), Some(((near, far), Told { uid: 1000, socket: 48213 })));
        let mapped = line.replace("0100007F:", "0000000000000000FFFF00000100007F:");
        assert_eq!(row(&mapped), row(line), "an address of version 4 by a socket for 6");
        let six = line.replace("0100007F:", "00000000000000000000000001000000:");
        let there = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        assert_eq!(row(&six).unwrap().0, (there(50081), there(4500)));
        for other in ["0A", "06", "08", "02"] {
            assert_eq!(row(&line.replace(" 01 ", &format!(" {other} "))), None, "{other}");
        }
        for len in 0..80 {
            assert_eq!(row(&line[..len]), None, "{len} bytes");
        }
        assert_eq!(row(TITLE), None);
    }

    const TITLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    #[test]
    fn an_owner_is_told_of_a_connection_that_was_ours_all_the_time() {
        let end = "127.0.0.1:1".parse().unwrap();
        let ends = Ends { near: end, far: end, socket: 7 };
        let told = |uid, socket| Some(Told { uid, socket });
        let reading = |ours, theirs| Reading { ours, theirs };
        let good = reading(told(0, 7), told(1000, 8));
        assert_eq!(owner(&ends, good, good), Some(1000));
        // Who closes just then is told as root, with no socket or with the one he had.
        for closing in [told(0, 0), told(0, 8), told(1000, 0), None] {
            let closing = reading(told(0, 7), closing);
            assert_eq!(owner(&ends, closing, good), None);
            assert_eq!(owner(&ends, good, closing), None);
        }
        let orphan = reading(told(0, 7), told(0, 0));
        assert_eq!(owner(&ends, orphan, orphan), None);
        // Somebody else has the port, and another socket of ours is at the other end.
        let reused = reading(told(0, 9), told(1001, 10));
        assert_eq!(owner(&ends, good, reused), None);
        assert_eq!(owner(&ends, reused, reused), None);
        assert_eq!(owner(&ends, reading(None, told(1000, 8)), reading(None, told(1000, 8))), None);
    }

    /// On a machine where thousands of connections come and go, one reading in some has no row of
    /// a connection that is open. Whoever was in each other one was nobody, for as long as he was
    /// connected.
    #[test]
    fn a_row_that_a_reading_passes_over_is_believed_of_those_beside_it() {
        let end = "127.0.0.1:1".parse().unwrap();
        let ends = Ends { near: end, far: end, socket: 7 };
        let told = |uid, socket| Some(Told { uid, socket });
        let good = Reading { ours: told(0, 7), theirs: told(1000, 8) };
        let (no_theirs, no_ours) =
            (Reading { theirs: None, ..good }, Reading { ours: None, ..good });
        for passed_over in [no_theirs, no_ours, Reading::default()] {
            assert_eq!(owner(&ends, good, passed_over), None);
            assert_eq!(owner(&ends, good.then(passed_over), good), Some(1000));
        }
        // Another one's row is no gap, nor is a socket of another number at the same port.
        for another in [told(1001, 9), told(0, 0), told(0, 8), told(1000, 9)] {
            let another = Reading { theirs: another, ..good };
            assert_eq!(owner(&ends, good.then(another), good), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_owner_of_a_connection_is_who_made_its_other_end() {
        use crate::Env;
        let env = Env::real();
        let me = rustix::process::getuid().as_raw();
        let shown = if unknown_uid() == Some(me) { None } else { Some(me) };
        for (listen, connect) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("::", "127.0.0.1"),
            ("::", "::ffff:127.0.0.1"),
        ] {
            let ip: IpAddr = listen.parse().unwrap();
            let Ok(listener) = crate::block_on(env.sockets().listen(SocketAddr::new(ip, 0))) else {
                continue; // A machine without version 6.
            };
            let port = listener.local_address().port();
            let address = SocketAddr::new(connect.parse().unwrap(), port);
            let client = crate::block_on(env.sockets().connect(address)).unwrap();
            let accepted = crate::block_on(listener.accept()).unwrap();
            let ends = accepted.ends().unwrap();
            let look =
                |ends: &Ends| crate::block_on(env.sockets().owners(vec![ends.clone()])).unwrap()[0];
            assert_eq!(look(&ends), shown, "{listen}, {connect}");
            // Another socket than ours is at the near end.
            assert_eq!(look(&Ends { socket: ends.socket + 1, ..ends.clone() }), None);
            drop(client);
            assert_eq!(look(&ends), None, "nobody is at the other end any more");
        }
    }

    #[test]
    fn who_has_no_number_here_is_nobody() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all("         0     100000      65536\n"));
        assert!(!maps_all("         0       1000          1\n         1     100000      65536\n"));
        assert!(!maps_all(""));
    }
}
