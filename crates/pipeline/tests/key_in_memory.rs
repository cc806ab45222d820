//! A key that was given is in the memory of the process for as long as it is needed, and not
//! longer: whoever reads that memory later, or a core dump, finds it no more.
//!
//! The test reads its own memory. What it looks for it keeps masked, so that it doesn't find
//! itself.

#![cfg(target_os = "linux")]

use plinth_env::{Env, Open, block_on};
use plinth_format::crypt::{Key, Keys};
use plinth_pipeline::read_key_file;
use std::hint::black_box;

const MASK: u8 = 0xa5;

/// How often the second half of a key stands in this process's memory; the first may be overwritten
/// by whoever keeps account of memory that was given back.
fn copies(masked: &[u8; Key::LEN]) -> usize {
    let wanted = &masked[Key::LEN / 2..];
    let (env, mut found) = (Env::real(), 0);
    let maps = read_all(&env, "/proc/self/maps");
    let memory = block_on(env.files().open("/proc/self/mem", Open::Read)).unwrap();
    let mut room = vec![0; 1 << 20];
    let own = room.as_ptr() as u64..room.as_ptr() as u64 + room.len() as u64;
    for line in String::from_utf8(maps).unwrap().lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        let (begin, end) = range.split_once('-').unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (mut at, end) = (number(begin), number(end));
        while at < end {
            let wants = room.len().min((end - at) as usize);
            let Ok(read) = block_on(memory.read_at(at, &mut room[..wants])) else { break };
            if read == 0 {
                break;
            }
            let here = room[..read].windows(wanted.len()).enumerate().filter(|(offset, bytes)| {
                // What it is read into is a place of memory, too.
                let place = at + *offset as u64;
                let is_key = bytes.iter().zip(wanted).all(|(byte, masked)| byte ^ MASK == *masked);
                is_key && !own.contains(&place)
            });
            found += here.count();
            at += read as u64;
        }
    }
    found
}

fn read_all(env: &Env, path: &str) -> Vec<u8> {
    let file = block_on(env.files().open(path, Open::Read)).unwrap();
    let (mut all, mut room) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match block_on(file.read_at(all.len() as u64, &mut room)).unwrap() {
            0 => return all,
            read => all.extend_from_slice(&room[..read]),
        }
    }
}

/// Writes over what calls that have returned have left on the stack.
#[inline(never)]
fn scrub() {
    let mut room = [0_u8; 256 << 10];
    black_box(&mut room).fill(1);
}

#[test]
fn a_key_is_overwritten_when_it_is_let_go() {
    let env = Env::real();
    let place = block_on(env.files().temporary_dir("plinth-key-in-memory")).unwrap();
    for digits in [false, true] {
        let path = place.path().join(format!("key-{digits}"));
        let mut masked = [0; Key::LEN];
        env.fill_random(&mut masked);
        {
            let file = block_on(env.files().open(&path, Open::Create)).unwrap();
            for (at, byte) in masked.iter().enumerate() {
                let byte = byte ^ MASK;
                let (at, text) = (at as u64, format!("{byte:02x}"));
                match digits {
                    true => block_on(file.write_all_at(2 * at, text.as_bytes())).unwrap(),
                    false => block_on(file.write_all_at(at, &[byte])).unwrap(),
                }
            }
        }
        let key = block_on(read_key_file(&env, &path)).unwrap();
        scrub();
        assert_eq!(copies(&masked), 1, "that of the key, and none of what was read of the file");
        let keys = Keys::new(&[key.clone(), key]);
        scrub();
        assert_eq!(copies(&masked), 0, "the keys made of it are others");
        drop(keys);
    }
}
