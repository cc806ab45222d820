//! Where blocks of rows end in a table, so that reading one of them takes as few pages of the file
//! as can be.
//!
//! ```text
//!   page 0            page 1            page 2            page 3
//!   | header, block 0 | block 1      00 | block 2 | bloc··k 3 | block 4  00 | ...
//! ```
//!
//! Disks and the system's cache of files hand out pages. A block of a page's length that begins
//! anywhere lies in two of them, and whoever reads it has both fetched. So a block gets the rows
//! that fit into what is left of the page it begins in; where a page's rest is too small for the
//! next row, the block takes it along as zeros if that costs an eighth of it at most, and else the
//! next block, which crosses into the next page, is that one row.
//!
//! How long a block becomes once it is compressed is known afterwards only. It is guessed from the
//! blocks before it, and a page that would have room for one and a half is divided into two,
//! evenly.

use super::format::{BLOCK_HEAD_LEN, PAGE_LEN};

/// Of so many parts is what compression leaves of a block.
const WHOLE: usize = 1024;
/// Padding is at most this part of a block.
const MOST_PADDING: usize = 8;
/// Compressed blocks that are to end where a page does aim this part before it, for the guess may
/// be wrong.
const MARGIN: usize = 16;

/// How long the blocks of a table shall become.
pub(crate) struct Pages {
    block_len: usize,
    /// What compression leaves lately, of [`WHOLE`] parts.
    left: usize,
}

impl Pages {
    /// For blocks whose bodies have `block_len` bytes before compression, about.
    pub fn new(block_len: usize) -> Self {
        Self { block_len: block_len.max(1), left: WHOLE }
    }

    /// The most bytes before compression for the body of a block that begins at `at`, unless it is
    /// a single row.
    pub fn limit(&self, at: u64) -> usize {
        let span = PAGE_LEN * (self.block_len / PAGE_LEN).max(1);
        let room = (span - into_page(at)).saturating_sub(BLOCK_HEAD_LEN);
        let raw_room = room * WHOLE / self.left;
        match (raw_room + self.block_len / 2) / self.block_len {
            0 | 1 if self.left == WHOLE => raw_room,
            0 | 1 => raw_room - raw_room / MARGIN,
            blocks => raw_room / blocks,
        }
    }

    /// Takes note of a block at `at` with `len` bytes in the file, whose body had `raw_len` before
    /// compression. Gives the zeros that it takes along.
    pub fn close(&mut self, at: u64, raw_len: usize, len: usize) -> usize {
        let stored = len.saturating_sub(BLOCK_HEAD_LEN);
        let left = (stored * WHOLE / raw_len.max(1)).clamp(1, WHOLE);
        // Rounded up, so that it comes back to the whole.
        self.left = (3 * self.left + left).div_ceil(4);
        let rest = (PAGE_LEN - into_page(at + len as u64)) % PAGE_LEN;
        if rest * MOST_PADDING <= len + rest { rest } else { 0 }
    }
}

fn into_page(at: u64) -> usize {
    (at % PAGE_LEN as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::super::format::HEADER_LEN;
    use super::*;
    use plinth_env::simulated::Random;

    /// What came of a table.
    #[derive(Default)]
    struct Sums {
        rows: usize,
        /// For each row the pages that its block lies in.
        pages: usize,
        file: u64,
        padding: usize,
        blocks: usize,
    }

    impl Sums {
        fn pages_a_row(&self) -> f64 {
            self.pages as f64 / self.rows as f64
        }
    }

    /// Rows of lengths that `row` gives, in blocks of which compression leaves what `left` gives.
    fn lay(
        block_len: usize,
        count: usize,
        mut row: impl FnMut() -> usize,
        mut left: impl FnMut() -> f64,
    ) -> Sums {
        let mut pages = Pages::new(block_len);
        let mut sums = Sums { file: HEADER_LEN as u64, ..Sums::default() };
        let (mut body, mut rows) = (0, 0);
        for at in 0..=count {
            let len = row();
            if rows > 0 && (at == count || body + len > pages.limit(sums.file)) {
                let stored = BLOCK_HEAD_LEN + (body as f64 * left()) as usize;
                let padding = pages.close(sums.file, body, stored);
                assert!(padding * MOST_PADDING <= stored + padding);
                let end = sums.file + (stored + padding) as u64;
                assert!(padding == 0 || end.is_multiple_of(PAGE_LEN as u64));
                let touched = (end - 1) / PAGE_LEN as u64 - sums.file / PAGE_LEN as u64 + 1;
                sums.pages += rows * touched as usize;
                sums.rows += rows;
                sums.padding += padding;
                sums.blocks += 1;
                sums.file = end;
                (body, rows) = (0, 0);
            }
            body += len;
            rows += 1;
        }
        sums
    }

    #[test]
    fn blocks_of_small_rows_lie_in_one_page_each() {
        let mut random = Random::new(1);
        let sums = lay(4096, 100_000, || 30 + random.index(93), || 1.0);
        assert_eq!(sums.pages, sums.rows);
        assert!(sums.padding as u64 * 50 < sums.file, "{} of {}", sums.padding, sums.file);
    }

    #[test]
    fn rows_that_fill_a_page_badly_cross_into_the_next_alone() {
        for (len, most) in
            [(600, 1.2), (1045, 1.3), (1400, 1.4), (2070, 1.55), (3000, 1.8), (4000, 1.001)]
        {
            let sums = lay(4096, 10_000, || len, || 1.0);
            assert!(sums.pages_a_row() <= most, "{len}: {}", sums.pages_a_row());
            assert!(
                sums.padding as u64 * MOST_PADDING as u64 <= sums.file,
                "{len}: {}",
                sums.padding
            );
        }
        let sums = lay(4096, 1000, || 20_000, || 1.0);
        assert!(
            sums.pages_a_row() < 6.0 && sums.padding as u64 * 30 < sums.file,
            "{}",
            sums.pages_a_row()
        );
    }

    #[test]
    fn compressed_blocks_share_a_page_evenly() {
        for tenths in 1..=9 {
            let left = f64::from(tenths) / 10.0;
            let mut random = Random::new(2);
            let mut noise = Random::new(3);
            let vary = || left * (0.97 + noise.index(60) as f64 / 1000.0);
            let sums = lay(4096, 200_000, || 30 + random.index(93), vary);
            assert!(sums.pages_a_row() < 1.1, "{tenths}: {}", sums.pages_a_row());
            assert!(
                sums.padding as u64 * 12 < sums.file,
                "{tenths}: {} of {}",
                sums.padding,
                sums.file
            );
            let raw = sums.rows * 76 / sums.blocks;
            assert!((2600..6200).contains(&raw), "{tenths}: {raw} bytes a block");
        }
    }

    #[test]
    fn what_compression_leaves_is_learned_and_forgotten() {
        let mut pages = Pages::new(4096);
        let full = PAGE_LEN - BLOCK_HEAD_LEN;
        assert_eq!((pages.limit(0), pages.limit(HEADER_LEN as u64)), (full, full - HEADER_LEN));
        let close = |pages: &mut Pages, left, times| {
            (0..times).for_each(|_| _ = pages.close(0, 4000, BLOCK_HEAD_LEN + left))
        };
        close(&mut pages, 2000, 20);
        assert!((3900..4200).contains(&pages.limit(0)), "two of them fit: {}", pages.limit(0));
        close(&mut pages, 4000, 40);
        assert_eq!(pages.limit(0), full, "to the last byte again");
    }

    #[test]
    fn any_length_of_blocks_will_do() {
        for block_len in [0, 1, 64, 256, 4095, 4097, 10_000, 1 << 20] {
            let mut random = Random::new(4);
            let sums = lay(block_len, 20_000, || 1 + random.index(200), || 1.0);
            assert!(sums.padding as u64 * MOST_PADDING as u64 <= sums.file, "{block_len}");
            assert!(sums.rows >= 20_000 - 1);
        }
    }
}
