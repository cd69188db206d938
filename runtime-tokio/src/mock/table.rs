//! The table of directives: one place for the help text, for error messages and for the check of the manual.

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The directive as it is written, with an example value.
    pub example: &'static str,
    /// What it does.
    pub does: &'static str,
}

/// A named group of rows.
pub type Group = (&'static str, &'static [Row]);

const fn row(example: &'static str, does: &'static str) -> Row {
    Row { example, does }
}

/// Every directive there is.
pub const DIRECTIVES: &[Group] = &[
    (
        "Answer",
        &[
            row("ok", "a good answer (also the default)"),
            row("503", "that status, 200-999, with an error body in the protocol's shape from 400 on"),
            row("503:retry-after=2:x-a=b", "the same with headers"),
            row("status=503", "the status again, for scripts"),
            row("retry-after=2", "retry-after of error answers; also `@date+2` (an HTTP-date in 2 s) and `@rfc3339+2`"),
            row("retry-after-ms=250", "the header of that name"),
            row("header=x-a:b", "any header, more than once if need be"),
            row("message=busy", "error.message; `type=` and `code=` likewise"),
            row("type=server_error", "error.type"),
            row("code=insufficient_quota", "error.code; digits become a number"),
            row("text=\"Hi, you\"", "the words to say; quote what has a comma or semicolon in it"),
            row("tool=get_weather", "answers with a tool call; without a name: the first tool offered"),
            row("finish=length", "the finish or stop reason"),
            row("body={}", "the whole body as it stands"),
            row("as-json", "one JSON body, even where a stream was asked for"),
            row("as-stream", "a stream, even where none was asked for"),
        ],
    ),
    (
        "Time and chunks (ms)",
        &[
            row("delay=200", "waits before the head"),
            row("first=200", "waits between head and first byte"),
            row("gap=50", "waits between chunks"),
            row("trickle=5", "byte by byte, 5 ms apart"),
            row("chunk=whole", "chunks: event (default), whole, byte or a number of bytes"),
        ],
    ),
    (
        "Breaks (where: -after=2 events, -after=2c events with content, -after=content, -at=120 bytes)",
        &[
            row("stall", "silence before the head; stall-after=0: after the head; stall-after=N; stall-at=K"),
            row("close", "closes before the head; close-after=N; close-at=K"),
            row("cut", "closes after the first content; cut-after=N; cut-at=K"),
            row("reset", "RST before the head; reset-after=N; reset-at=K"),
            row(
                "error",
                "an error event before any content, on a whole answer an error object behind a 200; error-after=N",
            ),
            row(
                "failed",
                "the same, on Responses with response.failed or a response whose status is failed; failed-after=N",
            ),
            row("as=529", "the status that this error stands for (503, Anthropic 529); `error=429` says both"),
            row("malformed", "the first content event is damaged, a whole answer is half a JSON; malformed-after=N"),
            row("comments", "comments for ever, `gap` (100) ms apart; comments-after=N"),
            row("pings", "the protocol's pings for ever, before any content; pings-after=N"),
        ],
    ),
    (
        "Content",
        &[
            row("empty", "no words; empty=choices, empty=output, empty=stream, empty=body, empty=usage (all zero)"),
            row("drift", "a known field has the wrong type"),
            row("html", "an HTML page"),
            row("redirect=/elsewhere", "302 to there, or another 3xx if a status is given"),
            row("unfinished", "two choices at least, the last one never finishes"),
            row("no-done", "no [DONE], message_stop or response.completed"),
            row("no-finish", "no finish reason either"),
            row("double-done", "the terminal event twice"),
            row("torn", "the last event without its blank line"),
            row("huge=1048576", "first content of that many bytes"),
        ],
    ),
    (
        "Wire",
        &[
            row("gzip", "compressed; gzip=bare: without content-encoding; gzip=header: only says so"),
            row("content-type=text/plain", "another content type; \"\" for none"),
            row("line=crlf", "line ends of SSE: lf, crlf or cr"),
            row("bom", "SSE begins with a byte order mark"),
            row("garbage", "not HTTP at all"),
            row("raw=\"HTTP/1.1 2\"", "these bytes in place of an HTTP answer, then the connection closes"),
        ],
    ),
    (
        "Chance and limits",
        &[
            row("flaky=0.3", "all of it with that chance, else a good answer"),
            row("lucky=0.1", "the other way round: good with that chance"),
            row("seed=7", "seed of these draws"),
            row("watchdog=500", "closes after 500 ms without a word; lucky=0.1 for the rest"),
            row("in-flight=4", "more at once: 429 and retry-after"),
            row("rate=10/1000", "more requests in 1000 ms: 429 and retry-after"),
            row("account=acme", "whom these limits count for (else the API key)"),
        ],
    ),
];

/// Words that stand alone in the grammar but share a row.
const FAMILY: &[&str] = &["stall", "close", "cut", "reset", "error", "failed", "malformed", "comments", "pings"];

fn words() -> impl Iterator<Item = &'static str> {
    DIRECTIVES.iter().flat_map(|(_, rows)| rows.iter()).map(name_of).filter(|name| !name.starts_with('5'))
}

fn name_of(row: &Row) -> &'static str {
    row.example.split(['=', ':']).next().unwrap_or_default()
}

/// Every word, separated by commas.
pub(super) fn names() -> String {
    words().collect::<Vec<_>>().join(", ")
}

/// `, did you mean …` where some word is close to `name`; else nothing.
pub(super) fn did_you_mean(name: &str) -> String {
    if name.len() > 64 {
        return String::new();
    }
    let breaks = FAMILY.iter().flat_map(|base| [format!("{base}-after"), format!("{base}-at")]);
    let near = words().map(str::to_owned).chain(breaks).map(|word| (distance(name, &word), word)).min();
    match near {
        Some((far, word)) if far <= 2 && far < name.len() => format!(", did you mean `{word}`?"),
        _ => String::new(),
    }
}

/// Levenshtein's distance, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut line: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut line[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let swap = corner + usize::from(x != y);
            corner = line[j + 1];
            line[j + 1] = swap.min(line[j] + 1).min(corner + 1);
        }
    }
    line[b.len()]
}

/// The table as text for a terminal.
pub(super) fn help() -> String {
    let mut text = String::new();
    for (group, rows) in DIRECTIVES {
        text.push_str(&format!("\n{group}:\n"));
        for row in *rows {
            text.push_str(&format!("  {:<26} {}\n", row.example, row.does));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Behaviour;

    fn examples() -> impl Iterator<Item = &'static str> {
        DIRECTIVES.iter().flat_map(|(_, rows)| rows.iter()).map(|row| row.example)
    }

    #[test]
    fn every_example_is_understood_and_written_back_with_the_same_meaning() {
        let breaks =
            ["stall-after=0", "cut-after=content", "reset-at=9", "error=529", "pings-after=2c", "empty=stream"];
        for example in examples().chain(breaks) {
            let behaviour = Behaviour::parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
            assert_eq!(Behaviour::parse(&behaviour.to_string()), Ok(behaviour), "{example}");
        }
    }

    #[test]
    fn the_manual_has_every_directive() {
        let manual = include_str!("../../../docs/mock.md");
        let missing: Vec<_> = words().filter(|word| !manual.contains(&format!("`{word}"))).collect();
        assert!(missing.is_empty(), "docs/mock.md lacks {missing:?}");
    }

    #[test]
    fn the_scripts_of_the_manual_are_right() {
        let manual = include_str!("../../../docs/mock.md");
        let scripts: Vec<&str> = manual.split("```toml").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(!scripts.is_empty());
        for script in scripts {
            crate::mock::Script::from_toml(script).unwrap_or_else(|error| panic!("{script}: {error}"));
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_told_the_right_word() {
        assert_eq!(did_you_mean("stal"), ", did you mean `stall`?");
        assert_eq!(did_you_mean("cut-aftr"), ", did you mean `cut-after`?");
        assert_eq!(did_you_mean("nothing-like-it"), "");
        assert_eq!(did_you_mean(&"x".repeat(100_000)), "");
    }
}
