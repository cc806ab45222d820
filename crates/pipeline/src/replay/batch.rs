//! The mutations of many log entries as one list in key order that has the same effect.
//!
//! ```text
//!   gathered      set m=1   add c   clear a..k   set d   set m=2   add c   add d
//!   the list      clear a..k │ add c │ set d, add d │ set m=2
//! ```
//!
//! First come the cleared ranges, all of them: what a key was before the batch is gone if any clear
//! covers it. Then comes each key, ascending, with what is left of its mutations: those behind the
//! last clear that covers it, and of these those from the last on that doesn't look at what was
//! there. So a key that was written often costs the engine one write, and an atomic operation sees
//! what it would have seen.

use super::Bounds;
use super::cleared::{Cleared, Moment};
use super::sort::{self, Place};
use plinth_types::mutation::Mutations;
use plinth_types::{Bytes, MutationList, MutationRef, MutationType, key_after, planted};
use std::hint::black_box;

/// How many keys are fetched from memory side by side, before they are looked at one by one.
const SIDE_BY_SIDE: usize = 32;

/// Mutations that were gathered.
#[derive(Default)]
pub(super) struct Batch {
    /// The lists of mutations, one of each entry.
    bodies: Vec<Bytes>,
    /// Where the mutations of single keys are, in their order.
    places: Vec<Place>,
    cleared: Cleared,
    bytes: usize,
}

impl Batch {
    /// Whether there is room for another entry.
    pub fn is_below(&self, bounds: Bounds) -> bool {
        self.places.len() < bounds.mutations && self.bytes < bounds.bytes
    }

    /// Adds the mutations of the next entry: a list that was validated.
    pub fn add(&mut self, list: Bytes) {
        assert!(list.len() <= u32::MAX as usize, "a list of {} bytes has no places", list.len());
        self.bytes += list.len();
        let body = self.bodies.len() as u32;
        let mut mutations = Mutations::of(&list);
        loop {
            let offset = (list.len() - mutations.remaining()) as u32;
            let Some(MutationRef { kind, param1, param2 }) = mutations.next() else { break };
            if kind != MutationType::ClearRange || *param2 == key_after(param1)[..] {
                self.places.push(Place::new(body, offset));
            } else if param1 < param2 {
                self.cleared.add(list.slice_ref(param1), list.slice_ref(param2), (body, offset));
            }
        }
        self.bodies.push(list);
    }

    /// The list.
    pub fn into_key_order(mut self) -> MutationList {
        let mut list = MutationList::new();
        for (begin, end) in self.cleared.whole() {
            list.push(MutationType::ClearRange, begin, end);
        }
        let mut places = std::mem::take(&mut self.places);
        sort::by_key(&mut places, &|place| self.mutation(place).param1);
        assert!(self.are_in_order(&places), "of a key the earlier mutation comes first");
        let mut last_clear = self.cleared.walk();
        let (mut done, mut fetched) = (0, 0);
        for of_key in places.chunk_by(|a, b| self.mutation(a).param1 == self.mutation(b).param1) {
            done += of_key.len();
            while fetched < places.len().min(done + SIDE_BY_SIDE) {
                let next = &places[fetched..places.len().min(fetched + SIDE_BY_SIDE)];
                self.fetch(next);
                fetched += next.len();
            }
            let first = self.mutation(&of_key[0]);
            let cleared = last_clear(first.param1);
            if of_key.len() == 1 && cleared.is_none() {
                list.push(first.kind, first.param1, first.param2);
                continue;
            }
            for place in self.what_counts(of_key, cleared) {
                let MutationRef { kind, param1, param2 } = self.mutation(place);
                list.push(kind, param1, param2);
            }
        }
        list
    }

    /// Looked at here and there: it is as good as sorted, or sorting is wrong everywhere.
    fn are_in_order(&self, places: &[Place]) -> bool {
        let order = |place: &Place| (self.mutation(place).param1, place.at);
        let step = (places.len() / 16).max(1);
        places.windows(2).step_by(step).all(|pair| order(&pair[0]) < order(&pair[1]))
    }

    /// Of the mutations of a key those whose effect is seen in the end. It was cleared last at that
    /// moment.
    fn what_counts<'p>(&self, of_key: &'p [Place], cleared: Option<Moment>) -> &'p [Place] {
        let alive = match cleared {
            Some(cleared) => &of_key[of_key.partition_point(|place| place.at < cleared)..],
            None => of_key,
        };
        if planted!("replay lets the first write of a key win") {
            return &alive[..alive.len().min(1)];
        }
        let is_blind = |place: &Place| {
            matches!(self.mutation(place).kind, MutationType::Set | MutationType::ClearRange)
        };
        &alive[alive.iter().rposition(is_blind).unwrap_or(0)..]
    }

    /// Has the memory of these places fetched: each on its own would be waited for.
    fn fetch(&self, places: &[Place]) {
        let byte = |place: &Place| self.bodies[place.at.0 as usize].get(place.at.1 as usize);
        black_box(places.iter().filter_map(byte).fold(0, |all, byte| all ^ byte));
    }

    fn mutation(&self, place: &Place) -> MutationRef<'_> {
        let (body, offset) = place.at;
        let mut mutations = Mutations::of(&self.bodies[body as usize][offset as usize..]);
        mutations.next().expect("there was one at this place")
    }
}
