//! Who makes room when a door has as many connections as it may.
//!
//! Connections cost nothing to make: a hundred that never say anything once kept probes from
//! `/health`, and ten thousand that never greeted kept clients out, for as long as somebody made
//! new ones. So a newcomer is let in, and one goes of whom the server waits for something: of the
//! address that has the most of those, the one that it has waited for longest. Whoever is being
//! answered stays. A flood from one address so displaces itself; who says at once what it wants is
//! never the one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an address of IPv6 that tell people apart: somebody has all that begin so.
const HOME_BITS: u32 = 64;

/// The part of an address that is somebody's.
pub(crate) fn home(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let bits = u128::from(address) >> HOME_BITS << HOME_BITS;
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        address => address,
    }
}

/// One of whom the server waits for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waited {
    /// Its number.
    pub(crate) number: u64,
    pub(crate) address: IpAddr,
    /// Since when; any clock will do.
    pub(crate) since: u64,
}

/// Which of them makes room, if there are any.
pub(crate) fn who_makes_room(waited: &[Waited]) -> Option<u64> {
    let mut each: HashMap<IpAddr, usize> = HashMap::new();
    waited.iter().for_each(|one| *each.entry(home(one.address)).or_default() += 1);
    let most = each.values().max()?;
    let of_the_most = waited.iter().filter(|one| each.get(&home(one.address)) == Some(most));
    of_the_most.min_by_key(|one| (one.since, one.number)).map(|one| one.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_network_of_ipv6_is_somebodys() {
        for (address, of) in [
            ("10.1.2.3", "10.1.2.3"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::1", "::1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2:9:9:9:9", "2001:db8:1:2::"),
        ] {
            assert_eq!(home(address.parse().unwrap()).to_string(), of);
        }
        // However many addresses of its network it comes from, it displaces itself.
        let of = |number, address: &str, since| Waited {
            number,
            address: address.parse().unwrap(),
            since,
        };
        let waited = [of(1, "10.0.0.1", 0), of(2, "2001:db8::1", 8), of(3, "2001:db8::2", 7)];
        assert_eq!(who_makes_room(&waited), Some(3));
    }

    #[test]
    fn it_is_the_oldest_of_the_address_that_has_the_most() {
        let one = |number, address, since| Waited {
            number,
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, address)),
            since,
        };
        assert_eq!(who_makes_room(&[]), None);
        let mut waited =
            vec![one(1, 1, 0), one(2, 2, 50), one(3, 2, 40), one(4, 2, 60), one(5, 3, 10)];
        assert_eq!(who_makes_room(&waited), Some(3));
        waited.push(one(6, 3, 5));
        waited.push(one(7, 3, 90));
        // Of two that have as many, the oldest.
        assert_eq!(who_makes_room(&waited), Some(6));
    }
}
