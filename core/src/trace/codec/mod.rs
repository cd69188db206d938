//! The vocabulary as fields, both ways.

mod put;
mod read;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

pub(super) use put::{put_action, put_input};
pub(super) use read::{action_of, input_of};

use super::fields::Problem;

type Read<T> = Result<T, Problem>;

/// A number that is no count: in hexadecimal, for not every reader of JSON has 64 bits.
pub(super) fn hex(number: u64) -> String {
    format!("{number:016x}")
}

pub(super) fn of_hex(field: Option<&str>, name: &str) -> Read<u64> {
    let text = field.ok_or_else(|| Problem::missing(name))?;
    u64::from_str_radix(text, 16).map_err(|_| Problem::unknown(name, text))
}

/// The bytes of a line.
pub(super) enum Text {
    /// These.
    Bytes(Vec<u8>),
    /// So many, of which nothing else is told.
    Length(u64),
}

/// Of bytes that are only counted, no more are made up than the largest body may have.
const MAX_COUNTED: usize = 64 << 20;

/// Bytes made up for those that are only counted: one buffer for all, or a small file could ask for any memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Stars(Bytes);

impl Stars {
    pub(super) fn take(&mut self, length: u64) -> Read<Bytes> {
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_COUNTED);
        let length = length.ok_or_else(|| Problem::Value("`n` is more than a chunk can have".into()))?;
        if self.0.len() < length {
            self.0 = alloc::vec![b'*'; length].into();
        }
        Ok(self.0.slice(..length))
    }
}
