//! What always holds among a store's rows, and in its memory: asked by tests, after whatever they
//! did to it.
//!
//! All rows are read at one version, so that commits beside it change nothing of the answer. A
//! contradiction is a bug of this layer and a panic that names series and place; a byte that is
//! wrong on the disk is [`Error::Damaged`], as for any reader.
//!
//! 1. Names: each series is found by its name, by its metric and by each of its tags, and by no
//!    other key; the counts are how many there are; no number is given out twice.
//! 2. Trees: the twigs of a series cover its leaves without a gap, and no level has as many as a
//!    node; what stands in a parent is what its child has; times ascend; what is missing was
//!    deleted.
//! 3. Late points: each leaf is keyed by its first time, and ends before the next one begins. So is
//!    each row of records.
//! 4. The inbox is as large as its size says; batches of the tail can be read.
//! 5. Rollups: see `roll_invariants.rs`.
//! 6. Memory: points of an open leaf ascend, behind all that is sealed; late ones don't lie behind
//!    that.

use super::by_time::ByTime;
use super::keys::{Id, Keys};
use super::letter::size;
use super::nodes::{Through, rows};
use super::{Cell, Part, lock, mask, names, roll_invariants, tail};
use crate::codec;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::record::Kind;
use crate::tree::{
    Address, FANOUT, MAX_LEVEL, Nodes, Span, Summary, Twig, decode_summaries, encode_summaries,
};
use crate::value::Points;
use plinth_client::Transaction;
use std::collections::BTreeMap;

impl Part {
    pub(super) async fn check_invariants(&self) -> Result<()> {
        let shared = &self.shared;
        lock(&shared.flusher).check_invariants();
        let known: Vec<_> = lock(&shared.index.names).values().cloned().collect();
        known.iter().for_each(|cell| check_memory(cell));
        let (tr, keys) = (shared.database.create_transaction(), &shared.keys);
        for (id, name) in check_names(&tr, keys).await? {
            check_tree(&Through { tr: &tr, keys, id }, &name).await?;
            check_late(&tr, keys, id, &name).await?;
            check_records(&tr, keys, id, &name).await?;
        }
        check_inbox(&tr, keys).await?;
        roll_invariants::check(shared, &tr).await?;
        check_tail(&tr, keys).await
    }
}

/// What is in memory of one series.
fn check_memory(cell: &Cell) {
    let (name, state) = (cell.name.as_str(), lock(&cell.state));
    let times = &state.open.times;
    assert!(times.is_sorted_by(|one, next| one < next), "{name}: the open leaf's times ascend");
    assert!(
        times.first().is_none_or(|first| Some(*first) > state.sealed),
        "{name}: the open leaf begins at {:?}, and all up to {:?} is sealed",
        times.first(),
        state.sealed
    );
    assert!(
        state.late.iter().chain(&state.merging).all(|point| Some(point.time) <= state.sealed),
        "{name}: points are late that lie behind all that is sealed"
    );
    assert!(
        state.trunk.last() <= state.sealed,
        "{name}: the tree has points up to {:?}, of which {:?} is known",
        state.trunk.last(),
        state.sealed
    );
}

/// Gives the series that there are.
async fn check_names(tr: &Transaction, keys: &Keys) -> Result<Vec<(Id, Name)>> {
    let next = names::number(tr.snapshot().get(keys.next_id()).await?)?.unwrap_or(1);
    let mut found = Vec::new();
    let mut by_metric: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(tr, &keys.all_series()).await? {
        let id = keys.id_of_series(&row.key)?;
        let text = std::str::from_utf8(&row.value).ok().and_then(|text| Name::parse(text).ok());
        let name =
            text.ok_or_else(|| Error::damaged(format!("the name of series {id}"), "none"))?;
        assert!(id < next, "series {id} is there, and {next} is the next number");
        let named = names::number(tr.snapshot().get(keys.name(name.as_str())).await?)?;
        assert_eq!(named, Some(id), "the number by the name of series {id}, {}", name.as_str());
        for (tag, value) in name.tags().chain([("", "")]) {
            let key = keys.index(name.metric(), tag, value, id);
            let is_there = tr.snapshot().get(key).await?.is_some();
            assert!(is_there, "{} is not found by {tag:?} = {value:?}", name.as_str());
        }
        *by_metric.entry(name.metric().to_owned()).or_default() += 1;
        found.push((id, name));
    }
    let counted = async |key: Vec<u8>| {
        Ok::<_, Error>(names::number(tr.snapshot().get(key).await?)?.unwrap_or(0))
    };
    assert_eq!(counted(keys.count()).await?, found.len() as u64, "how many series there are");
    for (metric, count) in by_metric {
        assert_eq!(counted(keys.count_of(&metric)).await?, count, "how many {metric} has");
        let indexed = rows(tr, &keys.index_of(&metric, "", "")).await?.len();
        assert_eq!(indexed as u64, count, "how many are found by metric {metric}");
    }
    Ok(found)
}

/// Bytes of a summary: all of its bits, those of values that are no numbers too.
fn bits(summary: &Summary) -> Vec<u8> {
    encode_summaries(0, std::slice::from_ref(summary))
}

async fn check_tree(nodes: &Through<'_>, name: &Name) -> Result<()> {
    let (name, masks) = (name.as_str(), nodes.masks().await?);
    let apart = masks.is_sorted_by(|one, next| one.last < next.first);
    assert!(apart && masks.len() <= mask::MAX_MASKS, "{name}: masks ascend: {masks:?}");
    let mut twigs = nodes.twigs(None).await?;
    twigs.sort_by_key(|twig| (std::cmp::Reverse(twig.address.level), twig.address.index));
    let mut covered = 0;
    for twig in &twigs {
        let Address { level, index } = twig.address;
        let width = FANOUT.pow(u32::from(level));
        assert_eq!(index * width, covered, "{name}: leaves before twig {index} of level {level}");
        covered += width;
        let there = twigs.iter().filter(|other| other.address.level == level).count() as u64;
        assert!(there < FANOUT || level == MAX_LEVEL, "{name}: {there} twigs of level {level}");
    }
    check_order(&twigs, name);
    while let Some(twig) = twigs.pop() {
        twigs.extend(check_node(nodes, &twig, &masks, name).await?);
    }
    Ok(())
}

fn check_order(neighbours: &[Twig], name: &str) {
    let ascend =
        neighbours.is_sorted_by(|one, next| one.summary.last.time < next.summary.first.time);
    assert!(ascend, "{name}: each node is later than the one before it: {neighbours:?}");
}

/// Gives the children.
async fn check_node(
    nodes: &Through<'_>,
    twig: &Twig,
    masks: &[Span],
    name: &str,
) -> Result<Vec<Twig>> {
    let Address { level, index } = twig.address;
    let Some(bytes) = nodes.node(twig.address).await? else {
        let was_deleted = masks.iter().any(|mask| mask.covers(&twig.summary));
        assert!(was_deleted, "{name}: node {index} of level {level} is gone, and not deleted");
        return Ok(Vec::new());
    };
    let (summary, children) = if level == 0 {
        let mut points = Points::default();
        codec::decode(&bytes, &mut points)?;
        (Summary::of(&points), Vec::new())
    } else {
        let below = (index * FANOUT..).map(|index| Address { level: level - 1, index });
        let children = decode_summaries(level, &bytes)?.into_iter().zip(below);
        let children: Vec<Twig> =
            children.map(|(summary, address)| Twig { address, summary }).collect();
        assert_eq!(children.len() as u64, FANOUT, "{name}: children of node {index}");
        check_order(&children, name);
        let mut all = children.iter().map(|child| child.summary);
        let sum = all.next().map(|first| {
            all.fold(first, |mut sum, next| {
                sum.add(&next);
                sum
            })
        });
        (sum, children)
    };
    assert_eq!(
        summary.as_ref().map(bits),
        Some(bits(&twig.summary)),
        "{name}: node {index} of level {level} has {summary:?}, and its parent says {:?}",
        twig.summary
    );
    Ok(children)
}

async fn check_late(tr: &Transaction, keys: &Keys, id: Id, name: &Name) -> Result<()> {
    let mut before = None;
    for row in rows(tr, &keys.sides(id)).await? {
        let (mut points, name) = (Points::default(), name.as_str());
        codec::decode(&row.value, &mut points)?;
        let (first, last) = (points.times.first().copied(), points.times.last().copied());
        assert_eq!(
            first.map(|first| keys.side(id, first)).as_deref(),
            Some(&row.key[..]),
            "{name}: a leaf of late points is keyed by its first time, {first:?}"
        );
        assert!(before < first, "{name}: late points from {first:?} on behind {before:?}");
        before = last;
    }
    Ok(())
}

async fn check_records(tr: &Transaction, keys: &Keys, id: Id, name: &Name) -> Result<()> {
    for kind in Kind::KEPT {
        let (mut before, name) = (None, name.as_str());
        for row in rows(tr, &keys.records(kind, id)).await? {
            let records = kind.decode(&row.value)?;
            let (first, last) = (records.first().map(|one| one.0), records.last().map(|one| one.0));
            assert_eq!(
                first.map(|first| keys.record_row(kind, id, first)).as_deref(),
                Some(&row.key[..]),
                "{name}: a row of records is keyed by its first time, {first:?}"
            );
            assert!(before < first, "{name}: records from {first:?} on behind {before:?}");
            before = last;
        }
    }
    Ok(())
}

async fn check_inbox(tr: &Transaction, keys: &Keys) -> Result<()> {
    let rows = rows(tr, &keys.inbox()).await?;
    let bytes: usize = rows.iter().map(|row| row.value.len()).sum();
    let told = size(tr.snapshot().get(keys.inbox_size()).await?.as_ref());
    assert_eq!(told, bytes as i64, "the size of the inbox, which has {} rows", rows.len());
    Ok(())
}

async fn check_tail(tr: &Transaction, keys: &Keys) -> Result<()> {
    for row in rows(tr, &keys.tails()).await? {
        let number = keys.number_of_tail(&row.key)?;
        let points = tail::decode(&row.value)?;
        assert!(!points.is_empty(), "batch {number} of the tail has no point");
    }
    Ok(())
}
