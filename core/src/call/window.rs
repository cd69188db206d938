//! The held bytes of the live attempt: one buffer, before the commit and after it (F16).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;

/// Chunks as they came. Offsets count from the stream's first byte; what lies before `whole` may go to the client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    chunks: VecDeque<Bytes>,
    start: u64,
    end: u64,
    whole: u64,
}

impl Window {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.end += bytes.len() as u64;
            self.chunks.push_back(bytes);
        }
    }

    /// Bytes held.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Everything up to `offset` consists of whole events.
    pub(crate) fn mark_whole(&mut self, offset: u64) {
        debug_assert!(offset <= self.end, "an event ends behind the bytes that were fed");
        self.whole = self.whole.max(offset.min(self.end));
    }

    pub(crate) fn mark_all(&mut self) {
        self.whole = self.end;
    }

    /// Drops what is not whole: a torn event, or what came after the terminal one.
    pub(crate) fn drop_torn(&mut self) {
        while self.end > self.whole {
            let Some(last) = self.chunks.pop_back() else { break };
            self.end -= last.len() as u64;
            if self.end < self.whole {
                let keep = last.slice(..usize::try_from(self.whole - self.end).unwrap_or(0));
                self.push(keep);
                break;
            }
        }
    }

    /// The next piece for the client: a slice of an upstream chunk, never a copy.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let free = usize::try_from(self.whole - self.start).unwrap_or(usize::MAX);
        let front = self.chunks.front_mut().filter(|_| free > 0)?;
        let piece = if front.len() <= free { self.chunks.pop_front()? } else { front.split_to(free) };
        self.start += piece.len() as u64;
        Some(piece)
    }

    /// The held bytes up to `offset` in one piece, for looking at. Without a copy where they are one chunk.
    pub(crate) fn joined(&self, offset: u64) -> Bytes {
        let wanted = usize::try_from(offset.min(self.end).saturating_sub(self.start)).unwrap_or(usize::MAX);
        match self.chunks.front() {
            Some(first) if first.len() >= wanted => first.slice(..wanted),
            _ => {
                let mut all = Vec::with_capacity(wanted);
                for chunk in &self.chunks {
                    let room = wanted - all.len();
                    all.extend_from_slice(&chunk[..chunk.len().min(room)]);
                }
                all.into()
            }
        }
    }

    pub(crate) fn into_chunks(self) -> VecDeque<Bytes> {
        self.chunks
    }

    /// All held bytes in one piece.
    pub(crate) fn all(&self) -> Bytes {
        self.joined(self.end)
    }

    /// Replaces what is held behind `whole` up to `offset` by what `change` makes of it; the length must stay.
    pub(crate) fn rewrite(&mut self, offset: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let mut held = Vec::from(&self.all()[..]);
        let from = usize::try_from(self.whole - self.start).unwrap_or(usize::MAX).min(held.len());
        let to = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).clamp(from, held.len());
        let mut event = held[from..to].to_vec();
        change(&mut event);
        if event.len() == to - from && event != held[from..to] {
            held[from..to].copy_from_slice(&event);
            self.chunks.clear();
            self.chunks.push_back(held.into());
        }
    }
}

impl FromIterator<Bytes> for Window {
    fn from_iter<I: IntoIterator<Item = Bytes>>(chunks: I) -> Window {
        let mut window = Window::default();
        for chunk in chunks {
            window.push(chunk);
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(chunks: &[&'static str]) -> Window {
        chunks.iter().map(|chunk| Bytes::from_static(chunk.as_bytes())).collect()
    }

    #[test]
    fn only_whole_events_leave_and_the_torn_rest_can_be_dropped() {
        let mut held = window(&["abc", "def", "ghi"]);
        held.mark_whole(4);
        assert_eq!(held.pop().as_deref(), Some(&b"abc"[..]));
        assert_eq!(held.pop().as_deref(), Some(&b"d"[..]));
        assert_eq!(held.pop(), None);
        held.mark_whole(7);
        held.drop_torn();
        assert_eq!(held.len(), 3);
        assert_eq!(held.pop().as_deref(), Some(&b"ef"[..]));
        assert_eq!(held.pop().as_deref(), Some(&b"g"[..]));
        assert!(held.pop().is_none() && held.len() == 0);
    }

    #[test]
    fn a_rewrite_changes_the_marked_event_alone() {
        let mut held = window(&["ab", "cd", "ef"]);
        held.mark_whole(2);
        held.rewrite(4, |event| event.fill(b'*'));
        held.mark_all();
        assert_eq!(held.all(), "ab**ef");
    }

    proptest! {
        #[test]
        fn what_comes_out_is_what_went_in(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9),
                                          marks in proptest::collection::vec(0u64..80, 0..9)) {
            let all: Vec<u8> = chunks.concat();
            let mut held: Window = chunks.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(&held.all()[..], &all[..]);
            let mut out = Vec::new();
            let mut whole = 0;
            for mark in marks {
                let mark = mark.min(all.len() as u64);
                held.mark_whole(mark);
                whole = whole.max(mark);
                while let Some(piece) = held.pop() {
                    out.extend_from_slice(&piece);
                }
                prop_assert_eq!(&out[..], &all[..whole as usize]);
            }
            held.drop_torn();
            prop_assert_eq!(held.len(), 0);
        }
    }
}
