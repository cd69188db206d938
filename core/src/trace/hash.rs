//! A checksum against accidents and careless edits, not against an adversary.

/// Eight bytes a step: rotate, exclusive or, multiply, as rustc's own hasher does, and a last mixing so that every bit
/// counts when it is folded. A cryptographic hash was the alternative; whoever can edit a trace can also hash it anew, so
/// it would only be slower. FNV was another: byte by byte it took a tenth of a replay's time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Hash(u64);

impl Hash {
    pub(super) const fn new() -> Hash {
        Hash(0)
    }

    /// With one more text. Two texts are not the same as their concatenation.
    pub(super) fn with(self, bytes: &[u8]) -> Hash {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        for (slot, byte) in last.iter_mut().zip(rest) {
            *slot = *byte;
        }
        let hash = words.iter().fold(self.step(bytes.len() as u64), |hash, word| hash.step(u64::from_le_bytes(*word)));
        hash.step(u64::from_le_bytes(last))
    }

    const fn step(self, word: u64) -> Hash {
        Hash((self.0.rotate_left(26) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5))
    }

    pub(super) const fn value(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
        mixed ^ (mixed >> 32)
    }

    /// Folded to 32 bits: enough to notice that one line was changed.
    pub(super) const fn folded(self) -> u32 {
        self.value() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traces are kept: what is hashed today must be found the same by a later release.
    #[test]
    fn the_hash_of_a_text_never_changes() {
        let hash = |text: &str| alloc::format!("{:016x}", Hash::new().with(text.as_bytes()).value());
        insta::assert_snapshot!([hash(""), hash("a"), hash("surefoot"), hash("surefoots")].join(" "));
        assert_ne!(Hash::new().with(b"ab").with(b"c"), Hash::new().with(b"abc"));
        assert_ne!(Hash::new().with(b"a\0"), Hash::new().with(b"a"));
    }
}
