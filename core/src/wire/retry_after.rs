//! How long an upstream asks to be left alone, from its headers (G12).
//!
//! Dates are read here: the crates for it need `std`, and four fixed layouts are less than a dependency.

use super::{Header, header};
use crate::time::Span;

/// No wait is taken for longer than this: 24 hours.
pub const MAX_WAIT: Span = Span::from_secs(24 * 60 * 60);

/// The pairs of headers that tell what is left of a limit and when it is full again.
const RESETS: [(&str, &str); 10] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining-project-requests", "x-ratelimit-reset-project-requests"),
    ("x-ratelimit-remaining-project-tokens", "x-ratelimit-reset-project-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("anthropic-ratelimit-unified-remaining", "anthropic-ratelimit-unified-reset"),
];

/// The wait that the headers of an answer ask for, at most [`MAX_WAIT`]; `None` when they say nothing that can be read.
///
/// The finer word wins: milliseconds, then `retry-after` (seconds, a fraction, a date; a past one is no wait, a negative
/// one says nothing), then the resets. Of these only the ones of a limit that is used up count, the longest of them:
/// they stand on good answers, too. `unix_ms` is the driver's wall clock, for the dates.
pub fn retry_hint(headers: &[Header], unix_ms: u64) -> Option<Span> {
    let value = |name: &str| header(headers, name).map(str::trim);
    let millis = |name: &str| decimal_micros(value(name)?).map(|micros| Span(micros / 1000));
    let after = || {
        let text = value("retry-after")?;
        decimal_micros(text).map(Span).or_else(|| until(http_date(text, unix_ms)?, unix_ms))
    };
    let reset = || {
        RESETS
            .iter()
            // A limit that does not tell what is left of it is taken for used up: this is asked when a request was refused.
            .filter(|(remaining, _)| value(remaining).is_none_or(|left| decimal_micros(left) == Some(0)))
            .filter_map(|(_, reset)| reset_wait(value(reset)?, unix_ms))
            .max()
    };
    let hint = millis("retry-after-ms").or_else(|| millis("x-ms-retry-after-ms")).or_else(after).or_else(reset)?;
    Some(hint.min(MAX_WAIT))
}

/// A reset: `6m0s`, `300ms`, plain seconds, a point in Unix time, an RFC 3339 date.
fn reset_wait(text: &str, unix_ms: u64) -> Option<Span> {
    if let Some(micros) = decimal_micros(text) {
        // OpenRouter tells the point in milliseconds, others in seconds; a wait of thirty years is neither.
        const YEAR_2001_SECONDS: u64 = 1_000_000_000;
        return match micros / 1_000_000 {
            seconds if seconds >= YEAR_2001_SECONDS * 1000 => until(seconds, unix_ms),
            seconds if seconds >= YEAR_2001_SECONDS => until(micros / 1000, unix_ms),
            _ => Some(Span(micros)),
        };
    }
    go_duration(text).or_else(|| until(rfc3339(text)?, unix_ms))
}

fn until(point_ms: u64, unix_ms: u64) -> Option<Span> {
    Some(Span::from_millis(point_ms.saturating_sub(unix_ms)))
}

/// A number that is not negative, with or without a fraction, in millionths; digits beyond the sixth are dropped.
fn decimal_micros(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    let fraction = fraction.bytes().chain(core::iter::repeat(b'0')).take(6);
    let micros = fraction.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(whole.saturating_mul(1_000_000).saturating_add(micros))
}

/// A duration as Go prints it: `1h2m3.5s`, `300ms`.
fn go_duration(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let micros = decimal_micros(number)?;
        let part = match unit {
            "d" => micros.saturating_mul(86_400),
            "h" => micros.saturating_mul(3600),
            "m" => micros.saturating_mul(60),
            "s" => micros,
            "ms" => micros / 1000,
            "us" | "µs" => micros / 1_000_000,
            "ns" => micros / 1_000_000_000,
            _ => return None,
        };
        total = total.saturating_add(part);
        rest = after;
    }
    (!text.is_empty()).then_some(Span(total))
}

/// A date in one of the three forms of RFC 9110 § 5.6.7, in Unix milliseconds.
fn http_date(text: &str, now_ms: u64) -> Option<u64> {
    let mut parts = text.split([' ', '-', ',']).filter(|part| !part.is_empty());
    let _weekday = parts.next()?;
    let second = parts.next()?;
    let ((day, month), (year, time)) = if second.as_bytes().first()?.is_ascii_digit() {
        // `Sun, 06 Nov 1994 08:49:37 GMT` and `Sunday, 06-Nov-94 08:49:37 GMT`
        let date = (second, parts.next()?);
        let rest = (parts.next()?, parts.next()?);
        if parts.next() != Some("GMT") {
            return None;
        }
        (date, rest)
    } else {
        // `Sun Nov  6 08:49:37 1994`
        let date = (parts.next()?, second);
        let time = parts.next()?;
        (date, (parts.next()?, time))
    };
    if parts.next().is_some() {
        return None;
    }
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year = match (year.len(), number(year)?) {
        // RFC 9110: two digits that seem to lie more than 50 years ahead are the last such year that is past.
        (2, short) => {
            const YEAR_MS: u64 = 31_556_952_000;
            let this_year = 1970 + now_ms / YEAR_MS;
            if 2000 + short > this_year + 50 { 1900 + short } else { 2000 + short }
        }
        (_, year) => year,
    };
    unix_ms(year, month, number(day)?, clock_ms(time)?)
}

/// An RFC 3339 date, with or without a fraction, `Z` or an offset, in Unix milliseconds.
fn rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?)?, number(date.next()?)?, number(date.next()?)?);
    if date.next().is_some() {
        return None;
    }
    let point = unix_ms(year, month, day, clock_ms(clock)?)?;
    let offset = match zone.strip_prefix(['+', '-']) {
        Some(offset) => {
            let (hours, minutes) = offset.split_once(':')?;
            (number(hours)? * 60 + number(minutes)?) * 60_000
        }
        None if zone.len() == 1 => 0,
        None => return None,
    };
    if zone.starts_with('-') { point.checked_add(offset) } else { Some(point.saturating_sub(offset)) }
}

/// `08:49:37`, `08:49:37.5` as milliseconds of the day.
fn clock_ms(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let second_ms = decimal_micros(parts.next()?)? / 1000;
    // 60 is a leap second.
    (hour < 24 && minute < 60 && second_ms < 61_000).then_some((hour * 60 + minute) * 60_000 + second_ms)
}

/// One to four digits.
fn number(text: &str) -> Option<u64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// A civil date (1970 to 9999) and the milliseconds of its day, in Unix milliseconds.
fn unix_ms(year: u64, month: u64, day: u64, of_day_ms: u64) -> Option<u64> {
    if year < 1970 {
        return Some(0);
    }
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let month_at = usize::try_from(month.checked_sub(1)?).ok()?;
    let length = *DAYS.get(month_at)? + u64::from(month == 2 && leap(year));
    if !(1..=length).contains(&day) {
        return None;
    }
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
        + DAYS.iter().take(month_at).sum::<u64>()
        + u64::from(month > 2 && leap(year))
        + day
        - 1;
    Some(days * 86_400_000 + of_day_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Sunday, 6 November 1994, 08:49:37 UTC, the example of RFC 9110.
    const RFC_MS: u64 = 784_111_777_000;

    fn hint_at(unix_ms: u64, pairs: &[(&str, &str)]) -> Option<Span> {
        let headers: Vec<Header> = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        retry_hint(&headers, unix_ms)
    }

    fn after(value: &str) -> Option<Span> {
        hint_at(RFC_MS - 2000, &[("retry-after", value)])
    }

    #[test]
    fn retry_after_is_seconds_a_fraction_or_a_date() {
        assert_eq!(
            ["0", "7", "0.3", " 1.5 ", "2."].map(after),
            [0, 7_000_000, 300_000, 1_500_000, 2_000_000].map(|us| Some(Span(us)))
        );
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sunday, 06-Nov-94 08:49:37 GMT"] {
            assert_eq!(after(date), Some(Span::from_secs(2)), "{date}");
        }
        assert_eq!(
            hint_at(1_767_225_600_000, &[("retry-after", "Thursday, 01-Jan-26 00:00:03 GMT")]),
            Some(Span::from_secs(3))
        );
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Span::ZERO));
    }

    #[test]
    fn what_can_not_be_read_says_nothing() {
        for value in [
            "-5",
            "soon",
            "",
            "1e3",
            "NaN",
            "+5",
            ".5",
            "1.2.3",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nop 1994 08:49:37 GMT",
            "5 GMT",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Sun é",
        ] {
            assert_eq!(after(value), None, "{value}");
        }
        assert_eq!(hint_at(0, &[]), None);
    }

    #[test]
    fn a_wait_is_clamped_to_a_day() {
        assert_eq!(
            ["86401", "99999999", "99999999999999999999999", "Sun, 06 Nov 2094 08:49:37 GMT"].map(after),
            [Some(MAX_WAIT); 4]
        );
    }

    #[test]
    fn the_finer_word_wins_and_an_unreadable_one_yields_to_the_next() {
        let pairs = [("retry-after", "5"), ("retry-after-ms", "250"), ("x-ms-retry-after-ms", "300")];
        assert_eq!(hint_at(0, &pairs), Some(Span::from_millis(250)));
        assert_eq!(hint_at(0, &[("retry-after", "5"), ("x-ms-retry-after-ms", "300.5")]), Some(Span(300_500)));
        assert_eq!(hint_at(0, &[("retry-after-ms", "-1"), ("retry-after", "5")]), Some(Span::from_secs(5)));
        assert_eq!(
            hint_at(
                0,
                &[("retry-after", "5"), ("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "9s")]
            ),
            Some(Span::from_secs(5))
        );
    }

    #[test]
    fn resets_count_for_limits_that_are_used_up_the_longest_of_them() {
        let reset = |value: &str| {
            hint_at(RFC_MS, &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", value)])
        };
        assert_eq!(
            ["300ms", "1s", "6m0s", "1h2m3.5s", "7", "0.5"].map(reset),
            [300_000, 1_000_000, 360_000_000, 3_723_500_000, 7_000_000, 500_000].map(|us| Some(Span(us)))
        );
        assert_eq!(["", "soon", "5x", "s", "-1s"].map(reset), [None; 5]);
        assert_eq!(hint_at(0, &[("x-ratelimit-remaining-requests", "7"), ("x-ratelimit-reset-requests", "9s")]), None);
        let two = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6s"),
        ];
        assert_eq!(hint_at(0, &two), Some(Span::from_secs(6)));
        assert_eq!(
            hint_at(1_741_305_600_000, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1741305601500")]),
            Some(Span::from_millis(1500))
        );
        assert_eq!(hint_at(1_741_305_600_000, &[("x-ratelimit-reset", "1741305603")]), Some(Span::from_secs(3)));
    }

    #[test]
    fn anthropic_resets_are_dates() {
        let reset = |value: &str| {
            hint_at(
                RFC_MS,
                &[("anthropic-ratelimit-requests-remaining", "0"), ("anthropic-ratelimit-requests-reset", value)],
            )
        };
        let good = [
            "1994-11-06T08:49:39Z",
            "1994-11-06T08:49:38.250Z",
            "1994-11-06T10:49:39+02:00",
            "1994-11-06T07:49:39-01:00",
            "1994-11-06T08:00:00Z",
        ];
        assert_eq!(good.map(reset), [2000, 1250, 2000, 2000, 0].map(|ms| Some(Span::from_millis(ms))));
        assert_eq!(
            [
                "1994-11-06",
                "1994-11-06T08:49:39",
                "1994-13-06T08:49:39Z",
                "1994-11-06T08:49:39Zx",
                "1994-11-06T08:49:39+0200"
            ]
            .map(reset),
            [None; 5]
        );
    }

    #[test]
    fn dates_are_counted_as_the_calendar_does() {
        let day = |year, month, day| unix_ms(year, month, day, 0).map(|ms| ms / 86_400_000);
        assert_eq!(
            [day(1970, 1, 1), day(1970, 3, 1), day(2000, 2, 29), day(2000, 3, 1), day(2026, 1, 1), day(1900, 1, 1)],
            [Some(0), Some(59), Some(11_016), Some(11_017), Some(20_454), Some(0)]
        );
        assert_eq!([day(2100, 2, 29), day(2024, 2, 30), day(2024, 0, 1), day(2024, 1, 0)], [None; 4]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}", shape in "[0-9TZ:+. a-zµ-]{0,30}") {
            for value in [&text, &shape] {
                for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset", "anthropic-ratelimit-tokens-reset"] {
                    let _ = hint_at(RFC_MS, &[(name, value)]);
                }
            }
        }
    }
}
