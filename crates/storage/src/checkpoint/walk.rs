//! Reading a checkpoint from the begin to the end, and on past damage.
//!
//! Each [`Walk::step`] gives one block's rows, or tells one problem, or that the end is reached.
//! After a problem the walk goes on with the next block that has right checksums: behind the
//! damaged one if its length is known, else wherever the next one begins. Numbers of blocks and the
//! order of keys say what is missing between.

use super::format::{
    BLOCK_HEADER_LEN, BLOCK_MAGIC, BlockHeader, BodyRows, FRONT_LEN, Header, Kind, MAX_BODY_LEN,
    SEALED_FOOTER_LEN, Totals, decode_footer, decode_front, front_in_footer,
};
use super::newer_format;
use crate::failure::{StorageError, StorageResult};
use plinth_env::{Env, File, Open};
use plinth_format::crypt::KeyId;
use plinth_format::{Cipher, Corruption, Flaw, HeaderFlaw, Identity, Keys};
use plinth_types::{Version, printable};
use std::path::Path;

/// Bytes read in one go.
const WINDOW: usize = 1 << 20;
/// What is skipped where the disk can't be read.
const SECTOR: u64 = 4096;

/// A checkpoint that is being read.
pub(super) struct Walk {
    env: Env,
    file: File,
    name: String,
    len: u64,
    header: Header,
    seed: u32,
    cipher: Cipher,
    /// Where the next block begins.
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    place: Place,
    /// The error of the first read that failed.
    unreadable: Option<StorageError>,
}

/// How far the rows have come.
#[derive(Default)]
struct Place {
    /// Number of the next block.
    block: u64,
    last_key: Option<Vec<u8>>,
    totals: Totals,
    /// Whether something before was missing, so that numbers need not fit.
    lost: bool,
    ended: bool,
}

/// What a step came upon.
pub(super) enum Step {
    /// A block of rows, which have been visited.
    Rows,
    /// A problem; some rows may have been visited.
    Damage(Corruption),
    /// The end.
    End,
}

impl Walk {
    /// Opens a checkpoint. If its header is damaged and the copy in the footer is not, that serves,
    /// and the damage is given beside. If neither is whole, the damage is all.
    ///
    /// # Errors
    /// `NewerFormat` for a newer format; those of reading files.
    pub(super) async fn open(
        env: &Env,
        path: &Path,
        keys: &Keys,
    ) -> StorageResult<Result<(Self, Option<Corruption>), Corruption>> {
        let name = path.display().to_string();
        let file = env.files().open(path, Open::Read).await?;
        let len = file.len().await?;
        let mut bytes = vec![0; FRONT_LEN.min(usize::try_from(len).unwrap_or(usize::MAX))];
        file.read_exact_at(0, &mut bytes).await?;
        let ((header, cipher), problem) = match decode_front(&bytes, keys) {
            Ok(front) => (front, None),
            Err(HeaderFlaw::Foreign(format)) => return Err(newer_format(&name, format)),
            Err(HeaderFlaw::Damaged(flaw)) => {
                let problem = flaw.at(&name, 0);
                let at = len.saturating_sub(SEALED_FOOTER_LEN as u64);
                let mut end = vec![0; (len - at) as usize];
                file.read_exact_at(at, &mut end).await?;
                match front_in_footer(&end, keys) {
                    Some(front) => (front, Some(problem)),
                    None => return Ok(Err(problem)),
                }
            }
        };
        let walk = Self {
            env: env.clone(),
            file,
            name,
            len,
            header,
            seed: header.seed(),
            cipher,
            at: header.front_len() as u64,
            window: Vec::new(),
            window_at: 0,
            place: Place::default(),
            unreadable: None,
        };
        Ok(Ok((walk, problem)))
    }

    /// # Errors
    /// `Corrupt` if the checkpoint is of another version than its name says, or another
    /// node's.
    pub(super) fn expect(&self, version: Version, identity: Identity) -> StorageResult<()> {
        self.header.check(version, identity).map_err(|flaw| flaw.at(&self.name, 0).into())
    }

    /// # Errors
    /// `Locked` if its key is not among these.
    pub(super) fn check_unlocked(&self, keys: &Keys) -> StorageResult<()> {
        match self.locked() {
            Some(id) => Err(StorageError::Locked(keys.lack(&self.name, id).into())),
            None => Ok(()),
        }
    }

    /// The key that is lacking.
    pub(super) fn locked(&self) -> Option<KeyId> {
        self.cipher.locked()
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// What has been visited so far.
    pub(super) fn totals(&self) -> Totals {
        self.place.totals
    }

    /// Goes on by one block, whose rows are visited in key order.
    pub(super) async fn step(
        &mut self,
        visit: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StorageResult<Step> {
        if self.place.ended {
            return Ok(Step::End);
        }
        let begin = self.at;
        let block = match self.read_header().await {
            Ok(Ok(block)) => block,
            Ok(Err(flaw)) => {
                self.find_next(begin + 1).await?;
                return Ok(self.damage(flaw, begin));
            }
            Err(error) if begin < self.len => {
                let flaw = self.unreadable(error);
                self.find_next((begin / SECTOR + 1) * SECTOR).await?;
                return Ok(self.damage(flaw, begin));
            }
            Err(error) => return Err(error),
        };
        let body_at = begin + BLOCK_HEADER_LEN as u64;
        if self.len - body_at < block.body_len as u64 {
            let flaw = Flaw::new(
                "length of the file",
                format_args!("{}", body_at + block.body_len as u64),
                self.len,
            );
            self.place.ended = true;
            return Ok(self.damage(flaw, self.len));
        }
        self.at = body_at + block.body_len as u64;
        if let Err(error) = self.fill(body_at, block.body_len).await {
            self.place.block = block.number + 1;
            let flaw = self.unreadable(error);
            return Ok(self.damage(flaw, body_at));
        }
        let from = (body_at - self.window_at) as usize;
        let body = &mut self.window[from..from + block.body_len];
        let opened = block.check(body, self.seed).and_then(|()| block.open(body, &self.cipher));
        let taken = match (opened, block.kind) {
            (Err(flaw), _) => Err(flaw),
            (Ok(_), Kind::Rows) if self.cipher.locked().is_some() => {
                self.place.pass_rows(&block).map(|()| Step::Rows)
            }
            (Ok(len), Kind::Rows) => {
                self.place.take_rows(&block, &body[..len], visit).map(|()| Step::Rows)
            }
            (Ok(_), Kind::Footer) => {
                self.place.ended = true;
                let end = (self.len - self.at, self.cipher.locked().is_some());
                self.place.take_footer(&block, (body, &self.header), end).map(|()| Step::End)
            }
        };
        self.place.block = block.number + 1;
        Ok(taken.unwrap_or_else(|flaw| self.damage(flaw, begin)))
    }

    /// The error of the first read that failed. What could not be read need not be damaged.
    pub(super) fn read_error(&self) -> Option<&StorageError> {
        self.unreadable.as_ref()
    }

    fn unreadable(&mut self, error: StorageError) -> Flaw {
        let flaw = Flaw::new("reading the file", "its bytes", &error);
        self.unreadable.get_or_insert(error);
        flaw
    }

    fn damage(&mut self, flaw: Flaw, offset: u64) -> Step {
        self.place.lost = true;
        Step::Damage(flaw.at(&self.name, offset))
    }

    async fn read_header(&mut self) -> StorageResult<Result<BlockHeader, Flaw>> {
        if self.len.saturating_sub(self.at) < BLOCK_HEADER_LEN as u64 {
            self.place.ended = true;
            let missing = Flaw::new("the footer", "rows or a footer", "the end of the file");
            return Ok(Err(missing));
        }
        self.fill(self.at, BLOCK_HEADER_LEN).await?;
        let from = (self.at - self.window_at) as usize;
        Ok(BlockHeader::decode(&self.window[from..from + BLOCK_HEADER_LEN], self.seed))
    }

    /// Sees to it that the window has these bytes, which the file has.
    async fn fill(&mut self, at: u64, len: usize) -> StorageResult<()> {
        let end = self.window_at + self.window.len() as u64;
        if at >= self.window_at && at + len as u64 <= end {
            return Ok(());
        }
        self.env.yield_now().await;
        let size = (self.len - at).min(WINDOW.max(len) as u64) as usize;
        self.window.clear();
        self.window.resize(size, 0);
        self.window_at = at;
        let read = self.file.read_exact_at(at, &mut self.window).await;
        if read.is_err() {
            self.window.clear();
        }
        Ok(read?)
    }

    /// Moves to the first block at or behind `from` whose head is whole; to the end if there is
    /// none.
    async fn find_next(&mut self, from: u64) -> StorageResult<()> {
        let mut at = from;
        while at + BLOCK_HEADER_LEN as u64 <= self.len && !self.place.ended {
            if self.fill(at, BLOCK_HEADER_LEN).await.is_err() {
                at = (at / SECTOR + 1) * SECTOR;
                continue;
            }
            let first = (at - self.window_at) as usize;
            let heads = self.window[first..].windows(BLOCK_HEADER_LEN);
            let whole = |head: &[u8]| {
                head.starts_with(&BLOCK_MAGIC) && BlockHeader::decode(head, self.seed).is_ok()
            };
            let searched = heads.len() as u64;
            if let Some(found) =
                heads.enumerate().find(|(_, head)| whole(head)).map(|(place, _)| place)
            {
                self.at = at + found as u64;
                return Ok(());
            }
            at += searched;
        }
        self.at = self.len;
        // What was told is all there is to tell: that the footer is missing goes without saying.
        self.place.ended = true;
        Ok(())
    }
}

impl Place {
    fn check_number(&self, block: &BlockHeader) -> Result<(), Flaw> {
        if self.lost || block.number == self.block {
            return Ok(());
        }
        Err(Flaw::new("number of the block", self.block, block.number))
    }

    fn take_rows(
        &mut self,
        block: &BlockHeader,
        body: &[u8],
        visit: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Result<(), Flaw> {
        self.check_number(block)?;
        let mut rows = BodyRows::new(body);
        let mut count = 0;
        let mut last: Option<&[u8]> = None;
        for (key, value) in rows.by_ref() {
            if let Some(before) = last.or(self.last_key.as_deref()).filter(|before| *before >= key)
            {
                let expected = format_args!("a key above {}", printable(before)).to_string();
                return Err(Flaw::new("order of the keys", expected, printable(key)));
            }
            visit(key, value);
            self.totals.add(key, value);
            last = Some(key);
            count += 1;
        }
        if rows.left() != 0 || count != block.rows {
            let found = format!("{count} and {} bytes more", rows.left());
            return Err(Flaw::new("rows of the block", block.rows, found));
        }
        self.last_key = last.map(<[u8]>::to_vec).or(self.last_key.take());
        Ok(())
    }

    /// Counts the rows of a block that can't be opened.
    fn pass_rows(&mut self, block: &BlockHeader) -> Result<(), Flaw> {
        self.check_number(block)?;
        self.totals.rows += u64::from(block.rows);
        Ok(())
    }

    fn take_footer(
        &self,
        block: &BlockHeader,
        (body, header): (&[u8], &Header),
        (behind, is_locked): (u64, bool),
    ) -> Result<(), Flaw> {
        let mut totals = decode_footer(body, header)?;
        if is_locked {
            // Nobody has counted their bytes.
            totals = Totals { rows: totals.rows, ..self.totals };
        }
        if behind != 0 {
            return Err(Flaw::new(
                "end of the file",
                "nothing behind the footer",
                format_args!("{behind} bytes"),
            ));
        }
        if self.lost {
            // Rows are missing, and that has been told.
            return Ok(());
        }
        self.check_number(block)?;
        if totals != self.totals {
            let text = |totals: &Totals| {
                let Totals { rows, key_bytes, value_bytes } = totals;
                format!("{rows} rows with {key_bytes} bytes of keys and {value_bytes} of values")
            };
            return Err(Flaw::new("contents", text(&totals), text(&self.totals)));
        }
        Ok(())
    }
}

const _: () = assert!(MAX_BODY_LEN <= WINDOW);
