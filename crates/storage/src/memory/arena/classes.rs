//! Size classes: steps of 8 up to 256 bytes, then eight steps for each doubling (at most an eighth
//! is lost).

const SMALLEST: usize = 16;
const FINE_UP_TO: usize = 256;
const FINE: usize = FINE_UP_TO / 8 - SMALLEST / 8 + 1;
const DOUBLINGS: usize = 5;

/// How many classes there are.
pub(super) const CLASSES: usize = FINE + DOUBLINGS * 8;
/// The largest size that has a class.
pub(crate) const MAX_CLASS: usize = FINE_UP_TO << DOUBLINGS;

/// The class of objects of `size` bytes, which is at most [`MAX_CLASS`].
#[inline(always)]
pub(super) const fn class_of(size: usize) -> usize {
    if size <= FINE_UP_TO {
        let size = if size < SMALLEST { SMALLEST } else { size };
        return size.div_ceil(8) - SMALLEST / 8;
    }
    let log = (size - 1).ilog2() as usize;
    let step = (size - 1) >> (log - 3);
    FINE + (log - FINE_UP_TO.ilog2() as usize) * 8 + (step - 8)
}

/// The bytes that an object of this class occupies.
pub(super) const fn class_size(class: usize) -> usize {
    if class < FINE {
        return class * 8 + SMALLEST;
    }
    let (doubling, step) = ((class - FINE) / 8, (class - FINE) % 8);
    (FINE_UP_TO / 8 * (8 + step + 1)) << doubling
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        for size in 1..=MAX_CLASS {
            let class = class_of(size);
            assert!(class < CLASSES && class_size(class) >= size, "{size}");
            assert!(class == 0 || class_size(class - 1) < size, "{size}");
            assert!(!size.is_multiple_of(64) || class_size(class).is_multiple_of(64), "{size}");
        }
        assert_eq!(class_of(MAX_CLASS), CLASSES - 1);
    }
}
