//! Texts of a configuration: variables filled in, and what may be shown of them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How the environment is asked.
pub(super) type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Characters of a word that are looked at when the nearest known one is sought.
const MAX_WORD: usize = 64;

/// A text of the file, and whether any of it came from the environment: such a text is never shown.
#[derive(Clone)]
pub(super) struct Text {
    value: String,
    from_env: bool,
}

impl Text {
    /// The text itself.
    pub(super) fn as_str(&self) -> &str {
        &self.value
    }

    /// The text itself, kept.
    pub(super) fn into_string(self) -> String {
        self.value
    }

    /// Whether any of it came from the environment.
    pub(super) fn is_from_env(&self) -> bool {
        self.from_env
    }

    /// Itself in backquotes for a reason, or what stands for it.
    pub(super) fn shown(&self) -> String {
        self.part_shown(&self.value)
    }

    /// A part of it, in the same way. Long ones are cut.
    pub(super) fn part_shown(&self, part: &str) -> String {
        if self.from_env {
            return "from the environment".to_owned();
        }
        let cut: String = part.chars().take(MAX_WORD).flat_map(char::escape_debug).collect();
        format!("`{cut}{}`", if part.chars().nth(MAX_WORD).is_some() { "…" } else { "" })
    }
}

/// Fills in `${NAME}` and `${NAME:-default}`; `$${` stands for `${` itself. The error lists a reason for every mistake.
///
/// As in a shell, the default also serves where the variable is set but empty.
pub(super) fn expand(raw: &str, env: Env<'_>) -> Result<Text, Vec<String>> {
    let mut text = Text { value: String::with_capacity(raw.len()), from_env: false };
    let mut reasons = Vec::new();
    let mut rest = raw;
    while let Some(at) = rest.find("${") {
        let (before, behind) = (&rest[..at], &rest[at + 2..]);
        if let Some(kept) = before.strip_suffix('$') {
            text.value.push_str(kept);
            text.value.push_str("${");
            rest = behind;
            continue;
        }
        text.value.push_str(before);
        let Some(end) = behind.find('}') else {
            reasons.push("`${` without its `}`; write `$${` where `${` itself is meant".to_owned());
            rest = "";
            break;
        };
        let (inside, next) = (&behind[..end], &behind[end + 1..]);
        rest = next;
        match variable(inside, env) {
            Ok((value, from_env)) => {
                text.value.push_str(&value);
                text.from_env |= from_env;
            }
            Err(reason) => reasons.push(reason),
        }
    }
    text.value.push_str(rest);
    if reasons.is_empty() { Ok(text) } else { Err(reasons) }
}

/// The value of what stands between the braces, and whether it came from the environment.
fn variable(inside: &str, env: Env<'_>) -> Result<(String, bool), String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !starts_well || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        // What stands there is not shown: it may be a key with an unlucky letter.
        return Err("`${` must be followed by a variable's name; write `$${` where `${` itself is meant".to_owned());
    }
    match (env(name), default) {
        (Some(value), None) => Ok((value, true)),
        (Some(value), Some(_)) if !value.is_empty() => Ok((value, true)),
        (_, Some(default)) => Ok((default.to_owned(), false)),
        (None, None) => {
            Err(format!("the environment variable {name} is not set; set it or write `${{{name}:-default}}`"))
        }
    }
}

/// The known word that takes the fewest edits to get to; the earlier one of two equals.
///
/// A unit that was left out or mixed up counts as one edit: `max_wait` means `max_wait_seconds`, not `max_bytes`.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known.min_by_key(|known| distance(word, known).min(1 + distance(stem(word), stem(known))))
}

/// A key without its unit.
fn stem(key: &str) -> &str {
    const UNITS: [&str; 9] = ["_seconds", "_second", "_secs", "_sec", "_s", "_millis", "_ms", "_bytes", "_minutes"];
    UNITS.iter().find_map(|unit| key.strip_suffix(unit)).unwrap_or(key)
}

/// Edits between two words: letters put in, left out, changed, or two neighbours swapped.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(MAX_WORD).collect();
    let right: Vec<char> = right.chars().take(MAX_WORD).collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut row = Vec::with_capacity(right.len() + 1);
        row.push(i + 1);
        for (j, r) in right.iter().enumerate() {
            let mut edits = (last[j] + usize::from(l != r)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *l == right[j - 1] && left[i - 1] == *r {
                edits = edits.min(before_last[j - 1] + 1);
            }
            row.push(edits);
        }
        before_last = core::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(raw: &str) -> Result<String, Vec<String>> {
        let env = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand(raw, &env).map(Text::into_string)
    }

    #[test]
    fn variables_are_filled_in_anywhere_in_a_text() {
        assert_eq!(filled("a ${SET}${SET}! $x {y}").unwrap(), "a valuevalue! $x {y}");
        assert_eq!(filled("${SET:-other} ${NOT:-other} ${EMPTY:-other} ${NOT:-}|").unwrap(), "value other other |");
        assert_eq!(filled("$${SET} and $$${NOT}").unwrap(), "${SET} and $${NOT}");
        assert_eq!(filled("${EMPTY}").unwrap(), "");
        assert_eq!(filled("価${SET}値").unwrap(), "価value値");
    }

    #[test]
    fn every_variable_that_is_missing_is_named() {
        let reasons = filled("${ONE} ${SET} ${TWO}").unwrap_err();
        assert_eq!(reasons.len(), 2);
        assert!(reasons[0].contains("ONE") && reasons[1].contains("TWO"), "{reasons:?}");
    }

    #[test]
    fn what_is_no_variable_is_refused_and_not_shown() {
        for raw in ["${sk-secret}", "${}", "${9}", "${A", "${sk-secret", "x${{1}}"] {
            let reasons = filled(raw).unwrap_err();
            assert!(!reasons.iter().any(|reason| reason.contains("secret")), "{raw}: {reasons:?}");
        }
    }

    #[test]
    fn a_text_from_the_environment_is_never_shown() {
        let env = |_: &str| Some("hidden".to_owned());
        assert!(!expand("x${A}", &env).unwrap_or_else(|_| panic!()).shown().contains("hidden"));
        assert_eq!(expand("pla\nin", &env).unwrap_or_else(|_| panic!()).shown(), "`pla\\nin`");
    }

    #[test]
    fn the_nearest_word_is_the_one_with_the_fewest_edits() {
        let known = ["cooldown_seconds", "max_cooldown_seconds", "window_seconds", "listen", "admin_listen"];
        let near = |word| nearest(word, known.into_iter());
        assert_eq!(near("cooldown_secs"), Some("cooldown_seconds"));
        assert_eq!((near("cooldown"), near("window_ms")), (Some("cooldown_seconds"), Some("window_seconds")));
        assert_eq!(near("listne"), Some("listen"));
        assert_eq!(near(""), Some("listen"));
        assert_eq!(nearest("x", core::iter::empty()), None);
        assert_eq!((distance("ab", "ba"), distance("kitten", "sitting"), distance("", "abc")), (1, 3, 3));
    }
}
