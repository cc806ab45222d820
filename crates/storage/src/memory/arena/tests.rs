use super::*;
use plinth_env::simulated::Random;

fn fill(object: NonNull<u8>, size: usize, byte: u8) {
    // SAFETY: the object is ours and that large.
    unsafe { object.as_ptr().write_bytes(byte, size) };
}

fn is_filled(object: NonNull<u8>, size: usize, byte: u8) -> bool {
    // SAFETY: the object is ours, that large, and was filled.
    unsafe { std::slice::from_raw_parts(object.as_ptr(), size) }.iter().all(|b| *b == byte)
}

#[test]
fn objects_never_overlap_and_counts_add_up() {
    let mut random = Random::new(1);
    let mut arena = Arena::new();
    let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
    for step in 0..if cfg!(miri) { 150 } else { 20_000 } {
        if random.index(100) < 60 || live.is_empty() {
            let size = match random.index(50) {
                0 => 8_193 + random.index(if cfg!(miri) { 100 } else { 100_000 }),
                1..5 => 64 * (1 + random.index(30)),
                _ => 1 + random.index(300),
            };
            let kind =
                if random.index(4) == 0 && size <= MAX_CLASS { Kind::Inner } else { Kind::Record };
            let object = arena.alloc(kind, size);
            let align = if size % NODE_ALIGN == 0 && size <= MAX_CLASS { NODE_ALIGN } else { 8 };
            assert_eq!(object.addr().get() % align, 0);
            fill(object, size, step as u8);
            live.push((object, size, step as u8));
        } else {
            let (object, size, byte) = live.swap_remove(random.index(live.len()));
            assert!(is_filled(object, size, byte), "someone else wrote here");
            assert!(arena.size_of(object) >= size);
            // SAFETY: it was in the list of live objects, and is no more.
            unsafe { arena.free(object) };
        }
        let bytes: usize = live.iter().map(|(object, ..)| arena.size_of(*object)).sum();
        if step % 100 == 0 {
            let usage = [Kind::Record, Kind::Inner].map(|kind| arena.usage(kind).live);
            assert_eq!(usage[0] + usage[1], bytes);
        }
    }
    for (object, size, byte) in live.drain(..) {
        assert!(is_filled(object, size, byte));
        // SAFETY: as above.
        unsafe { arena.free(object) };
    }
    assert_eq!(arena.usage(Kind::Record).live + arena.usage(Kind::Inner).live, 0);
}

#[test]
fn freed_memory_is_used_again_and_empty_chunks_go_back() {
    let mut arena = Arena::new();
    let size = if cfg!(miri) { 2048 } else { 128 };
    let many = 4 * CHUNK / size;
    let objects: Vec<_> = (0..many).map(|_| arena.alloc(Kind::Record, size)).collect();
    let peak = arena.reserved();
    for object in &objects[..many / 2] {
        // SAFETY: each is freed once.
        unsafe { arena.free(*object) };
    }
    let again: Vec<_> =
        (0..many / 2 - many / 20).map(|_| arena.alloc(Kind::Record, size)).collect();
    assert!(arena.reserved() <= peak + CHUNK);
    for object in again.iter().chain(&objects[many / 2..]) {
        // SAFETY: each is freed once.
        unsafe { arena.free(*object) };
    }
    assert!(arena.reserved() <= 2 * CHUNK + peak / 16, "{} of {peak} left", arena.reserved());
}

#[test]
fn what_is_evacuated_takes_nothing_new_and_vanishes_when_empty() {
    for size in if cfg!(miri) { [2048, 4096] } else { [128, 2048] } {
        evacuate_all(size);
    }
}

fn evacuate_all(size: usize) {
    let mut arena = Arena::new();
    let per_chunk = CHUNK / size;
    let objects: Vec<_> = (0..per_chunk * 4).map(|_| arena.alloc(Kind::Record, size)).collect();
    let (sparse, rest): (Vec<_>, Vec<_>) =
        objects.iter().enumerate().partition(|(at, _)| at % 8 == 0);
    for (_, object) in &rest {
        // SAFETY: each is freed once.
        unsafe { arena.free(**object) };
    }
    let (before, live) = arena.movable();
    assert_eq!(live, sparse.len() * size);
    let mut rounds = 0;
    let mut named = Vec::new();
    while arena.begin_evacuation(&mut named) {
        rounds += 1;
        assert!(rounds <= 4 * (SPANS_PER_CHUNK + 1), "it does not end");
        for (kind, object) in named.drain(..) {
            assert!(kind == Kind::Record && arena.is_evacuating(object));
            let copy = arena.alloc(Kind::Record, size);
            assert!(
                !arena.is_evacuating(copy)
                    && copy.addr().get() / SPAN != object.addr().get() / SPAN
            );
            // SAFETY: each is freed once.
            unsafe { arena.free(object) };
        }
    }
    arena.end_evacuations();
    let (after, still_live) = arena.movable();
    assert_eq!(still_live, live);
    assert!(after <= before / 2 || cfg!(miri), "{after} of {before}");
    let spans = arena.usage(Kind::Record).spans;
    assert!(spans <= live + live / 16 + 2 * SPAN, "{spans} for {live}");
}
