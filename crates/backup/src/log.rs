//! Files of the log: what was committed between two versions, and at which second it was which
//! version.
//!
//! ```text
//!   mutations:  version step, count, (kind, length, length, bytes, bytes) * count | ...     a step of 0 goes on with the version before
//!   times    :  milliseconds since 1970, version | ...                                      both ascend
//! ```
//! A file speaks of the versions from its first up to, and without, its last: what it has nothing
//! for was not written then.

use crate::container::Backup;
use crate::format::{Block, BlockKind, FileBuilder, FileReader, Kind, damaged};
use crate::names;
use plinth_format::{push_number, take, take_number};
use plinth_types::{MutationRef, MutationType, Result, Version};

/// A block ends behind about so many bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// A moment: everything acknowledged up to this time is at most of this version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub time: u64,
    /// The version.
    pub version: Version,
}

/// How many bytes files of the log take, and of what.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogSizes {
    /// Bytes of the keys and values of their mutations.
    pub keys_and_values: u64,
    /// Their bytes, all that stands around those included, before compression.
    pub raw: u64,
    /// Their bytes as they are.
    pub stored: u64,
}

impl LogSizes {
    /// Bytes before compression for each byte of keys and values.
    pub fn before_compression(&self) -> f64 {
        self.raw as f64 / (self.keys_and_values as f64).max(1.0)
    }
}

impl std::ops::AddAssign for LogSizes {
    fn add_assign(&mut self, other: Self) {
        self.keys_and_values += other.keys_and_values;
        self.raw += other.raw;
        self.stored += other.stored;
    }
}

/// A file of the log that is being made.
pub struct LogBuilder {
    from: Version,
    begins: bool,
    /// Blocks that are full, and the mutations in each.
    blocks: Vec<(u32, Vec<u8>)>,
    body: Vec<u8>,
    count: u32,
    /// The version that the next step is counted from: blocks are read one after the other.
    last: Version,
    times: Vec<Moment>,
    scratch: Vec<u8>,
}

impl LogBuilder {
    /// A file that begins with the version `from`.
    pub fn new(from: Version) -> Self {
        let (blocks, body, times, scratch) = Default::default();
        Self { from, begins: false, blocks, body, count: 0, last: from, times, scratch }
    }

    /// Says that it is the first of its stream: what lies before it, and in no other file, is not
    /// missing.
    #[must_use]
    pub fn that_begins(self, begins: bool) -> Self {
        Self { begins, ..self }
    }

    /// Adds what was committed at a version, in order.
    pub fn push<'m>(&mut self, version: Version, mutations: impl Iterator<Item = MutationRef<'m>>) {
        assert!(version >= self.last, "version {version} behind {}", self.last);
        let mut mutations = mutations.peekable();
        while mutations.peek().is_some() {
            self.scratch.clear();
            let mut count = 0;
            while let Some(mutation) = mutations.next_if(|_| self.scratch.len() < BLOCK_BYTES) {
                self.scratch.push(mutation.kind as u8);
                push_number(&mut self.scratch, mutation.param1.len() as u64);
                push_number(&mut self.scratch, mutation.param2.len() as u64);
                self.scratch.extend_from_slice(mutation.param1);
                self.scratch.extend_from_slice(mutation.param2);
                count += 1;
            }
            push_number(&mut self.body, (version - self.last) as u64);
            push_number(&mut self.body, count.into());
            self.body.extend_from_slice(&self.scratch);
            self.last = version;
            self.count += count;
            if self.body.len() >= BLOCK_BYTES {
                self.blocks.push((std::mem::take(&mut self.count), std::mem::take(&mut self.body)));
            }
        }
    }

    /// Adds a moment. They ascend: where a clock is behind that of whoever noted the one before, it
    /// is as late as that.
    pub fn moment(&mut self, moment: Moment) {
        let last = self.times.last().copied().unwrap_or(moment);
        if moment.version >= last.version {
            self.times.push(Moment { time: moment.time.max(last.time), ..moment });
        }
    }

    /// The first version that it speaks of.
    pub fn from(&self) -> Version {
        self.from
    }

    /// Whether it has no mutation.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Bytes of its mutations, before compression.
    pub fn bytes(&self) -> usize {
        self.body.len() + self.blocks.iter().map(|(_, body)| body.len()).sum::<usize>()
    }

    /// The file, which speaks of the versions up to, and without, `to`, and its name.
    pub(crate) fn finish(mut self, backup: &Backup, to: Version) -> (String, Vec<u8>) {
        assert!(self.from < to && self.last < to, "a log from {} up to {to}", self.from);
        let name = names::log(self.from, to, backup.env.random_u64(), self.begins);
        let mut file: FileBuilder = backup.builder(Kind::Log, name.clone());
        if !self.body.is_empty() {
            self.blocks.push((self.count, self.body));
        }
        for (count, body) in &self.blocks {
            file.block(BlockKind::Mutations, *count, body);
            file.header.count += u64::from(*count);
        }
        let mut times = Vec::with_capacity(16 * self.times.len());
        for moment in &self.times {
            times.extend_from_slice(&moment.time.to_le_bytes());
            times.extend_from_slice(&moment.version.to_le_bytes());
        }
        if !times.is_empty() {
            file.block(BlockKind::Times, self.times.len() as u32, &times);
        }
        (file.header.from, file.header.to) = (self.from, to);
        file.header.time_from = self.times.first().map_or(0, |moment| moment.time);
        file.header.time_to = self.times.last().map_or(0, |moment| moment.time);
        (name, file.finish())
    }
}

impl Backup {
    /// Puts a file of the log, which speaks of the versions up to, and without, `to`. Gives its
    /// length.
    ///
    /// # Errors
    /// `client_invalid_operation` if the backup is encrypted and its key wasn't given; those of the
    /// target.
    pub async fn put_log(&self, log: LogBuilder, to: Version) -> Result<u64> {
        self.needs_key()?;
        let (name, contents) = log.finish(self, to);
        let len = contents.len() as u64;
        self.put(&name, contents).await?;
        Ok(len)
    }

    /// Says that a log has ended, and has everything up to and with this version: if its last files
    /// are gone one day, that is seen.
    ///
    /// # Errors
    /// As those of [`Backup::put_log`].
    pub(crate) async fn put_end(&self, version: Version) -> Result<()> {
        self.needs_key()?;
        let name = names::end(version);
        let mut file = self.builder(Kind::End, name.clone());
        let now = self.env.wall_clock().as_millis() as u64;
        (file.header.from, file.header.to) = (version, version);
        (file.header.time_from, file.header.time_to) = (now, now);
        self.put(&name, file.finish()).await
    }

    /// Reads the whole log, and says how many bytes it takes.
    ///
    /// # Errors
    /// `file_corrupt`, `file_not_found` and those of the target.
    pub async fn log_sizes(&self) -> Result<LogSizes> {
        let mut sizes = LogSizes::default();
        for file in self.contents().await?.logs {
            let bytes = self.target.get(&file.name).await?;
            let mut reader = self.reader(&bytes, &file.name, Kind::Log)?;
            read(&mut reader, |_, mutation| {
                sizes.keys_and_values += (mutation.param1.len() + mutation.param2.len()) as u64;
                Ok(())
            })?;
            sizes.raw += reader.len_before_compression();
            sizes.stored += bytes.len() as u64;
        }
        Ok(sizes)
    }
}

/// Calls `each` with every mutation of a file of the log, by version and in order, and gives the
/// moments.
///
/// # Errors
/// `file_corrupt`, naming file and offset; those of `each`.
pub(crate) fn read(
    file: &mut FileReader<'_>,
    mut each: impl FnMut(Version, MutationRef<'_>) -> Result<()>,
) -> Result<Vec<Moment>> {
    let (name, mut version) = (file.header.name.clone(), file.header.from);
    let mut moments = Vec::new();
    loop {
        let at = file.offset();
        let Some(block) = file.next()? else { return Ok(moments) };
        let wrong = |expected: &str| damaged(&name, at, "log", expected, "something else");
        match block.kind {
            BlockKind::Mutations => {
                let count = read_block(&block, &mut version, file.header.to, &mut each)?;
                if count != Some(block.count) {
                    return Err(wrong("as many mutations as its head says, within its versions"));
                }
            }
            BlockKind::Times => read_times(&block)
                .map(|times| moments.extend(times))
                .ok_or_else(|| wrong("pairs of time and version"))?,
            _ => return Err(wrong("mutations and times")),
        }
    }
}

/// The moments of a file of the log, for which no key is needed.
///
/// # Errors
/// `file_corrupt`, naming file and offset.
pub(crate) fn read_moments(file: &mut FileReader<'_>) -> Result<Vec<Moment>> {
    let name = file.header.name.clone();
    let mut moments = Vec::new();
    loop {
        let at = file.offset();
        let Some(block) = file.next()? else { return Ok(moments) };
        if block.kind == BlockKind::Times {
            let wrong = || damaged(&name, at, "log", "pairs of time and version", "something else");
            moments.extend(read_times(&block).ok_or_else(wrong)?);
        }
    }
}

/// `None` if the bytes spell something else.
fn read_times(block: &Block<'_>) -> Option<Vec<Moment>> {
    let moment = |pair: &[u8]| {
        let (time, version) = pair.split_first_chunk::<8>()?;
        let version = Version::from_le_bytes(version.try_into().ok()?);
        Some(Moment { time: u64::from_le_bytes(*time), version })
    };
    block.body.chunks(16).map(moment).collect()
}

/// Gives the number of mutations; `None` if the bytes spell something else.
fn read_block(
    block: &Block<'_>,
    version: &mut Version,
    to: Version,
    each: &mut impl FnMut(Version, MutationRef<'_>) -> Result<()>,
) -> Result<Option<u32>> {
    let (mut rest, mut total) = (&*block.body, 0);
    while !rest.is_empty() {
        let (Some(step), Some(count)) = (take_number(&mut rest), take_number(&mut rest)) else {
            return Ok(None);
        };
        let stepped = Version::try_from(step).ok().and_then(|step| version.checked_add(step));
        match stepped.filter(|stepped| *stepped < to) {
            Some(stepped) => *version = stepped,
            None => return Ok(None),
        }
        for _ in 0..count {
            let Some(mutation) = take_mutation(&mut rest) else { return Ok(None) };
            each(*version, mutation)?;
            total += 1;
        }
    }
    Ok(Some(total))
}

fn take_mutation<'b>(rest: &mut &'b [u8]) -> Option<MutationRef<'b>> {
    let kind = MutationType::from_code(i32::from(*take(rest, 1)?.first()?))?;
    let len1 = usize::try_from(take_number(rest)?).ok()?;
    let len2 = usize::try_from(take_number(rest)?).ok()?;
    Some(MutationRef { kind, param1: take(rest, len1)?, param2: take(rest, len2)? })
}
