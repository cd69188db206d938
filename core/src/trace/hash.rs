//! FNV-1a: a checksum against accidents and careless edits, not against an adversary.

/// FNV-1a, 64 bit. A cryptographic hash was the alternative; whoever can edit a trace can hash it anew, so it would only
/// be slower.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fnv(u64);

impl Fnv {
    pub(super) const fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    pub(super) const fn with(mut self, bytes: &[u8]) -> Fnv {
        let mut at = 0;
        while at < bytes.len() {
            self.0 = (self.0 ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        self
    }

    pub(super) const fn value(self) -> u64 {
        self.0
    }

    /// Folded to 32 bits: enough to notice that one line was changed.
    pub(super) const fn folded(self) -> u32 {
        (self.0 >> 32) as u32 ^ self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        assert_eq!(Fnv::new().value(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv::new().with(b"foobar").value(), 0x8594_4171_f739_67e8);
        assert_eq!(Fnv::new().with(b"foo").with(b"bar"), Fnv::new().with(b"foobar"));
    }
}
