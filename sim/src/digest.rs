//! The hash of a run: one word that any difference changes.

/// A running 64-bit hash. Not for secrets: it tells two runs apart, nothing more.
#[derive(Clone, Debug)]
pub struct Digest(u64);

const K: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Takes a number in.
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(K).rotate_left(29) ^ (self.0 >> 32);
    }

    /// Takes bytes in, their length too.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let mut last = [0; 8];
        let rest = chunks.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    /// The hash so far.
    pub fn value(&self) -> u64 {
        crate::rng::mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_length_and_content_all_count() {
        let of = |parts: &[&[u8]]| {
            let mut digest = Digest::default();
            parts.iter().for_each(|part| digest.bytes(part));
            digest.value()
        };
        let all = [of(&[b"ab", b"c"]), of(&[b"a", b"bc"]), of(&[b"abc"]), of(&[b"abc\0"]), of(&[b"c", b"ab"]), of(&[])];
        assert!((0..all.len()).all(|i| (0..i).all(|j| all[i] != all[j])));
        assert_eq!(of(&[b"0123456789"]), of(&[b"0123456789"]));
    }
}
