//! The disk against models.
//!
//! After any program and any crash, each byte and each name is something that a real disk could
//! have left, and everything that was synced is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::*;

const LEN: usize = 3000;

/// For each byte of a file of fixed length, what a crash may leave there: a set of values below 64.
struct Allowed {
    current: Vec<u8>,
    bytes: Vec<u64>,
}

impl Allowed {
    fn new() -> Self {
        Self { current: vec![0; LEN], bytes: vec![1; LEN] }
    }

    fn write(&mut self, offset: usize, len: usize, value: u8) {
        self.current[offset..offset + len].fill(value);
        for byte in &mut self.bytes[offset..offset + len] {
            *byte |= 1 << value;
        }
    }

    fn settle(&mut self) {
        for (byte, current) in self.bytes.iter_mut().zip(&self.current) {
            *byte = 1 << *current;
        }
    }
}

fn contents(disk: &mut Disk, file: u64) -> Vec<u8> {
    let mut bytes = vec![0; disk.len(file).unwrap() as usize];
    disk.read(file, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_crash_leaves_bytes_that_were_written_since_the_last_sync_or_stood_there_then() {
    let mut left_old_and_new = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut disk = Disk::new();
        let file = disk.open(Path::new("/f"), Open::Create).unwrap();
        disk.allocate(file, LEN as u64).unwrap();
        let upto = disk.sync_point(file).unwrap();
        disk.synced(file, upto).unwrap();
        let point = disk.dir_sync_point(Path::new("/")).unwrap();
        disk.dir_synced(point);
        let mut allowed = Allowed::new();
        for step in 1..60 {
            match random.index(10) {
                0 => {
                    let upto = disk.sync_point(file).unwrap();
                    disk.synced(file, upto).unwrap();
                    allowed.settle();
                    assert!(disk.is_synced());
                }
                1 => {
                    disk.crash(Unsynced::Seeded, &mut random);
                    let left = contents(&mut disk, file);
                    assert_eq!(left.len(), LEN);
                    for (at, byte) in left.iter().enumerate() {
                        assert!(
                            allowed.bytes[at] >> byte & 1 == 1,
                            "seed {seed}, step {step}: byte {at} is {byte}"
                        );
                    }
                    left_old_and_new += usize::from(left != allowed.current);
                    allowed.current = left;
                    allowed.settle();
                }
                _ => {
                    let offset = random.index(LEN);
                    let len = random.index(LEN - offset + 1);
                    disk.write(file, offset as u64, &vec![step; len]).unwrap();
                    allowed.write(offset, len, step);
                }
            }
            assert!(contents(&mut disk, file) == allowed.current, "seed {seed}, step {step}");
            disk.check_invariants();
        }
    }
    assert!(left_old_and_new > 100, "{left_old_and_new}");
}

/// For each name, the files that a crash may leave it with.
type Names = BTreeMap<PathBuf, BTreeSet<Option<u64>>>;

#[test]
fn a_crash_leaves_each_name_with_a_file_it_had_since_the_last_sync() {
    let names = ["/a", "/b", "/d/a", "/d/b"].map(PathBuf::from);
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut disk = Disk::new();
        disk.create_dir_all(Path::new("/d")).unwrap();
        let mut allowed: Names =
            names.iter().map(|name| (name.clone(), BTreeSet::from([None]))).collect();
        for step in 0..40 {
            let (name, other) = (&names[random.index(4)], &names[random.index(4)]);
            match random.index(12) {
                0..4 => drop(disk.open(name, Open::Create).map(|file| disk.close(file))),
                4 | 5 => drop(disk.remove(name)),
                6..9 => drop(disk.rename(name, other)),
                9 | 10 => {
                    let dir = name.parent().unwrap();
                    let point = disk.dir_sync_point(dir).unwrap();
                    disk.dir_synced(point);
                    for (name, files) in
                        allowed.iter_mut().filter(|(name, _)| name.parent() == Some(dir))
                    {
                        *files = BTreeSet::from([disk.file(name)]);
                    }
                }
                _ => {
                    disk.crash(Unsynced::Seeded, &mut random);
                    for (name, files) in &mut allowed {
                        let left = disk.file(name);
                        assert!(
                            files.contains(&left),
                            "seed {seed}, step {step}: {name:?} is {left:?}"
                        );
                        *files = BTreeSet::from([left]);
                    }
                    assert!(disk.is_synced());
                }
            }
            for (name, files) in &mut allowed {
                files.insert(disk.file(name));
            }
            disk.check_invariants();
        }
    }
}

#[test]
fn a_renamed_directory_takes_its_files_along() {
    let mut disk = Disk::new();
    disk.create_dir_all(Path::new("/old/deep")).unwrap();
    let file = disk.open(Path::new("/old/deep/f"), Open::Create).unwrap();
    disk.rename(Path::new("/old"), Path::new("/new")).unwrap();
    assert_eq!(disk.file(Path::new("/new/deep/f")), Some(file));
    let point = disk.dir_sync_point(Path::new("/new/deep")).unwrap();
    disk.dir_synced(point);
    disk.crash(Unsynced::Lost, &mut Random::new(1));
    assert_eq!(
        disk.file(Path::new("/old/deep/f")),
        Some(file),
        "the renaming was not synced, the file was"
    );
    disk.check_invariants();
}

#[test]
fn room_is_given_back_when_nothing_leads_to_a_file_any_more() {
    let mut disk = Disk::new();
    disk.capacity = Some(10 * PAGE as u64);
    let file = disk.open(Path::new("/f"), Open::Create).unwrap();
    disk.write(file, 0, &[1; 3 * PAGE]).unwrap();
    assert_eq!(disk.free(), 7 * PAGE as u64);
    disk.set_len(file, 1).unwrap();
    assert_eq!(disk.free(), 9 * PAGE as u64);
    disk.remove(Path::new("/f")).unwrap();
    assert_eq!(disk.free(), 9 * PAGE as u64);
    disk.close(file);
    assert_eq!(disk.free(), 10 * PAGE as u64);
    disk.check_invariants();
}
