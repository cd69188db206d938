//! Walks a configuration's tree and collects every mistake with its key path.
//!
//! A key is known because it was asked for: [`Table`] remembers what was, so the list of known keys cannot drift from the
//! code that reads them. The rejected alternative, `serde`'s derive with `deny_unknown_fields`, stops at the first mistake,
//! tells no path and prints values, which may be secrets.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::Problem;
use super::text::{Env, Text, expand, nearest};
use crate::time::Span;

/// Elements of any list at most: a bound that no honest file meets.
const MAX_LIST: usize = 4096;
/// The longest time that a configuration may speak of, in seconds (about 31 years): arithmetic on it never overflows.
const MAX_SECONDS: f64 = 1e9;
/// Parts per million in a whole.
const WHOLE_PPM: f64 = 1e6;

/// The way to a value: built on the stack, written out only when there is a mistake to tell.
#[derive(Copy, Clone)]
pub(super) enum Path<'p> {
    /// The whole file.
    Root,
    /// A key of a table.
    Key(&'p Path<'p>, &'p str),
    /// An element of a list.
    Index(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Path::Root => Ok(()),
            Path::Index(parent, at) => write!(f, "{parent}[{at}]"),
            Path::Key(parent, key) => {
                parent.fmt(f)?;
                if !matches!(parent, Path::Root) {
                    f.write_str(".")?;
                }
                let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                if bare { f.write_str(key) } else { write!(f, "{key:?}") }
            }
        }
    }
}

/// What is shared by the whole walk: the environment and the mistakes found so far.
pub(super) struct Reader<'e> {
    env: Env<'e>,
    problems: Vec<Problem>,
}

impl<'e> Reader<'e> {
    /// A walk that has found nothing yet.
    pub(super) fn new(env: Env<'e>) -> Reader<'e> {
        Reader { env, problems: Vec::new() }
    }

    /// Starts at the root of a tree.
    pub(super) fn root<'r>(&'r mut self, value: &'r Value) -> Node<'r, 'e> {
        Node { reader: self, path: Path::Root, value }
    }

    /// What was found.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    fn report(&mut self, path: &Path<'_>, reason: String) {
        self.problems.push(Problem { path: path.to_string(), reason });
    }
}

/// A value and the way to it. Its readers return `None` after they have reported a mistake.
pub(super) struct Node<'r, 'e> {
    reader: &'r mut Reader<'e>,
    path: Path<'r>,
    value: &'r Value,
}

impl<'r, 'e> Node<'r, 'e> {
    /// Reports a mistake in this value; `None`, so that a reader can end with it.
    pub(super) fn wrong<T>(&mut self, reason: impl Into<String>) -> Option<T> {
        self.reader.report(&self.path, reason.into());
        None
    }

    /// Mistakes found so far, by the whole walk: a reader that compares tells whether a part was faulty already.
    pub(super) fn found(&self) -> usize {
        self.reader.problems.len()
    }

    /// Its place in its list; 0 for what is in none.
    pub(super) fn place(&self) -> usize {
        if let Path::Index(_, at) = self.path { at } else { 0 }
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// Whether it is a table.
    pub(super) fn is_table(&self) -> bool {
        self.value.is_object()
    }

    /// The elements, unread.
    pub(super) fn elements(&self) -> &'r [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    fn mismatch<T>(&mut self, wanted: &str) -> Option<T> {
        let got = kind(self.value);
        self.wrong(format!("must be {wanted}, not {got}"))
    }

    /// `true` or `false`.
    pub(super) fn flag(mut self) -> Option<bool> {
        match self.value.as_bool() {
            Some(flag) => Some(flag),
            None => self.mismatch("true or false"),
        }
    }

    /// A whole number in `range`; `10.0` and `"10"` are none.
    pub(super) fn count(mut self, range: RangeInclusive<u64>) -> Option<u64> {
        self.count_mut(range)
    }

    /// As [`Node::count`], for a reader that has more to say about the value.
    pub(super) fn count_mut(&mut self, range: RangeInclusive<u64>) -> Option<u64> {
        let Value::Number(number) = self.value else { return self.mismatch("a whole number") };
        let (least, most) = (*range.start(), *range.end());
        if number.is_f64() {
            return self.wrong(format!("must be a whole number without a fraction, not {}", Shown(number)));
        }
        match number.as_u64() {
            Some(count) if range.contains(&count) => Some(count),
            Some(count) if count > most => self.wrong(format!("must be at most {most}, not {count}")),
            Some(count) => self.wrong(format!("must be at least {least}, not {count}")),
            None => self.wrong(format!("must not be negative, not {number}")),
        }
    }

    /// A whole number that fits 32 bits, at least `least`.
    pub(super) fn count32(self, least: u32) -> Option<u32> {
        self.count(u64::from(least)..=u64::from(u32::MAX)).and_then(|count| u32::try_from(count).ok())
    }

    /// A number in `range`, fractions allowed.
    pub(super) fn number(mut self, least: f64, most: f64) -> Option<f64> {
        let Value::Number(number) = self.value else { return self.mismatch("a number") };
        // NaN has no place in a tree, and would fall to the last arm.
        match number.as_f64() {
            Some(value) if value >= least && value <= most => Some(value),
            Some(value) if value < 0.0 => self.wrong(format!("must not be negative, not {number}")),
            Some(value) if value < least => self.wrong(format!("must be at least {least}, not {number}")),
            _ => self.wrong(format!("must be at most {most}, not {number}")),
        }
    }

    /// A share from 0 to 1, in parts per million.
    pub(super) fn share(self) -> Option<u32> {
        self.number(0.0, 1.0).map(|share| (share * WHOLE_PPM + 0.5) as u32)
    }

    /// A length of time; its number counts units of `unit` microseconds.
    ///
    /// Rounded to whole microseconds, but never down to zero: zero means "none" to most limits.
    pub(super) fn span(self, unit: f64) -> Option<Span> {
        let most = MAX_SECONDS * 1e6 / unit;
        let number = self.number(0.0, most)?;
        let micros = (number * unit + 0.5) as u64;
        Some(Span(if number > 0.0 { micros.max(1) } else { micros }))
    }

    /// A text with its variables filled in; every missing variable is reported.
    pub(super) fn text(mut self) -> Option<Text> {
        self.text_mut()
    }

    /// As [`Node::text`], for a reader that has more to say about the value.
    pub(super) fn text_mut(&mut self) -> Option<Text> {
        let Value::String(raw) = self.value else { return self.mismatch("text") };
        match expand(raw, self.reader.env) {
            Ok(text) => Some(text),
            Err(reasons) => {
                for reason in reasons {
                    self.reader.report(&self.path, reason);
                }
                None
            }
        }
    }

    /// A text that `parse` understands; its error is the reason told.
    pub(super) fn parsed<T, E: fmt::Display>(mut self, parse: impl FnOnce(&Text) -> Result<T, E>) -> Option<T> {
        let text = self.text_mut()?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(reason) => self.wrong(reason.to_string()),
        }
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(mut self, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.text_mut()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.as_str()) {
            return Some(*value);
        }
        let known: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        self.wrong(format!("unknown word {}; it must be one of {}", text.shown(), known.join(", ")))
    }

    /// A table, read by `read`; every key that it did not ask for is reported afterwards.
    pub(super) fn table<T>(mut self, read: impl FnOnce(&mut Table<'_, 'e>) -> T) -> Option<T> {
        self.table_mut(read)
    }

    /// As [`Node::table`], for a reader that has more to say about the value.
    pub(super) fn table_mut<T>(&mut self, read: impl FnOnce(&mut Table<'_, 'e>) -> T) -> Option<T> {
        let Value::Object(map) = self.value else { return self.mismatch("a table") };
        let mut table = Table { reader: self.reader, path: self.path, map: Some(map), asked: Vec::new() };
        let read = read(&mut table);
        table.report_unknown();
        Some(read)
    }

    /// A table with keys of the file's own choice; `read` gets each key and its value.
    pub(super) fn entries(mut self, mut read: impl FnMut(&str, Node<'_, 'e>)) -> Option<()> {
        let Value::Object(map) = self.value else { return self.mismatch("a table") };
        for (key, value) in map {
            read(key, Node { reader: &mut *self.reader, path: Path::Key(&self.path, key), value });
        }
        Some(())
    }

    /// A list; elements that `read` reported are left out.
    pub(super) fn list<T>(mut self, read: impl FnMut(Node<'_, 'e>) -> Option<T>) -> Option<Vec<T>> {
        self.list_of(MAX_LIST, "elements", read)
    }

    /// As [`Node::list`] with a bound; `what` names the elements in the reason.
    pub(super) fn list_of<T>(
        &mut self,
        most: usize,
        what: &str,
        mut read: impl FnMut(Node<'_, 'e>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::Array(values) = self.value else { return self.mismatch("a list") };
        if values.len() > most {
            let len = values.len();
            return self.wrong(format!("at most {most} {what}, not {len}"));
        }
        let mut all = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            all.extend(read(Node { reader: &mut *self.reader, path: Path::Index(&self.path, at), value }));
        }
        Some(all)
    }
}

/// A table being read.
pub(super) struct Table<'t, 'e> {
    reader: &'t mut Reader<'e>,
    path: Path<'t>,
    map: Option<&'t Map<String, Value>>,
    asked: Vec<&'static str>,
}

impl<'e> Table<'_, 'e> {
    /// The value of a key, if the table has it; the key is known from now on.
    pub(super) fn key(&mut self, key: &'static str) -> Option<Node<'_, 'e>> {
        self.asked.push(key);
        let value = self.map?.get(key)?;
        Some(Node { reader: self.reader, path: Path::Key(&self.path, key), value })
    }

    /// Whether the file has the key; it is not known by that.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.is_some_and(|map| map.contains_key(key))
    }

    /// Reads a table inside; one that is not there reads as an empty one, so that defaults are filled in.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl Fn(&mut Table<'_, 'e>) -> T) -> T {
        let there = self.key(key).and_then(|node| node.table(&read));
        there.unwrap_or_else(|| {
            let path = Path::Key(&self.path, key);
            read(&mut Table { reader: self.reader, path, map: None, asked: Vec::new() })
        })
    }

    /// Reports a mistake in a key, there or not.
    pub(super) fn wrong(&mut self, key: &str, reason: impl Into<String>) {
        self.reader.report(&Path::Key(&self.path, key), reason.into());
    }

    /// A count that fits 32 bits and may be 0.
    pub(super) fn count(&mut self, key: &'static str) -> Option<u32> {
        self.key(key)?.count32(0)
    }

    /// A count that fits 32 bits and is at least 1.
    pub(super) fn positive(&mut self, key: &'static str) -> Option<u32> {
        self.key(key)?.count32(1)
    }

    /// A length of time in seconds.
    pub(super) fn seconds(&mut self, key: &'static str) -> Option<Span> {
        self.key(key)?.span(1e6)
    }

    /// A length of time in seconds that is not zero.
    pub(super) fn positive_seconds(&mut self, key: &'static str) -> Option<Span> {
        let span = self.seconds(key)?;
        if span.is_zero() {
            self.wrong(key, "must be more than 0");
        }
        Some(span)
    }

    /// A length of time in milliseconds.
    pub(super) fn millis(&mut self, key: &'static str) -> Option<Span> {
        self.key(key)?.span(1e3)
    }

    /// A share from 0 to 1, in parts per million.
    pub(super) fn share(&mut self, key: &'static str) -> Option<u32> {
        self.key(key)?.share()
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.key(key)?.flag()
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<Text> {
        self.key(key)?.text()
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        self.key(key)?.word(words)
    }

    fn report_unknown(&mut self) {
        let Some(map) = self.map else { return };
        for key in map.keys().filter(|key| !self.asked.contains(&key.as_str())) {
            let reason = match nearest(key, self.asked.iter().copied()) {
                Some(known) => format!("unknown key; the nearest known one is `{known}`"),
                None => "unknown key; none is known here".to_owned(),
            };
            self.reader.report(&Path::Key(&self.path, key), reason);
        }
    }
}

/// A number as it was most likely written: `10.0` keeps its fraction, which is what was wrong with it.
struct Shown<'n>(&'n serde_json::Number);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_f64() {
            Some(number) => write!(f, "{number:?}"),
            None => write!(f, "{}", self.0),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}
