//! Escapes: how a byte is written that can't stand for itself.

/// The byte that the escape at the begin of `characters` stands for, and how many of them it takes.
pub fn escape(characters: &[char]) -> Option<(u8, usize)> {
    match characters.get(1)? {
        'x' => {
            let digit = |at: usize| characters.get(at).and_then(|digit| digit.to_digit(16));
            let byte = digit(2)? * 16 + digit(3)?;
            Some((u8::try_from(byte).ok()?, 4))
        }
        &character @ ('\\' | '"' | ' ' | ';') => Some((u8::try_from(character).ok()?, 2)),
        _ => None,
    }
}
