//! A provider's key in its own words reaches nobody (X6).

use alloc::string::String;

use bytes::Bytes;

use crate::mutants::{Mutant, active};
use crate::policy::Secret;
use crate::wire::haystack;

/// Whether the key stands in `text`.
pub(super) fn tells(text: &[u8], secret: &Secret) -> bool {
    !active(Mutant::KeyTold)
        && !secret.expose().is_empty()
        && memchr::memmem::find(text, secret.expose().as_bytes()).is_some()
}

/// The same bytes with the key masked; without a copy where it does not occur.
pub(super) fn bytes(text: Bytes, secret: &Secret) -> Bytes {
    if !tells(&text, secret) {
        return text;
    }
    let mut masked = text.to_vec();
    haystack::mask(&mut masked, secret.expose());
    masked.into()
}

/// The same for a text.
pub(super) fn text(text: &mut String, secret: &Secret) {
    if !secret.expose().is_empty() && text.contains(secret.expose()) {
        *text = text.replace(secret.expose(), &"*".repeat(secret.expose().len()));
    }
}
