//! Special keys by which operators say who is to vote in a cluster, and who is not.
//!
//! They become rows that the cluster's leader acts on: what is wanted is committed with the
//! transaction, and comes to be step by step afterwards. What can't come to be is refused here: a
//! database of one server, a server that is no member, the last voter.

use super::commit::Refusal;
use super::{Host, Part, Source, SpecialKeys};
use bytes::Bytes;
use plinth_types::places::{MemberPlace, member_places};
use plinth_types::{KeyRange, KeyValue, Result, system};
use std::collections::BTreeSet;

/// Whether one of these places, addresses or hosts, is that of a member.
fn names(places: &BTreeSet<String>, member: &MemberPlace) -> bool {
    let host = member.address.rsplit_once(':').map_or(&*member.address, |(host, _)| host);
    places.contains(&member.address) || places.contains(host)
}

/// An address without its mark for TLS.
fn bare(address: &str) -> &str {
    address.strip_suffix(":tls").unwrap_or(address)
}

impl<H: Host> SpecialKeys<H> {
    /// The members of the cluster; none if there is none.
    pub(super) async fn members(&self) -> Result<Vec<MemberPlace>> {
        let row = self.get_seriously(system::MEMBERS).await?;
        row.map_or_else(|| Ok(Vec::new()), |row| member_places(&row))
    }

    /// The same, where nothing hangs on it that is written.
    pub(super) async fn members_seen(&self) -> Result<Vec<MemberPlace>> {
        let row = self.host.get(system::MEMBERS).await?;
        row.map_or_else(|| Ok(Vec::new()), |row| member_places(&row))
    }

    /// The places below a prefix of the system's rows.
    async fn places(&self, prefix: &[u8]) -> Result<BTreeSet<String>> {
        let end = [prefix, b"\xff"].concat();
        let rows = self.host.get_range(prefix, &end).await?;
        Ok(rows
            .iter()
            .map(|row| String::from_utf8_lossy(&row.key[prefix.len()..]).into_owned())
            .collect())
    }

    /// What a part that mirrors such rows shows.
    pub(super) async fn place_rows(&self, part: &Part, prefix: &[u8]) -> Result<Vec<KeyValue>> {
        let places = self.places(prefix).await?;
        Ok(places
            .iter()
            .map(|place| KeyValue { key: part.key(place.as_bytes()), value: Bytes::new() })
            .collect())
    }

    /// Those who still vote although they are not to.
    pub(super) async fn in_progress(&self, part: &Part) -> Result<Vec<KeyValue>> {
        let mut places = self.places(system::EXCLUDED_PREFIX).await?;
        places.extend(self.places(system::FAILED_PREFIX).await?);
        let members = self.members_seen().await?;
        let voting = members.iter().filter(|member| member.votes && names(&places, member));
        Ok(voting
            .map(|member| KeyValue {
                key: part.key(member.address.as_bytes()),
                value: Bytes::new(),
            })
            .collect())
    }

    /// Every server that could be told to begin again: all members, or the one that there is.
    pub(super) async fn workers(&self, part: &Part) -> Result<Vec<KeyValue>> {
        let members = self.members_seen().await?;
        let mut addresses: Vec<String> = members.into_iter().map(|member| member.address).collect();
        if addresses.is_empty() {
            addresses = self.host.endpoint().server_addresses();
        }
        let row = |address: &String| {
            let value = Bytes::copy_from_slice(address.as_bytes());
            KeyValue { key: part.key(address.as_bytes()), value }
        };
        Ok(addresses.iter().map(row).collect())
    }

    /// `coordinators ADDR...`, `coordinators auto`
    pub(super) async fn commit_coordinators(
        &self,
        part: &'static Part,
        changes: &[(KeyRange, Option<Bytes>)],
    ) -> Result<Option<Refusal>> {
        let refuse = |message: String| Ok(Some(("coordinators", message)));
        let members = self.members().await?;
        if members.is_empty() {
            return refuse(
                "This database is on one server, whose coordinator can't be another".into(),
            );
        }
        let processes = part.key(b"processes");
        for (range, value) in changes {
            let Some(value) = value else {
                if range.contains(&processes) {
                    self.host.write(system::COORDINATORS_WANTED, None);
                }
                continue;
            };
            if range.begin != processes {
                return refuse("The description of the cluster can't be changed".into());
            }
            let text = String::from_utf8_lossy(value).into_owned();
            let wanted: Vec<&str> = text.split(',').map(|one| bare(one.trim())).collect();
            for (at, address) in wanted.iter().enumerate() {
                if wanted[..at].contains(address) {
                    return refuse(format!("{address} is named twice"));
                }
                if !members.iter().any(|member| member.address == *address) {
                    return refuse(format!(
                        "There is no server at {address} in this cluster: start it with an empty directory and the cluster file first"
                    ));
                }
            }
            if wanted.len().is_multiple_of(2) {
                let count = wanted.len();
                return refuse(format!(
                    "{count} coordinators survive no more failures than {} do: name an odd number",
                    count - 1
                ));
            }
            let text = wanted.join(",");
            self.host.write(system::COORDINATORS_WANTED, Some(text.as_bytes()));
        }
        Ok(None)
    }

    /// `exclude ADDR...`, `exclude failed ADDR...`, `include ADDR...`
    pub(super) async fn commit_places(
        &self,
        part: &'static Part,
        changes: &[(KeyRange, Option<Bytes>)],
    ) -> Result<Option<Refusal>> {
        let Source::Places(command, prefix) = part.source else { return Ok(None) };
        let refuse = |message: String| Ok(Some((command, message)));
        let members = self.members().await?;
        let mut gone = self.places(system::EXCLUDED_PREFIX).await?;
        gone.extend(self.places(system::FAILED_PREFIX).await?);
        let skip = part.key(b"").len();
        for (range, value) in changes {
            let place = String::from_utf8_lossy(&range.begin[skip..]).into_owned();
            if value.is_some() {
                if members.is_empty() {
                    return refuse(
                        "This database has no servers that could be changed one by one".into(),
                    );
                }
                let place = bare(&place).to_owned();
                if !members.iter().any(|member| names(&BTreeSet::from([place.clone()]), member)) {
                    return refuse(format!("There is no server at {place} in this cluster"));
                }
                self.host.write(&[prefix, place.as_bytes()].concat(), Some(b""));
                gone.insert(place);
            } else {
                let end = match range.end.get(skip..) {
                    Some(end) if range.end.starts_with(&part.key(b"")) => [prefix, end].concat(),
                    _ => [prefix, b"\xff"].concat(),
                };
                self.host.clear(&[prefix, &range.begin[skip..]].concat(), &end);
            }
        }
        let is_set = changes.iter().any(|(_, value)| value.is_some());
        if is_set && !members.iter().any(|member| member.votes && !names(&gone, member)) {
            return refuse(
                "No voter would be left: this cluster would end. Have another server vote first"
                    .into(),
            );
        }
        Ok(None)
    }
}
