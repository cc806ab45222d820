//! The pieces of the key space, and what is known of each.
//!
//! Pieces lie side by side and cover the spaces that are copied, always. Workers take those that
//! are not clean, one each, and put back what they made of it. The prover moves the clean ones
//! along, or takes their cleanness from them.

use crate::sum::Sum;
use plinth_types::{Bytes, KeyRange, Version};
use std::collections::BTreeMap;

/// What is known of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// What the destination has there, if anything, means nothing.
    Unread,
    /// The destination has rows with this sum there, which the source had once and may have still.
    Suspect(Sum),
    /// The destination has what the source has, up to this version at least.
    Clean(Sum, Version),
}

impl State {
    /// The sum of the rows in the destination, if it means anything.
    pub fn sum(self) -> Option<Sum> {
        match self {
            Self::Unread => None,
            Self::Suspect(sum) | Self::Clean(sum, _) => Some(sum),
        }
    }
}

struct Piece {
    end: Bytes,
    state: State,
    /// A worker is at it.
    taken: bool,
    /// The last pass in which a worker took it.
    pass: u64,
}

impl Piece {
    /// One that no worker has taken yet.
    fn new(end: Bytes, state: State) -> Self {
        Self { end, state, taken: false, pass: 0 }
    }
}

/// All pieces.
pub(crate) struct Table {
    /// What they cover, in order and apart.
    spaces: Vec<KeyRange>,
    pieces: BTreeMap<Bytes, Piece>,
    /// Where to look for the next piece to take first: behind the last one taken.
    hint: Bytes,
    /// The number of this pass, from 1 on.
    pass: u64,
}

/// A look at all pieces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Overview {
    pub pieces: usize,
    pub clean: usize,
    pub unread: usize,
    /// Of the clean pieces.
    pub clean_sum: Sum,
    /// The bytes, as last read, of what is suspect.
    pub suspect_bytes: u64,
}

impl Table {
    /// These spaces: known pieces as they are, what is between them unread and cut at these points.
    pub fn new(known: &BTreeMap<Bytes, (Bytes, Sum)>, cuts: &[Bytes], spaces: &[KeyRange]) -> Self {
        let spaces = spaces.to_vec();
        let mut table = Self { spaces, pieces: BTreeMap::new(), hint: Bytes::new(), pass: 1 };
        for space in table.spaces.clone() {
            let mut at = space.begin.clone();
            for (begin, (end, sum)) in known.range(space.begin.clone()..space.end.clone()) {
                // What overlaps was replaced, and its record not yet: it means nothing.
                if *begin < at || begin >= end || *end > space.end {
                    continue;
                }
                table.add_unread(&at, begin, cuts);
                let state = State::Suspect(*sum);
                table.pieces.insert(begin.clone(), Piece::new(end.clone(), state));
                at = end.clone();
            }
            table.add_unread(&at, &space.end, cuts);
        }
        table.check_invariants();
        table
    }

    fn add_unread(&mut self, begin: &Bytes, end: &Bytes, cuts: &[Bytes]) {
        let mut at = begin.clone();
        let mut inner: Vec<&Bytes> = cuts.iter().filter(|cut| begin < cut && *cut < end).collect();
        inner.sort();
        inner.dedup();
        for next in inner.into_iter().chain([end]) {
            if at < *next {
                self.pieces.insert(at, Piece::new(next.clone(), State::Unread));
            }
            at = next.clone();
        }
    }

    /// From now on each piece may be taken once more.
    pub fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// A piece that is not clean, that nobody is at, and that nobody has taken in this pass; from
    /// now on the caller is at it. What changes again behind a worker's back waits for the next
    /// pass, or a pass over a source that changes everywhere would never end.
    pub fn take(&mut self) -> Option<(KeyRange, State)> {
        let pass = self.pass;
        let is_free = |piece: &Piece| {
            !piece.taken && piece.pass < pass && !matches!(piece.state, State::Clean(..))
        };
        let mut behind = self.pieces.range(self.hint.clone()..);
        let found = behind.find(|(_, piece)| is_free(piece));
        let found = found.or_else(|| self.pieces.iter().find(|(_, piece)| is_free(piece)));
        let begin = found.map(|(begin, _)| begin.clone())?;
        self.hint.clone_from(&begin);
        let piece = self.pieces.get_mut(&begin)?;
        (piece.taken, piece.pass) = (true, pass);
        Some((KeyRange::new(begin, piece.end.clone()), piece.state))
    }

    /// The caller has copied the front of its piece, up to `next`. Gives whether it is still at the
    /// rest.
    pub fn put(&mut self, begin: &Bytes, next: &Bytes, state: State) -> bool {
        let Some(piece) = self.pieces.get_mut(begin) else { return false };
        assert!(piece.taken && *next <= piece.end, "only the taken piece can be put back");
        let end = std::mem::replace(&mut piece.end, next.clone());
        (piece.state, piece.taken) = (state, false);
        if *next == end {
            return false;
        }
        let rest = Piece { taken: true, pass: self.pass, ..Piece::new(end, State::Unread) };
        self.pieces.insert(next.clone(), rest);
        true
    }

    /// The caller gives its piece up as it is.
    #[cfg(test)]
    pub fn give_back(&mut self, begin: &Bytes) {
        if let Some(piece) = self.pieces.get_mut(begin) {
            piece.taken = false;
        }
    }

    /// The clean pieces, by the version up to which they are.
    pub fn clean(&self) -> BTreeMap<Version, Vec<KeyRange>> {
        let mut clean: BTreeMap<Version, Vec<KeyRange>> = BTreeMap::new();
        for (begin, piece) in &self.pieces {
            if let State::Clean(_, version) = piece.state {
                clean
                    .entry(version)
                    .or_default()
                    .push(KeyRange::new(begin.clone(), piece.end.clone()));
            }
        }
        clean
    }

    /// The pieces that are not clean.
    pub fn unclean(&self) -> Vec<KeyRange> {
        let unclean =
            self.pieces.iter().filter(|(_, piece)| !matches!(piece.state, State::Clean(..)));
        unclean.map(|(begin, piece)| KeyRange::new(begin.clone(), piece.end.clone())).collect()
    }

    /// These pieces, clean so far, are so up to `version`.
    pub fn move_on(&mut self, pieces: &[KeyRange], version: Version) {
        for range in pieces {
            if let Some(Piece { state: State::Clean(_, clean), .. }) =
                self.pieces.get_mut(&range.begin)
            {
                *clean = version;
            }
        }
    }

    /// These pieces are not known to be clean any more.
    pub fn suspect(&mut self, pieces: &[KeyRange]) {
        for range in pieces {
            if let Some(piece) = self.pieces.get_mut(&range.begin)
                && let State::Clean(sum, _) = piece.state
            {
                piece.state = State::Suspect(sum);
            }
        }
    }

    /// No piece is known to be clean any more.
    pub fn suspect_all(&mut self) {
        let all: Vec<KeyRange> = self.clean().into_values().flatten().collect();
        self.suspect(&all);
    }

    /// Puts these pieces, with the states given, in the place of all that lies between their
    /// bounds.
    pub fn replace(&mut self, range: &KeyRange, parts: &[(KeyRange, State)]) {
        let within: Vec<Bytes> = self
            .pieces
            .range(range.begin.clone()..range.end.clone())
            .map(|(begin, _)| begin.clone())
            .collect();
        within.iter().for_each(|begin| drop(self.pieces.remove(begin)));
        for (part, state) in parts {
            self.pieces.insert(part.begin.clone(), Piece::new(part.end.clone(), *state));
        }
    }

    /// The sum of exactly this piece in the destination, if it is one.
    pub fn sum_of(&self, range: &KeyRange) -> Option<Sum> {
        self.pieces.get(&range.begin).filter(|piece| piece.end == range.end)?.state.sum()
    }

    /// Every piece with its sum, where there is one.
    pub fn sums(&self) -> Vec<(KeyRange, Option<Sum>)> {
        let range = |begin: &Bytes, piece: &Piece| KeyRange::new(begin.clone(), piece.end.clone());
        self.pieces.iter().map(|(begin, piece)| (range(begin, piece), piece.state.sum())).collect()
    }

    /// A look at all pieces.
    pub fn overview(&self) -> Overview {
        let mut overview = Overview { pieces: self.pieces.len(), ..Overview::default() };
        for piece in self.pieces.values() {
            match piece.state {
                State::Unread => overview.unread += 1,
                State::Suspect(sum) => overview.suspect_bytes += sum.bytes,
                State::Clean(sum, _) => {
                    overview.clean += 1;
                    overview.clean_sum = overview.clean_sum.with(sum);
                }
            }
        }
        overview
    }

    /// Panics unless the pieces cover the spaces without gap or overlap.
    pub fn check_invariants(&self) {
        let mut pieces = self.pieces.iter();
        for space in &self.spaces {
            let mut at = &space.begin;
            while *at < space.end {
                let next =
                    pieces.next().filter(|(begin, piece)| *begin == at && **begin < piece.end);
                at = next.map(|(_, piece)| &piece.end).expect("pieces lie side by side");
            }
            assert_eq!(*at, space.end, "pieces cover the spaces");
        }
        assert!(pieces.next().is_none(), "pieces cover nothing else");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Random;
    use plinth_types::system;

    /// The normal keys, and others behind a gap.
    fn spaces() -> Vec<KeyRange> {
        let place = KeyRange::new(system::SERIES_PREFIX, system::SERIES_END);
        vec![KeyRange::new("", system::NORMAL_END), place]
    }

    fn key(random: &mut Random) -> Bytes {
        Bytes::from(format!("{:03}", random.below(1000)))
    }

    #[test]
    fn known_pieces_keep_their_sums_and_nonsense_is_left_out() {
        let sum = Sum { rows: 1, bytes: 2, hash: 3 };
        let known = [("b", "d"), ("c", "e"), ("f", "f"), ("g", "h")];
        let known = known.map(|(begin, end)| (Bytes::from(begin), (Bytes::from(end), sum))).into();
        let cuts = ["a", "b", "x"].map(Bytes::from);
        let table = Table::new(&known, &cuts, &spaces());
        let begins: Vec<_> =
            table.pieces.iter().map(|(begin, piece)| (&begin[..], piece.state.sum())).collect();
        let expected: [(&[u8], _); 8] = [
            (b"", None),
            (b"a", None),
            (b"b", Some(sum)),
            (b"d", None),
            (b"g", Some(sum)),
            (b"h", None),
            (b"x", None),
            (system::SERIES_PREFIX, None),
        ];
        assert_eq!(begins, expected);
    }

    /// A source that changed everywhere all the time kept one pass busy for nine minutes, over
    /// sockets: pieces were dirty again before the last one had been copied, and were taken again,
    /// so that no round ever ended and nothing was given up.
    #[test]
    fn a_pass_takes_each_piece_once_however_often_it_changes() {
        let mut table = Table::new(&BTreeMap::new(), &["b", "d"].map(Bytes::from), &spaces()[..1]);
        let sum = Sum { rows: 1, bytes: 2, hash: 3 };
        for round in 1..4 {
            table.begin_pass();
            let mut taken = Vec::new();
            while let Some((range, _)) = table.take() {
                assert!(!table.put(&range.begin, &range.end, State::Clean(sum, round)));
                table.suspect_all();
                taken.push(range.begin);
                assert!(taken.len() <= 3, "{taken:?}");
            }
            taken.sort();
            assert_eq!(taken, ["", "b", "d"]);
            assert_eq!(table.overview().suspect_bytes, 6, "it is for the next pass, or the cut");
        }
    }

    #[test]
    fn whatever_is_done_the_pieces_cover_the_key_space() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let cuts: Vec<Bytes> = (0..random.below(10)).map(|_| key(&mut random)).collect();
            let mut table = Table::new(&BTreeMap::new(), &cuts, &spaces());
            for version in 1..300 {
                if random.below(5) == 0 {
                    table.begin_pass();
                }
                match random.below(4) {
                    0 | 1 => {
                        let Some((range, _)) = table.take() else { continue };
                        let (mut begin, cut) = (range.begin.clone(), key(&mut random));
                        let state = State::Clean(Sum::default(), version);
                        if range.contains(&cut) && cut > begin {
                            assert!(table.put(&begin, &cut, state));
                            begin = cut;
                        }
                        if random.below(2) == 0 {
                            assert!(!table.put(&begin, &range.end, state));
                        } else {
                            table.give_back(&begin);
                        }
                    }
                    2 => {
                        let clean: Vec<_> = table.clean().into_values().flatten().collect();
                        let some: Vec<_> =
                            clean.into_iter().filter(|_| random.below(3) == 0).collect();
                        table.suspect(&some);
                    }
                    _ => {
                        let clean: Vec<_> = table.clean().into_values().flatten().collect();
                        table.move_on(&clean, version);
                        assert!(table.clean().keys().all(|clean| *clean == version), "seed {seed}");
                    }
                }
                table.check_invariants();
            }
        }
    }
}
