//! A directory as a target.
//!
//! An object is a file. It is written beside its name and renamed, so it is there whole; `create`
//! makes it under its own name, which is what excludes others.

use super::{Doing, Object, Target};
use bytes::Bytes;
use plinth_env::{Env, Open};
use plinth_types::Result;
use std::path::{Path, PathBuf};

/// A directory of a file system, made when the first object is put into it.
pub struct Directory {
    env: Env,
    root: PathBuf,
}

impl Directory {
    /// The target in this directory.
    pub fn new(env: &Env, root: impl AsRef<Path>) -> Self {
        // Backups are their owner's alone, as databases are.
        Self { env: env.keeping_private(), root: root.as_ref().to_path_buf() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    async fn make_room_for(&self, path: &Path) -> Result<()> {
        let parent = path.parent().unwrap_or(&self.root);
        Ok(self.env.files().create_dir_all(parent).await?)
    }

    /// Lists the files below `dir`, which has the name `prefix`.
    async fn list_below(&self, prefix: &str) -> Result<Vec<Object>> {
        let (files, mut found) = (self.env.files(), Vec::new());
        let mut waiting = vec![prefix.to_owned()];
        while let Some(prefix) = waiting.pop() {
            let dir = self.path(&prefix);
            if !files.exists(&dir).await? {
                continue;
            }
            for entry in files.list(&dir).await? {
                let name = format!("{prefix}{entry}");
                if !entry.contains('.') {
                    waiting.push(name + "/");
                } else if !entry.ends_with(".new") {
                    match files.open(self.path(&name), Open::Read).await {
                        Ok(file) => found.push(Object { name, len: file.len().await? }),
                        // Deleted since.
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        found.sort();
        Ok(found)
    }

    async fn read(&self, name: &str, most: u64) -> Result<Bytes> {
        let file = self.env.files().open(self.path(name), Open::Read).await?;
        let len = file.len().await?.min(most);
        let mut contents = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(0, &mut contents).await?;
        Ok(contents.into())
    }
}

impl Target for Directory {
    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, ()> {
        Box::pin(async move {
            let path = self.path(name);
            self.make_room_for(&path).await?;
            Ok(self.env.files().replace(&path, &contents).await?)
        })
    }

    fn create<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, bool> {
        Box::pin(async move {
            let path = self.path(name);
            self.make_room_for(&path).await?;
            let file = match self.env.files().open(&path, Open::CreateNew).await {
                Ok(file) => file,
                Err(error) => match self.env.files().exists(&path).await {
                    Ok(true) => return Ok(false),
                    _ => return Err(error.into()),
                },
            };
            file.write_all_at(0, &contents).await?;
            file.sync_all().await?;
            self.env.files().sync_dir(path.parent().unwrap_or(&self.root)).await?;
            Ok(true)
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Bytes> {
        Box::pin(self.read(name, u64::MAX))
    }

    fn get_begin<'a>(&'a self, name: &'a str, len: usize) -> Doing<'a, Bytes> {
        Box::pin(self.read(name, len as u64))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<Object>> {
        Box::pin(self.list_below(prefix))
    }

    fn delete<'a>(&'a self, name: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            let path = self.path(name);
            match self.env.files().remove(&path).await {
                Ok(()) => self.env.files().sync_dir(path.parent().unwrap_or(&self.root)).await?,
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
            Ok(())
        })
    }

    /// The contents are synced before they get their name; the name is when its directory is.
    fn settle<'a>(&'a self, prefix: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            let dir = self.path(prefix);
            if self.env.files().exists(&dir).await? {
                self.env.files().sync_dir(&dir).await?;
            }
            Ok(())
        })
    }

    fn tidy<'a>(&'a self, prefix: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            let (files, mut dirs, mut at) = (self.env.files(), vec![prefix.to_owned()], 0);
            while let Some(prefix) = dirs.get(at).cloned() {
                if files.exists(self.path(&prefix)).await? {
                    for entry in files.list(self.path(&prefix)).await? {
                        if !entry.contains('.') {
                            dirs.push(format!("{prefix}{entry}/"));
                        }
                    }
                }
                at += 1;
            }
            // Those below come behind those that they are in.
            for dir in dirs.iter().rev() {
                files.remove_dir_if_empty(self.path(dir)).await?;
            }
            Ok(())
        })
    }

    fn url(&self) -> String {
        // A URL names a whole path; one that begins where the process is stands for itself.
        let scheme = if self.root.is_absolute() { "file://" } else { "" };
        format!("{scheme}{}", self.root.display())
    }
}
