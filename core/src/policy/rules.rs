//! Failover rules: regexes bounded and compiled at load, asked in order (F8, F9, F12, F14), and the phrases of
//! `retry_on_errors` (M6).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use regex::{Regex, RegexBuilder};
use thiserror::Error;

use super::{Phrase, Rules, StopRule};

/// Rules of one group at most (F14).
pub const MAX_RULES: usize = 64;
/// Bytes of a pattern at most, after trimming (F14).
pub const MAX_PATTERN_BYTES: usize = 4096;
/// Bytes that one compiled pattern may take: the `regex` crate's own default, so that what works elsewhere works here,
/// and a repetition of repetitions is refused at load instead of eating the gateway's memory.
pub const MAX_COMPILED_BYTES: usize = 10 << 20;
/// The statuses that stop rules and status lists may name.
pub const ERROR_STATUSES: core::ops::RangeInclusive<u16> = 400..=599;

/// Why a pattern is refused. Never tells the pattern: it may come from the environment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Nothing but white space.
    #[error("empty pattern; leave the key out or write a regex")]
    Empty,
    /// Too long.
    #[error("pattern of {0} bytes; at most 4096 are allowed after trimming")]
    TooLong(usize),
    /// Not in the syntax of the `regex` crate, which has no look-around and no back-references.
    #[error("invalid regex: {0}")]
    Syntax(String),
    /// Too big once compiled.
    #[error("regex too big: compiled it would take more than 10 MiB; repeat less or use fewer classes")]
    TooBig,
}

/// Compiles a pattern; white space around it is no part of it.
///
/// # Errors
/// What F14 refuses: empty, longer than [`MAX_PATTERN_BYTES`], not a regex, or too big once compiled.
pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    let pattern = pattern.trim();
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(PatternError::TooLong(pattern.len()));
    }
    RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooBig,
        other => PatternError::Syntax(last_words(&other.to_string())),
    })
}

/// The crate's own words without the picture of the pattern that comes before them.
fn last_words(report: &str) -> String {
    let line = report.lines().rev().find_map(|line| line.trim().strip_prefix("error: "));
    line.unwrap_or("it does not parse").to_string()
}

impl Rules {
    /// The first success rule (F9) that matches, by its place in the group. The caller sees to it that the status is 200.
    pub fn success_match(&self, haystack: &str) -> Option<usize> {
        self.success.iter().position(|rule| rule.is_match(haystack))
    }

    /// The first stop rule (F12) that an error fits, by its place in the group; none for what is no error status.
    pub fn stop_match(&self, status: u16, body: &str) -> Option<usize> {
        if !ERROR_STATUSES.contains(&status) {
            return None;
        }
        self.stop.iter().position(|rule| rule.fits(status, body))
    }
}

impl StopRule {
    /// Whether both of its parts hold, where both are given.
    fn fits(&self, status: u16, body: &str) -> bool {
        let status_fits = self.statuses.is_empty() || self.statuses.contains(&status);
        status_fits && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(body))
    }
}

/// Why a phrase is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PhraseError {
    /// No word at all: it would match every error.
    #[error("empty phrase; write words of the error's code or message, and a status if only that one is meant")]
    Empty,
    /// A number that no error has as its status: the phrase could never match.
    #[error("a number in a phrase constrains the status and must be 400–599")]
    Status,
}

impl Phrase {
    /// Reads a phrase: words, of which numbers are statuses.
    ///
    /// # Errors
    /// A phrase without a word, or with a number outside 400–599.
    pub fn parse(text: &str) -> Result<Phrase, PhraseError> {
        let mut phrase = Phrase { words: Vec::new(), statuses: Vec::new() };
        for word in text.split_whitespace() {
            if word.bytes().all(|b| b.is_ascii_digit()) {
                let status = word.parse().ok().filter(|status| ERROR_STATUSES.contains(status));
                phrase.statuses.push(status.ok_or(PhraseError::Status)?);
            } else {
                phrase.words.push(word.to_lowercase().into_boxed_str());
            }
        }
        if phrase.words.is_empty() && phrase.statuses.is_empty() { Err(PhraseError::Empty) } else { Ok(phrase) }
    }

    /// Whether an error fits: one of the statuses, if any are given, and every word in its code or its message.
    pub fn matches(&self, status: u16, code: &str, message: &str) -> bool {
        if !self.statuses.is_empty() && !self.statuses.contains(&status) {
            return false;
        }
        let [code, message] = [code, message].map(str::to_lowercase);
        self.words.iter().all(|word| code.contains(&**word) || message.contains(&**word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn stop(statuses: &[u16], pattern: Option<&str>) -> StopRule {
        StopRule { statuses: statuses.to_vec(), pattern: pattern.map(|p| compile(p).unwrap()) }
    }

    #[test]
    fn the_first_success_rule_that_matches_is_named() {
        let rules =
            Rules { success: ["(?i)capacity.*exhausted", "busy"].map(|p| compile(p).unwrap()).into(), stop: [].into() };
        assert_eq!(rules.success_match("Capacity is EXHAUSTED, busy"), Some(0));
        assert_eq!(rules.success_match("we are busy"), Some(1));
        assert_eq!(rules.success_match("fine"), None);
    }

    #[test]
    fn a_stop_rule_asks_for_all_that_it_names() {
        let rules = Rules {
            success: [].into(),
            stop: [stop(&[400, 413], Some("invalid.*parameter")), stop(&[422], None), stop(&[], Some("(?i)suspended"))]
                .into(),
        };
        assert_eq!(rules.stop_match(400, "invalid parameter"), Some(0));
        assert_eq!(rules.stop_match(401, "invalid parameter"), None);
        assert_eq!(rules.stop_match(413, "too large"), None);
        assert_eq!(rules.stop_match(422, ""), Some(1));
        assert_eq!((rules.stop_match(503, "Suspended"), rules.stop_match(400, "suspended")), (Some(2), Some(2)));
        for no_error in [0, 200, 399, 600] {
            assert_eq!(rules.stop_match(no_error, "suspended"), None, "{no_error}");
        }
    }

    #[test]
    fn patterns_are_bounded_and_their_faults_told_without_the_pattern() {
        assert_eq!(compile("  a+\n").unwrap().as_str(), "a+");
        assert!(compile(&format!(" {} ", "x".repeat(4096))).is_ok());
        assert_eq!(compile(&"x".repeat(4097)).unwrap_err(), PatternError::TooLong(4097));
        assert_eq!(compile(" \t ").unwrap_err(), PatternError::Empty);
        assert_eq!(compile(r"(\w{900}){900}").unwrap_err(), PatternError::TooBig);
        for (pattern, words) in
            [("secret(b", "unclosed group"), ("secret(?=b)", "look-around"), (r"(secret)\1", "backreferences")]
        {
            let told = compile(pattern).unwrap_err().to_string();
            assert!(told.starts_with("invalid regex: ") && told.contains(words) && !told.contains("secret"), "{told}");
        }
        assert!(compile(&"(".repeat(4096)).is_err());
    }

    #[test]
    fn a_phrase_matches_when_all_its_words_occur_in_code_or_message() {
        let phrase = Phrase::parse("422 Upstream  failed").unwrap();
        assert!(phrase.matches(422, "upstream_error", "It FAILED"));
        assert!(!phrase.matches(422, "upstream_error", "it works"));
        assert!(!phrase.matches(400, "upstream_error", "it failed"));
        assert!(Phrase::parse("model retired").unwrap().matches(404, "", "The model was retired."));
        let either = Phrase::parse("400 422").unwrap();
        assert!(either.matches(400, "", "") && either.matches(422, "", "") && !either.matches(413, "", ""));
    }

    #[test]
    fn a_phrase_that_says_nothing_or_can_never_match_is_refused() {
        assert_eq!(Phrase::parse("  "), Err(PhraseError::Empty));
        for number in ["200", "4096 tokens", "0422999999999999", "600"] {
            assert_eq!(Phrase::parse(number), Err(PhraseError::Status), "{number}");
        }
    }
}
