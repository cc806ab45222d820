//! The lease on a backup: one process writes it at a time, wherever it runs.
//!
//! ```text
//!   lease/7.lease     holder, until when      renewed by its holder, who writes it again
//!   lease/8.lease     the next holder's       made once the one before hasn't changed for longer than it lasts
//! ```
//! The highest number counts. Whether a lease lapsed is not told by comparing clocks: whoever wants
//! the next one watches the last one by a clock of its own, for as long as it lasts. A holder that
//! finds a higher number than its own has lost the backup, and so has one that finds something else
//! in its file than it put there: numbers begin again when a lease was given back, and not every
//! store keeps two from putting the same one.

use crate::container::Backup;
use crate::format::{BlockKind, FileReader, Kind};
use crate::names;
use plinth_types::{Error, Result};
use std::time::Duration;

/// How long a lease lasts that isn't renewed.
const LASTS: Duration = Duration::from_secs(15);
/// How often it is renewed, and looked at by those who wait.
const BEAT: Duration = Duration::from_secs(3);

/// The right to write a backup.
pub struct Lease {
    backup: Backup,
    number: u64,
    holder: String,
    renewed: Duration,
    /// What its file has: what was put last, and before it what a put that failed may have left.
    put: Vec<Vec<u8>>,
}

impl Lease {
    /// Takes the lease for `holder`, a name for people. One that another holds is waited for if it
    /// isn't renewed any more.
    ///
    /// # Errors
    /// `backup_duplicate`, naming the holder, if it is renewed; `file_not_found` if the backup was
    /// deleted meanwhile; those of the target.
    pub async fn take(backup: &Backup, holder: &str) -> Result<Self> {
        let env = &backup.env;
        let mut seen: Option<(u64, Vec<u8>)> = None;
        let mut since = env.now();
        loop {
            let last = newest(backup).await?;
            let contents = match last {
                Some(number) => match backup.target.get(&names::lease(number)).await {
                    Ok(contents) => Some((number, contents.to_vec())),
                    // Given back since.
                    Err(error) if error == Error::file_not_found() => None,
                    Err(error) => return Err(error),
                },
                None => None,
            };
            if let Some((number, contents)) = contents {
                if seen.as_ref().is_some_and(|seen| *seen != (number, contents.clone())) {
                    return Err(Error::backup_duplicate().with_detail(format!(
                        "{} is written by {}; end that backup first, or take a place of its own",
                        backup.url(),
                        held_by(backup, number, &contents)
                    )));
                }
                seen = Some((number, contents));
                if env.now().saturating_sub(since) < LASTS {
                    env.sleep(BEAT).await;
                    continue;
                }
            }
            let number = last.map_or(1, |last| last + 1);
            let holder = holder.to_owned();
            let mut lease = Self {
                backup: backup.clone(),
                number,
                holder,
                renewed: env.now(),
                put: Vec::new(),
            };
            let contents = lease.contents();
            lease.put.push(contents.clone());
            let is_created = backup.target.create(&names::lease(number), contents.into()).await?;
            if is_created && lease.is_own().await? {
                lease.renewed = env.now();
                lease.remove_before().await?;
                // Who had it before may have deleted the backup.
                if let Err(error) = backup.check_is_there().await {
                    let _ = lease.give_back().await;
                    return Err(error);
                }
                return Ok(lease);
            }
            // Somebody was faster, or a listing doesn't show what is there.
            env.sleep(BEAT).await;
            (seen, since) = (None, env.now());
        }
    }

    fn contents(&self) -> Vec<u8> {
        let mut file = self.backup.builder(Kind::Lease, names::lease(self.number));
        let now = self.backup.env.wall_clock().as_millis() as u64;
        (file.header.time_from, file.header.time_to) = (now, now);
        let fields = serde_json::json!({ "holder": self.holder });
        file.block(BlockKind::Clear, 1, fields.to_string().as_bytes());
        file.finish()
    }

    async fn remove_before(&self) -> Result<()> {
        for object in self.backup.target.list(names::LEASES).await? {
            if names::parse_lease(&object.name).is_some_and(|number| number < self.number) {
                self.backup.target.delete(&object.name).await?;
            }
        }
        Ok(())
    }

    /// Renews it if that is due. To be called before each file that counts.
    ///
    /// # Errors
    /// `backup_duplicate` if another one has it now; `file_not_found` if the backup is no longer
    /// there; those of the target.
    pub async fn renew(&mut self) -> Result<()> {
        let now = self.backup.env.now();
        if now.saturating_sub(self.renewed) < BEAT {
            return Ok(());
        }
        self.backup.check_is_there().await?;
        if newest(&self.backup).await? != Some(self.number) || !self.is_own().await? {
            let detail = format!("the lease on {} has gone to somebody else", self.backup.url());
            return Err(Error::backup_duplicate().with_detail(detail));
        }
        let contents = self.contents();
        self.put.push(contents.clone());
        self.backup.put(&names::lease(self.number), contents).await?;
        self.put.drain(..self.put.len() - 1);
        self.renewed = now;
        Ok(())
    }

    /// Whether its file is as it was put.
    async fn is_own(&self) -> Result<bool> {
        match self.backup.target.get(&names::lease(self.number)).await {
            Ok(found) => Ok(self.put.iter().any(|put| *put == found)),
            Err(error) if error == Error::file_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives it back, so that the next one needn't wait, unless another one has it.
    ///
    /// # Errors
    /// Those of the target.
    pub async fn give_back(self) -> Result<()> {
        match self.is_own().await? {
            true => self.backup.target.delete(&names::lease(self.number)).await,
            false => Ok(()),
        }
    }
}

async fn newest(backup: &Backup) -> Result<Option<u64>> {
    let objects = backup.target.list(names::LEASES).await?;
    Ok(objects.iter().filter_map(|object| names::parse_lease(&object.name)).max())
}

/// Who holds a lease, for people.
fn held_by(backup: &Backup, number: u64, contents: &[u8]) -> String {
    let name = names::lease(number);
    let holder = || {
        let mut file = FileReader::new(contents, &name, Kind::Lease, &backup.id, None).ok()?;
        let block = file.next().ok()??;
        let fields: serde_json::Value = serde_json::from_slice(&block.body).ok()?;
        Some(fields["holder"].as_str()?.to_owned())
    };
    holder().unwrap_or_else(|| "somebody".to_owned())
}
