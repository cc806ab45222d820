//! Telling the processor what will be read soon. Whoever goes through many things that lie anywhere
//! in memory asks for one some places ahead, and finds it there.

/// Asks for the cache line at `address`. Any address is fine: a prefetch never faults.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86_64, and a prefetch reads nothing and faults on no address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: `prfm` is a hint: it reads nothing and faults on no address.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for the `lines` cache lines from `address` on.
#[inline(always)]
pub fn prefetch_lines(address: *const u8, lines: usize) {
    for line in 0..lines {
        prefetch(address.wrapping_add(line * 64));
    }
}
