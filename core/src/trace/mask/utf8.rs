//! Characters beyond ASCII: each becomes a block of the same length, and what is no UTF-8 stays none.

/// The characters that stand for all others of their length: `×`, `█`, and a square beyond the basic plane.
const STAND_INS: [[u8; 4]; 3] = [[0xc3, 0x97, 0, 0], [0xe2, 0x96, 0x88, 0], [0xf0, 0x9f, 0x9f, 0xa6]];

/// The middle of a character.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Utf8 {
    /// Bytes of the character still to come.
    need: usize,
    /// Its length.
    length: usize,
    /// What the next byte may be: the second byte of some characters is bounded.
    low: u8,
    high: u8,
}

impl Utf8 {
    /// An ASCII byte came: whatever was begun is torn.
    pub(super) fn reset(&mut self) {
        self.need = 0;
    }

    /// The stand-in for a byte beyond ASCII.
    pub(super) fn step(&mut self, byte: u8) -> u8 {
        let continues = matches!(byte, 0x80..=0xbf);
        if self.need > 0 {
            if (self.low..=self.high).contains(&byte) {
                let place = self.length - self.need;
                self.need -= 1;
                (self.low, self.high) = (0x80, 0xbf);
                return stand_in(self.length, place);
            }
            self.need = 0;
            if continues {
                // Overlong, a surrogate, or beyond Unicode: a continuation in its place could make it valid.
                return 0xff;
            }
        }
        let (length, low, high) = match byte {
            0xc2..=0xdf => (2, 0x80, 0xbf),
            0xe0 => (3, 0xa0, 0xbf),
            0xed => (3, 0x80, 0x9f),
            0xe1..=0xef => (3, 0x80, 0xbf),
            0xf0 => (4, 0x90, 0xbf),
            0xf1..=0xf3 => (4, 0x80, 0xbf),
            0xf4 => (4, 0x80, 0x8f),
            _ => return if continues { 0x80 } else { 0xff },
        };
        *self = Utf8 { need: length - 1, length, low, high };
        stand_in(length, 0)
    }
}

fn stand_in(length: usize, place: usize) -> u8 {
    let bytes = STAND_INS.get(length.wrapping_sub(2)).copied().unwrap_or([0xff; 4]);
    bytes.get(place).copied().unwrap_or(0xff)
}
